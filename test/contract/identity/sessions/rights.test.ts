/** Rights that end while a request is on its way, and ends that many sessions are in the way of. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { revokeSessions } from '../../../../src/identity/store/sessions.ts';
import { COMMAND_LINE } from '../../../../src/identity/store/audit.ts';
import { ask, logIn, startGatehouse } from '../../../support/gatehouse.ts';
import { openHouse } from '../../../support/house.ts';
import { connectTo } from '../../../support/socket.ts';
import { recount } from '../../../support/totals.ts';
import { assertError, assertSuccess, isOpen, openIdentity, PASSWORD } from '../../../support/users.ts';

const { identity, databaseUrl, sql, admin, call, add, enter, key } = await openHouse({ after });

const sessions = (userId: string, count: number) => sql`
  insert into identity.sessions (id, token_digest, user_id, expires_at)
  select gen_random_uuid(), sha256(gen_random_uuid()::text::bytea), ${userId}, now() + interval '1 day' from generate_series(1, ${count}::int)`;
const open = async (userId: string) => Number((await sql`select count(*) from identity.sessions where user_id = ${userId} and not revoked`)[0]?.count);

/** Sends a request but for its last byte, lets its sender's rights end, and sends the rest. */
async function lateBody(bearer: string, path: string, body: object, end: () => Promise<unknown>): Promise<number> {
  const client = await connectTo(identity);
  const text = JSON.stringify(body);
  client.send(`POST ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${bearer}\r\nContent-Length: ${text.length}\r\n\r\n`, text.slice(0, -1));
  await sleep(100);
  await end();
  // Longer than a caller who was looked up is taken for granted.
  await sleep(600);
  client.send(text.slice(-1));
  const { status } = await client.answer();
  client.leave();
  return status;
}

test('whose right ends while the body is still on its way does nothing any more', async () => {
  const guest = { username: 'late', email: 'late@example.org', super_admin: true };
  const [demoted, disabled, out] = [await enter({ super_admin: true }), await enter({ super_admin: true }), await enter({ super_admin: true })];
  assert.equal(await lateBody(demoted.token, '/api/user/', guest, () => call(admin.token, 'PATCH', `/api/user/${demoted.id}`, { super_admin: false })), 403);
  assert.equal(await lateBody(disabled.token, '/api/key/', {}, () => call(admin.token, 'PATCH', `/api/user/${disabled.id}`, { enabled: false })), 401);
  assert.equal(await lateBody(out.token, '/api/user/', guest, () => call(null, 'POST', '/api/auth/logout', { session: out.token })), 401);
  assert.deepEqual([...(await sql`select id from identity.users where username = 'late'`)], []);
  assert.deepEqual([...(await sql`select id from identity.api_keys where user_id = ${disabled.id}`)], []);
});

test('a body that takes its time is no harm to whoever still may', async () => {
  assert.equal(await lateBody(admin.token, '/api/key/', { name: 'slow' }, async () => {}), 201);
});

test('a user with more sessions than one statement ends is disabled, given a password and deleted, and all of them end', async () => {
  const end: ReadonlyArray<(id: string) => Promise<unknown>> = [
    async (id) => assertSuccess(await call(admin.token, 'PATCH', `/api/user/${id}`, { enabled: false })),
    async (id) => assertSuccess(await call(admin.token, 'POST', `/api/user/${id}/password`, { password: 'another passphrase' })),
    async (id) => assertSuccess(await call(admin.token, 'DELETE', `/api/user/${id}`)),
  ];
  for (const act of end) {
    const { id } = await add();
    await sessions(id, 12_000);
    await act(id);
    assert.equal(await open(id), 0);
    const lines = await sql`select count, target_id from identity.audit where user_id = ${id} and event = 'session.revoked'`;
    assert.deepEqual([...lines], [{ count: 12_000, target_id: null }]);
  }
});

test("one's own password ends more sessions than one statement does, and spares the one that asks", async () => {
  const user = await enter();
  await sessions(user.id, 12_000);
  const answer = await call(user.token, 'POST', '/api/auth/password', { current_password: PASSWORD, new_password: 'another passphrase' });
  assertSuccess(answer);
  assert.match(answer.json.data.message, /12000 sessions ended/);
  assert.equal(await open(user.id), 1);
  assert.equal(await isOpen(identity, user.token), true);
});

test('of two who revoke everything at once, neither is done before nothing is left', async () => {
  const { id } = await add();
  const databases = [openIdentity({ after }, databaseUrl), openIdentity({ after }, databaseUrl)];
  for (let round = 0; round < 3; round += 1) {
    await sessions(id, 20_000);
    const entry = { event: 'session.revoked', actor: COMMAND_LINE } as const;
    const left = await Promise.all(databases.map(async (database) => {
      await revokeSessions(database, entry, id);
      return open(id);
    }));
    assert.deepEqual(left, [0, 0]);
  }
});

test('a key that is made while its user is deleted is revoked with the user, or not made', async () => {
  for (let round = 0; round < 12; round += 1) {
    const user = await enter();
    const made = [0, 1, 2].map(() => call(admin.token, 'POST', '/api/key/', { user_id: user.id }));
    const [deleted, ...keys] = await Promise.all([call(admin.token, 'DELETE', `/api/user/${user.id}`), ...made]);
    assertSuccess(deleted);
    for (const answer of keys) if (answer.status !== 201) assertError(answer, 404, 'not_found');
    assert.deepEqual([...(await sql`select id from identity.api_keys where user_id = ${user.id} and not revoked`)], []);
  }
});

test('an administrator without a password does not count as one who can get in', async () => {
  const chief = await enter({ super_admin: true });
  const { id } = await add({ super_admin: true, password: undefined });
  const others = await sql`update identity.users set super_admin = false where id not in (${chief.id}, ${id}) and super_admin returning id`;
  assertError(await call(chief.token, 'PATCH', `/api/user/${chief.id}`, { super_admin: false }), 409, 'conflict');
  assertSuccess(await call(chief.token, 'DELETE', `/api/user/${id}`));
  await sql`update identity.users set super_admin = true where id in ${sql(others.map((row) => String(row.id)))}`;
});

test("strangers who fill the waiting room do not keep an account's own network out", async (t) => {
  const { url } = await startGatehouse(t, ['identity'], databaseUrl, { PASSWORD_HASHES: '1', PASSWORD_SCRYPT: 'ln=15,r=8,p=1', TRUSTED_PROXIES: '127.0.0.1' });
  const attempt = (username: string, address: string, password = PASSWORD) =>
    ask('POST', `${url.identity}/api/auth/login`, { body: { username, password }, headers: { 'x-forwarded-for': address } });
  const owner = await add();
  assertSuccess(await attempt(owner.username, '192.0.2.1'));
  // Until the flood is over, there are always more strangers than seats.
  let isOver = false;
  const statuses = new Set<number>();
  const flood = Array.from({ length: 60 }, async (_, index) => {
    for (let turn = 0; !isOver; turn += 1) statuses.add((await attempt(`stranger-${index}-${turn}`, '198.51.100.7')).status);
  });
  while (!statuses.has(503)) await sleep(20);
  const answers = [];
  for (let turn = 0; turn < 3; turn += 1) answers.push((await attempt(owner.username, '192.0.2.1')).status);
  isOver = true;
  await Promise.all(flood);
  assert.deepEqual(answers, [200, 200, 200]);
});

test('the totals are those of the lists after all this', async () => {
  const sums = () => sql`select list, owner, sum(n)::int as n from identity.totals where list not like 'sessions%' group by list, owner having sum(n) <> 0 order by list, owner`;
  const kept = [...(await sums())];
  await recount(sql);
  assert.deepEqual([...(await sums())], kept);
  await logIn(identity);
  assert.equal((await key(admin)).key.startsWith('key:'), true);
});
