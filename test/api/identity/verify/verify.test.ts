/**
 * GET /api/auth/verify: what a proxy learns about the caller, for every kind of credential, and
 * that it fails closed.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { type Answer, ask, logIn } from '../../../support/gatehouse.ts';
import { startIdentity } from '../../../support/api-users.ts';
import { startProxy } from '../../../support/proxy.ts';
import { exchange } from '../../../support/socket.ts';
import { assertError, assertSuccess, PASSWORD, sessionOf } from '../../../support/users.ts';
import { wordsOf } from '../../../support/words.ts';

const { identity, admin, call, add, enter, key } = await startIdentity({ after });
const verify = (headers: Record<string, string>, query = '') =>
  ask('GET', `${identity}/api/auth/verify${query}`, { headers });
const NAMES = [
  'user-id',
  'username',
  'email',
  'super-admin',
  'groups',
  'session-id',
  'key-id',
] as const;
/** Without the sign-in pages, nobody knows how a person signed in. No key here has a scope. */
const EMPTY = ['methods', 'time', 'scopes'];

/**
 * 200, and exactly these headers: each is there, if need be empty, so that a client's own does not
 * pass beside it.
 */
function assertPasses(answer: Answer, ...values: readonly string[]) {
  assertSuccess(answer);
  assert.equal(answer.json.data, null);
  assert.deepEqual(
    NAMES.map((name) => answer.headers.get(`x-auth-${name}`)),
    values,
  );
  const sent = [...answer.headers.keys()].filter((name) => name.startsWith('x-auth-'));
  assert.deepEqual(sent.sort(), [...NAMES, ...EMPTY].map((name) => `x-auth-${name}`).sort());
  assert.deepEqual(
    EMPTY.map((name) => answer.headers.get(`x-auth-${name}`)),
    ['', '', ''],
  );
}

function assertStopped(
  answer: Answer,
  status: 400 | 401 | 403 | 500,
  code: string,
  fields: readonly string[] = [],
) {
  assertError(answer, status, code, fields);
  assert.deepEqual(
    [...answer.headers.keys()].filter((name) => name.startsWith('x-auth-')),
    [],
  );
}

const plain = await enter();
const session = (await sessionOf(identity, plain.token)).id;
const email = `${plain.username}@example.org`;
const asPlain = [plain.id, plain.username, email, 'false', '', session, ''] as const;

test('a session is reported with its user, for every kind of user', async () => {
  assertPasses(await verify({ authorization: `Bearer ${plain.token}` }), ...asPlain);
  const chief = (await sessionOf(identity, admin.token)).id;
  assertPasses(
    await verify({ authorization: `Bearer ${admin.token}` }),
    admin.id,
    'admin',
    'admin@localhost',
    'true',
    '',
    chief,
    '',
  );
});

test('a key tells its user and itself, and one without a user only itself', async () => {
  const own = await key(plain);
  const program = await key(null);
  for (const headers of [{ authorization: `Bearer ${own.key}` }, { 'x-api-key': own.key }]) {
    assertPasses(await verify(headers), plain.id, plain.username, email, 'false', '', '', own.id);
  }
  assertPasses(await verify({ 'x-api-key': program.key }), '', '', '', 'false', '', '', program.id);
});

test('a cookie is accepted, also with an escaped colon and among others', async () => {
  const { token } = plain;
  const escaped = token.replace(':', '%3A');
  const base64 = Buffer.from(token).toString('base64');
  const cookies = [
    `session=${token}`,
    `session=${escaped}`,
    `session=${escaped.toLowerCase()}`,
    `session=${base64}`,
    `theme=dark; session=${token}; lang=en`,
    `session=${token};theme=dark`,
    `mysession=x; session=${token}; session2=y; Session=z; xsession=session`,
    `a=session=x; session=${token}`,
    `  session=${token}  `,
  ];
  for (const cookie of cookies) assertPasses(await verify({ cookie }), ...asPlain);
});

test('a cookie that is not exactly one session token is 401', async () => {
  const { token } = plain;
  const { key: own } = await key(plain);
  const cookies = [
    'session=',
    'session',
    `session=${token}x`,
    `session="${token}"`,
    `Session=${token}`,
    `sessions=${token}`,
    `session =${token}`,
    `session=${own}`,
    `session=${session}`,
    `session=session:${session}`,
    `other=${token}`,
    `session%3D${token}`,
    `session=${encodeURIComponent(`${token} `)}`,
    `session=${token.replace(':', '%253A')}`,
  ];
  for (const cookie of cookies) assertStopped(await verify({ cookie }), 401, 'unauthorized');
});

test('of two session cookies one may be planted, so neither is taken', async () => {
  const chief = admin.token;
  for (const pair of [
    [plain.token, chief],
    [chief, plain.token],
    [chief, chief],
    [chief, ''],
    ['', chief],
    [chief, 'garbage'],
  ]) {
    assertStopped(
      await verify({ cookie: pair.map((value) => `session=${value}`).join('; ') }),
      401,
      'unauthorized',
    );
  }
  // In two headers, which is how they may arrive over HTTP/2.
  const head = [
    'GET /api/auth/verify HTTP/1.1',
    'Host: gatehouse',
    `Cookie: session=${chief}`,
    `Cookie: session=${plain.token}`,
  ];
  assert.equal((await exchange(identity, head)).status, 401);
  const beside = [
    'GET /api/auth/verify HTTP/1.1',
    'Host: gatehouse',
    'Cookie: theme=dark',
    `Cookie: session=${plain.token}`,
  ];
  assert.equal((await exchange(identity, beside)).status, 200);
});

test('a wrong bearer or key is rejected even with a right cookie', async () => {
  const cookie = `session=${plain.token}`;
  const out = await logIn(identity, plain.username, PASSWORD);
  await call(null, 'POST', '/api/auth/logout', { session: out });
  for (const token of [
    out,
    'key:garbage',
    'session:garbage',
    'session:00000000-0000-4000-8000-000000000000',
    Buffer.from('session:00000000-0000-4000-8000-000000000000').toString('base64'),
  ]) {
    assertStopped(await verify({ cookie, authorization: `Bearer ${token}` }), 401, 'unauthorized');
  }
  assertStopped(await verify({ cookie, 'x-api-key': 'key:garbage' }), 401, 'unauthorized');
});

/** Of other programs: a JSON Web Token, a random one, none, two, and what is no key of Gatehouse. */
const FOREIGN: ReadonlyArray<Record<string, string>> = [
  ...[
    `Bearer ${['{"alg":"none"}', '{"sub":"admin"}', ''].map((part) => Buffer.from(part).toString('base64url')).join('.')}`,
    'Bearer 1f0c2d9ab8e7',
    'Bearer',
    'bearer ',
    'Bearer one two',
    'Bearer\tone',
  ].map((authorization) => ({ authorization })),
  ...['garbage', '', 'sk_live_51'].map((key) => ({ 'x-api-key': key })),
];

test('a credential of another program does not hide a cookie', async () => {
  const own = await key(plain);
  for (const headers of FOREIGN) {
    assertStopped(await verify(headers), 401, 'unauthorized');
    assertPasses(await verify({ ...headers, cookie: `session=${plain.token}` }), ...asPlain);
    const withKey = await verify({ ...headers, 'x-api-key': own.key });
    assertPasses(withKey, plain.id, plain.username, email, 'false', '', '', own.id);
  }
});

test('a bearer takes precedence over a key, and a key over a cookie', async () => {
  const one = await enter();
  const two = await enter();
  const { key: ofTwo } = await key(two);
  const seen = async (headers: Record<string, string>) =>
    (await verify(headers)).headers.get('x-auth-user-id');
  const cookie = `session=${plain.token}`;
  assert.equal(
    await seen({ authorization: `Bearer ${one.token}`, 'x-api-key': ofTwo, cookie }),
    one.id,
  );
  assert.equal(await seen({ 'x-api-key': ofTwo, cookie }), two.id);
  assert.equal(await seen({ cookie }), plain.id);
});

test('another scheme of Authorization belongs to the program behind the proxy', async () => {
  const authorizations = [
    `Basic ${Buffer.from('admin:password').toString('base64')}`,
    'Digest username="admin"',
    `Basic ${plain.token}`,
    '',
  ];
  for (const authorization of authorizations) {
    assertStopped(await verify({ authorization }), 401, 'unauthorized');
    assertPasses(await verify({ authorization, cookie: `session=${plain.token}` }), ...asPlain);
  }
});

test('X-Auth headers that a client sends have no effect', async () => {
  const invented = {
    'x-auth-user-id': admin.id,
    'x-auth-super-admin': 'true',
    'x-auth-username': 'admin',
  };
  assertStopped(await verify(invented), 401, 'unauthorized');
  assertPasses(await verify({ ...invented, authorization: `Bearer ${plain.token}` }), ...asPlain);
});

test('require=super_admin admits super administrators and rejects all other callers', async () => {
  const query = '?require=super_admin';
  const chief = await enter({ super_admin: true });
  for (const token of [chief.token, (await key(chief)).key]) {
    const answer = await verify({ authorization: `Bearer ${token}` }, query);
    assertSuccess(answer);
    assert.equal(answer.headers.get('x-auth-super-admin'), 'true');
  }
  assertSuccess(await verify({ cookie: `session=${chief.token}` }, query));
  for (const token of [plain.token, (await key(plain)).key, (await key(null)).key]) {
    assertStopped(await verify({ authorization: `Bearer ${token}` }, query), 403, 'forbidden');
  }
  assertStopped(await verify({ cookie: `session=${plain.token}` }, query), 403, 'forbidden');
  assertStopped(await verify({}, query), 401, 'unauthorized');
  await call(admin.token, 'PATCH', `/api/user/${chief.id}`, { super_admin: false });
  assertStopped(await verify({ authorization: `Bearer ${chief.token}` }, query), 403, 'forbidden');
});

test('a parameter that is misspelled, unknown, empty or given twice admits no caller', async () => {
  const wrong = {
    require: wordsOf(`
      ?require= ?require ?require=SUPER_ADMIN ?require=superadmin ?require=super_admin%20
      ?require=admin ?require=super_admin&require=super_admin ?require=super_admin,enabled
    `),
    requires: ['?requires=super_admin'],
    Require: ['?Require=super_admin'],
    'require[]': ['?require[]=super_admin'],
    role: ['?role=super_admin', '?require=super_admin&role=x'],
    '': ['?=super_admin'],
    // Parameters of the sign-in pages.
    redirect: ['?redirect=302'],
  };
  for (const [name, queries] of Object.entries(wrong)) {
    for (const query of queries) {
      for (const { token } of [admin, plain])
        assertStopped(
          await verify({ authorization: `Bearer ${token}` }, query),
          400,
          'invalid_query',
          [name],
        );
      assertStopped(await verify({}, query), 401, 'unauthorized');
    }
  }
});

test('names and addresses of every kind arrive as ASCII that decodes to them', async () => {
  const names = [
    'Zoë',
    'Ελένη Παπαδοπούλου',
    '山田 太郎',
    'محمد',
    '\u{1f600}\u{1f44d}\u{1f3fd}',
    'comma, quote" and \\ backslash',
    '100% %41 %',
    "O'Brien",
    'a;b=c:d',
    '<b>',
    '(x)[y]{z}',
    'x-auth-super-admin: true',
    'plus+plus',
    'ÿ',
    '\u00a1',
    '~tilde|pipe^',
    '\u0430dmin',
    '漢'.repeat(255),
  ];
  for (const [index, username] of names.entries()) {
    const address = `${index}${username.replace(/\s/g, '').slice(0, 200)}@exämple.org`;
    const user = await add({ username, email: address });
    const { key: own } = await key(admin, { user_id: user.id });
    const answer = await exchange(identity, [
      'GET /api/auth/verify HTTP/1.1',
      'Host: gatehouse',
      `X-API-Key: ${own}`,
    ]);
    assert.equal(answer.status, 200, username);
    for (const [name, stored] of [
      ['x-auth-username', username],
      ['x-auth-email', address],
    ] as const) {
      const value = answer.headers.get(name) ?? '';
      assert.match(value, /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/);
      assert.doesNotMatch(value, /[,;"\\<>()]/);
      assert.equal(decodeURIComponent(value), stored);
    }
    assert.equal(answer.headers.get('x-auth-super-admin'), 'false');
  }
});

test('no other endpoint takes the cookie', async () => {
  const { paths } = (await call(null, 'GET', '/openapi.json')).json;
  const guarded = Object.entries<Record<string, { security?: unknown[] }>>(paths).flatMap(
    ([path, item]) =>
      Object.entries(item)
        .filter(([, operation]) => (operation.security ?? []).length > 0)
        .map(([method]) => [method.toUpperCase(), path] as const),
  );
  assert.ok(guarded.length >= 19);
  for (const [method, pattern] of guarded.filter(([, path]) => path !== '/api/auth/verify')) {
    const path = pattern.replace(/\{\w+\}/, plain.id);
    for (const cookie of [`session=${admin.token}`, `session=${plain.token}`]) {
      assertError(
        await ask(method, `${identity}${path}`, {
          headers: { cookie },
          ...(method === 'GET' ? {} : { body: {} }),
        }),
        401,
        'unauthorized',
      );
    }
  }
});

test('without its database, no caller is admitted', async (t) => {
  let cut = async () => {};
  const { identity: away, admin: chief } = await startIdentity(t, {}, async (url) => {
    const proxy = await startProxy(t, url);
    cut = () => proxy.cut();
    return proxy.url;
  });
  await cut();
  for (const headers of [
    { authorization: `Bearer ${chief.token}` },
    { cookie: `session=${chief.token}` },
  ]) {
    assertStopped(await ask('GET', `${away}/api/auth/verify`, { headers }), 500, 'service_failed');
  }
});
