/** The statements of identity on a real PostgreSQL: what they find, what they change, and what they leave alone. */
import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { after, beforeEach, test } from 'node:test';
import { migrate } from '../../src/db/migrate.ts';
import { Duplicate } from '../../src/db/pool.ts';
import { MIGRATIONS, SCHEMA } from '../../src/identity/migrations.ts';
import { jobs } from '../../src/identity/start.ts';
import { createIdentity } from '../../src/identity/service.ts';
import * as store from '../../src/identity/store.ts';
import { createSessionToken } from '../../src/identity/token.ts';
import { createLog } from '../../src/runtime/log.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';
import { createDatabase } from '../support/database.ts';
import { addUser, CHEAP, openIdentity } from '../support/users.ts';

const { url, sql } = await createDatabase();
const database = openIdentity({ after }, url);
await migrate(database, SCHEMA, MIGRATIONS);
const one = await addUser(database, 'user-one');
const two = await addUser(database, 'user-two');

beforeEach(async () => void (await sql`delete from identity.sessions`));

async function account(key: string): Promise<store.Account> {
  const found = await store.findAccount(database, key);
  assert.ok(found);
  return found;
}

async function openSession(username = 'user-one') {
  const [id, token] = [randomUUID(), createSessionToken()];
  assert.equal(await store.insertSession(database, id, token, await account(username), 3_600), true);
  return { id, token };
}

const newUser = (username: string, email = `${username}@example.org`): store.NewUser => ({
  id: randomUUID(),
  username,
  usernameKey: username,
  email,
  emailKey: email,
  firstName: '',
  lastName: '',
  passwordHash: null,
  verified: false,
  superAdmin: false,
});
const insert = (user: store.NewUser) => database.write((connection) => store.insertUser(connection, user));
const refusedBy = (constraint: string) => (error: unknown) => error instanceof Duplicate && error.constraint === constraint;

test('a taken name or address is refused by its index, and free again once its user is deleted', async () => {
  const first = await insert(newUser('taken'));
  await assert.rejects(insert(newUser('taken', 'other@example.org')), refusedBy('users_username_key'));
  await assert.rejects(insert(newUser('other', 'taken@example.org')), refusedBy('users_email_key'));
  await sql`update identity.users set deleted_at = now() where id = ${first.id}`;
  const second = await insert(newUser('taken'));
  assert.equal((await account('taken')).id, second.id);
  assert.equal(await store.userExists(database, first.id), false);
  assert.equal(await store.userExists(database, second.id), true);
});

test('a session is stored under the SHA-256 of its token, and the token nowhere', async () => {
  const { id, token } = await openSession();
  const [row] = await sql`select token_digest, sessions::text as everything from identity.sessions where id = ${id}`;
  assert.deepEqual(row?.token_digest, createHash('sha256').update(token).digest());
  assert.equal(row?.everything.includes(token.slice('session:'.length)), false);
  assert.notEqual(id, token.slice('session:'.length));
  assert.equal((await store.findSessionByToken(database, token))?.id, id);
  assert.equal(await store.findSessionByToken(database, createSessionToken()), null);
});

const changes = {
  disabled: sql`enabled = false`,
  deleted: sql`deleted_at = now()`,
  'given another password': sql`password_hash = 'another'`,
};

for (const [what, change] of Object.entries(changes)) {
  test(`a user who is ${what} between the check of the password and the session gets no session`, async () => {
    const username = `user-${what.replaceAll(' ', '-')}`;
    const id = await addUser(database, username);
    const checked = await account(username);
    await sql`update identity.users set ${change} where id = ${id}`;
    assert.equal(await store.insertSession(database, randomUUID(), createSessionToken(), checked, 60), false);
    assert.deepEqual([...(await sql`select id from identity.sessions`)], []);
  });
}

test('a hash is replaced only where the password has not been changed meanwhile', async () => {
  const id = await addUser(database, 'user-rehash');
  const before = (await account('user-rehash')).password_hash ?? '';
  await store.replaceHash(database, id, 'not the one that is there', 'new');
  assert.equal((await account('user-rehash')).password_hash, before);
  await store.replaceHash(database, id, before, 'new');
  assert.equal((await account('user-rehash')).password_hash, 'new');
});

test('sessions of one moment are listed in one fixed order, so that no page repeats or omits one', async (t) => {
  for (let count = 0; count < 6; count += 1) await openSession();
  await sql`update identity.sessions set created_at = '2020-01-01'`;
  // Without the index, which has the order in it, only the statement itself can put the rows in order.
  await sql.unsafe(`alter database ${new URL(url).pathname.slice(1)} set enable_indexscan = off`);
  await sql.unsafe(`alter database ${new URL(url).pathname.slice(1)} set enable_bitmapscan = off`);
  const unindexed = openIdentity(t, url);
  const page = async (offset: number, limit: number) => (await store.listSessions(unindexed, { userId: one, limit, offset })).sessions.map(({ id }) => id);
  const whole = await page(0, 10);
  assert.equal(whole.length, 6);
  assert.deepEqual(whole, [...whole].sort().reverse());
  assert.deepEqual([...(await page(0, 2)), ...(await page(2, 2)), ...(await page(4, 2))], whole);
});

test('the list counts what it could show, and the filter and deletion hold for both', async () => {
  const { id } = await openSession();
  await openSession();
  await openSession('user-two');
  await sql`update identity.sessions set deleted_at = now() where id = ${id}`;
  for (const [userId, expected] of [[null, 2], [one, 1], [two, 1], [randomUUID(), 0]] as const) {
    const { sessions, total } = await store.listSessions(database, { userId, limit: 10, offset: 0 });
    assert.deepEqual([sessions.length, total], [expected, expected]);
  }
});

test('an ended session has expired by the database\'s clock, at the very moment', async () => {
  const { id, token } = await openSession();
  assert.equal((await store.findSessionByToken(database, token))?.expired, false);
  await sql`update identity.sessions set expires_at = now() where id = ${id}`;
  assert.equal((await store.findSessionByToken(database, token))?.expired, true);
});

test('a session\'s owner is known by its id, and that of a deleted or unknown session is not', async () => {
  const { id } = await openSession('user-two');
  assert.equal(await store.findSessionOwner(database, id), two);
  assert.equal(await store.findSessionOwner(database, randomUUID()), null);
  await sql`update identity.sessions set deleted_at = now() where id = ${id}`;
  assert.equal(await store.findSessionOwner(database, id), null);
  assert.equal(await store.revokeSession(database, id), 0);
});

test('revoking all of one user counts those that were still open, and touches no other row', async () => {
  const [loggedOut, expired] = [await openSession(), await openSession(), await openSession(), await openSession()];
  const foreign = await openSession('user-two');
  await store.logOut(database, loggedOut.token);
  await sql`update identity.sessions set expires_at = now() where id = ${expired.id}`;
  const untouched = () => sql`select * from identity.sessions where id in (${loggedOut.id}, ${expired.id}, ${foreign.id}) order by id`;
  const before = await untouched();
  assert.equal(await store.revokeSessions(database, one), 2);
  assert.deepEqual([...(await untouched())], [...before]);
  assert.equal(await store.revokeSessions(database, one), 0);
  assert.equal(await store.revokeSessions(database, null), 1);
});

test('a session that has ended is removed when its retention is over, in batches, and no other', async () => {
  const day = 86_400;
  for (let count = 0; count < 5; count += 1) await openSession();
  const kept = await openSession();
  const open = await openSession();
  await sql`update identity.sessions set expires_at = now() - interval '31 days' where id not in (${kept.id}, ${open.id})`;
  await sql`update identity.sessions set expires_at = now() - interval '29 days' where id = ${kept.id}`;
  assert.equal(await store.removeEndedSessions(database, 30 * day, 3), 3);
  assert.equal(await store.removeEndedSessions(database, 30 * day, 3), 2);
  assert.equal(await store.removeEndedSessions(database, 30 * day, 3), 0);
  const left = (await sql`select id from identity.sessions`).map((row) => String(row.id));
  assert.deepEqual(left.sort(), [kept.id, open.id].sort());
});

test('the background job removes with the configured retention, and two may run at once', async () => {
  const [old, recent] = [await openSession(), await openSession()];
  await sql`update identity.sessions set expires_at = now() - interval '61 seconds' where id = ${old.id}`;
  await sql`update identity.sessions set expires_at = now() - interval '30 seconds' where id = ${recent.id}`;
  const surroundings = { log: createLog('silent', () => {}), metrics: createMetrics(), isServing: () => true, announce: () => {}, print: async () => {} };
  const service = createIdentity({ passwords: CHEAP, sessionSeconds: 60, retentionSeconds: 60 }, database, surroundings);
  const [job] = jobs(service);
  // False: the batch was not full, so there is nothing more to do now.
  assert.deepEqual(await Promise.all([job?.batch(), job?.batch()]), [false, false]);
  assert.deepEqual([...(await sql`select id from identity.sessions`)], [{ id: recent.id }]);
});
