/**
 * The statements of identity on a real PostgreSQL: what they find, what they change, and what they
 * leave alone.
 */
import assert from 'node:assert/strict';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { after, beforeEach, test } from 'node:test';
import type { TransactionSql } from 'postgres';
import { createTotpKey } from '../../../src/identity/factors/codes.ts';
import type { Account } from '../../../src/identity/model.ts';
import { COMMAND_LINE } from '../../../src/identity/store/audit.ts';
import { replaceHash } from '../../../src/identity/store/hashes.ts';
import { readNotices } from '../../../src/identity/store/notices.ts';
import { logOutSession, revokeSession } from '../../../src/identity/store/session-ends.ts';
import * as store from '../../../src/identity/store/sessions.ts';
import { addTotp } from '../../../src/identity/store/signin/factors.ts';
import { findAccount, findUser } from '../../../src/identity/store/users.ts';
import { createSessionToken } from '../../../src/identity/token.ts';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { createDatabase } from '../../support/database.ts';
import { meanwhile } from '../../support/meanwhile.ts';
import { addUser, openIdentity } from '../../support/users.ts';

const { url, sql } = await createDatabase();
const database = openIdentity({ after }, url);
const one = await addUser(database, 'user-one');
const two = await addUser(database, 'user-two');
const hexDigest = (text: string) => createHash('sha256').update(text).digest('hex');
const sessions: store.Sessions = { database, idleSeconds: 0 };

beforeEach(async () => {
  await sql`delete from identity.sessions`;
});

const account = async (key: string) => (await findAccount(database, key)) ?? assert.fail(key);

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
const openSession = async (username = 'user-one') =>
  (await insertSession(await account(username))) ?? assert.fail(username);

for (const [what, change] of [
  ['disabled', sql`enabled = false`],
  ['deleted', sql`deleted_at = now()`],
  ['given another password', sql`password_hash = 'another'`],
  ['given a second factor', sql`second_factor = true`],
  ['changed in anything else', sql`updated_at = updated_at + interval '1 second'`],
] as const) {
  test(`a user who is ${what} after the password check gets no session`, async () => {
    const username = `user-${what.replaceAll(' ', '-')}`;
    const id = await addUser(database, username);
    const checked = await account(username);
    await sql`update identity.users set ${change} where id = ${id}`;
    const about = () => sql`
      select event from identity.audit where user_id = ${id}
      union all select encode(key, 'hex') from identity.throttles`;
    const before = await about();
    assert.equal(await insertSession(checked), null);
    assert.deepEqual([...(await sql`select id from identity.sessions`)], []);
    assert.deepEqual(await about(), before, 'nothing in the trail, and no failures cleared');
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
  const earlier = () => store.findEarlierSignIn(database, caller);
  assert.equal(await earlier(), null);
  const { id } = await openSession();
  const then = new Date('2020-01-01T00:00:00Z');
  await sql`update identity.sessions set created_at = ${then} where id = ${id}`;
  assert.deepEqual(await earlier(), then);
  await sql`update identity.sessions set deleted_at = now() where id = ${id}`;
  assert.equal(await earlier(), null);
});

const replica = openIdentity({ after }, url);

test('of two ends of a session at once, one counts', async () => {
  for (const [end, event] of [
    [revokeSession, 'session.revoked'],
    [logOutSession, 'session.logged_out'],
  ] as const) {
    const { id } = await openSession();
    const hold = (held: TransactionSql) =>
      held`update identity.sessions set ip = ip where id = ${id}`;
    const ends = (): Array<Promise<unknown>> =>
      [database, replica].map((on) => end(on, COMMAND_LINE, id, one));
    await meanwhile(sql, hold, ends);
    const entries = await sql`
      select from identity.audit where event = ${event} and target_id = ${id}`;
    assert.equal(entries.length, 1, event);
  }
  const { id } = await openSession();
  const hold = (held: TransactionSql) =>
    held`update identity.sessions set revoked = true where id = ${id}`;
  await meanwhile(sql, hold, () => [logOutSession(database, COMMAND_LINE, id)]);
  const [session] = await sql`select logged_out from identity.sessions where id = ${id}`;
  assert.equal(session?.logged_out, false);
});

test('a hash is replaced only where the password has not been changed meanwhile', async () => {
  const id = await addUser(database, 'user-rehash');
  const hash = async () => (await account('user-rehash')).password_hash;
  const before = (await hash()) ?? '';
  await replaceHash(database, id, 'not the one that is there', 'new');
  assert.equal(await hash(), before);
  await replaceHash(database, id, before, 'new');
  assert.equal(await hash(), 'new');
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
    // At the very moment.
    await sql`
      update identity.sessions set revoked = ${has('revoked')}, logged_out = ${has('logged out')},
        expires_at = now() + make_interval(mins => ${has('expired') ? 0 : 60}),
        last_seen_at = now() - make_interval(secs => ${has('idle') ? 61 : 0})
      where id = ${id}`;
    await sql`
      update identity.users u
      set sessions_end_at = case when ${has('all of the user')} then s.created_at end
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

test('notices cover the given time, and failures only in large numbers', async () => {
  const since = '2030-01-01T00:00:00Z';
  const until = '2030-01-02T00:00:00Z';
  const read = () => readNotices(database, since, until);
  const add = (event: string, at: string, count = 1) => sql`
    insert into identity.audit (id, created_at, event, via, user_id, count, detail)
    select gen_random_uuid(), ${at}, ${event}, 'nobody', ${one}, 1, ''
    from generate_series(1, ${count})`;
  for (const at of [since, '2030-01-02T00:00:01Z']) await add('link.used', at);
  await add('login.failed', until, 9);
  assert.deepEqual(await read(), []);
  await add('link.used', until);
  await add('factor.failed', until);
  const told = ['links used: 1, for 1 accounts', 'wrong passwords and codes: 10, for 1 accounts'];
  assert.deepEqual(await read(), told);
});

for (const [what, change] of [
  ['', null],
  ['once it has a second factor', sql`second_factor = true`],
  ['after the password has changed', sql`updated_at = now() + interval '1 s'`],
] as const) {
  test(`the password alone sets up ${change ? 'no' : 'an'} app for an account ${what}`, async () => {
    const user = await addUser(database, `app-${what.length}`);
    // As a sign-in by password alone sets up the first app: without a caller.
    const enrol = async () => {
      const checkedAt = (await findUser(database, user))?.updated_at ?? assert.fail();
      const key = createTotpKey('identity-secret-for-tests-0123456789abcdef');
      return addTotp(database, COMMAND_LINE, sealSecret(key, 'c2VjcmV0', user), 1, checkedAt);
    };
    const hold = (held: TransactionSql) =>
      held`update identity.users set ${change ?? sql`enabled = enabled`} where id = ${user}`;
    const [added] = await meanwhile(sql, hold, () => [enrol()]);
    assert.equal(added === null, change !== null);
    const apps = await sql`select from identity.totp where user_id = ${user}`;
    assert.equal(apps.length, change ? 0 : 1);
  });
}
