/**
 * The statements of identity on a real PostgreSQL: what they find, what they change, and what they
 * leave alone.
 */
import assert from 'node:assert/strict';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { after, beforeEach, test } from 'node:test';
import { migrate } from '../../../src/platform/db/schema.ts';
import { Duplicate } from '../../../src/platform/db/errors.ts';
import { SCHEMA } from '../../../src/identity/migrations.ts';
import type { Account, User } from '../../../src/identity/model.ts';
import { COMMAND_LINE } from '../../../src/identity/store/audit.ts';
import {
  logOutSession,
  revokeSession,
  revokeSessions,
} from '../../../src/identity/store/session-ends.ts';
import * as store from '../../../src/identity/store/sessions.ts';
import { findAccount, findUser, insertUser } from '../../../src/identity/store/users.ts';
import { replaceHash } from '../../../src/identity/store/hashes.ts';
import { createSessionToken } from '../../../src/identity/token.ts';
import { createDatabase } from '../../support/database.ts';
import { addUser, openIdentity } from '../../support/users.ts';

const { url, sql } = await createDatabase();
const database = openIdentity({ after }, url);
await migrate(database, SCHEMA);
const one = await addUser(database, 'user-one');
const two = await addUser(database, 'user-two');
const hexDigest = (text: string) => createHash('sha256').update(text).digest('hex');
const sessions: store.Sessions = { database, idleSeconds: 0 };

beforeEach(async () => {
  await sql`delete from identity.sessions`;
});

async function account(key: string): Promise<Account> {
  const found = await findAccount(database, key);
  assert.ok(found);
  return found;
}

const LIMIT = { key: randomBytes(32), mode: 'window', attempts: 2, seconds: 60 } as const;
/** @returns the new session, or null if the account has changed */
async function insertSession(user: Account, methods = 'password') {
  const session = { id: randomUUID(), token: createSessionToken(), seconds: 3_600 };
  const isInserted = await store.insertSession(
    database,
    { event: 'login.succeeded', actor: COMMAND_LINE },
    { ...session, staySeconds: null, ip: '192.0.2.1', userAgent: 'a test', methods },
    user,
    { pair: LIMIT, account: LIMIT, network: LIMIT, known: { key: randomBytes(32), mode: 'known' } },
  );
  return isInserted ? session : null;
}

async function openSession(username = 'user-one') {
  return (await insertSession(await account(username))) ?? assert.fail(username);
}

type UserInput = Parameters<typeof insertUser>[2];
const newUser = (username: string, email = `${username}@example.org`): UserInput => ({
  username,
  email,
  first_name: '',
  last_name: '',
  password_hash: null,
  password_generated: false,
  enabled: true,
  verified: false,
  super_admin: false,
  groups: [],
});
const insert = (user: UserInput): Promise<User> =>
  database.transaction((connection) => insertUser(connection, COMMAND_LINE, user));
const refusedBy = (constraint: string) => (error: unknown) =>
  error instanceof Duplicate && error.constraint === constraint;

test('a taken name or address is rejected by its index, and free after deletion', async () => {
  const first = await insert(newUser('taken'));
  const before = await sql`select count(*)::int as lines from identity.audit`;
  await assert.rejects(
    insert(newUser('taken', 'other@example.org')),
    refusedBy('users_username_key'),
  );
  await assert.rejects(insert(newUser('other', 'taken@example.org')), refusedBy('users_email_key'));
  assert.deepEqual(
    await sql`select count(*)::int as lines from identity.audit`,
    before,
    'what was not done is not in the trail',
  );
  await sql`update identity.users set deleted_at = now() where id = ${first.id}`;
  const second = await insert(newUser('taken'));
  assert.equal((await account('taken')).id, second.id);
  assert.equal(await findUser(database, first.id), null);
  assert.equal((await findUser(database, second.id))?.username, 'taken');
});

test('a session is stored under the SHA-256 of its token, and the token nowhere', async () => {
  const { id, token } = await openSession();
  const [row] = await sql`select token_digest, sessions::text as everything from identity.sessions
      where id = ${id}`;
  assert.deepEqual(row?.token_digest, Buffer.from(hexDigest(token), 'hex'));
  assert.equal(row?.everything.includes(token.slice('session:'.length)), false);
  assert.notEqual(id, token.slice('session:'.length));
  assert.equal((await store.findSessionByToken(sessions, hexDigest(token)))?.id, id);
  assert.equal(await store.findSessionByToken(sessions, hexDigest(createSessionToken())), null);
});

const changes = {
  disabled: sql`enabled = false`,
  deleted: sql`deleted_at = now()`,
  'given another password': sql`password_hash = 'another'`,
  'given a second factor': sql`second_factor = true`,
  'changed in anything else': sql`updated_at = updated_at + interval '1 second'`,
};

for (const [what, change] of Object.entries(changes)) {
  test(`a user who is ${what} after the password check gets no session`, async () => {
    const username = `user-${what.replaceAll(' ', '-')}`;
    const id = await addUser(database, username);
    const checked = await account(username);
    await sql`update identity.users set ${change} where id = ${id}`;
    const about = () => sql`
      select event from identity.audit where user_id = ${id} union all select encode(key, 'hex')
        from identity.throttles`;
    const trail = await about();
    assert.equal(await insertSession(checked), null);
    assert.deepEqual([...(await sql`select id from identity.sessions`)], []);
    assert.deepEqual(await about(), trail, 'nothing in the trail, and no failures cleared');
  });
}

test('a session by more than the password is for its account, which may have a factor', async () => {
  // The other account is the same in all that is compared.
  await sql`
    update identity.users set second_factor = true, password_hash = 'one', updated_at = now()
    where id in ${sql([one, two])}`;
  const made = await insertSession(await account('user-two'), 'password, totp');
  const stored = await sql`select id, user_id from identity.sessions`;
  assert.deepEqual([...stored], [{ id: made?.id, user_id: two }]);
  await sql`update identity.users set second_factor = false where id in ${sql([one, two])}`;
});

test('the sign-in before is that of another session of the user, unless it is deleted', async () => {
  const { token } = await openSession();
  await openSession('user-two');
  const caller = await store.findCallerByToken(sessions, hexDigest(token));
  assert.ok(caller);
  assert.equal(await store.findEarlierSignIn(database, caller), null);
  const { id } = await openSession();
  await sql`update identity.sessions set created_at = '2020-01-01T00:00:00Z' where id = ${id}`;
  const then = new Date('2020-01-01T00:00:00Z');
  assert.deepEqual(await store.findEarlierSignIn(database, caller), then);
  await sql`update identity.sessions set deleted_at = now() where id = ${id}`;
  assert.equal(await store.findEarlierSignIn(database, caller), null);
});

test('a hash is replaced only where the password has not been changed meanwhile', async () => {
  const id = await addUser(database, 'user-rehash');
  const before = (await account('user-rehash')).password_hash ?? '';
  await replaceHash(database, id, 'not the one that is there', 'new');
  assert.equal((await account('user-rehash')).password_hash, before);
  await replaceHash(database, id, before, 'new');
  assert.equal((await account('user-rehash')).password_hash, 'new');
});

test('sessions of the same moment are listed in one fixed order', async (t) => {
  for (let count = 0; count < 6; count += 1) await openSession();
  await sql`update identity.sessions set created_at = '2020-01-01'`;
  // Without the index, which has the order in it, only the statement itself can put the rows in
  // order.
  await sql.unsafe(`alter database ${new URL(url).pathname.slice(1)} set enable_indexscan = off`);
  await sql.unsafe(`alter database ${new URL(url).pathname.slice(1)} set enable_bitmapscan = off`);
  const unindexed = { database: openIdentity(t, url), idleSeconds: 0 };
  const page = async (number: number, limit: number) =>
    (await store.listSessions(unindexed, { page: number, limit }, one, null)).rows.map(
      ({ id }) => id,
    );
  const whole = await page(1, 10);
  assert.equal(whole.length, 6);
  assert.deepEqual(whole, [...whole].sort().reverse());
  for (const limit of [1, 2, 4]) {
    const pages: string[] = [];
    for (let number = 1; number <= Math.ceil(6 / limit); number += 1)
      pages.push(...(await page(number, limit)));
    assert.deepEqual(pages, whole, `${limit} at a time`);
  }
});

test('the total equals the number of listed sessions, for all users and for each user', async () => {
  await openSession();
  await openSession('user-two');
  for (const [userId, expected] of [
    [null, 2],
    [one, 1],
    [two, 1],
    [randomUUID(), 0],
  ] as const) {
    const { rows, total } = await store.listSessions(
      sessions,
      { page: 1, limit: 10 },
      userId,
      null,
    );
    assert.deepEqual([rows.length, total], [expected, expected]);
  }
});

test("an ended session has expired by the database's clock, at the very moment", async () => {
  const { id, token } = await openSession();
  assert.equal((await store.findSessionByToken(sessions, hexDigest(token)))?.expired, false);
  await sql`update identity.sessions set expires_at = now() where id = ${id}`;
  assert.equal((await store.findSessionByToken(sessions, hexDigest(token)))?.expired, true);
});

test('a check of a token and its session agree on whether it has ended, for every set of ends', async (t) => {
  const ENDS = [
    'revoked',
    'logged out',
    'expired',
    'idle',
    'all of the user',
    'all',
    'all, by a clock that was ahead',
  ] as const;
  const { id, token } = await openSession();
  const limited = { database, idleSeconds: 60 };
  await sql`update identity.sessions set created_at = now() - interval '2 hours' where id = ${id}`;
  t.after(async () => {
    await sql`update identity.users set sessions_end_at = null`;
    await sql`update identity.global_revocation set sessions_end_at = null`;
  });
  for (let chosen = 0; chosen < 2 ** ENDS.length; chosen += 1) {
    const has = (end: (typeof ENDS)[number]) => (chosen & (1 << ENDS.indexOf(end))) !== 0;
    await sql`
      update identity.sessions set revoked = ${has('revoked')}, logged_out = ${has('logged out')},
        expires_at = now() + make_interval(mins => ${has('expired') ? -1 : 60}),
          last_seen_at = now() - make_interval(secs => ${has('idle') ? 61 : 0})
      where id = ${id}`;
    await sql`
      update identity.users u set sessions_end_at = case when ${has('all of the user')} then
        s.created_at end
      from identity.sessions s where s.id = ${id} and u.id = s.user_id`;
    const ofAll = has('all') ? -30 : null;
    const minutes = has('all, by a clock that was ahead') ? 120 : ofAll;
    await sql`update identity.global_revocation
      set sessions_end_at = now() + make_interval(mins => ${minutes})`;
    const [caller, session] = await Promise.all([
      store.findCallerByToken(limited, hexDigest(token)),
      store.findSessionByToken(limited, hexDigest(token)),
    ]);
    assert.ok(caller && session);
    const ends = ENDS.filter(has).join(', ');
    assert.equal(caller.ended, session.revoked || session.logged_out || session.expired, ends);
    assert.equal(caller.ended, ends !== '', ends);
  }
});

test('the owner of a session is found by its id, unless it is deleted or unknown', async () => {
  const { id } = await openSession('user-two');
  assert.equal(await store.findSessionOwner(database, id), two);
  assert.equal(await store.findSessionOwner(database, randomUUID()), null);
  await sql`update identity.sessions set deleted_at = now() where id = ${id}`;
  assert.equal(await store.findSessionOwner(database, id), null);
  assert.equal(await revokeSession(database, COMMAND_LINE, id, two), 0);
});

test('revoking all sessions of a user counts the open ones and touches no row', async () => {
  const loggedOut = await openSession();
  const expired = await openSession();
  await openSession();
  await openSession();
  const foreign = await openSession('user-two');
  await logOutSession(database, COMMAND_LINE, loggedOut.id);
  await sql`update identity.sessions set expires_at = now() where id = ${expired.id}`;
  const untouched = () =>
    sql`select * from identity.sessions where id in (${loggedOut.id}, ${expired.id}, ${foreign.id})
      order by id`;
  const before = await untouched();
  assert.equal(await revokeSessions(database, COMMAND_LINE, one), 2);
  assert.deepEqual([...(await untouched())], [...before]);
  assert.equal(await revokeSessions(database, COMMAND_LINE, one), 0);
  assert.equal(await revokeSessions(database, COMMAND_LINE, null), 1);
});
