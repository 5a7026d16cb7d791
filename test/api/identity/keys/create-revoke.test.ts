/**
 * POST and GET of /api/key/, DELETE /api/key/{key_id}/revoke: who makes which keys, who sees them,
 * and how they end.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, test } from 'node:test';
import { startGatehouse } from '../../../support/gatehouse.ts';
import { assertCreated, assertKey, startIdentity } from '../../../support/api-users.ts';
import { assertError, assertRevoked, assertSuccess, isOpen } from '../../../support/users.ts';

const { identity, databaseUrl, sql, admin, call, enter, key } = await startIdentity({ after });
const create = (bearer: string, body: unknown = {}) => call(bearer, 'POST', '/api/key/', body);
const revoke = (bearer: string, id: string) => call(bearer, 'DELETE', `/api/key/${id}/revoke`);
const keys = async () => Number((await sql`select count(*) from identity.api_keys`)[0]?.count);
const sha256 = (text: string) => createHash('sha256').update(text).digest();

test('a key is created for its caller, and is shown in full only once', async () => {
  const user = await enter();
  const answer = await create(user.token, { name: 'nightly backup' });
  assertCreated(answer);
  const made = answer.json.data;
  assertKey(made);
  assert.deepEqual(
    [made.name, made.user_id, made.revoked, made.expires_at, made.last_used_at, made.deleted_at],
    ['nightly backup', user.id, false, null, null, null],
  );
  assert.equal(await isOpen(identity, made.key), true);

  const listed = await call(user.token, 'GET', '/api/key/');
  assertSuccess(listed, 'paged');
  assertKey(listed.json.data[0]);
  assert.equal(listed.json.data[0].key, `${made.key.slice(0, 'key:'.length + 8)}…`);
  const mayBeSeen = [
    '/api/key/',
    `/api/key/?user=${user.id}`,
    '/api/user/',
    '/api/session/',
    '/api/audit/',
    '/api/test/',
  ];
  for (const bearer of [user.token, admin.token, made.key]) {
    for (const path of mayBeSeen)
      assert.equal(
        (await call(bearer, 'GET', path)).text.includes(made.key.slice(13)),
        false,
        path,
      );
  }
});

test('a key is "key:", 43 characters of Base64url and a checksum of 6 over them', async () => {
  const seen = new Set<string>();
  for (let round = 0; round < 20; round += 1) {
    const { key: whole } = await key(admin);
    const [, random = '', sum] = /^key:([A-Za-z0-9_-]{43})([A-Za-z0-9_-]{6})$/.exec(whole) ?? [];
    assert.equal(sum, sha256(random).subarray(0, 4).toString('base64url'), whole);
    assert.equal(Buffer.from(random, 'base64url').length, 32);
    assert.equal(Buffer.from(random, 'base64url').toString('base64url'), random);
    seen.add(random);
  }
  assert.equal(seen.size, 20);
});

test('the database has the digest of a key and its first characters only', async () => {
  const { id, key: whole } = await key(admin, { name: 'stored' });
  await call(whole, 'GET', '/api/test/');
  await revoke(whole, id);
  const [row] = await sql`select key_digest, key_prefix from identity.api_keys where id = ${id}`;
  assert.deepEqual([row?.key_digest, row?.key_prefix], [sha256(whole), whole.slice(0, 12)]);
  const tables = await sql<Array<{ name: string }>>`
    select format('%I.%I', schemaname, tablename) as name from pg_tables
      where schemaname not in ('pg_catalog', 'information_schema')`;
  assert.ok(tables.length >= 6);
  const secret = whole.slice(12);
  for (const { name } of tables) {
    const rows = (await sql`select whole::text as text from ${sql.unsafe(name)} as whole`)
      .map((one) => String(one.text))
      .join('\n');
    for (const form of [
      secret,
      secret.slice(0, 31),
      Buffer.from(secret).toString('hex'),
      Buffer.from(whole.slice(4, 47), 'base64url').toString('hex'),
    ]) {
      assert.equal(rows.includes(form), false, name);
    }
  }
});

test('an expiry that is not in the future is 400, and no key is created', async () => {
  const before = await keys();
  for (const expires_at of ['1970-01-01T00:00:00Z', new Date(Date.now() - 1_000).toISOString()])
    assertError(await create(admin.token, { expires_at }), 400, 'invalid_body', ['/expires_at']);
  assert.equal(await keys(), before);
});

test('a future expiry is kept to the millisecond, with any offset', async () => {
  const said = {
    '2100-01-31T12:00:00Z': '2100-01-31T12:00:00.000Z',
    '2100-01-31T12:00:00.125+02:00': '2100-01-31T10:00:00.125Z',
    '2096-02-29T23:59:59-01:00': '2096-03-01T00:59:59.000Z',
  };
  for (const [given, kept] of Object.entries(said)) {
    const answer = await create(admin.token, { expires_at: given });
    assertCreated(answer);
    assert.equal(answer.json.data.expires_at, kept);
    assert.equal(await isOpen(identity, answer.json.data.key), true);
  }
  assert.equal((await create(admin.token, { expires_at: null })).json.data.expires_at, null);
});

test('a key is revoked at once on every replica, by its owner or administrator', async (t) => {
  const replica = (await startGatehouse(t, ['identity'], databaseUrl)).url.identity;
  const user = await enter();
  const other = await enter();
  const revokers = {
    'its owner': user.token,
    'the administrator': admin.token,
    'another key of its owner': (await key(user)).key,
    'a key of the administrator': (await key(admin)).key,
  };
  for (const [who, bearer] of Object.entries(revokers)) {
    const { id, key: whole } = await key(user);
    assert.deepEqual([await isOpen(identity, whole), await isOpen(replica, whole)], [true, true]);
    for (const bearer of [other.token, (await key(other)).key, (await key(null)).key])
      assertError(await revoke(bearer, id), 403, 'forbidden');
    assert.equal(await isOpen(identity, whole), true, who);
    assertRevoked(await revoke(bearer, id), 'Key revoked.');
    assert.deepEqual(
      [await isOpen(identity, whole), await isOpen(replica, whole)],
      [false, false],
      who,
    );
    assertRevoked(await revoke(bearer, id), 'The key was revoked before.');
    const [newest] = (await call(user.token, 'GET', '/api/key/?limit=1')).json.data;
    assert.deepEqual([newest.id, newest.revoked], [id, true]);
  }
});

test('a key may revoke itself; one without a user is revoked by an administrator', async () => {
  const user = await enter();
  const own = await key(user);
  assertRevoked(await revoke(own.key, own.id), 'Key revoked.');
  assertError(await revoke(own.key, own.id), 401, 'unauthorized');
  const program = await key(null);
  for (const bearer of [program.key, user.token])
    assertError(await revoke(bearer, program.id), 403, 'forbidden');
  assertRevoked(await revoke(admin.token, program.id), 'Key revoked.');
  assertError(await call(program.key, 'GET', '/api/user/'), 401, 'unauthorized');
});

test('a deleted key opens nothing and cannot be revoked', async () => {
  const { id, key: whole } = await key(await enter());
  await sql`update identity.api_keys set deleted_at = now() where id = ${id}`;
  assert.equal(await isOpen(identity, whole), false);
  assertError(await revoke(admin.token, id), 404, 'not_found');
});
