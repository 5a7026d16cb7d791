/** How keys are made, shown once, stored and used, and how they end. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { sha256 } from '../../../../src/platform/crypto/token.ts';
import { assertCreated, assertKey, startIdentity } from '../../../support/api-users.ts';
import { ask, startGatehouse } from '../../../support/gatehouse.ts';
import { assertError, assertRevoked, assertSuccess, isOpen } from '../../../support/users.ts';

const started = await startIdentity({ after });
const { identity, databaseUrl, sql, admin, call, add, enter, key } = started;
const replica = await startGatehouse({ after }, ['identity'], databaseUrl);
const create = (bearer: string, body: object = {}) => call(bearer, 'POST', '/api/key/', body);
const revoke = (bearer: string, id: string) => call(bearer, 'DELETE', `/api/key/${id}/revoke`);
const totalOf = async (bearer: string) =>
  (await call(bearer, 'GET', '/api/session/?limit=1')).json._meta.pagination.total;

test('a key is created for its caller, is shown in full only once, and is stored as a digest', async () => {
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
  const bytes = [Buffer.from(secret), Buffer.from(whole.slice(4, 47), 'base64url')];
  const forms = [secret, ...bytes.map((form) => form.toString('hex'))];
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

test('a key is revoked at once, on every replica, and only once', async () => {
  const user = await enter();
  const { id, key: whole } = await key(user);
  const everywhere = () =>
    Promise.all([identity, replica.url.identity].map((url) => isOpen(url, whole)));
  assert.deepEqual(await everywhere(), [true, true]);
  assertRevoked(await revoke(user.token, id), 'Key revoked.');
  assert.deepEqual(await everywhere(), [false, false]);
  assertRevoked(await revoke(admin.token, id), 'The key was revoked before.');
});

test('a deleted key opens nothing and cannot be revoked', async () => {
  const { id, key: whole } = await key(await enter());
  await sql`update identity.api_keys set deleted_at = now() where id = ${id}`;
  assert.equal(await isOpen(identity, whole), false);
  assertError(await revoke(admin.token, id), 404, 'not_found');
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

test('the last use of a key is recorded at most once a minute by each replica', async () => {
  const { id, key: own } = await key(admin);
  await sql`create table writes (id uuid)`;
  await sql`create function count_write() returns trigger language plpgsql
    as $$ begin insert into writes values (new.id); return new; end $$`;
  await sql`create trigger count_write after update on identity.api_keys
    for each row execute function count_write()`;
  /** @returns how often the use of the key was written so far, and whether it is a recent one */
  const use = async () => {
    for (const url of [identity, replica.url.identity, identity, replica.url.identity])
      await ask('GET', `${url}/api/test/`, { headers: { 'x-api-key': own } });
    for (const at of [started, replica]) await at.runJobs(/last use/);
    const [row] = await sql`
      select (select count(*)::int from writes w where w.id = k.id) as writes,
        last_used_at between now() - interval '1 minute' and now() as "isRecent"
      from identity.api_keys k where id = ${id}`;
    return { ...row };
  };
  // What one replica writes, the other does not.
  assert.deepEqual(await use(), { writes: 1, isRecent: true });
  assert.deepEqual(await use(), { writes: 1, isRecent: true });
  // A minute later it counts as news again.
  await sql`update identity.api_keys set last_used_at = now() - interval '2 minutes'
    where id = ${id}`;
  assert.deepEqual(await use(), { writes: 3, isRecent: true });
});
