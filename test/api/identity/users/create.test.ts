/**
 * POST /api/user/, GET and DELETE of /api/user/{user_id}: users are made, read and deleted; who may
 * do so.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { logIn, assertStatus } from '../../../support/gatehouse.ts';
import { assertCreated, startIdentity } from '../../../support/api-users.ts';
import {
  assertError,
  assertSuccess,
  assertUser,
  isOpen,
  PASSWORD,
} from '../../../support/users.ts';
import { rounds } from '../../../support/rounds.ts';

const { identity, sql, admin, call, enter, key } = await startIdentity({ after });
const create = (body: unknown, bearer: string | null = admin.token) =>
  call(bearer, 'POST', '/api/user/', body);
const login = (username: string, password: string) =>
  call(null, 'POST', '/api/auth/login', { username, password });
const users = async () => Number((await sql`select count(*) from identity.users`)[0]?.count);
const listed = async (): Promise<Array<{ id: string; username: string }>> =>
  (await call(admin.token, 'GET', '/api/user/')).json.data;

test('a user needs only a name and an address, and has no rights and no password', async () => {
  const answer = await create({ username: 'Plain', email: 'Plain@Example.org' });
  assertCreated(answer);
  assertUser(answer.json.data);
  const { id, created_at: made, updated_at: changed, ...rest } = answer.json.data;
  assert.equal(made, changed);
  const expected = {
    username: 'Plain',
    email: 'Plain@Example.org',
    first_name: '',
    last_name: '',
    enabled: true,
    verified: false,
    super_admin: false,
    groups: [],
    deleted_at: null,
  };
  assert.deepEqual(rest, expected);
  const address = answer.headers.get('location') ?? '';
  assert.equal(address, `/api/user/${id}`);
  const shown = await call(admin.token, 'GET', address);
  assertSuccess(shown);
  assert.deepEqual(shown.json.data, answer.json.data);
  const [row] = await sql`select password_hash from identity.users where id = ${id}`;
  assert.equal(row?.password_hash, null);
});

test('a user is created with every optional member', async () => {
  const given = {
    username: 'Ada Lovelace',
    email: 'ada@example.org',
    first_name: 'Ada',
    last_name: 'Lovelace',
    enabled: false,
    verified: true,
    super_admin: true,
    groups: ['ops'],
  };
  const answer = await create({ ...given, password: PASSWORD });
  assertCreated(answer);
  assertUser(answer.json.data);
  const {
    id: _id,
    created_at: _made,
    updated_at: _changed,
    deleted_at: _deleted,
    ...rest
  } = answer.json.data;
  assert.deepEqual(rest, given);
  assert.doesNotMatch(answer.text, /password|scrypt/);
});

const spellings: Readonly<Record<string, readonly [taken: string, variant: string]>> = {
  'the same': ['case-same', 'case-same'],
  capitals: ['case-small', 'CASE-SMALL'],
  'full width': ['admin', 'Ａdmin'],
  'a ligature': ['finestra', 'ﬁnestra'],
  'a mark of its own': ['Zo\u00eb', 'zoe\u0308'],
  'a capital whose mark composes only as a small letter': ['\u01f0-name', 'J\u030c-name'],
  'the Kelvin sign': ['kelvin', '\u212Aelvin'],
  'a dotted capital': ['i\u0307stanbul', '\u0130stanbul'],
  'a circled digit': ['user①', 'USER1'],
  'a final sigma': ['σίσυφος', 'ΣΊΣΥΦΟΣ'],
  'a sharp s': ['straße', 'STRASSE'],
  'a dotless i': ['ılgaz', 'ilgaz'],
};

for (const [what, [taken, variant]] of Object.entries(spellings)) {
  test(`a name and an address are taken in every spelling: ${what}`, async () => {
    const part = `${Buffer.from(what).toString('hex')}@example.org`;
    if (taken !== 'admin')
      assertCreated(
        await create({ username: taken, email: `${taken}${part}`, password: PASSWORD }),
      );
    else assertCreated(await create({ username: 'full-width', email: `${taken}${part}` }));
    const before = await users();
    const sameName = await create({ username: variant, email: `other-${part}` });
    assertError(sameName, 409, 'conflict', ['/username']);
    assert.equal(sameName.json.error.fields[0].message, 'is taken by another user');
    assertError(
      await create({ username: `other-${part}`, email: `${variant}${part}` }),
      409,
      'conflict',
      ['/email'],
    );
    assert.equal(await users(), before);
    if (taken !== 'admin') await logIn(identity, variant, PASSWORD);
  });
}

test('of many creations of one name at the same time exactly one is 201', async () => {
  for (let round = 0; round < rounds(4, 10); round += 1) {
    const names = ['race', 'RACE', 'Ｒace', 'Race', 'rACE'].map((name) => `${name}-${round}`);
    const answers = await Promise.all(
      names.map((username, index) =>
        create({ username, email: `race-${round}-${index}@example.org`, password: PASSWORD }),
      ),
    );
    assert.deepEqual(answers.map((answer) => answer.status).sort(), [201, 409, 409, 409, 409]);
    for (const answer of answers)
      if (answer.status === 409) assertError(answer, 409, 'conflict', ['/username']);
    const [row] = await sql`select count(*)::int as n from identity.users
        where username_key = ${`race-${round}`}`;
    assert.equal(row?.n, 1);
  }
});

test('of many creations of one address at the same time exactly one is 201', async () => {
  const answers = await Promise.all(
    ['A', 'a', 'Ａ'].map((letter, index) =>
      create({ username: `address-${index}`, email: `${letter}ddress@example.org` }),
    ),
  );
  assert.deepEqual(answers.map((answer) => answer.status).sort(), [201, 409, 409]);
  for (const answer of answers)
    if (answer.status === 409) assertError(answer, 409, 'conflict', ['/email']);
});

test('a user without a password is rejected like an unknown one until one is set', async () => {
  const { data } = (await create({ username: 'No-Password', email: 'no-password@example.org' }))
    .json;
  const unknown = await login('nobody-here', PASSWORD);
  for (const password of ['', PASSWORD, 'null', '$scrypt$']) {
    const answer = await login('no-password', password);
    assertError(answer, 401, 'invalid_credentials');
    assert.deepEqual(answer.json.error, unknown.json.error);
  }
  assertStatus(
    await call(admin.token, 'POST', `/api/user/${data.id}/password`, { password: PASSWORD }),
    200,
  );
  await logIn(identity, 'no-password', PASSWORD);
});

test('a deleted user is gone at once: sessions, keys, lists, record and login', async () => {
  const plain = await enter();
  const second = await logIn(identity, plain.username, PASSWORD);
  const { key: ofPlain, id } = await key(plain);
  assert.equal(await isOpen(identity, ofPlain), true);
  const answer = await call(admin.token, 'DELETE', `/api/user/${plain.id}`);
  assertSuccess(answer);
  assert.deepEqual(Object.keys(answer.json.data).sort(), ['message', 'status']);
  assert.equal(answer.json.data.status, 'DELETED');
  for (const bearer of [plain.token, second, ofPlain])
    assertError(await call(bearer, 'GET', '/api/test/'), 401, 'unauthorized');
  const path = `/api/user/${plain.id}`;
  for (const [method, end, body] of [
    ['GET', ''],
    ['PATCH', '', { enabled: true }],
    ['POST', '/password', { password: PASSWORD }],
    ['DELETE', ''],
  ] as const)
    assertError(await call(admin.token, method, path + end, body), 404, 'not_found');
  const forGone = await call(admin.token, 'POST', '/api/key/', { user_id: plain.id });
  assertError(forGone, 404, 'not_found');
  assert.equal(
    (await listed()).some((user) => user.id === plain.id),
    false,
  );
  assertError(await login(plain.username, PASSWORD), 401, 'invalid_credentials');
  const [row] =
    await sql`select deleted_at is not null as soft from identity.users where id = ${plain.id}`;
  assert.equal(row?.soft, true);
  const listedSessions = (await call(admin.token, 'GET', `/api/session/?user=${plain.id}`)).json
    .data;
  assert.ok(
    listedSessions.length > 0 &&
      listedSessions.every(({ revoked }: { revoked: boolean }) => revoked),
  );
  assert.deepEqual(
    [...(await sql`select revoked from identity.api_keys where id = ${id}`)],
    [{ revoked: true }],
  );
});

test('deleting a user ends no session or key of another user', async () => {
  const one = await enter();
  const other = await enter();
  const ofOther = await key(other);
  const ofNobody = await key(null);
  await call(admin.token, 'DELETE', `/api/user/${one.id}`);
  for (const bearer of [other.token, ofOther.key, admin.token])
    assert.equal(await isOpen(identity, bearer), true);
  assert.equal((await call(ofNobody.key, 'GET', '/api/user/')).status, 200);
});

test('name and address are free after a deletion, and the new user is another one', async () => {
  const plain = await enter({ first_name: 'Old' });
  const again = {
    username: plain.username.toUpperCase(),
    email: `${plain.username}@example.org`,
    password: 'another passphrase',
  };
  assertError(await create(again), 409, 'conflict', ['/username']);
  await call(admin.token, 'DELETE', `/api/user/${plain.id}`);
  const answer = await create(again);
  assertCreated(answer);
  assert.notEqual(answer.json.data.id, plain.id);
  assert.equal(answer.json.data.first_name, '');
  assertError(await login(plain.username, PASSWORD), 401, 'invalid_credentials');
  const token = await logIn(identity, plain.username, 'another passphrase');
  assert.equal((await call(token, 'GET', '/api/test/')).json.data.user.id, answer.json.data.id);
  assert.equal(await isOpen(identity, plain.token), false);
});
