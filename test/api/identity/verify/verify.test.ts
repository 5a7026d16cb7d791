/**
 * GET /api/auth/verify: what a proxy learns about the caller, which credential counts, and groups,
 * which it can require.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { startIdentity } from '../../../support/api-users.ts';
import { type Answer, ask, logIn } from '../../../support/gatehouse.ts';
import { exchange } from '../../../support/socket.ts';
import { assertError, assertSuccess, PASSWORD, sessionOf } from '../../../support/users.ts';
import { wordsOf } from '../../../support/words.ts';

const { identity, sql, admin, call, add, enter, key } = await startIdentity({ after });
const verify = (headers: Record<string, string>, query = '') =>
  ask('GET', `${identity}/api/auth/verify${query}`, { headers });
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

const NAMES = wordsOf(`
  user-id username email super-admin groups session-id key-id methods time scopes
`).map((name) => `x-auth-${name}`);
const authHeaders = ({ headers }: Answer) =>
  [...headers.keys()].filter((name) => name.startsWith('x-auth-'));

/**
 * 200, and exactly these headers: each is there, if need be empty, so that a client's own does not
 * pass beside it. Without the sign-in pages, nobody knows how a person signed in.
 */
function assertPasses(answer: Answer, values: readonly string[]) {
  assertSuccess(answer);
  assert.equal(answer.json.data, null);
  assert.deepEqual(authHeaders(answer).sort(), [...NAMES].sort());
  const expected = [...values, '', '', ''];
  assert.deepEqual(
    NAMES.map((name) => answer.headers.get(name)),
    expected,
  );
}

function assertStopped(
  answer: Answer,
  ...error: [status: number, code: string, fields?: string[]]
) {
  assertError(answer, ...error);
  assert.deepEqual(authHeaders(answer), []);
}

const plain = await enter({ username: 'Zoë (漢)' });
const { token } = plain;
const session = (await sessionOf(identity, token)).id;
const own = await key(plain);
const program = await key(null);
const ofPlain = [plain.id, 'Zo%C3%AB %28%E6%BC%A2%29', 'user-1@example.org', 'false', ''];
const asPlain = [...ofPlain, session, ''];
const asOwnKey = [...ofPlain, '', own.id];
const cookie = `session=${token}`;

test('each credential is reported with what it stands for, whatever else the client sends', async () => {
  assertPasses(await verify(bearer(token)), asPlain);
  const chief = (await sessionOf(identity, admin.token)).id;
  const asAdmin = [admin.id, 'admin', 'admin@localhost', 'true', '', chief, ''];
  assertPasses(await verify(bearer(admin.token)), asAdmin);
  for (const headers of [bearer(own.key), { 'x-api-key': own.key }])
    assertPasses(await verify(headers), asOwnKey);
  assertPasses(await verify(bearer(program.key)), ['', '', '', 'false', '', '', program.id]);
  const invented = { 'x-auth-user-id': admin.id, 'x-auth-super-admin': 'true' };
  assertStopped(await verify(invented), 401, 'unauthorized');
  assertPasses(await verify({ ...invented, ...bearer(token) }), asPlain);
  // No proxy is trusted here, so the caller has forged the address.
  const headers = { ...bearer(token), 'x-forwarded-for': '203.0.113.9' };
  const { json } = await ask('GET', `${identity}/api/test/`, { headers });
  assert.equal(json.data.ip, '127.0.0.1');
});

test('a cookie is accepted, also with an escaped colon and among others', async () => {
  const escaped = token.replace(':', '%3A');
  for (const form of [
    `session=${escaped}`,
    `session=${escaped.toLowerCase()}`,
    `session=${btoa(token)}`,
    `theme=dark; session=${token}; lang=en`,
    `session=${token};theme=dark`,
    `mysession=x; session=${token}; session2=y; Session=z; a=session=x`,
    `  session=${token}  `,
  ])
    assertPasses(await verify({ cookie: form }), asPlain);
});

test('a cookie that is not exactly one session token is 401', async () => {
  const pairs = [
    [token, admin.token],
    [admin.token, admin.token],
    [admin.token, ''],
    ['garbage', admin.token],
  ];
  for (const form of [
    'session',
    `session="${token}"`,
    `Session=${token}`,
    `sessions=${token}`,
    `session =${token}`,
    `session=${own.key}`,
    `session=${session}`,
    `session%3D${token}`,
    `session=${encodeURIComponent(`${token} `)}`,
    `session=${token.replace(':', '%253A')}`,
    // Of two session cookies one may be planted, so neither is taken.
    ...pairs.map((pair) => pair.map((value) => `session=${value}`).join('; ')),
  ])
    assertStopped(await verify({ cookie: form }), 401, 'unauthorized');
  // In two headers, which is how they may arrive over HTTP/2.
  for (const [beside, status] of [
    [`session=${admin.token}`, 401],
    ['theme=dark', 200],
  ] as const) {
    const head = ['GET /api/auth/verify HTTP/1.1', 'Host: gatehouse', `Cookie: ${beside}`];
    assert.equal((await exchange(identity, [...head, `Cookie: ${cookie}`])).status, status);
  }
});

test('a bearer takes precedence over a key, and a key over a cookie, even a wrong one', async () => {
  const out = await logIn(identity, plain.username, PASSWORD);
  await call(null, 'POST', '/api/auth/logout', { session: out });
  for (const wrong of [
    bearer(out),
    bearer('key:garbage'),
    bearer('session:garbage'),
    bearer(btoa(`session:${randomUUID()}`)),
    { 'x-api-key': 'key:garbage' },
  ])
    assertStopped(await verify({ cookie, ...wrong }), 401, 'unauthorized');
  const two = await key(await enter());
  assertPasses(await verify({ ...bearer(own.key), 'x-api-key': two.key, cookie }), asOwnKey);
  assertPasses(await verify({ 'x-api-key': own.key, cookie: `session=${admin.token}` }), asOwnKey);
});

/**
 * Of other programs: a JSON Web Token, a random one, none, two, and what is no key of Gatehouse.
 */
const FOREIGN: ReadonlyArray<Record<string, string>> = [
  ...[
    `Bearer ${btoa('{"alg":"none"}')}.${btoa('{"sub":"admin"}')}.`,
    'Bearer 1f0c2d9ab8e7',
    'Bearer',
    'Bearer one two',
    `Basic ${btoa('admin:password')}`,
    `Basic ${token}`,
    '',
  ].map((authorization) => ({ authorization })),
  { 'x-api-key': '' },
  { 'x-api-key': 'sk_live_51' },
];

test('a credential of another program does not hide a key or a cookie', async () => {
  for (const headers of FOREIGN) {
    assertStopped(await verify(headers), 401, 'unauthorized');
    assertPasses(await verify({ ...headers, cookie }), asPlain);
    assertPasses(await verify({ ...headers, 'x-api-key': own.key }), asOwnKey);
  }
});

type Case = readonly [status: 200 | 403, headers: Record<string, string>, ...required: string[]];

test('require=… admits whoever has all that is named, and of the groups one', async () => {
  const chief = await enter({ groups: ['staff'], super_admin: true });
  const member = await enter({ groups: ['ops', 'staff'] });
  const jobs = await key(null, { groups: ['jobs'] });
  const scopes = ['orders:write', 'orders:read'];
  const scoped = await key(null, { scopes });
  assert.equal(
    (await verify(bearer(scoped.key))).headers.get('x-auth-scopes'),
    'orders:read,orders:write',
  );
  const cases: readonly Case[] = [
    [200, bearer(chief.token), 'super_admin'],
    [200, bearer((await key(chief)).key), 'super_admin'],
    [200, { cookie: `session=${chief.token}` }, 'super_admin', 'group:ops', 'group:staff'],
    ...[bearer(token), bearer(own.key), bearer(program.key), { cookie }].map((headers): Case => [
      403,
      headers,
      'super_admin',
    ]),
    [200, bearer(member.token), 'group:ops'],
    [200, bearer(member.token), 'group:nobody', 'group:staff'],
    [403, bearer(member.token), 'group:nobody'],
    [403, bearer(member.token), 'group:op'],
    [403, bearer(member.token), 'group:ops', 'super_admin'],
    [403, bearer(admin.token), 'super_admin', 'group:ops'],
    [200, bearer(jobs.key), 'group:jobs'],
    [403, bearer(jobs.key), 'group:ops'],
    [200, bearer(scoped.key), ...scopes.map((scope) => `scope:${scope}`)],
    [403, bearer(scoped.key), 'scope:orders'],
    [403, bearer(scoped.key), 'scope:orders:read', 'scope:refunds'],
    [403, bearer(scoped.key), 'scope:orders:read', 'super_admin'],
    // Not even an administrator has a scope: sessions have users and groups.
    [403, bearer(admin.token), 'scope:orders:read'],
  ];
  for (const [status, headers, ...required] of cases) {
    const answer = await verify(headers, `?${required.map((one) => `require=${one}`).join('&')}`);
    assert.equal(answer.status, status, required.join());
    if (status === 403) assertStopped(answer, 403, 'forbidden');
  }
  const query = '?require=super_admin';
  assertStopped(await verify({}, query), 401, 'unauthorized');
  await sql`update identity.users set super_admin = false where id = ${chief.id}`;
  assertStopped(await verify(bearer(chief.token), query), 403, 'forbidden');
});

test('a rule that is misspelled, unknown, empty or given twice admits no caller', async () => {
  for (const query of wordsOf(`
    ?require= ?require=SUPER_ADMIN ?require=super_admin%20 ?require=admin
    ?require=super_admin&require=super_admin ?require=super_admin,enabled ?require=scope:
    ?require=scope:A ?require=scopes:a ?require=group: ?require=group:A ?require=group:a,b
    ?require=group ?require=Group:ops ?require=group:ops%0a
    ?require=group:ops&require=group:ops
  `))
    assertStopped(await verify(bearer(admin.token), query), 400, 'invalid_query', ['require']);
});

// --- Groups

const setGroups = async (id: string, groups: readonly string[]) =>
  (await call(admin.token, 'PATCH', `/api/user/${id}`, { groups })).json.data.groups;
const groupsOf = async (credential: string) =>
  (await verify(bearer(credential))).headers.get('x-auth-groups');
const MANY = Array.from({ length: 64 }, (_, index) => `group-${index}`.padEnd(64, 'x'));

test('groups are sorted, replaced as a whole, and part of every view of the user', async () => {
  const user = await enter({ groups: ['staff', 'a.b_c-1'] });
  const seen = async () => {
    const { data } = (await call(user.token, 'GET', '/api/session/')).json;
    const self = (await call(user.token, 'GET', '/api/test/')).json.data;
    return [self.user.groups, data[0].user.groups];
  };
  for (const given of [['staff', 'a.b_c-1'], ['ops', 'null'], MANY, []]) {
    const shown = [...given].sort();
    assert.deepEqual(await setGroups(user.id, given), shown);
    assert.deepEqual(await seen(), [shown, shown]);
    assert.equal(await groupsOf(user.token), shown.join(','));
  }
  const details = await sql`select detail from identity.audit where user_id = ${user.id}
    and event in ('user.created', 'user.changed') order by created_at limit 3`;
  assert.deepEqual(
    details.map(({ detail }) => detail),
    ['groups +a.b_c-1 +staff', '', 'groups +null +ops -a.b_c-1 -staff'],
  );
});

test('a name of a group that breaks the rule is rejected, by the table, too', async () => {
  const { id } = await add({ groups: ['before'] });
  // Cyrillic, at the end.
  for (const name of ['Admins', 'a,b', 'group:a', 'a ', 'a\n', '\u0430dmins']) {
    const answer = await call(admin.token, 'PATCH', `/api/user/${id}`, { groups: [name] });
    assertError(answer, 400, 'invalid_body', ['/groups']);
  }
  for (const groups of ['{A}', '{"a,b"}', '{NULL}', '{""}', `{${[...MANY, 'x'].join()}}`]) {
    const update = sql`update identity.users set groups = ${groups}::text::text[] where id = ${id}`;
    await assert.rejects(update, { code: '23514' }, groups);
  }
});

test('a key has the present groups of its user; one without a user those it was made with', async () => {
  const user = await enter({ groups: ['ops'] });
  const ofUser = await key(user);
  const jobs = await key(null, { groups: ['jobs', 'batch'] });
  assert.equal(await groupsOf(ofUser.key), 'ops');
  await setGroups(user.id, ['later']);
  assert.equal(await groupsOf(ofUser.key), 'later');
  assert.equal(await groupsOf(jobs.key), 'batch,jobs');
  const [entry] = await sql`select detail from identity.audit where target_id = ${jobs.id}`;
  assert.equal(entry?.detail, 'groups +batch +jobs');
});
