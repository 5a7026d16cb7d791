/**
 * What a login does besides answering: its work, the renewal of the hash, and what it leaves in the
 * database.
 */
import assert from 'node:assert/strict';
import { createHook } from 'node:async_hooks';
import { after } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { ISql } from 'postgres';
import { hashPassword } from '../../../src/identity/passwords.ts';
import type { Database } from '../../../src/platform/db/pool.ts';
import { migrate } from '../../../src/platform/db/schema.ts';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import { changePassword, login } from '../../../src/identity/login.ts';
import { SCHEMA } from '../../../src/identity/migrations.ts';
import { findUser } from '../../../src/identity/store/users.ts';
import { createIdentity, type IdentityService } from '../../../src/identity/service.ts';
import { createLimiter } from '../../../src/platform/runtime/limiter.ts';
import { createLog } from '../../../src/platform/runtime/log.ts';
import { Overloaded } from '../../../src/platform/runtime/errors.ts';
import { REQUEST } from '../../support/request-info.ts';
import { createDatabase } from '../../support/database.ts';
import { quiet } from '../../support/service-context.ts';
import { test } from '../../support/until.ts';
import { addUser, CHEAP, openIdentity, PASSWORD } from '../../support/users.ts';

const { url, sql } = await createDatabase();
const database = openIdentity({ after }, url);
await migrate(database, SCHEMA);

const context = quiet();
const options = {
  passwords: CHEAP,
  sessionSeconds: 60,
  idleSeconds: 0,
  portal: null,
  factorSecrets: [],
  selfDeletion: false,
  retentionSeconds: 60,
  auditSeconds: 60,
};
const withCost = (logN: number, more: Partial<IdentityService> = {}): IdentityService => ({
  ...createIdentity(
    { ...options, passwords: { ...CHEAP, cost: { logN, r: 8, p: 1 } } },
    database,
    context,
  ),
  ...more,
});

async function tryLogin(
  service: IdentityService,
  username: string,
  password: string,
): Promise<'session' | string> {
  const body = { username, password, otp: undefined };
  const outcome = await login(
    { request: REQUEST, caller: null, path: {}, query: {}, body },
    service,
  );
  return outcome instanceof Failure ? outcome.code : 'session';
}

const hashOf = async (username: string): Promise<string> =>
  (await sql`select password_hash from identity.users where username = ${username}`)[0]
    ?.password_hash;
const sessionsOf = async (username: string) =>
  (
    await sql`select 1 from identity.sessions s join identity.users u on u.id = s.user_id
      where u.username = ${username}`
  ).length;
const costOf = async (username: string) => (await hashOf(username)).split('$')[2];

/** How many hashes are computed meanwhile, by whomever. */
async function countHashes<T>(work: () => Promise<T>): Promise<[T, hashes: number]> {
  let hashes = 0;
  const hook = createHook({
    init(_id, type) {
      if (type === 'SCRYPTREQUEST') hashes += 1;
    },
  }).enable();
  try {
    return [await work(), hashes];
  } finally {
    hook.disable();
  }
}

test('every login takes exactly one hash, rejected or not', async () => {
  const names = ['right-user', 'disabled-user', 'deleted-user', 'passwordless-user'];
  for (const name of names) await addUser(database, name);
  await sql`update identity.users set enabled = false where username = 'disabled-user'`;
  await sql`update identity.users set deleted_at = now() where username = 'deleted-user'`;
  await sql`update identity.users set password_hash = null where username = 'passwordless-user'`;
  const attempts = [
    ...names.slice(1).map((name) => [name, PASSWORD]),
    ['right-user', 'wrong'],
    ['right-user', ''],
    ['nobody', PASSWORD],
    ['', ''],
  ];
  for (const [name = '', password = ''] of attempts) {
    assert.deepEqual(
      await countHashes(() => tryLogin(withCost(4), name, password)),
      ['invalid_credentials', 1],
      name,
    );
  }
  assert.deepEqual(await countHashes(() => tryLogin(withCost(4), 'right-user', PASSWORD)), [
    'session',
    1,
  ]);
});

test('a hash of another cost is replaced at the next successful login', async () => {
  await addUser(database, 'user-rehash');
  assert.equal(await costOf('user-rehash'), 'ln=4,r=8,p=1');
  assert.equal(await tryLogin(withCost(5), 'user-rehash', 'wrong'), 'invalid_credentials');
  assert.equal(await costOf('user-rehash'), 'ln=4,r=8,p=1');
  for (const logN of [5, 3]) {
    assert.equal(await tryLogin(withCost(logN), 'user-rehash', PASSWORD), 'session');
    assert.equal(await costOf('user-rehash'), `ln=${logN},r=8,p=1`);
    const renewed = await hashOf('user-rehash');
    assert.equal(await tryLogin(withCost(logN), 'user-rehash', PASSWORD), 'session');
    assert.equal(await hashOf('user-rehash'), renewed);
  }
});

test("a disabled user's hash is not replaced", async () => {
  await addUser(database, 'disabled-rehash');
  await sql`update identity.users set enabled = false where username = 'disabled-rehash'`;
  assert.equal(await tryLogin(withCost(5), 'disabled-rehash', PASSWORD), 'invalid_credentials');
  assert.equal(await costOf('disabled-rehash'), 'ln=4,r=8,p=1');
});

/**
 * Changes the account when a login has checked it: the login waits for the row that this
 * transaction has locked, and continues after the commit.
 */
async function overtake(
  change: (sql: ISql<{}>) => PromiseLike<unknown>,
  start: () => Promise<string>,
): Promise<string> {
  let slow: Promise<string> = Promise.resolve('');
  await sql.begin(async (held) => {
    await change(held);
    slow = start();
    // Until it waits for the row, it has decided nothing.
    for (let waiting = 0; waiting === 0;) {
      // Not in this transaction, which would not see connections made since.
      waiting = (
        await database.list(
          (look) =>
            look`select from pg_stat_activity where datname = current_database()
              and wait_event_type = 'Lock'`,
        )
      ).length;
    }
  });
  return slow;
}

const setHash = (username: string, hash: string) => (held: ISql<{}>) =>
  held`update identity.users set password_hash = ${hash} where username = ${username}`;

test('a login that is overtaken by the renewal of the hash still succeeds', async () => {
  await addUser(database, 'user-overtaken');
  const renewed = await hashPassword(PASSWORD, { logN: 5, r: 8, p: 1 });
  assert.equal(
    await overtake(setHash('user-overtaken', renewed), () =>
      tryLogin(withCost(5), 'user-overtaken', PASSWORD),
    ),
    'session',
  );
  assert.equal(await hashOf('user-overtaken'), renewed);
});

test('a login that is overtaken by a password change makes no session', async () => {
  await addUser(database, 'user-changing');
  const hash = await hashPassword('another password', CHEAP.cost);
  assert.equal(
    await overtake(setHash('user-changing', hash), () =>
      tryLogin(withCost(4), 'user-changing', PASSWORD),
    ),
    'invalid_credentials',
  );
  assert.equal(await sessionsOf('user-changing'), 0);
});

test('a login by password that is overtaken by a second factor makes no session', async () => {
  const addFactor = (held: ISql<{}>) => held`
    update identity.users set second_factor = true, updated_at = now()
    where username = 'user-with-factor'`;
  await addUser(database, 'user-with-factor');
  assert.equal(
    await overtake(addFactor, () => tryLogin(withCost(4), 'user-with-factor', PASSWORD)),
    'second_factor_needed',
  );
  assert.equal(await sessionsOf('user-with-factor'), 0);
});

/** A limiter whose only slot is taken until the test releases it. */
function closedGate(queueLength: number) {
  const gate = createLimiter(1, queueLength, 'a hash');
  let open = () => {};
  const held = gate.run(
    () =>
      new Promise<void>((resolve) => {
        open = resolve;
      }),
  );
  const release = async () => {
    open();
    await held;
  };
  return { gate, release };
}

test('a login counts the password that holds when its turn comes, not when it queued', async () => {
  await addUser(database, 'user-queued');
  const { gate, release } = closedGate(8);
  const slow = tryLogin(withCost(4, { hashing: gate }), 'user-queued', PASSWORD);
  while (gate.waiting() === 0) await turn();
  await sql`update identity.users set password_hash =
    ${await hashPassword('another password', CHEAP.cost)} where username = 'user-queued'`;
  await release();
  assert.equal(await slow, 'invalid_credentials');
});

test('a login with a password that is set while it is queued succeeds', async () => {
  await addUser(database, 'user-renewed');
  const { gate, release } = closedGate(8);
  const slow = tryLogin(withCost(4, { hashing: gate }), 'user-renewed', 'another password');
  while (gate.waiting() === 0) await turn();
  await sql`update identity.users set password_hash =
    ${await hashPassword('another password', CHEAP.cost)} where username = 'user-renewed'`;
  await release();
  assert.equal(await slow, 'session');
});

test('a login that need not queue looks up its account and its throttle once', async () => {
  await addUser(database, 'user-once');
  let reads = 0;
  const counted: Database = {
    ...database,
    read(work) {
      reads += 1;
      return database.read(work);
    },
  };
  for (const [name, password, expected] of [
    ['user-once', PASSWORD, 2],
    // A failure looks for a hash of another program, too.
    ['user-once', 'wrong', 3],
    ['nobody-once', 'wrong', 3],
  ] as const) {
    const service = withCost(4, { database: counted });
    await service.throttleSecret();
    reads = 0;
    await tryLogin(service, name, password);
    assert.equal(reads, expected, name);
  }
});

test('logins that queued together get no more attempts than logins that follow each other', async () => {
  await addUser(database, 'user-guessed');
  const { gate, release } = closedGate(8);
  const service = withCost(4, { hashing: gate });
  const passwords = ['guess 1', 'guess 2', 'guess 3', 'guess 4', 'guess 5', PASSWORD];
  const answers: Array<Promise<string>> = [];
  for (const password of passwords) {
    answers.push(tryLogin(service, 'user-guessed', password));
    while (gate.waiting() < answers.length) await turn();
  }
  await release();
  assert.deepEqual(await Promise.all(answers), [
    ...new Array<string>(5).fill('invalid_credentials'),
    'too_many_requests',
  ]);
  assert.equal(await sessionsOf('user-guessed'), 0);
});

test('the answer to a throttled login is delayed', async () => {
  const delayedAnswers = createLimiter(1, 0, 'a throttled login');
  const service = withCost(4, { delayedAnswers });
  for (let failures = 0; failures < 5; failures += 1)
    assert.equal(await tryLogin(service, 'user-flooded', 'wrong'), 'invalid_credentials');
  assert.equal(delayedAnswers.running(), 0);
  let isAnswered = false;
  const answer = tryLogin(service, 'user-flooded', 'wrong').finally(() => {
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
  assert.equal(await tryLogin(withCost(5, { log }), 'user-unrenewed', PASSWORD), 'session');
  assert.equal(await costOf('user-unrenewed'), 'ln=4,r=8,p=1');
  assert.equal(warnings.length, 1);
  await sql`drop function identity.refuse() cascade`;
  // The next one makes up for it.
  assert.equal(await tryLogin(withCost(5), 'user-unrenewed', PASSWORD), 'session');
  assert.equal(await costOf('user-unrenewed'), 'ln=5,r=8,p=1');
});

test('a login that finds the hashing queue full creates no session', async () => {
  await addUser(database, 'user-refused');
  const { gate, release } = closedGate(0);
  await assert.rejects(
    tryLogin(withCost(4, { hashing: gate }), 'user-refused', PASSWORD),
    Overloaded,
  );
  await release();
  assert.equal(await sessionsOf('user-refused'), 0);
});

test('a password change does not reach another user who has taken over the username', async () => {
  const caller = await findUser(database, await addUser(database, 'first-name'));
  const other = await addUser(database, 'second-name');
  assert.ok(caller);
  await sql`update identity.users set username = 'third-name', username_key = 'third-name'
    where id = ${caller.id}`;
  await sql`update identity.users set username = 'first-name', username_key = 'first-name'
    where id = ${other}`;
  const session = {
    id: '',
    ended: false,
    hasTemporaryPassword: false,
    age: 0,
    isProven: true,
    last_seen_is_old: false,
    user: caller,
  };
  const body = { current_password: PASSWORD, new_password: 'another passphrase' };
  const before = await hashOf('first-name');
  const outcome = await changePassword(
    { request: REQUEST, caller: { session, key: null, user: caller }, path: {}, query: {}, body },
    withCost(4),
  );
  assert.equal(outcome instanceof Failure && outcome.code, 'invalid_credentials');
  assert.equal(await hashOf('first-name'), before);
});
