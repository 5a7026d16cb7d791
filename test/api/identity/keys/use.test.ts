/**
 * API keys as a credential: how they are sent, what they open, what is refused without a look into
 * the database, and their end.
 */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { after, test } from 'node:test';
import { ask, startGatehouse } from '../../../support/gatehouse.ts';
import { startIdentity } from '../../../support/api-users.ts';
import { startProxy } from '../../../support/proxy.ts';
import { assertError, assertSuccess, isOpen } from '../../../support/users.ts';

const started = await startIdentity({ after });
const { identity, databaseUrl, sql, admin, call, add, enter, key } = started;
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
