/**
 * The statements of identity on a real PostgreSQL: what they find, what they change, and what they
 * leave alone. And what a login does besides answering: the renewal of the hash, its order in the
 * queue, and what it leaves in the database.
 */
import assert from 'node:assert/strict';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { after, beforeEach } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { ISql } from 'postgres';
import { changePassword, login } from '../../../src/identity/login.ts';
import type { Account } from '../../../src/identity/model.ts';
import { hashPassword } from '../../../src/identity/passwords.ts';
import { createIdentity, type IdentityService } from '../../../src/identity/service.ts';
import { COMMAND_LINE } from '../../../src/identity/store/audit.ts';
import { replaceHash } from '../../../src/identity/store/hashes.ts';
import { logOutSession, revokeSession } from '../../../src/identity/store/session-ends.ts';
import * as store from '../../../src/identity/store/sessions.ts';
import { findAccount, findUser } from '../../../src/identity/store/users.ts';
import { createSessionToken } from '../../../src/identity/token.ts';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import { createLimiter } from '../../../src/platform/runtime/limiter.ts';
import { createLog } from '../../../src/platform/runtime/log.ts';
import { createDatabase } from '../../support/database.ts';
import { meanwhile } from '../../support/meanwhile.ts';
import { REQUEST } from '../../support/request-info.ts';
import { quiet } from '../../support/service-context.ts';
import { latch, test } from '../../support/until.ts';
import { addUser, CHEAP, IDENTITY_OPTIONS, openIdentity, PASSWORD } from '../../support/users.ts';

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

const hashOf = async (username: string) => String((await account(username)).password_hash);

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

test('an end of a session that waits for another changes nothing and is not recorded', async () => {
  for (const [first, end] of [
    ['revoked', revokeSession],
    ['revoked', logOutSession],
    ['logged_out', logOutSession],
  ] as const) {
    const { id } = await openSession();
    await meanwhile(
      sql,
      (held) => held`update identity.sessions set ${held(first)} = true where id = ${id}`,
      (): Array<Promise<unknown>> => [end(database, COMMAND_LINE, id, one)],
    );
    const [row] = await sql`
      select revoked, logged_out, (select count(*)::int from identity.audit
        where event like 'session.%' and target_id = s.id) as recorded
      from identity.sessions s where id = ${id}`;
    const expected = { revoked: first === 'revoked', logged_out: first !== 'revoked' };
    assert.deepEqual({ ...row }, { ...expected, recorded: 0 });
  }
});

test('a hash is replaced only where the password has not been changed meanwhile', async () => {
  const id = await addUser(database, 'user-rehash');
  const before = await hashOf('user-rehash');
  await replaceHash(database, id, 'not the one that is there', 'new');
  assert.equal(await hashOf('user-rehash'), before);
  await replaceHash(database, id, before, 'new');
  assert.equal(await hashOf('user-rehash'), 'new');
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

// --- Logins

const withCost = (logN: number, more: Partial<IdentityService> = {}): IdentityService => {
  const passwords = { ...CHEAP, cost: { logN, r: 8, p: 1 } };
  const options = { ...IDENTITY_OPTIONS, passwords };
  return { ...createIdentity(options, database, quiet()), ...more };
};
const OTHER_PASSWORD = 'another password';

/** @returns `session`, or the code of the failure */
async function tryLogin(service: IdentityService, username: string, password = PASSWORD) {
  const body = { username, password, otp: undefined };
  const call = { request: REQUEST, caller: null, path: {}, query: {}, body };
  const outcome = await login(call, service);
  return outcome instanceof Failure ? outcome.code : 'session';
}

const countSessions = async () => (await sql`select from identity.sessions`).length;
const costOf = async (username: string) => (await hashOf(username)).split('$')[2];
const costs = (logN: number) => `ln=${logN},r=8,p=1`;

test('a hash of another cost is replaced at the next successful login', async () => {
  await addUser(database, 'user-renewed');
  assert.equal(await tryLogin(withCost(5), 'user-renewed', 'wrong'), 'invalid_credentials');
  assert.equal(await costOf('user-renewed'), costs(4));
  for (const logN of [5, 3]) {
    const renewed: string[] = [];
    for (const _login of [1, 2]) {
      assert.equal(await tryLogin(withCost(logN), 'user-renewed'), 'session');
      renewed.push(await hashOf('user-renewed'));
    }
    assert.equal(await costOf('user-renewed'), costs(logN));
    assert.equal(renewed[1], renewed[0], 'once');
  }
  await sql`update identity.users set enabled = false where username = 'user-renewed'`;
  assert.equal(await tryLogin(withCost(5), 'user-renewed'), 'invalid_credentials');
  assert.equal(await costOf('user-renewed'), costs(3), 'not of a disabled user');
});

const setHash =
  (logN: number, password: string) =>
  async (on: ISql<{}>, username: string): Promise<void> => {
    const hash = await hashPassword(password, { logN, r: 8, p: 1 });
    await on`update identity.users set password_hash = ${hash} where username = ${username}`;
  };

for (const [what, change, outcome, cost] of [
  ['the renewal of the hash', setHash(5, PASSWORD), 'session', 5],
  ['a password change', setHash(4, OTHER_PASSWORD), 'invalid_credentials', 4],
  [
    'a second factor',
    async (on: ISql<{}>, username: string) => {
      await on`update identity.users set second_factor = true, updated_at = now()
        where username = ${username}`;
    },
    'second_factor_needed',
    4,
  ],
] as const) {
  test(`a login that is overtaken by ${what} ends with: ${outcome}`, async () => {
    const username = `user-overtaken-${cost}-${outcome.length}`;
    await addUser(database, username);
    // The login waits for the row that this transaction has locked. Until then, it decides nothing.
    const outcomes = await meanwhile(
      sql,
      (held) => change(held, username),
      () => [tryLogin(withCost(cost), username)],
    );
    assert.deepEqual(outcomes, [outcome]);
    assert.equal(await countSessions(), outcome === 'session' ? 1 : 0);
    assert.equal(await costOf(username), costs(cost));
  });
}

/** A limiter whose only slot is taken until the test releases it. */
function closedGate() {
  const gate = createLimiter(1, 8, 'a hash');
  const { opened, open } = latch();
  const held = gate.run(() => opened);
  const release = () => {
    open();
    return held;
  };
  return { gate, release };
}

test('a login counts the password that holds when its turn comes, not when it queued', async () => {
  const given = { [PASSWORD]: 'invalid_credentials', [OTHER_PASSWORD]: 'session' };
  for (const [password, outcome] of Object.entries(given)) {
    const username = `user-queued-${outcome.length}`;
    await addUser(database, username);
    const { gate, release } = closedGate();
    const slow = tryLogin(withCost(4, { hashing: gate }), username, password);
    while (gate.waiting() === 0) await turn();
    await setHash(4, OTHER_PASSWORD)(sql, username);
    await release();
    assert.equal(await slow, outcome);
  }
});

test('logins that queued together get no more attempts than logins that follow each other', async () => {
  await addUser(database, 'user-guessed');
  const { gate, release } = closedGate();
  const service = withCost(4, { hashing: gate });
  const answers: Array<Promise<string>> = [];
  for (const password of ['guess 1', 'guess 2', 'guess 3', 'guess 4', 'guess 5', PASSWORD]) {
    answers.push(tryLogin(service, 'user-guessed', password));
    while (gate.waiting() < answers.length) await turn();
  }
  await release();
  const expected = [...Array(5).fill('invalid_credentials'), 'too_many_requests'];
  assert.deepEqual(await Promise.all(answers), expected);
  assert.equal(await countSessions(), 0);
});

test('the answer to a throttled login is delayed', async () => {
  const delayedAnswers = createLimiter(1, 0, 'a throttled login');
  const service = withCost(4, { delayedAnswers });
  const attempt = () => tryLogin(service, 'user-flooded', 'wrong');
  for (let failures = 0; failures < 5; failures += 1)
    assert.equal(await attempt(), 'invalid_credentials');
  assert.equal(delayedAnswers.running(), 0);
  let isAnswered = false;
  const answer = attempt().finally(() => {
    isAnswered = true;
  });
  while (delayedAnswers.running() === 0 && !isAnswered) await turn();
  assert.equal(isAnswered, false);
  assert.equal(await answer, 'too_many_requests');
  // Beyond the limit of delayed answers, it is the same.
  const { opened, open } = latch();
  const held = delayedAnswers.run(() => opened);
  assert.equal(await attempt(), 'too_many_requests');
  open();
  await held;
});

test('a login succeeds though its hash cannot be renewed: the session has been made', async () => {
  await addUser(database, 'user-unrenewed');
  await sql`create function identity.refuse() returns trigger language plpgsql
    as $$ begin raise exception 'refused'; end $$`;
  await sql`create trigger refuse before update on identity.users
    for each row when (new.password_hash <> old.password_hash) execute function identity.refuse()`;
  const warnings: string[] = [];
  const log = createLog('warn', (line) => warnings.push(line));
  assert.equal(await tryLogin(withCost(5, { log }), 'user-unrenewed'), 'session');
  assert.deepEqual([await costOf('user-unrenewed'), warnings.length], [costs(4), 1]);
  await sql`drop function identity.refuse() cascade`;
  // The next one makes up for it.
  assert.equal(await tryLogin(withCost(5), 'user-unrenewed'), 'session');
  assert.equal(await costOf('user-unrenewed'), costs(5));
});

// --- Changes of the own password

/** @returns `changed`, or the code of the failure */
async function tryChange(service: IdentityService, id: string, sessionId = '') {
  const user = (await findUser(database, id)) ?? assert.fail();
  const state = { ended: false, hasTemporaryPassword: false, age: 0, isProven: true };
  const session = { id: sessionId, ...state, last_seen_is_old: false, user };
  const caller = { session, key: null, user };
  const body = { current_password: PASSWORD, new_password: 'another passphrase' };
  const call = { request: REQUEST, caller, path: {}, query: {}, body };
  return async () => {
    const outcome = await changePassword(call, service);
    return outcome instanceof Failure ? outcome.code : 'changed';
  };
}

for (const [what, hashes, outcome] of [
  ['the renewal of the hash', [PASSWORD], 'changed'],
  ['two renewals', [PASSWORD, PASSWORD], 'invalid_credentials'],
  ['another password', [OTHER_PASSWORD], 'invalid_credentials'],
] as const) {
  test(`a password change that is overtaken by ${what} ends with: ${outcome}`, async () => {
    const username = `user-${what.replaceAll(' ', '-')}`;
    const id = await addUser(database, username);
    const limiter = createLimiter(1, 8, 'a hash');
    const left: string[] = [...hashes];
    let last = '';
    // New hashes have priority: the current password was right when they are made.
    const run: typeof limiter.run = async (work, isNew) => {
      const next = isNew ? left.shift() : undefined;
      if (next) {
        await setHash(4, next)(sql, username);
        last = await hashOf(username);
      }
      return limiter.run(work, isNew);
    };
    const service = withCost(4, { hashing: { ...limiter, run } });
    const change = await tryChange(service, id, (await openSession(username)).id);
    assert.equal(await change(), outcome);
    assert.equal((await hashOf(username)) === last, outcome !== 'changed');
    assert.deepEqual([left, await countSessions()], [[], outcome === 'changed' ? 2 : 1]);
  });
}

test('a password change does not reach another user who has taken over the username', async () => {
  const user = await addUser(database, 'first-name');
  const other = await addUser(database, 'second-name');
  const change = await tryChange(withCost(4), user);
  for (const [name, id] of Object.entries({ 'third-name': user, 'first-name': other }))
    await sql`update identity.users set username = ${name}, username_key = ${name}
      where id = ${id}`;
  const before = await hashOf('first-name');
  assert.equal(await change(), 'invalid_credentials');
  assert.equal(await hashOf('first-name'), before);
});
