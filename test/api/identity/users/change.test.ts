/**
 * Users are made, changed and deleted: what is stored, what is refused, and what ends with it.
 * There is always an enabled super administrator who can log in: not the last one, nor two at the
 * same time, can end that.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { assertCreated, type Person, startIdentity } from '../../../support/api-users.ts';
import { ask, startGatehouse } from '../../../support/gatehouse.ts';
import { meanwhile } from '../../../support/meanwhile.ts';
import {
  assertError,
  assertSuccess,
  assertUser,
  isOpen,
  PASSWORD,
} from '../../../support/users.ts';

const { identity, databaseUrl, sql, admin, call, login, add, enter, key } = await startIdentity({
  after,
});
const replica = (await startGatehouse({ after }, ['identity'], databaseUrl)).url.identity;
const chief = await enter();
const second = await enter();
const plain = await enter();

const create = (body: unknown) => call(admin.token, 'POST', '/api/user/', body);
const show = (id: string) => call(admin.token, 'GET', `/api/user/${id}`);
const change = ({ id }: { id: string }, body: unknown, bearer = admin.token) =>
  call(bearer, 'PATCH', `/api/user/${id}`, body);
const setPassword = ({ id }: { id: string }, password: string) =>
  call(admin.token, 'POST', `/api/user/${id}/password`, { password });
/** Everything that is stored of users, for comparison. */
const stored = async () => [...(await sql`select * from identity.users order by id`)];

const NEW = { first_name: '', last_name: '', enabled: true, verified: false, super_admin: false };
const GIVEN = {
  'a name and an address': { username: 'Plain', email: 'Plain@Example.org' },
  'every member': {
    username: 'Ada Lovelace',
    email: 'ada@example.org',
    first_name: 'Ada',
    last_name: 'Lovelace',
    enabled: false,
    verified: true,
    super_admin: true,
    groups: ['ops'],
  },
};
for (const [what, given] of Object.entries(GIVEN)) {
  test(`a user is made with ${what}, and without a password`, async () => {
    const answer = await create(given);
    assertCreated(answer);
    assertUser(answer.json.data);
    const { id, created_at: made, updated_at: changed, ...rest } = answer.json.data;
    assert.deepEqual(rest, { ...NEW, groups: [], ...given, deleted_at: null });
    assert.equal(made, changed);
    assert.equal(answer.headers.get('location'), `/api/user/${id}`);
    assert.deepEqual((await show(id)).json.data, answer.json.data);
    const [row] = await sql`select password_hash from identity.users where id = ${id}`;
    assert.equal(row?.password_hash, null);
  });
}

test('the administrator changes each member, and nothing else changes with it', async () => {
  const user = await enter();
  let before = (await show(user.id)).json.data;
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
    await sql`update identity.users set updated_at = '2020-01-01' where id = ${user.id}`;
    const answer = await change(user, { [name]: value });
    assertSuccess(answer);
    const { revoked_keys: revoked, ...now } = answer.json.data;
    assert.equal(revoked, name === 'super_admin' ? 0 : undefined);
    assertUser(now);
    assert.ok(now.updated_at > '2021', name);
    assert.deepEqual(now, { ...before, [name]: value, updated_at: now.updated_at });
    assert.deepEqual((await show(user.id)).json.data, now);
    before = now;
    assert.equal(await isOpen(identity, user.token), !/super_admin|enabled/.test(name), name);
  }
});

test('an empty change succeeds and changes nothing, including updated_at', async () => {
  const user = await enter();
  const before = await stored();
  for (const bearer of [admin.token, user.token]) {
    const answer = await change(user, {}, bearer);
    assertSuccess(answer);
    assert.deepEqual(answer.json.data, (await show(user.id)).json.data);
  }
  assert.deepEqual(await stored(), before);
  assertError(await change({ id: '00000000-0000-4000-8000-000000000000' }, {}), 404, 'not_found');
});

test('one forbidden member among allowed ones is 403, and nothing is changed', async () => {
  const user = await enter();
  const before = await stored();
  const forbidden = {
    username: user.username,
    email: 'own@example.org',
    groups: ['ops'],
    enabled: true,
    verified: true,
    super_admin: true,
  };
  for (const [name, value] of Object.entries(forbidden)) {
    const body = { first_name: 'Changed', [name]: value, last_name: 'Changed' };
    assertError(await change(user, body, user.token), 403, 'forbidden');
  }
  assert.deepEqual(await stored(), before);
});

/** `test/program/transcripts/users.txt` has other spellings. */
test('a taken name or address is named, for a new and for a changed user', async () => {
  const taken = { username: 'Taken', email: 'taken@example.org' };
  const one = await add(taken);
  const other = await add();
  const before = await stored();
  for (const [member, value] of Object.entries(taken)) {
    for (const answer of [
      await create({ username: 'new', email: 'new@example.org', [member]: value }),
      await change(other, { first_name: 'Changed', [member]: value }),
    ])
      assertError(answer, 409, 'conflict', [`/${member}`]);
  }
  assert.deepEqual(await stored(), before);
  assertSuccess(await change(one, { username: 'TAKEN' }));
});

test('a deleted user is gone at once', async () => {
  const user = await enter();
  const answer = await call(admin.token, 'DELETE', `/api/user/${user.id}`);
  assertSuccess(answer);
  assert.equal(answer.json.data.status, 'DELETED');
  for (const gone of [
    await show(user.id),
    await change(user, { enabled: true }),
    await setPassword(user, PASSWORD),
    await call(admin.token, 'DELETE', `/api/user/${user.id}`),
    await call(admin.token, 'POST', '/api/key/', { user_id: user.id }),
  ])
    assertError(gone, 404, 'not_found');
  assertError(await login(user.username, PASSWORD), 401, 'invalid_credentials');
});

/** `test/unit/identity/rules.test.ts` has every rule, and every value that a rule rejects. */
const WRONG: ReadonlyArray<readonly [member: string, value: string]> = [
  // 255 characters, and 4,590 after NFKC: more than an entry of an index can hold.
  ['username', '\ufdfa'.repeat(255)],
  ['email', 'a@b@c'],
  ['first_name', 'a\x7fb'],
  ['last_name', ' '],
  ['enabled', 'correct horse'],
];

test('a value that a rule rejects is 400 and not repeated, and nothing is stored', async () => {
  const subject = await add();
  const before = await stored();
  for (const [member, value] of WRONG) {
    for (const answer of [
      await create({ username: 'new', email: 'new@example.org', [member]: value }),
      await change(subject, { [member]: value }),
    ]) {
      assertError(answer, 400, 'invalid_body', [`/${member}`]);
      // It may be a password in the wrong member.
      assert.doesNotMatch(answer.text, /horse/);
    }
  }
  assert.deepEqual(await stored(), before);
});

test('the reply to many errors is bounded', async () => {
  const members = Array.from({ length: 5_000 }, (_, index) => [`m${index}`, 0]);
  const answer = await create(Object.fromEntries(members));
  assert.equal(answer.status, 400);
  assert.ok(answer.text.length < 5_000);
});

test('any other name is stored and returned unchanged', async () => {
  const scripts = ['zoe\u0308 李雷', '홍길동'.repeat(85), `z${'\u0301\u0323'.repeat(15)}`];
  const names = [...scripts, 'n'.repeat(255), "'; drop table users; --", '{"a":1}', 'null'];
  for (const [index, name] of names.entries()) {
    const given = {
      username: name,
      email: `${index}-${name.replace(/\s/g, '_').slice(0, 100)}@exämple.org`,
      first_name: name,
      last_name: ` ${name.slice(0, 250)} `,
    };
    const { json } = await create(given);
    const { username, email, first_name, last_name } = (await show(json.data.id)).json.data;
    assert.deepEqual({ username, email, first_name, last_name }, given);
  }
});

/** These break another rule than that they are easy to guess. */
const BROKEN = ['seven77', 'a\0bcdefgh'];

test('a password that the policy rejects is 400 wherever one is set, and nothing is stored', async () => {
  const names = { username: 'ada.lovelace', email: 'admin@localhost.example' };
  const user = await enter(names);
  const before = await stored();
  await sql`delete from identity.throttles`;
  for (const password of [...BROKEN, 'gatehouse1', 'ADA.LOVELACE', names.email]) {
    const other = { username: 'ada.lovelace.2', email: names.email, password };
    assertError(await create(other), 400, 'invalid_body', ['/password']);
    const set = await setPassword(user, password);
    assertError(set, 400, 'invalid_body', ['/password']);
    const { message } = set.json.error.fields[0];
    assert.equal(/choose several unrelated words$/.test(message), !BROKEN.includes(password));
    const own = { current_password: PASSWORD, new_password: password };
    const changed = await call(user.token, 'POST', '/api/auth/password', own);
    assertError(changed, 400, 'invalid_body', ['/new_password']);
  }
  assert.deepEqual(await stored(), before);
  const failures = await sql`select from identity.throttles where attempts > 0`;
  assert.equal(failures.length, 0, 'a rejected new password is no failure');
});

// --- The last administrator

const ENDINGS = ['demoted', 'disabled', 'deleted'] as const;
type Ending = (typeof ENDINGS)[number];
const BODIES = { demoted: { super_admin: false }, disabled: { enabled: false } } as const;

/** `by` ends the right of `of` as an administrator, through the replica at `url`. */
function end({ token: bearer }: Person, { id }: Person, ending: Ending, url = identity) {
  const path = `${url}/api/user/${id}`;
  return ending === 'deleted'
    ? ask('DELETE', path, { bearer })
    : ask('PATCH', path, { bearer, body: BODIES[ending] });
}

/** Makes exactly these users enabled super administrators, and makes all sessions active again. */
async function only(...administrators: readonly Person[]) {
  const ids = administrators.map(({ id }) => id);
  // A deletion has erased the hash.
  await sql`
    update identity.users set enabled = true, deleted_at = null, sessions_end_at = null,
      super_admin = id in ${sql(ids)}, password_generated = false,
      password_hash = coalesce(password_hash, 'erased')`;
  await sql`update identity.sessions set revoked = false, logged_out = false`;
}

const rowOf = async ({ id }: Person) =>
  (await sql`select * from identity.users where id = ${id}`)[0];
const left = async () =>
  (
    await sql`select id from identity.users where super_admin and enabled and deleted_at is null`
  ).map((row) => String(row.id));

/** Who does not count as another administrator. */
const NOBODY = [
  { enabled: false },
  { deleted_at: new Date() },
  { password_hash: null },
  { password_generated: true },
];

for (const ending of ENDINGS) {
  test(`the last administrator who can log in cannot be ${ending}, not even by themselves`, async () => {
    for (const state of NOBODY) {
      await only(chief, second);
      await sql`update identity.users set ${sql(state)} where id = ${second.id}`;
      const before = await rowOf(chief);
      for (const bearer of [chief, { ...chief, token: (await key(chief)).key }]) {
        assertError(await end(bearer, chief, ending), 409, 'conflict');
      }
      assert.deepEqual(await rowOf(chief), before);
      assert.equal(await isOpen(identity, chief.token), true);
    }
    // Whoever is no administrator can go, whoever is left, and so can this one beside another.
    await only(chief);
    await sql`update identity.users set password_hash = null where id = ${chief.id}`;
    assertSuccess(await end(chief, plain, ending));
    await only(chief, second);
    assertSuccess(await end(chief, chief, ending));
    assert.deepEqual(await left(), [second.id]);
  });

  test(`of two administrators who have each other ${ending} at once, one succeeds`, () =>
    assertOneWins(ending, [chief, second], [second, chief], ending === 'demoted' ? 403 : 401));
}

test('of two administrators who end their own rights at once, one remains', () =>
  assertOneWins('demoted', [chief, chief], [second, second], 409));

/** Both wait for the same rows, at two replicas. */
async function assertOneWins(
  ending: Ending,
  [by, of]: readonly [Person, Person],
  [byOther, ofOther]: readonly [Person, Person],
  lost: 401 | 403 | 409,
) {
  await only(chief, second);
  const answers = await meanwhile(
    sql,
    (held) =>
      held`select from identity.users where id in ${held([chief.id, second.id])} for update`,
    () => [end(by, of, ending), end(byOther, ofOther, ending, replica)],
  );
  assert.deepEqual(answers.map(({ status }) => status).sort(), [200, lost]);
  assert.equal((await left()).length, 1);
}

test('the last administrator may be changed in everything else, but not in part', async () => {
  await only(chief);
  const path = `/api/user/${chief.id}`;
  const allowed = { first_name: 'Chief', verified: true, enabled: true, super_admin: true };
  assertSuccess(await call(chief.token, 'PATCH', path, allowed));
  for (const body of Object.values(BODIES)) {
    const answer = await call(chief.token, 'PATCH', path, { first_name: 'Changed', ...body });
    assertError(answer, 409, 'conflict');
  }
  assert.equal((await rowOf(chief))?.first_name, 'Chief');
});
