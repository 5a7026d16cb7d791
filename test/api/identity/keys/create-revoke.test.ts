/**
 * POST and GET of /api/key/, DELETE /api/key/{key_id}/revoke: who makes which keys, who sees them,
 * and how they end.
 */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { after, test } from 'node:test';
import { startGatehouse, ask } from '../../../support/gatehouse.ts';
import { assertCreated, assertKey, startIdentity } from '../../../support/api-users.ts';
import { assertError, assertRevoked, assertSuccess, isOpen } from '../../../support/users.ts';
import { startProxy } from '../../../support/proxy.ts';

const started = await startIdentity({ after });
const { identity, databaseUrl, sql, admin, call, add, enter, key } = started;
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

const visit = (headers: Record<string, string>, url = identity) =>
  ask('GET', `${url}/api/test/`, { headers });

/** A well-formed key that was never issued. */
function unknownKey(): string {
  const random = randomBytes(32).toString('base64url');
  return `key:${random}${createHash('sha256').update(random).digest().subarray(0, 4).toString('base64url')}`;
}

test('a key is taken as bearer and as X-API-Key, and acts as its user', async () => {
  const user = await enter();
  const { key: own } = await key(user);
  for (const headers of [
    { authorization: `Bearer ${own}` },
    { authorization: `bearer  ${own}` },
    { 'x-api-key': own },
    { 'X-API-KEY': own },
  ]) {
    const answer = await visit(headers);
    assertSuccess(answer);
    assert.equal(answer.json.data.user.id, user.id);
  }
});

test('of two credentials only the bearer is checked', async () => {
  const one = await enter();
  const two = await enter();
  const ofOne = (await key(one)).key;
  const ofTwo = (await key(two)).key;
  const seen = async (headers: Record<string, string>) =>
    (await visit(headers)).json.data?.user.id ?? null;
  assert.equal(await seen({ authorization: `Bearer ${ofOne}`, 'x-api-key': ofTwo }), one.id);
  assert.equal(await seen({ authorization: `Bearer ${one.token}`, 'x-api-key': ofTwo }), one.id);
  assert.equal(await seen({ authorization: `Bearer ${ofOne}`, 'x-api-key': 'garbage' }), one.id);
  assert.equal(await seen({ authorization: `Bearer ${unknownKey()}`, 'x-api-key': ofTwo }), null);
  assert.equal(await seen({ authorization: 'Bearer key:garbage', 'x-api-key': ofTwo }), null);
});

test('a key is no session token, and a session token no key', async () => {
  const user = await enter();
  const { key: own } = await key(user);
  assertError(await visit({ 'x-api-key': user.token }), 401, 'unauthorized');
  assertError(await visit({ cookie: `session=${own}` }), 401, 'unauthorized');
  assertError(
    await visit({ authorization: `Basic ${Buffer.from(own).toString('base64')}` }),
    401,
    'unauthorized',
  );
  assertError(await call(null, 'GET', `/api/test/?key=${own}&api_key=${own}`), 401, 'unauthorized');
  assertError(
    await call(null, 'POST', '/api/auth/session', { session: own }),
    401,
    'invalid_session',
  );
  assertError(await call(null, 'POST', '/api/auth/logout', { session: own }), 400, 'invalid_body', [
    '/session',
  ]);
  assertError(
    await call(user.token, 'GET', `/api/session/info?session=${own}`),
    400,
    'invalid_session_token',
  );
  assertError(
    await call(user.token, 'DELETE', `/api/session/revoke?session=${own}`),
    400,
    'invalid_session_token',
  );
  assertError(
    await call(null, 'POST', '/api/auth/login', { username: user.username, password: own }),
    401,
    'invalid_credentials',
  );
  assert.equal(await isOpen(identity, own), true);
});

/** Everything that is not exactly a key, made from one. */
function garbage(whole: string): Record<string, string> {
  const random = whole.slice(4, 47);
  const sum = whole.slice(47);
  const other = (letter: string | undefined) => (letter === 'A' ? 'B' : 'A');
  return {
    'nothing behind the prefix': 'key:',
    'no prefix': `${random}${sum}`,
    'an upper case prefix': `KEY:${random}${sum}`,
    'no checksum': `key:${random}`,
    'another checksum': `key:${random}${sum.slice(0, 5)}${other(sum[5])}`,
    'the checksum of another key': `key:${random}${unknownKey().slice(47)}`,
    'one letter changed': `key:${other(random[0])}${random.slice(1)}${sum}`,
    'the letters in reverse': `key:${[...random].reverse().join('')}${sum}`,
    'one letter too many': `${whole}A`,
    'one letter too few': whole.slice(0, -1),
    padding: `${whole}=`,
    'a full stop inside': `key:${random.slice(0, 20)}.${random.slice(21)}${sum}`,
    'the masked form': `${whole.slice(0, 12)}...`,
    'the whole in Base64': Buffer.from(whole).toString('base64'),
    'the key twice': `${whole},${whole}`,
    'a very long text': `key:${'A'.repeat(8_000)}`,
  };
}

test('garbage costs no query: without the database it is 401, a valid form 500', async (t) => {
  let cut = async () => {};
  const {
    identity: away,
    key: make,
    admin: chief,
  } = await startIdentity(t, {}, async (url) => {
    const proxy = await startProxy(t, url);
    cut = () => proxy.cut();
    return proxy.url;
  });
  const { key: whole } = await make(chief);
  assert.equal(await isOpen(away, whole), true);
  await cut();
  for (const form of ['', ...Object.values(garbage(whole))]) {
    for (const headers of [{ authorization: `Bearer ${form}` }, { 'x-api-key': form }])
      assertError(await visit(headers, away), 401, 'unauthorized');
  }
  for (const form of [whole, unknownKey()]) {
    for (const headers of [{ authorization: `Bearer ${form}` }, { 'x-api-key': form }])
      assertError(await visit(headers, away), 500, 'service_failed');
  }
});

test("a key ends by the database's clock, and not a moment before", async () => {
  const { id, key: whole } = await key(admin, { expires_at: '2100-01-01T00:00:00Z' });
  await sql`update identity.api_keys set expires_at = now() + interval '1 minute' where id = ${id}`;
  assert.equal(await isOpen(identity, whole), true);
  await sql`update identity.api_keys set expires_at = now() where id = ${id}`;
  assertError(await call(whole, 'GET', '/api/test/'), 401, 'unauthorized');
  await sql`update identity.api_keys set expires_at = null where id = ${id}`;
  assert.equal(await isOpen(identity, whole), true);
  await sql`update identity.api_keys set deleted_at = now() where id = ${id}`;
  assertError(await call(whole, 'GET', '/api/test/'), 401, 'unauthorized');
});

test('a key without a user sees the sessions and users of everyone', async () => {
  const user = await enter();
  const { key: program } = await key(null);
  const all = await call(program, 'GET', '/api/session/?limit=1');
  assertSuccess(all, 'paged');
  assert.equal(
    all.json._meta.pagination.total,
    (await call(admin.token, 'GET', '/api/session/?limit=1')).json._meta.pagination.total,
  );
  const some = await call(program, 'GET', `/api/session/?user=${user.id}`);
  assert.deepEqual(
    some.json.data.map((session: { user_id: string }) => session.user_id),
    [user.id],
  );
  assert.equal(
    (await call(program, 'GET', `/api/user/${user.id}`)).json.data.username,
    user.username,
  );
});

test('a key created for another user acts as that user', async () => {
  const user = await add();
  const { key: own } = await key(null, { user_id: user.id });
  assert.equal((await call(own, 'GET', '/api/test/')).json.data.user.id, user.id);
  assertError(await call(own, 'GET', '/api/audit/'), 403, 'forbidden');
});

test('the last use of a key is recorded at most once a minute by each replica', async (t) => {
  const replica = await startGatehouse(t, ['identity'], databaseUrl);
  const { id, key: own } = await key(admin);
  await sql`create table writes (id uuid)`;
  await sql`create function count_write() returns trigger language plpgsql
    as $$ begin insert into writes values (new.id); return new; end $$`;
  await sql`create trigger count_write after update on identity.api_keys
    for each row execute function count_write()`;
  /** @returns how often the use of the key was written so far, and whether it is a recent one */
  const rush = async () => {
    const urls = Array.from({ length: 40 }, (_, index) =>
      index % 2 === 0 ? identity : replica.url.identity,
    );
    await Promise.all(urls.map((url) => visit({ 'x-api-key': own }, url)));
    for (const at of [started, replica]) await at.runJobs(/last use/);
    const [row] = await sql`
      select (select count(*)::int from writes w where w.id = k.id) as writes,
        last_used_at between now() - interval '1 minute' and now() as "isRecent"
      from identity.api_keys k where id = ${id}`;
    return { ...row };
  };
  // What one replica writes, the other does not.
  assert.deepEqual(await rush(), { writes: 1, isRecent: true });
  assert.deepEqual(await rush(), { writes: 1, isRecent: true });
  const { data } = (await call(admin.token, 'GET', '/api/key/')).json;
  assert.ok(data.find((one: { id: string }) => one.id === id).last_used_at);
  // A minute later it counts as news again.
  await sql`update identity.api_keys set last_used_at = now() - interval '2 minutes'
    where id = ${id}`;
  assert.deepEqual(await rush(), { writes: 3, isRecent: true });
});
