/**
 * Attempts counted in the database: both modes, concurrency over two replicas, known callers, and
 * removal.
 */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, beforeEach, test } from 'node:test';
import { giveBackAttempts, takeAttempt } from '../../../src/platform/db/throttle.ts';
import {
  countAttempt,
  type Limit,
  readThrottle,
  throttleKey,
  type ThrottleRow,
  throttleState,
  type ThrottleState,
} from '../../../src/platform/db/throttle.ts';
import { removeForgotten } from '../../../src/platform/db/throttle.ts';
import { clearFailures } from '../../../src/identity/store/failures.ts';
import { createDatabase } from '../../support/database.ts';
import { openConnections, untilSql } from '../../support/connections.ts';

const { sql, url } = await createDatabase();
const one = openConnections({ after }, url, 'one');
const replicas = [one, openConnections({ after }, url, 'two')];
const HOUR = 3_600;
const DAY = 24 * HOUR;

beforeEach(async () => {
  await sql`truncate identity.throttles`;
});

const key = (...parts: string[]) => throttleKey('secret', parts);
const pair: Limit = {
  key: key('pair', 'ada', '192.0.2.1'),
  mode: 'consecutive',
  attempts: 5,
  seconds: 12 * HOUR,
};
const account: Limit = { key: key('account', 'ada'), mode: 'window', attempts: 100, seconds: HOUR };
const network: Limit = { key: key('network'), mode: 'window', attempts: 1_000, seconds: HOUR };
const known: ThrottleRow = { key: key('known', 'ada', '192.0.2.1'), mode: 'known' };
const limits = [pair, account];
const withKnown = [...limits, known];
const link: Limit = { key: key('link'), mode: 'window', attempts: 5, seconds: 900 };

/** A failure, counted on one of the replicas. */
function fail(some: readonly Limit[] = limits, index = 0): Promise<ThrottleState> {
  const database = replicas[index % 2] ?? one;
  return database.transaction(async (sql) => {
    for (const limit of some) await countAttempt(sql, 'identity', limit);
    return throttleState(sql, 'identity', some === limits ? withKnown : some);
  });
}
const succeed = () => one.write((sql) => clearFailures(sql, { pair, account, network, known }));
const read = (some: readonly ThrottleRow[] = withKnown) => readThrottle(one, 'identity', some);
const waitFor = (index = 0, limit = link) =>
  takeAttempt(replicas[index % 2] ?? one, 'identity', limit);
const take = async (index = 0, limit = link) => (await waitFor(index, limit)) === 0;

const attempts = async () =>
  (await sql`select attempts from identity.throttles`).map((row) => row.attempts);

/** Moves all rows into the past. */
const pass = (seconds: number) => sql`
  update identity.throttles set window_ends_at = window_ends_at - make_interval(secs => ${seconds}),
    blocked_until = blocked_until - make_interval(secs => ${seconds}),
    known_until = known_until - make_interval(secs => ${seconds})`;

function assertWait({ wait }: ThrottleState, seconds: number): void {
  assert.ok(
    Math.abs(wait - seconds) < 10 || wait === seconds,
    `a wait of ${wait} s, not of ${seconds} s`,
  );
}

test('keys: HMAC-SHA256 of the parts, different for different parts and secrets', () => {
  const keys = [
    key('a', 'b'),
    key('ab'),
    key('a,b'),
    key('a', '', 'b'),
    throttleKey('other', ['a', 'b']),
  ];
  assert.equal(new Set(keys.map(String)).size, keys.length);
  assert.equal(
    key('a', 'b').toString('hex'),
    createHmac('sha256', 'secret').update('["a","b"]').digest('hex'),
  );
});

test('consecutive failures: the fifth costs 15 s, each further one twice as much, up to 15 min', async () => {
  assert.deepEqual(await read(), { wait: 0, was_blocked: false, known: false });
  for (const seconds of [0, 0, 0, 0, 15, 30, 60, 120, 240, 480, 900, 900]) {
    const state = await fail();
    assertWait(state, seconds);
    assert.equal(state.was_blocked, false, 'the delay before it was over');
    assertWait(await read(), seconds);
    await pass(seconds);
    assert.equal((await read()).wait, 0, 'the delay is over');
  }
  await sql`update identity.throttles set attempts = 5000 where key = ${pair.key}`;
  assertWait(await fail([pair]), 900);
});

test('consecutive failures: forgotten 12 h after the last one, and not before', async () => {
  for (let count = 0; count < 4; count += 1) {
    await fail([pair]);
    await pass(12 * HOUR - 60);
  }
  assertWait(await fail([pair]), 15);
  await pass(12 * HOUR);
  assert.equal((await fail([pair])).wait, 0);
  assert.deepEqual(await attempts(), [1]);
});

test('consecutive failures: a success clears them', async () => {
  for (let count = 0; count < 6; count += 1) await fail([pair]);
  assertWait(await read(), 30);
  await succeed();
  assert.deepEqual(await read(), { wait: 0, was_blocked: false, known: true });
  for (let count = 0; count < 4; count += 1) assert.equal((await fail([pair])).wait, 0);
  assertWait(await fail([pair]), 15);
});

test('a window admits its limit, then nothing until its end, however often it is tried', async () => {
  const window = { ...account, attempts: 3 };
  assert.equal((await fail([window])).wait, 0);
  await pass(HOUR - 60);
  assert.equal((await fail([window])).wait, 0);
  assertWait(await fail([window]), 60);
  assertWait(await fail([window]), 60);
  assertWait(await read([window]), 60);
  await pass(60);
  assert.equal((await read([window])).wait, 0);
  assert.deepEqual([(await fail([window])).wait, (await fail([window])).wait], [0, 0]);
  assertWait(await fail([window]), HOUR);
});

test('the longest wait applies, whatever the order of the limits', async () => {
  for (let count = 0; count < 100; count += 1) await fail([account]);
  await pass(1_000);
  for (let count = 0; count < 7; count += 1) await fail([pair]);
  assertWait(await read([pair]), 60);
  for (const order of [limits, [...limits].reverse()]) assertWait(await read(order), HOUR - 1_000);
});

test('a caller with a success within 90 days is exempt from the windows, not from the delay', async () => {
  await succeed();
  for (let count = 0; count < 101; count += 1) await fail([account]);
  assertWait(await read([account]), HOUR);
  assert.deepEqual(await read(), { wait: 0, was_blocked: false, known: true });
  const exempt = { wait: 0, was_blocked: false, known: true };
  for (let count = 0; count < 4; count += 1) assert.deepEqual(await fail(), exempt);
  assertWait(await fail(), 15);
  assert.equal((await fail()).was_blocked, true);
  await sql`update identity.throttles set known_until = now() + interval '1 minute' where key = ${known.key}`;
  assertWait(await read(), 30);
  await sql`update identity.throttles set known_until = now() where key = ${known.key}`;
  assertWait(await read(), HOUR);
});

test('a success makes its key known for 90 days', async () => {
  await succeed();
  await pass(90 * DAY - 60);
  assert.equal((await read()).known, true);
  await pass(60);
  assert.equal((await read()).known, false);
});

test('64 concurrent failures on two replicas are all counted, and five were not blocked', async () => {
  const states = await Promise.all(Array.from({ length: 64 }, (_, index) => fail(limits, index)));
  assert.equal(states.filter(({ was_blocked }) => !was_blocked).length, 5);
  assert.deepEqual(await attempts(), [64, 64]);
});

test('of 64 concurrent attempts on two replicas five are taken; one given back is free again', async () => {
  const taken = await Promise.all(Array.from({ length: 64 }, (_, index) => take(index)));
  assert.equal(taken.filter(Boolean).length, 5);
  assertWait(await read([link]), 900);
  assert.ok(Math.abs((await waitFor()) - 900) < 10, 'a rejected attempt says how long to wait');
  await giveBackAttempts(one, 'identity', [link.key, pair.key]);
  assert.equal((await read([link])).wait, 0);
  assert.deepEqual([await take(), await take()], [true, false]);
  await pass(900);
  assert.deepEqual(await Promise.all([0, 1, 2, 3].map((index) => take(index))), [
    true,
    true,
    true,
    true,
  ]);
});

test('where one attempt is left, one of two replicas that wait for it takes it', async () => {
  for (let count = 0; count < 4; count += 1) await take();
  const taken = await sql.begin(async (blocker) => {
    await blocker`select from identity.throttles for update`;
    const both = Promise.all([take(0), take(1)]);
    const waiting = async () =>
      (
        await one.list(
          (sql) => sql`
      select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`,
        )
      ).length === 2;
    await untilSql(waiting, 'both wait for the row');
    return { both };
  });
  assert.deepEqual((await taken.both).sort(), [false, true]);
});

test('an attempt given back in a later window never makes a count negative', async () => {
  await take();
  await take(0, { ...link, key: key('another') });
  await giveBackAttempts(one, 'identity', [link.key]);
  await giveBackAttempts(one, 'identity', [link.key]);
  assert.deepEqual((await attempts()).sort(), [0, 1], 'that of another key stays');
});

test('rows are removed when they no longer count, in batches; those of known callers stay', async () => {
  for (const name of ['a', 'b', 'c']) await take(0, { ...link, key: key(name) });
  await pass(900);
  await take();
  await fail([pair]);
  await pass(12 * HOUR - 60);
  await succeed();
  assert.equal(await removeForgotten(one, 'identity', 2), 2);
  assert.equal(await removeForgotten(one, 'identity', 10), 3);
  assert.equal(await removeForgotten(one, 'identity', 10), 0);
  assert.deepEqual(
    (await sql`select key from identity.throttles`).map((row) => row.key),
    [known.key],
  );
  await pass(90 * DAY);
  assert.equal(await removeForgotten(one, 'identity', 10), 1);
});
