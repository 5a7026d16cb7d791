/**
 * What a login does besides answering: the renewal of the hash, its order in the queue, and what it
 * leaves in the database.
 */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { ISql } from 'postgres';
import { changePassword, login } from '../../../src/identity/login.ts';
import { hashPassword } from '../../../src/identity/passwords.ts';
import { createIdentity, type IdentityService } from '../../../src/identity/service.ts';
import { findUser } from '../../../src/identity/store/users.ts';
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
const withCost = (logN: number, more: Partial<IdentityService> = {}): IdentityService => {
  const passwords = { ...CHEAP, cost: { logN, r: 8, p: 1 } };
  const options = { ...IDENTITY_OPTIONS, passwords };
  return { ...createIdentity(options, database, quiet()), ...more };
};
const CHEAPEST = 4;
const OTHER_PASSWORD = 'another password';

/** @returns `session`, or the code of the failure */
async function tryLogin(service: IdentityService, username: string, password = PASSWORD) {
  const body = { username, password, otp: undefined };
  const call = { request: REQUEST, caller: null, path: {}, query: {}, body };
  const outcome = await login(call, service);
  return outcome instanceof Failure ? outcome.code : 'session';
}

async function hashOf(username: string): Promise<string> {
  const [row] = await sql`select password_hash from identity.users where username = ${username}`;
  return row?.password_hash;
}
const sessionsOf = async (username: string) =>
  (
    await sql`
      select from identity.sessions s join identity.users u on u.id = s.user_id
      where u.username = ${username}`
  ).length;
const costOf = async (username: string) => (await hashOf(username)).split('$')[2];
const costs = (logN: number) => `ln=${logN},r=8,p=1`;

test('a hash of another cost is replaced at the next successful login', async () => {
  await addUser(database, 'user-rehash');
  assert.equal(await tryLogin(withCost(5), 'user-rehash', 'wrong'), 'invalid_credentials');
  assert.equal(await costOf('user-rehash'), costs(4));
  for (const logN of [5, 3]) {
    const renewed: string[] = [];
    for (const _login of [1, 2]) {
      assert.equal(await tryLogin(withCost(logN), 'user-rehash'), 'session');
      renewed.push(await hashOf('user-rehash'));
    }
    assert.equal(await costOf('user-rehash'), costs(logN));
    assert.equal(renewed[1], renewed[0], 'once');
  }
  await sql`update identity.users set enabled = false where username = 'user-rehash'`;
  assert.equal(await tryLogin(withCost(5), 'user-rehash'), 'invalid_credentials');
  assert.equal(await costOf('user-rehash'), costs(3), 'not of a disabled user');
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
    assert.equal(await sessionsOf(username), outcome === 'session' ? 1 : 0);
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
    const slow = tryLogin(withCost(CHEAPEST, { hashing: gate }), username, password);
    while (gate.waiting() === 0) await turn();
    await setHash(4, OTHER_PASSWORD)(sql, username);
    await release();
    assert.equal(await slow, outcome);
  }
});

test('logins that queued together get no more attempts than logins that follow each other', async () => {
  await addUser(database, 'user-guessed');
  const { gate, release } = closedGate();
  const service = withCost(CHEAPEST, { hashing: gate });
  const answers: Array<Promise<string>> = [];
  for (const password of ['guess 1', 'guess 2', 'guess 3', 'guess 4', 'guess 5', PASSWORD]) {
    answers.push(tryLogin(service, 'user-guessed', password));
    while (gate.waiting() < answers.length) await turn();
  }
  await release();
  const expected = [...Array(5).fill('invalid_credentials'), 'too_many_requests'];
  assert.deepEqual(await Promise.all(answers), expected);
  assert.equal(await sessionsOf('user-guessed'), 0);
});

test('the answer to a throttled login is delayed', async () => {
  const delayedAnswers = createLimiter(1, 0, 'a throttled login');
  const service = withCost(CHEAPEST, { delayedAnswers });
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

test('a password change does not reach another user who has taken over the username', async () => {
  const user = await findUser(database, await addUser(database, 'first-name'));
  const other = await addUser(database, 'second-name');
  assert.ok(user);
  for (const [name, id] of [
    ['third-name', user.id],
    ['first-name', other],
  ] as const)
    await sql`update identity.users set username = ${name}, username_key = ${name}
      where id = ${id}`;
  const session = {
    id: '',
    ended: false,
    hasTemporaryPassword: false,
    age: 0,
    isProven: true,
    last_seen_is_old: false,
    user,
  };
  const body = { current_password: PASSWORD, new_password: 'another passphrase' };
  const caller = { session, key: null, user };
  const before = await hashOf('first-name');
  const outcome = await changePassword(
    { request: REQUEST, caller, path: {}, query: {}, body },
    withCost(CHEAPEST),
  );
  assert.equal(outcome instanceof Failure && outcome.code, 'invalid_credentials');
  assert.equal(await hashOf('first-name'), before);
});
