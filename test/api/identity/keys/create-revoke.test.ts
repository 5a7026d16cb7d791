/** How keys are made, shown once, stored, listed and used, and how they end. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { sha256 } from '../../../../src/platform/crypto/token.ts';
import {
  assertCreated,
  assertKey,
  type Person,
  startIdentity,
} from '../../../support/api-users.ts';
import { ask } from '../../../support/gatehouse.ts';
import { assertError, assertRevoked, assertSuccess, isOpen } from '../../../support/users.ts';

const { identity, sql, admin, call, add, enter, key } = await startIdentity({ after });

const create = (bearer: string, body: object = {}) => call(bearer, 'POST', '/api/key/', body);
const revoke = (bearer: string, id: string) => call(bearer, 'DELETE', `/api/key/${id}/revoke`);
const totalOf = async (bearer: string) =>
  (await call(bearer, 'GET', '/api/session/?limit=1')).json._meta.pagination.total;

/** An administrator with two keys without a user and one for another user, and that user. */
async function scene() {
  const chief = await enter({ super_admin: true });
  const user = await enter();
  const create = async (body: object) =>
    (await call(chief.token, 'POST', '/api/key/', body)).json.data;
  const program = await create({ user_id: null });
  const second = await create({ user_id: null });
  const own = await create({});
  const others = await create({ user_id: user.id });
  const keys = [program, second, own, others, await key(null)];
  /** What each of the keys gets, in this order. */
  const statuses = () =>
    Promise.all(keys.map(async (one) => (await call(one.key, 'GET', '/api/user/')).status));
  return { chief, user, program, second, others, statuses };
}

const change = (of: Person, body: object) => call(admin.token, 'PATCH', `/api/user/${of.id}`, body);

/** The revocations of keys in the trail about this user. */
const trail = async ({ id }: Person) =>
  (
    await sql`select count, detail from identity.audit where event = 'key.revoked'
      and user_id = ${id} order by detail`
  ).map((row) => ({ ...row }));

test('a demotion revokes the keys without a user that the administrator created, and counts them', async () => {
  const { chief, program, second, statuses } = await scene();
  assertRevoked(await call(admin.token, 'DELETE', `/api/key/${second.id}/revoke`), 'Key revoked.');
  const answer = await change(chief, { super_admin: false });
  assertSuccess(answer);
  assert.equal(answer.json.data.revoked_keys, 1);
  assert.deepEqual(await statuses(), [401, 401, 200, 200, 200]);
  assert.deepEqual(await trail(chief), [{ count: 1, detail: 'without a user' }]);
  // A promotion does not revive them, and revokes the own one.
  assert.equal((await change(chief, { super_admin: true })).json.data.revoked_keys, 1);
  assert.deepEqual(await statuses(), [401, 401, 401, 200, 200]);
  assertError(await call(program.key, 'GET', '/api/user/'), 401, 'unauthorized');
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
  // The user of a key sees who created it.
  const [seen] = (await call(user.token, 'GET', '/api/key/')).json.data;
  assert.deepEqual(
    [others.created_by, others.created_by_username, seen.id, seen.created_by],
    [chief.id, chief.username, others.id, chief.id],
  );
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

  const listed = await call(user.token, 'GET', '/api/key/');
  assertSuccess(listed, 'paged');
  assertKey(listed.json.data[0]);
  assert.equal(listed.json.data[0].key, `${whole.slice(0, 12)}…`);
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

test('an expiry is in the future, kept to the millisecond, and by the clock of the database', async () => {
  const past = [new Date(0), new Date(Date.now() - 1_000)];
  for (const expires_at of past)
    assertError(await create(admin.token, { expires_at }), 400, 'invalid_body', ['/expires_at']);
  assert.equal((await sql`select from identity.api_keys where expires_at < now()`).count, 0);
  const { data } = (await create(admin.token, { expires_at: '2100-01-31T12:00:00.125+02:00' }))
    .json;
  assert.equal(data.expires_at, '2100-01-31T10:00:00.125Z');
  for (const [expiry, isValid] of [
    [sql`now() + interval '1 minute'`, true],
    [sql`now()`, false],
    [sql`null`, true],
  ] as const) {
    await sql`update identity.api_keys set expires_at = ${expiry} where id = ${data.id}`;
    assert.equal(await isOpen(identity, data.key), isValid);
  }
  assert.equal((await create(admin.token, { expires_at: null })).json.data.expires_at, null);
});

test('a key is revoked at once and only once; a deleted one opens nothing and cannot be revoked', async () => {
  const user = await enter();
  const { id, key: whole } = await key(user);
  assert.equal(await isOpen(identity, whole), true);
  assertRevoked(await revoke(user.token, id), 'Key revoked.');
  assert.equal(await isOpen(identity, whole), false);
  assertRevoked(await revoke(admin.token, id), 'The key was revoked before.');
  const deleted = await key(user);
  await sql`update identity.api_keys set deleted_at = now() where id = ${deleted.id}`;
  assert.equal(await isOpen(identity, deleted.key), false);
  assertError(await revoke(admin.token, deleted.id), 404, 'not_found');
});

test('a key acts as its user, whoever created it, and one without a user for everyone', async () => {
  const user = await add();
  const { key: own } = await key(null, { user_id: user.id });
  // No proxy is trusted here, so the caller has forged the address.
  const headers = { 'x-api-key': own, 'x-forwarded-for': '203.0.113.9' };
  const { json } = await ask('GET', `${identity}/api/test/`, { headers });
  assert.deepEqual([json.data.user.id, json.data.ip], [user.id, '127.0.0.1']);
  assertError(await call(own, 'GET', '/api/audit/'), 403, 'forbidden');
  const { key: program } = await key(null);
  assert.equal(await totalOf(program), await totalOf(admin.token));
});
