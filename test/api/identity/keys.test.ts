/**
 * How keys are made, shown once, stored and used, what those with rights may do, and how they end.
 * And what whoever steals a provisioning key can and cannot do with it: what the table of callers
 * in `test/api/contract` does not show of docs/backends.md.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { sha256 } from '../../../src/platform/crypto/token.ts';
import { assertCreated, assertKey, type Person } from '../../support/api-users.ts';
import { ask, startGatehouse } from '../../support/gatehouse.ts';
import { meanwhile } from '../../support/meanwhile.ts';
import { ORIGIN, PORTAL, startPortal } from '../../support/portal.ts';
import { newName, storedIn, storeUser } from '../../support/stored-users.ts';
import { assertError, assertRevoked, assertSuccess, isOpen } from '../../support/users.ts';

const { identity, databaseUrl, sql, admin, call, enter, key, visit } = await startPortal({
  after,
});
const create = (bearer: string, body: object = {}) => call(bearer, 'POST', '/api/key/', body);
const revoke = (id: string, bearer = admin.token, query = '') =>
  call(bearer, 'DELETE', `/api/key/${id}/revoke${query}`);
const change = (of: Person, body: object) => call(admin.token, 'PATCH', `/api/user/${of.id}`, body);

/** An administrator with two keys without a user and one for another user, and that user. */
async function scene() {
  const chief = await enter({ super_admin: true });
  const user = await enter();
  const make = async (body: object) => (await create(chief.token, body)).json.data;
  const second = await make({ user_id: null });
  const others = await make({ user_id: user.id });
  const keys = [await make({ user_id: null }), second, await make({}), others, await key(null)];
  /** What each of the keys gets, in this order. */
  const statuses = () =>
    Promise.all(keys.map(async (one) => (await call(one.key, 'GET', '/api/user/')).status));
  return { chief, user, second, others, statuses };
}

/** The revocations of keys in the trail about this user. */
const trail = async ({ id }: Person) =>
  (
    await sql`select count, detail from identity.audit where event = 'key.revoked'
      and user_id = ${id} order by detail`
  ).map((row) => ({ ...row }));

test('a demotion revokes the keys without a user that the administrator created, and counts them', async () => {
  const { chief, second, statuses } = await scene();
  assertRevoked(await revoke(second.id), 'Key revoked.');
  const answer = await change(chief, { super_admin: false });
  assertSuccess(answer);
  assert.equal(answer.json.data.revoked_keys, 1);
  assert.deepEqual(await statuses(), [401, 401, 200, 200, 200]);
  assert.deepEqual(await trail(chief), [{ count: 1, detail: 'without a user' }]);
  // A promotion does not revive them, and revokes the own one.
  assert.equal((await change(chief, { super_admin: true })).json.data.revoked_keys, 1);
  assert.deepEqual(await statuses(), [401, 401, 401, 200, 200]);
});

test('a deletion revokes them beside the own keys, and says how many', async () => {
  const { chief, user, others, statuses } = await scene();
  const answer = await call(admin.token, 'DELETE', `/api/user/${chief.id}`);
  assertSuccess(answer);
  assert.match(answer.json.data.message, / Revoked 2 keys without a user /);
  assert.deepEqual(await statuses(), [401, 401, 401, 200, 200]);
  assert.deepEqual(await trail(chief), [
    { count: 1, detail: '' },
    { count: 2, detail: 'without a user' },
  ]);
  // The user of a key sees who created it, and the key acts as its user.
  const [seen] = (await call(user.token, 'GET', '/api/key/')).json.data;
  assert.deepEqual(
    [seen.id, seen.created_by, others.created_by_username],
    [others.id, chief.id, chief.username],
  );
  assert.equal((await call(others.key, 'GET', '/api/test/')).json.data.user.id, user.id);
});

test('a key without a user is suspended while its creator is disabled', async () => {
  const { chief, statuses } = await scene();
  assertSuccess(await change(chief, { enabled: false }));
  assert.deepEqual(await statuses(), [401, 401, 401, 200, 200]);
  assertSuccess(await change(chief, { enabled: true }));
  assert.deepEqual(await statuses(), [200, 200, 200, 200, 200]);
});

test('a key is created for its caller, is shown in full only once, and is stored as a digest, as a token is', async () => {
  const user = await enter();
  const answer = await create(user.token, { name: 'nightly backup' });
  assertCreated(answer);
  const { key: whole, ...made } = answer.json.data;
  assertKey({ ...made, key: whole });
  assert.deepEqual(
    [made.name, made.user_id, made.revoked, made.expires_at, made.last_used_at, made.deleted_at],
    ['nightly backup', user.id, false, null, null, null],
  );
  assert.equal((await call(whole, 'GET', '/api/test/')).json.data.user.id, user.id);

  const [listed] = (await call(user.token, 'GET', '/api/key/')).json.data;
  assert.equal(listed.key, `${whole.slice(0, 12)}…`);
  for (const path of ['key/', 'user/', 'session/', 'audit/', 'test/']) {
    const { text } = await call(admin.token, 'GET', `/api/${path}`);
    assert.equal(text.includes(whole.slice(13)), false, path);
  }

  const [row] = await sql`select key_digest, key_prefix from identity.api_keys
    where id = ${made.id}`;
  assert.deepEqual({ ...row }, { key_digest: sha256(whole), key_prefix: whole.slice(0, 12) });
  const tables = await sql<Array<{ name: string }>>`
    select format('%I.%I', schemaname, tablename) as name from pg_tables
    where schemaname not in ('pg_catalog', 'information_schema')`;
  assert.ok(tables.length >= 6);
  const secret = whole.slice(12);
  const token = user.token.slice('session:'.length);
  const bytes = [secret, token].map((text) => Buffer.from(text));
  bytes.push(Buffer.from(whole.slice(4, 47), 'base64url'));
  const forms = [secret, token, ...bytes.map((form) => form.toString('hex'))];
  for (const { name } of tables) {
    const rows = await sql`select whole::text as text from ${sql.unsafe(name)} as whole`;
    const stored = rows.map(({ text }) => String(text)).join('\n');
    for (const form of forms) assert.equal(stored.includes(form), false, name);
  }
});

test('an expiry is in the future, and kept to the millisecond', async () => {
  const past = [new Date(0), new Date(Date.now() - 1_000)];
  for (const expires_at of past)
    assertError(await create(admin.token, { expires_at }), 400, 'invalid_body', ['/expires_at']);
  assert.equal((await sql`select from identity.api_keys where expires_at < now()`).count, 0);
  const { data } = (await create(admin.token, { expires_at: '2100-01-31T12:00:00.125+02:00' }))
    .json;
  assert.equal(data.expires_at, '2100-01-31T10:00:00.125Z');
  assert.equal((await create(admin.token, { expires_at: null })).json.data.expires_at, null);
});

test('a key is revoked at once and only once; a deleted one opens nothing and cannot be revoked', async () => {
  const user = await enter();
  const { id, key: whole } = await key(user);
  assert.equal(await isOpen(identity, whole), true);
  assertRevoked(await revoke(id, user.token), 'Key revoked.');
  assert.equal(await isOpen(identity, whole), false);
  assertRevoked(await revoke(id), 'The key was revoked before.');
  const deleted = await key(user);
  await sql`update identity.api_keys set deleted_at = now() where id = ${deleted.id}`;
  assert.equal(await isOpen(identity, deleted.key), false);
  assertError(await revoke(deleted.id), 404, 'not_found');
});

// --- Rights

const GIVEN = {
  rights: ['provision', 'verify'],
  scopes: ['orders:read'],
  provision_groups: ['customers'],
};
/** A key that makes users. */
const provisioning = (more: object = {}) => key(null, { ...GIVEN, ...more });
function someone(more: object = {}) {
  const username = newName();
  return { username, email: `${username}@example.org`, ...more };
}
const detailOf = async (event: string, targetId: string) => ({
  ...(
    await sql`select detail, key_id from identity.audit
      where event = ${event} and target_id = ${targetId}`
  )[0],
});
const pick = ({ rights, scopes, provision_groups }: Record<string, unknown>) => ({
  rights,
  scopes,
  provision_groups,
});

test('a key has the rights, scopes and groups that it was made with, and shows them', async () => {
  const answer = await create(admin.token, { ...GIVEN, user_id: null });
  assertCreated(answer);
  const made = answer.json.data;
  assertKey(made);
  assert.deepEqual([pick(made), made.made_by], [GIVEN, null]);
  const detail = 'rights provision verify, scopes orders:read, provision groups customers';
  assert.deepEqual(await detailOf('key.created', made.id), { detail, key_id: null });
  assert.deepEqual(pick((await call(admin.token, 'GET', '/api/key/')).json.data[0]), GIVEN);
});

test('a key without a list has the rights that keys had before there were lists', async () => {
  const own = (await create((await enter()).token, {})).json.data;
  assert.deepEqual(pick(own), { rights: null, scopes: [], provision_groups: [] });
  const nobodys = (await create(admin.token, { user_id: null })).json.data;
  assert.deepEqual(nobodys.rights, ['verify', 'read', 'revoke']);
});

test('what a key cannot be made with is named, and no key is made', async () => {
  const { token } = await enter();
  const before = await storedIn(sql);
  for (const [body, path] of [
    [{ rights: ['provision'] }, '/rights'],
    [{ user_id: null, provision_groups: ['a'] }, '/provision_groups'],
    [{ groups: ['a'] }, '/groups'],
  ] as const)
    assertError(await create(admin.token, body), 400, 'invalid_body', [path]);
  // An ordinary user has no scope to give, and acts for nobody else.
  assertError(await create(token, { scopes: ['orders:read'] }), 403, 'forbidden', ['/scopes']);
  assertError(await create(token, { ...GIVEN, user_id: null }), 403, 'forbidden');
  assert.deepEqual(await storedIn(sql), before);
});

// --- The holder of a stolen provisioning key

/**
 * An attempt with the stolen key. `{customer}` is the id of what a scene has by this name. `NEW`
 * and `KEY` are the members of a new user and key.
 */
const attemptsIn = (table: string) =>
  table
    .trim()
    .split('\n')
    .map((line) => {
      const [what = '', method = '', path = '', body = '', blamed = ''] = line.split(/ *\| */);
      return { what: what.trim(), method, path, body, blamed };
    });
type Attempt = ReturnType<typeof attemptsIn>[number];

/** Cannot: 403, and nothing changes. */
const CANNOT = attemptsIn(`
  remove second factors | POST | /api/user/{customer}/link | {"remove_factors":true}
  create a user elsewhere | POST | /api/user/ | {NEW,"groups":["customers","staff"]} | /groups
  give a group | PATCH | /api/user/{customer} | {"groups":["admins","customers","staff"]} | /groups
  take another group | PATCH | /api/user/{customer} | {"groups":["customers"]} | /groups
  change a super administrator | PATCH | /api/user/{chief} | {"email":"thief@example.org"}
  disable a super administrator | PATCH | /api/user/{chief} | {"enabled":false}
  demote a super administrator | PATCH | /api/user/{chief} | {"super_admin":false}
  make a link for a super administrator | POST | /api/user/{chief}/link | {}
  end the link of a super administrator | DELETE | /api/user/{chief}/link
  make a key for an administrator | POST | /api/key/ | {"user_id":"{chief}","rights":["verify"]}
  list the keys of a super administrator | GET | /api/key/?user={chief}
  revoke a key of a super administrator | DELETE | /api/key/{chiefsKey}/revoke
  end a session of a super administrator | DELETE | /api/session/{chiefsSession}/revoke
  end all of a super administrator | DELETE | /api/session/revoke/all/user?user={chief}
  end all sessions | DELETE | /api/session/revoke/all
  make a key with another right | POST | /api/key/ | {KEY,"rights":["read"]} | /rights
  make a key without a list | POST | /api/key/ | {"user_id":"{customer}"} | /rights
  make a key with another scope | POST | /api/key/ | {KEY,"scopes":["orders:write"]} | /scopes
`);

/** The ids of a user with a group of the key and one of others, and of those it may not touch. */
async function sceneOf() {
  const customer = await storeUser(sql);
  const chief = await storeUser(sql, true);
  await sql`update identity.users set groups = '{customers,staff}'
    where id = ${customer.user_id}`;
  const ids: Readonly<Record<string, string>> = {
    customer: customer.user_id,
    customersKey: customer.key_id,
    chief: chief.user_id,
    chiefsKey: chief.key_id,
    chiefsSession: chief.session_id,
  };
  // With `revoke`, its policy lets it end sessions, and the transaction of the change decides.
  const stolen = await provisioning({ rights: ['provision', 'verify', 'revoke'] });
  const filled = (text: string) => text.replace(/\{(\w+)\}/g, (_, name) => ids[name] ?? '');
  const given = (body: string) =>
    filled(
      body
        .replace('NEW', JSON.stringify(someone()).slice(1, -1))
        .replace('KEY', '"user_id":"{customer}","rights":["verify"]'),
    );
  return {
    customer: customer.user_id,
    attempt: ({ method, path, body }: Attempt) =>
      call(stolen.key, method, filled(path), body === '' ? undefined : JSON.parse(given(body))),
  };
}

for (const one of CANNOT) {
  test(`a stolen provisioning key cannot ${one.what}`, async () => {
    const { attempt } = await sceneOf();
    const before = await storedIn(sql);
    const answer = await attempt(one);
    assert.deepEqual(await storedIn(sql), before);
    assertError(answer, 403, 'forbidden', one.blamed === '' ? [] : [one.blamed]);
  });
}

/** Each may be done to an ordinary user, and waits here while the user becomes more. */
const MEANWHILE = attemptsIn(`
  change the address of | PATCH  | /api/user/{customer}           | {"email":"thief@example.org"}
  disable               | PATCH  | /api/user/{customer}           | {"enabled":false}
  take a group from     | PATCH  | /api/user/{customer}           | {"groups":["staff"]}
  make a link for       | POST   | /api/user/{customer}/link      | {}
  end the link of       | DELETE | /api/user/{customer}/link
  make a key for        | POST   | /api/key/                      | {KEY}
  revoke a key of       | DELETE | /api/key/{customersKey}/revoke
`);
const TURNS = [
  ['becomes a super administrator', { super_admin: true }, 403, 'forbidden', MEANWHILE],
  ['is deleted', { deleted_at: new Date() }, 404, 'not_found', MEANWHILE.slice(5, 6)],
] as const;

for (const [turn, change, status, code, attempts] of TURNS) {
  for (const one of attempts) {
    test(`a provisioning key cannot ${one.what} a user who ${turn} meanwhile`, async () => {
      const { customer, attempt } = await sceneOf();
      assertCreated(await call(admin.token, 'POST', `/api/user/${customer}/link`, {}));
      let before: string[][] = [];
      const [answer = assert.fail()] = await meanwhile(
        sql,
        (held) => held`update identity.users set ${held(change)} where id = ${customer}`,
        () => [attempt(one)],
        async (held) => {
          before = await storedIn(held);
        },
      );
      assertError(answer, status, code);
      assert.deepEqual(await storedIn(sql), before);
    });
  }
}

test('what a provisioning key can do names it in the audit trail', async () => {
  const { key: whole, id: key_id } = await provisioning();
  const user = (await call(whole, 'POST', '/api/user/', someone({ groups: ['customers'] }))).json
    .data;
  const detail = 'groups +customers';
  assert.deepEqual(await detailOf('user.created', user.id), { detail, key_id });
  const body = { user_id: user.id, rights: ['verify'], scopes: GIVEN.scopes };
  const made = (await create(whole, body)).json.data;
  assert.equal((await detailOf('key.created', made.id)).key_id, key_id);
  assert.deepEqual([made.made_by, made.created_by], [key_id, admin.id]);
  assertSuccess(await call(whole, 'PATCH', `/api/user/${user.id}`, { groups: [] }));
  const taken = { detail: 'groups -customers', key_id };
  assert.deepEqual(await detailOf('user.changed', user.id), taken);
});

/** A user that the key makes. @returns the user's id, and the status of opening a link for them */
async function invite(key: string) {
  const { id } = (await call(key, 'POST', '/api/user/', someone())).json.data;
  const { link } = (await call(key, 'POST', `/api/user/${id}/link`, {})).json.data;
  assert.ok(link.startsWith(`${ORIGIN}/link#`), link);
  return { id, open: async () => (await visit('/link', { fields: { token: link } })).status };
}

test('a revoked provisioning key ends at once on every replica, and what it made, if asked', async (t) => {
  const replica = (await startGatehouse(t, ['identity'], databaseUrl, PORTAL)).url.identity;
  for (const [query, message] of [
    ['', 'Key revoked.'],
    ['?with_made=true', 'Key revoked. Keys that it made and that were revoked: 1.'],
  ] as const) {
    const stolen = await provisioning({ rights: ['provision', 'read'] });
    const { id: user_id, open } = await invite(stolen.key);
    const made = (await create(stolen.key, { user_id, rights: ['read'] })).json.data;
    assert.equal(await open(), 200);
    assert.equal(await isOpen(replica, made.key), true);
    assertRevoked(await revoke(stolen.id, admin.token, query), message);
    for (const url of [identity, replica]) {
      const answer = await ask('GET', `${url}/api/user/`, { bearer: stolen.key });
      assertError(answer, 401, 'unauthorized');
      assert.equal(await isOpen(url, made.key), query === '');
    }
    // A link ends with the key in any case.
    assert.equal(await open(), 401);
  }
});

for (const end of ['expires_at', 'deleted_at']) {
  test(`a link ends with the key that made it, at its ${end}`, async () => {
    const { id, key } = await provisioning();
    const { open } = await invite(key);
    assert.equal(await open(), 200);
    await sql`update identity.api_keys set ${sql(end)} = now() where id = ${id}`;
    assert.equal(await open(), 401);
  });
}
