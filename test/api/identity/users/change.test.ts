/**
 * PATCH /api/user/{user_id} and POST /api/user/{user_id}/password: what may be changed, by whom,
 * and what it ends.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ask, logIn, startGatehouse } from '../../../support/gatehouse.ts';
import { startIdentity, type Person } from '../../../support/api-users.ts';
import {
  assertError,
  assertSuccess,
  assertUser,
  isOpen,
  PASSWORD,
} from '../../../support/users.ts';
import { rounds } from '../../../support/rounds.ts';

const { identity, databaseUrl, sql, admin, call, add, enter, key } = await startIdentity({ after });
const replica = (await startGatehouse({ after }, ['identity'], databaseUrl)).url.identity;
const change = ({ id }: { id: string }, body: unknown, bearer = admin.token) =>
  call(bearer, 'PATCH', `/api/user/${id}`, body);
const setPassword = ({ id }: { id: string }, password: unknown, bearer = admin.token) =>
  call(bearer, 'POST', `/api/user/${id}/password`, { password });
const login = (username: string, password: string) =>
  call(null, 'POST', '/api/auth/login', { username, password });

/** Everything that is stored of a user, for comparison. */
const stored = async ({ id }: { id: string }) =>
  (await sql`select * from identity.users where id = ${id}`)[0];

test('the administrator changes each member, and nothing else changes with it', async () => {
  const user = await add();
  let before = (await call(admin.token, 'GET', `/api/user/${user.id}`)).json.data;
  const changes = {
    username: 'Changed Name',
    email: 'Changed@example.org',
    first_name: 'First',
    last_name: 'Last',
    verified: true,
    super_admin: true,
    enabled: false,
  };
  for (const [name, value] of Object.entries(changes)) {
    const answer = await change(user, { [name]: value });
    assertSuccess(answer);
    assert.ok(answer.json.data.updated_at >= before.updated_at, name);
    assert.deepEqual(answer.json.data, {
      ...before,
      [name]: value,
      updated_at: answer.json.data.updated_at,
      ...(name === 'super_admin' ? { revoked_keys: 0 } : {}),
    });
    const { revoked_keys: _, ...user_data } = answer.json.data;
    assertUser(user_data);
    before = user_data;
    assert.deepEqual((await call(admin.token, 'GET', `/api/user/${user.id}`)).json.data, before);
  }
  await sql`update identity.users set updated_at = now() - interval '1 hour' where id = ${user.id}`;
  const answer = await change(user, {
    first_name: '',
    last_name: '',
    super_admin: false,
    enabled: true,
    verified: false,
  });
  const [row] =
    await sql`select updated_at > now() - interval '1 minute' as fresh from identity.users
      where id = ${user.id}`;
  assert.equal(row?.fresh, true);
  assert.deepEqual(
    [
      answer.json.data.first_name,
      answer.json.data.super_admin,
      answer.json.data.enabled,
      answer.json.data.verified,
    ],
    ['', false, true, false],
  );
});

test('an empty change succeeds and changes nothing, including updated_at', async () => {
  const user = await enter();
  const before = await stored(user);
  for (const bearer of [admin.token, user.token]) {
    const answer = await change(user, {}, bearer);
    assertSuccess(answer);
    assert.deepEqual(
      answer.json.data,
      (await call(user.token, 'GET', '/api/test/')).json.data.user,
    );
  }
  assert.deepEqual(await stored(user), before);
  assertError(await change({ id: '00000000-0000-4000-8000-000000000000' }, {}), 404, 'not_found');
});

test('one forbidden member among allowed ones is 403, and nothing is changed', async () => {
  const user = await enter();
  const before = await stored(user);
  const forbidden = {
    username: 'own-choice',
    email: 'own@example.org',
    groups: ['ops'],
    enabled: true,
    verified: true,
    super_admin: true,
  };
  const unchanged = {
    username: user.username,
    email: `${user.username}@example.org`,
    groups: [],
    enabled: true,
    verified: false,
    super_admin: false,
  };
  for (const bearer of [user.token, (await key(user)).key]) {
    for (const [name, value] of [...Object.entries(forbidden), ...Object.entries(unchanged)]) {
      assertError(
        await change(user, { first_name: 'Changed', [name]: value, last_name: 'Changed' }, bearer),
        403,
        'forbidden',
      );
      assertError(await change(user, { [name]: value }, bearer), 403, 'forbidden');
    }
  }
  assert.deepEqual(await stored(user), before);
});

test("another user's name or address is 409 with the field, and nothing is changed", async () => {
  const one = await add({ username: 'Taken', email: 'taken@example.org' });
  const other = await add();
  const before = await stored(other);
  for (const username of ['Taken', 'tAKEN', 'ｔaken'])
    assertError(await change(other, { first_name: 'Changed', username }), 409, 'conflict', [
      '/username',
    ]);
  for (const email of ['taken@example.org', 'TAKEN@Example.org', 'taken@ｅxample.org'])
    assertError(await change(other, { email, verified: true }), 409, 'conflict', ['/email']);
  assert.deepEqual(await stored(other), before);
  // The user's own name in another spelling is not taken.
  const answer = await change(one, { username: 'TAKEN', email: 'Taken@Example.org' });
  assertSuccess(answer);
  assert.deepEqual(
    [answer.json.data.username, answer.json.data.email],
    ['TAKEN', 'Taken@Example.org'],
  );
});

test('of two users who take one name at the same time one gets it', async () => {
  const one = await add();
  const other = await add();
  for (let round = 0; round < rounds(4, 10); round += 1) {
    const answers = await Promise.all([
      change(one, { username: `wanted-${round}` }),
      change(other, { username: `WANTED-${round}` }),
    ]);
    assert.deepEqual(answers.map((answer) => answer.status).sort(), [200, 409]);
  }
});

test('after a change of the username, the user logs in with the new one', async () => {
  const user = await enter();
  await change(user, { username: `renamed-${user.username}` });
  await logIn(identity, `Renamed-${user.username}`, PASSWORD);
  assertError(await login(user.username, PASSWORD), 401, 'invalid_credentials');
  assert.equal(await isOpen(identity, user.token), true);
});

/** Every way in that this user had does not open any more. */
async function assertShut({ username }: Person, bearers: readonly string[]) {
  for (const bearer of bearers) {
    for (const path of [
      '/api/test/',
      '/api/user/',
      '/api/session/',
      '/api/key/',
      '/api/auth/verify',
    ])
      assertError(await call(bearer, 'GET', path), 401, 'unauthorized');
  }
  assertError(await login(username, PASSWORD), 401, 'invalid_credentials');
}

test("a disabled user's sessions and keys end at once; enabling revives no session", async () => {
  const user = await enter();
  const bearers = [
    user.token,
    await logIn(identity, user.username, PASSWORD),
    (await key(user)).key,
  ];
  for (const bearer of bearers) assert.equal(await isOpen(identity, bearer), true);
  assertSuccess(await change(user, { enabled: false }));
  await assertShut(user, bearers);
  assertSuccess(await change(user, { enabled: true }));
  for (const bearer of bearers.slice(0, 2)) assert.equal(await isOpen(identity, bearer), false);
  const listedSessions = (await call(admin.token, 'GET', `/api/session/?user=${user.id}`)).json
    .data;
  assert.ok(
    listedSessions.length > 0 &&
      listedSessions.every(({ revoked }: { revoked: boolean }) => revoked),
  );
  assert.equal(await isOpen(identity, await logIn(identity, user.username, PASSWORD)), true);
});

test('a session and key used just before their user was disabled are rejected', async () => {
  const user = await enter();
  const bearers = [user.token, (await key(user)).key];
  const use = (bearer: string) =>
    [identity, replica].map((url) => ask('GET', `${url}/api/test/`, { bearer }));
  for (const answer of await Promise.all(bearers.flatMap(use))) assert.equal(answer.status, 200);
  // What is under way meanwhile may be answered either way; nothing that begins afterwards is let
  // in.
  const underWay = bearers.flatMap(use);
  assertSuccess(await change(user, { enabled: false }));
  for (const answer of await Promise.all(bearers.flatMap(use)))
    assertError(answer, 401, 'unauthorized');
  for (const answer of await Promise.all(underWay))
    assert.ok([200, 401].includes(answer.status), answer.text);
});

test('a right that is given or taken shows at the next request, for sessions and keys', async () => {
  const user = await enter();
  let bearers = [user.token, (await key(user)).key];
  const mayList = async (bearer: string) => (await call(bearer, 'GET', '/api/audit/')).status;
  for (const [right, status] of [
    [false, 403],
    [true, 200],
    [false, 403],
  ] as const) {
    await change(user, { super_admin: right });
    if (right) {
      // A promotion ends them. New ones have the new rights.
      for (const bearer of bearers) assert.equal(await mayList(bearer), 401);
      const token = await logIn(identity, user.username, PASSWORD);
      bearers = [token, (await key({ ...user, token })).key];
    }
    for (const bearer of bearers) assert.equal(await mayList(bearer), status);
  }
});

test('an administrator sets a password: the old one and all sessions of the user end', async () => {
  const user = await enter();
  const bystander = await enter();
  const second = await logIn(identity, user.username, PASSWORD);
  const answer = await setPassword(user, 'a passphrase set for them');
  assertSuccess(answer);
  assert.deepEqual(Object.keys(answer.json.data).sort(), ['message', 'status']);
  assert.equal(answer.json.data.status, 'CHANGED');
  for (const token of [user.token, second])
    assertError(await call(token, 'GET', '/api/test/'), 401, 'unauthorized');
  assert.equal(await isOpen(identity, bystander.token), true);
  assertError(await login(user.username, PASSWORD), 401, 'invalid_credentials');
  await logIn(identity, user.username, 'a passphrase set for them');
});
