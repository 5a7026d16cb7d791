/**
 * A call that waits for a locked row delays no other call, and succeeds when the lock is released.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test, type TestContext } from 'node:test';
import { connect } from '../../scripts/postgres.ts';
import { createDatabase } from '../support/database.ts';
import { addUser, openIdentity, PASSWORD } from '../support/users.ts';
import { type Answer, ask, logIn, startGatehouse, WEBHOOK_TOKEN } from '../support/gatehouse.ts';
import { secretsClient } from '../support/secrets.ts';
import { untilSql } from '../support/connections.ts';

const file = await createDatabase();
const { url } = await startGatehouse({ after }, ['identity', 'secrets', 'webhook'], file.url, {
  PASSWORD_HASHES: '8',
  DATABASE_LOCK_TIMEOUT: '60',
});
const secrets = secretsClient(url.secrets);
const webhook = (id: string, event = 'tested', headers = {}) =>
  ask('POST', `${url.webhook}/webhook`, {
    bearer: WEBHOOK_TOKEN,
    body: { event, data: { page_id: '1' } },
    headers: { 'idempotency-key': id, ...headers },
  });
const login = (username: string, at = url.identity) =>
  ask('POST', `${at}/api/auth/login`, { body: { username, password: PASSWORD } });

before(async () => {
  const database = openIdentity({ after }, file.url);
  for (const name of ['locked', 'other']) await addUser(database, name);
});

/**
 * The row stays locked until so many rounds of other calls have succeeded, and at least so long.
 */
const ROUNDS = 10;
const LOCKED_MS = 1_500;
/** How long another call may take, on a loaded machine too. */
const MAX_MS = 3_500;
const CALLERS = 20;

interface Case {
  /** Takes the lock in the transaction of another session. */
  lock(sql: ReturnType<typeof connect>): Promise<unknown>;
  locked(): Promise<Answer>;
  other(): Promise<Answer>;
  readonly status?: number;
}

async function slowest(
  calls: ReadonlyArray<() => Promise<Answer>>,
  status: number,
): Promise<number> {
  const times = await Promise.all(
    calls.map(async (call) => {
      const start = performance.now();
      const answer = await call();
      assert.equal(answer.status, status, answer.text);
      return performance.now() - start;
    }),
  );
  return Math.max(...times);
}

async function check(t: TestContext, { lock, locked, other, status = 200 }: Case): Promise<void> {
  await slowest([other, other], status);
  const holder = connect(file.url);
  t.after(() => holder.end({ timeout: 0 }));
  await holder`begin`;
  await lock(holder);
  let isDone = false;
  const waiting = slowest(
    Array.from({ length: CALLERS }, () => locked),
    status,
  );
  void waiting
    .finally(() => {
      isDone = true;
    })
    .catch(() => {});
  const begun = performance.now();
  const end = begun + LOCKED_MS;
  let longest = 0;
  // Some in one shared statement with the locked ones, some after them.
  for (let round = 0; round < ROUNDS || performance.now() < end; round += 1)
    longest = Math.max(longest, await slowest([other, other, other], status));
  t.diagnostic(`slowest other call: ${Math.round(longest)} ms`);
  assert.ok(longest < MAX_MS, `another call took ${Math.round(longest)} ms`);
  assert.equal(isDone, false, 'the callers wait for the lock');
  const lockedMs = performance.now() - begun;
  await holder`commit`;
  const took = await waiting;
  assert.ok(took >= lockedMs && took < lockedMs + 5_000, `the callers took ${took} ms`);
}

test('a locked user delays no other login', (t) =>
  check(t, {
    lock: (sql) => sql`select from identity.users where username = 'locked' for update`,
    locked: () => login('locked'),
    other: () => login('other'),
  }));

test('changes of a locked user delay no change of another user', async (t) => {
  const bearer = await logIn(url.identity);
  const users = await file.sql<
    Array<{ id: string }>
  >`select id from identity.users where username in ('locked', 'other') order by username`;
  const change = (user: string | undefined) => () =>
    ask('DELETE', `${url.identity}/api/session/revoke/all/user?user=${user}`, { bearer });
  await check(t, {
    lock: (sql) => sql`select from identity.users where username = 'locked' for update`,
    locked: change(users[0]?.id),
    other: change(users[1]?.id),
  });
});

test('a locked secret delays no other secret, and each reader counts once', async (t) => {
  const one = await secrets.keep('locked');
  const two = await secrets.keep('other');
  const other = async () => {
    const [read, stored] = await Promise.all([
      secrets.decrypt(two.id, two.secret),
      secrets.encrypt({ password: 'new' }),
    ]);
    assert.equal(stored.status, 201);
    return read;
  };
  await check(t, {
    lock: (sql) => sql`select from secrets.secrets where id = ${one.id} for update`,
    locked: () => secrets.decrypt(one.id, one.secret),
    other,
  });
  const [row] = await file.sql`select reads from secrets.secrets where id = ${one.id}`;
  assert.equal(Number(row?.reads), CALLERS);
});

test('an event whose first delivery is not committed delays no other event, and is stored once', async (t) => {
  const id = randomUUID();
  await check(t, {
    lock: (sql) => sql`
      insert into webhook.events (id, token_id, delivery_id, event, headers, ip, body)
      select ${randomUUID()}, id, ${id}, 'tested', '{}', '127.0.0.1',
        ${Buffer.from(JSON.stringify({ event: 'tested', data: { page_id: '1' } }))}
          from webhook.tokens`,
    locked: () => webhook(id),
    other: () => webhook(randomUUID()),
  });
  const [row] =
    await file.sql`select count(*)::int as events from webhook.events where delivery_id = ${id}`;
  assert.equal(row?.events, 1);
});

test('a lock that is not released ends the call after DATABASE_LOCK_TIMEOUT', async (t) => {
  const impatient = await startGatehouse(t, ['identity'], file.url, { DATABASE_LOCK_TIMEOUT: '1' });
  const holder = connect(file.url);
  t.after(() => holder.end({ timeout: 0 }));
  await holder`begin`;
  await holder`select from identity.users where username = 'locked' for update`;
  const start = performance.now();
  const answer = await login('locked', impatient.url.identity);
  const took = performance.now() - start;
  assert.equal(answer.status, 500, answer.text);
  assert.equal(answer.json.error.code, 'service_failed');
  assert.ok(took > 900 && took < 10_000, String(took));
  await holder`rollback`;
  await untilSql(async () => (await login('locked')).status === 200, 'the user can log in');
});
