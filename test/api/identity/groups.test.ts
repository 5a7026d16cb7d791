/** Groups of users and keys: what sets them, what they open, and what the audit trail says. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startIdentity } from '../../support/api-users.ts';
import { ask, startGatehouse, assertStatus } from '../../support/gatehouse.ts';
import { assertError } from '../../support/users.ts';
import { wordsOf } from '../../support/words.ts';
import { rounds } from '../../support/rounds.ts';

const { identity, databaseUrl, sql, admin, call, add, enter, key } = await startIdentity({ after });
const other = await startGatehouse({ after }, ['identity'], databaseUrl);
const set = (id: string, groups: unknown) =>
  call(admin.token, 'PATCH', `/api/user/${id}`, { groups });
const verify = (bearer: string, query = '', base = identity) =>
  ask('GET', `${base}/api/auth/verify${query}`, { bearer });
const groupsIn = async (bearer: string) => (await verify(bearer)).headers.get('x-auth-groups');
const details = async (id: string) =>
  (
    await sql`select detail from identity.audit where user_id = ${id}
    and event in ('user.created', 'user.changed') order by created_at`
  ).map(({ detail }) => detail);

test('groups are sorted, replaced as a whole, and part of every view of the user', async () => {
  const { id, username, token } = await enter({ groups: ['staff', 'a.b_c-1'] });
  const seen = async () => (await call(token, 'GET', '/api/test/')).json.data.user.groups;
  assert.deepEqual(await seen(), ['a.b_c-1', 'staff']);
  assert.deepEqual((await set(id, ['ops', 'null'])).json.data.groups, ['null', 'ops']);
  assert.deepEqual(await seen(), ['null', 'ops']);
  const [session] = (await call(token, 'GET', '/api/session/')).json.data;
  assert.deepEqual(session.user.groups, ['null', 'ops']);
  const paged = await call(admin.token, 'GET', '/api/user/?limit=100');
  const listed = paged.json.data.find((user: { id: string }) => user.id === id);
  assert.deepEqual(listed.groups, ['null', 'ops']);
  assert.deepEqual((await set(id, [])).json.data.groups, []);
  assertStatus(await call(admin.token, 'PATCH', `/api/user/${id}`, { enabled: true }), 200);
  assert.deepEqual(await details(id), [
    'groups +a.b_c-1 +staff',
    'groups +null +ops -a.b_c-1 -staff',
    'groups -null -ops',
    'enabled=true',
  ]);
  assert.ok(username);
});

const MANY = Array.from({ length: 64 }, (_, index) => `group-${index}`);
/** Other wrong values are generated from the schema, in `test/api/contract`. */
const WRONG: ReadonlyArray<readonly [what: string, groups: readonly string[]]> = [
  ['upper case', ['Admins']],
  ['a comma', ['a,b']],
  ['a colon', ['group:a']],
  ['a space', ['a ']],
  ['a line break', ['a\n']],
  ['another script', ['\u0430dmins']],
];
test('a name of a group that breaks the rule is rejected with it, and nothing is stored', async () => {
  const { id } = await add({ groups: ['before'] });
  const rule = /1 to 64 characters/;
  for (const [what, groups] of WRONG) {
    for (const answer of [
      await set(id, groups),
      await call(admin.token, 'POST', '/api/key/', { user_id: null, groups }),
      await call(admin.token, 'POST', '/api/user/', {
        username: `new-${what}`,
        email: 'new@example.org',
        groups,
      }),
    ]) {
      assertError(answer, 400, 'invalid_body', ['/groups']);
      assert.match(answer.json.error.fields[0].message, rule, what);
    }
  }
  const [row] = await sql`select groups::text from identity.users where id = ${id}`;
  assert.equal(row?.groups, '{before}');
});

test('64 names of 64 characters fit in the header', async () => {
  const names = MANY.map((name) => name.padEnd(64, 'x')).sort();
  const { token } = await enter({ groups: names });
  assert.equal(await groupsIn(token), names.join(','));
});

test('the list of users has the members of a group; others find at most themselves', async () => {
  const inside = await enter({ groups: ['choir', 'more'] });
  const outside = await enter({ groups: ['more'] });
  const idsOf = async (bearer: string, query: string) => {
    const { json } = await call(bearer, 'GET', `/api/user/?${query}`);
    return {
      ids: json.data.map(({ id }: { id: string }) => id),
      total: json._meta.pagination?.total,
    };
  };
  assert.deepEqual((await idsOf(admin.token, 'group=choir')).ids, [inside.id]);
  const page = await call(admin.token, 'GET', '/api/user/?group=more&limit=1');
  assert.equal(page.json._meta.pagination.total, 2);
  assert.match(page.json._links.next, /page=2&limit=1&group=more/);
  assert.deepEqual(await idsOf(admin.token, 'group=nobody&limit=10'), { ids: [], total: 0 });
  assert.deepEqual((await idsOf(inside.token, 'group=choir')).ids, [inside.id]);
  assert.deepEqual(await idsOf(outside.token, 'group=choir&limit=10'), { ids: [], total: 0 });
  for (const query of ['group=Choir', 'group=', 'group=a&group=b', 'groups=choir']) {
    assert.equal((await call(admin.token, 'GET', `/api/user/?${query}`)).status, 400, query);
  }
  await call(admin.token, 'DELETE', `/api/user/${inside.id}`);
  assert.deepEqual((await idsOf(admin.token, 'group=choir')).ids, []);
});

test('require=group:NAME admits members of any of the groups, and all kinds must hold', async () => {
  const { token } = await enter({ groups: ['ops', 'staff'] });
  const chief = await enter({ groups: ['staff'], super_admin: true });
  const cases: ReadonlyArray<readonly [bearer: string, query: string, status: number]> = [
    [token, 'require=group:ops', 200],
    [token, 'require=group:nobody', 403],
    [token, 'require=group:nobody&require=group:staff', 200],
    [token, 'require=group:op', 403],
    [token, 'require=group:ops&require=super_admin', 403],
    [admin.token, 'require=group:ops', 403],
    [admin.token, 'require=super_admin&require=group:ops', 403],
    [chief.token, 'require=super_admin&require=group:staff', 200],
    [chief.token, 'require=super_admin&require=group:ops&require=group:staff', 200],
  ];
  for (const [bearer, query, status] of cases) {
    assert.equal((await verify(bearer, `?${query}`)).status, status, query);
  }
  for (const wrong of wordsOf('group: group:A group:a,b group Group:ops group:ops%0a ops')) {
    const answer = await verify(token, `?require=group:ops&require=${wrong}`);
    assertError(answer, 400, 'invalid_query', ['require']);
    assert.match(answer.json.error.fields[0].message, /super_admin, group:NAME or scope:NAME/);
  }
  assertError(await verify(token, '?require=group:ops&require=group:ops'), 400, 'invalid_query', [
    'require',
  ]);
});

test('a key has the present groups of its user; one without a user those it was made with', async () => {
  const user = await enter({ groups: ['ops'] });
  const own = await key(user);
  const program = await key(null, { groups: ['jobs', 'batch'] });
  assert.equal(await groupsIn(own.key), 'ops');
  await set(user.id, ['later']);
  assert.equal(await groupsIn(own.key), 'later');
  assert.equal(await groupsIn(program.key), 'batch,jobs');
  assert.equal((await verify(program.key, '?require=group:jobs')).status, 200);
  assert.equal((await verify(program.key, '?require=group:ops')).status, 403);
  const refused = await call(admin.token, 'POST', '/api/key/', { user_id: user.id, groups: ['a'] });
  assertError(refused, 400, 'invalid_body', ['/groups']);
  const { json } = await call(admin.token, 'GET', '/api/audit/?event=key.created&limit=1');
  assert.equal(json.data[0].detail, 'groups +batch +jobs');
});

test('the table takes no other names, and no 65th', async () => {
  const { id } = await add();
  for (const groups of ['{A}', '{"a,b"}', '{NULL}', '{""}', `{${[...MANY, 'x'].join()}}`]) {
    const update = sql`update identity.users set groups = ${groups}::text::text[] where id = ${id}`;
    await assert.rejects(update, { code: '23514' }, groups);
  }
});

test('no request passes after a removal is committed, at either of two replicas', async () => {
  const { id, token } = await enter();
  const bases = [identity, other.url.identity];
  const ask10 = () =>
    Promise.all(
      Array.from({ length: 10 }, (_, index) =>
        verify(token, '?require=group:ops', bases[index % bases.length]),
      ),
    );
  const statuses = new Set<number>();
  for (let round = 1; round <= rounds(20, 100); round += 1) {
    await set(id, ['ops']);
    assert.equal((await verify(token, '?require=group:ops', other.url.identity)).status, 200);
    const during = ask10();
    assert.equal((await set(id, [])).status, 200);
    for (const { status } of await ask10()) assert.equal(status, 403, `round ${round}`);
    for (const { status } of await during) statuses.add(status);
  }
  assert.ok(statuses.has(200), 'requests ran beside the changes');
});
