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
import { untilLocked } from '../support/connections.ts';

const file = await createDatabase();
const services = ['identity', 'secrets', 'webhook'] as const;
// The callers wait as long as a slow machine needs for the others.
const settings = {
  PASSWORD_HASHES: '8',
  DATABASE_LOCK_TIMEOUT: '120',
  DATABASE_STATEMENT_TIMEOUT: '25',
  DATABASE_DEAD_AFTER: '30',
};
const { url } = await startGatehouse({ after }, services, file.url, settings, 'ready', 120_000);
const secrets = secretsClient(url.secrets);
const webhook = (id: string) =>
  ask('POST', `${url.webhook}/webhook`, {
    bearer: WEBHOOK_TOKEN,
    body: { event: 'tested', data: { page_id: '1' } },
    headers: { 'idempotency-key': id },
  });
const login = (username: string) =>
  ask('POST', `${url.identity}/api/auth/login`, { body: { username, password: PASSWORD } });

before(async () => {
  const database = openIdentity({ after }, file.url);
  for (const name of ['locked', 'other']) await addUser(database, name);
});

/** The row stays locked until so many rounds of other calls have succeeded. */
const ROUNDS = 10;
const CALLERS = 20;

async function succeed(calls: ReadonlyArray<Promise<Answer>>): Promise<void> {
  for (const answer of await Promise.all(calls)) assert.equal(answer.status, 200, answer.text);
}

/** @param lock takes the lock in the transaction of another session */
async function check(
  t: TestContext,
  lock: string,
  locked: () => Promise<Answer>,
  other: () => Promise<Answer>,
): Promise<void> {
  await succeed([other(), other()]);
  const holder = connect(file.url);
  t.after(() => holder.end({ timeout: 0 }));
  await holder`begin`;
  await holder.unsafe(lock);
  let isDone = false;
  const waiting = Array.from({ length: CALLERS }, () =>
    locked().finally(() => {
      isDone = true;
    }),
  );
  // Some in one shared statement with the locked ones, some while they wait.
  await succeed([other(), other(), other()]);
  await untilLocked(file.sql, 1);
  for (let round = 0; round < ROUNDS; round += 1) await succeed([other(), other(), other()]);
  assert.equal(isDone, false, 'the callers wait for the lock');
  await holder`commit`;
  await succeed(waiting);
}

const LOCKED_USER = `select from identity.users where username = 'locked' for update`;
test('a locked user delays no other login', (t) =>
  check(
    t,
    LOCKED_USER,
    () => login('locked'),
    () => login('other'),
  ));

test('changes of a locked user delay no change of another user', async (t) => {
  const bearer = await logIn(url.identity);
  const change = async (name: string) => {
    const [user] = await file.sql`select id from identity.users where username = ${name}`;
    const path = `${url.identity}/api/session/revoke/all/user?user=${user?.id}`;
    return () => ask('DELETE', path, { bearer });
  };
  await check(t, LOCKED_USER, await change('locked'), await change('other'));
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
  const lock = `select from secrets.secrets where id = '${one.id}' for update`;
  await check(t, lock, () => secrets.decrypt(one.id, one.secret), other);
  const [row] = await file.sql`select reads from secrets.secrets where id = ${one.id}`;
  assert.equal(Number(row?.reads), CALLERS);
});

test('an event whose first delivery is not committed delays no other event, and is stored once', async (t) => {
  const id = randomUUID();
  const lock = `
    insert into webhook.events (id, token_id, delivery_id, event, headers, ip, body)
    select gen_random_uuid(), id, '${id}', 'tested', '{}', '127.0.0.1',
      '{"event":"tested","data":{"page_id":"1"}}' from webhook.tokens`;
  await check(
    t,
    lock,
    () => webhook(id),
    () => webhook(randomUUID()),
  );
  const [row] =
    await file.sql`select count(*)::int as events from webhook.events where delivery_id = ${id}`;
  assert.equal(row?.events, 1);
});
