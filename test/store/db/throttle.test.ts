/**
 * Attempts counted in the database: both modes, concurrency over two replicas, known callers, and
 * removal.
 */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, beforeEach, test } from 'node:test';
import {
  countAttempt,
  giveBackAttempts,
  type Limit,
  readThrottle,
  removeForgotten,
  takeAttempt,
  throttleKey,
  type ThrottleRow,
  throttleState,
} from '../../../src/platform/db/throttle.ts';
import { clearFailures } from '../../../src/identity/store/failures.ts';
import { createDatabase } from '../../support/database.ts';
import { openConnections, untilLocked } from '../../support/connections.ts';

const { sql, url } = await createDatabase();
const one = openConnections({ after }, url, 'one');
const two = openConnections({ after }, url, 'two');
/** On both replicas in turns, all at once. */
const atOnce = <T>(count: number, act: (database: typeof one) => Promise<T>) =>
  Promise.all(Array.from({ length: count }, (_, index) => act(index % 2 ? one : two)));
const HOUR = 3_600;
const DAY = 24 * HOUR;

beforeEach(() => sql`truncate identity.throttles`);

const key = (...parts: string[]) => throttleKey('secret', parts);
const pair: Limit = { key: key('p'), mode: 'consecutive', attempts: 5, seconds: 12 * HOUR };
const account: Limit = { key: key('a'), mode: 'window', attempts: 100, seconds: HOUR };
const network: Limit = { key: key('n'), mode: 'window', attempts: 1_000, seconds: HOUR };
const known: ThrottleRow = { key: key('k'), mode: 'known' };
const link: Limit = { key: key('l'), mode: 'window', attempts: 5, seconds: 900 };

/** Counts a failure under these limits. */
const failOn = (database: typeof one, ...limits: readonly Limit[]) =>
  database.transaction(async (inner) => {
    for (const limit of limits) await countAttempt(inner, 'identity', limit);
    return throttleState(inner, 'identity', [...limits, known]);
  });
const fail = (...limits: readonly Limit[]) => failOn(one, ...limits);
async function failTimes(times: number, limit: Limit) {
  for (let count = 0; count < times; count += 1) await fail(limit);
}
const succeed = () => one.write((inner) => clearFailures(inner, { pair, account, network, known }));
const read = (...limits: readonly ThrottleRow[]) => readThrottle(one, 'identity', limits);
const wait = async (...limits: readonly ThrottleRow[]) => (await read(...limits)).wait;
const take = async (database = one, limit = link) =>
  (await takeAttempt(database, 'identity', limit)) === 0;
const attempts = async () =>
  (await sql`select attempts from identity.throttles order by 1`).map((row) => row.attempts);

/** Moves all rows into the past. */
const pass = (seconds: number) => sql`
  update identity.throttles set window_ends_at = window_ends_at - make_interval(secs => ${seconds}),
    blocked_until = blocked_until - make_interval(secs => ${seconds}),
    known_until = known_until - make_interval(secs => ${seconds})`;

function assertNear(found: number, seconds: number) {
  const isNear = seconds === 0 ? found === 0 : Math.abs(found - seconds) < 10;
  assert.ok(isNear, `a wait of ${found} s, not of ${seconds} s`);
}

test('keys: HMAC-SHA256 of the parts, under a secret', () => {
  const expected = createHmac('sha256', 'secret').update('["a","b"]').digest();
  assert.deepEqual(key('a', 'b'), expected);
});

test('consecutive failures: the fifth costs 15 s, each further one twice as much, up to 15 min', async () => {
  assert.deepEqual(await read(pair, known), { wait: 0, was_blocked: false, known: false });
  for (const seconds of [0, 0, 0, 0, 15, 30, 60, 120, 240, 480, 900, 900]) {
    const state = await fail(pair, account);
    assertNear(state.wait, seconds);
    assert.equal(state.was_blocked, false, 'the delay before it was over');
    assertNear(await wait(pair, account), seconds);
    await pass(seconds);
    assert.equal(await wait(pair, account), 0);
  }
  await sql`update identity.throttles set attempts = 5000`;
  assertNear((await fail(pair)).wait, 900);
});

test('consecutive failures: forgotten 12 h after the last one, not before, and by a success', async () => {
  for (let count = 0; count < 4; count += 1) {
    await fail(pair);
    await pass(12 * HOUR - 60);
  }
  assertNear((await fail(pair)).wait, 15);
  await pass(12 * HOUR);
  assert.equal((await fail(pair)).wait, 0);
  assert.deepEqual(await attempts(), [1]);
  await failTimes(5, pair);
  await succeed();
  assert.deepEqual(await read(pair, known), { wait: 0, was_blocked: false, known: true });
  await failTimes(4, pair);
  assert.equal(await wait(pair), 0);
  assertNear((await fail(pair)).wait, 15);
});

test('a window admits its limit, then nothing until its end, however often it is tried', async () => {
  const window = { ...account, attempts: 3 };
  assert.equal((await fail(window)).wait, 0);
  await pass(HOUR - 60);
  for (const seconds of [0, 60, 60]) assertNear((await fail(window)).wait, seconds);
  assertNear(await wait(window), 60);
  await pass(60);
  for (const seconds of [0, 0, HOUR]) assertNear((await fail(window)).wait, seconds);
});

test('the longest wait applies, whatever the order of the limits', async () => {
  await failTimes(100, account);
  await pass(1_000);
  await failTimes(7, pair);
  assertNear(await wait(pair), 60);
  assertNear(await wait(pair, account), HOUR - 1_000);
  assertNear(await wait(account, pair), HOUR - 1_000);
});

test('a caller with a success within 90 days is exempt from the windows, not from the delay', async () => {
  await succeed();
  await failTimes(101, account);
  assertNear(await wait(account), HOUR);
  const exempt = { wait: 0, was_blocked: false, known: true };
  assert.deepEqual(await read(pair, account, known), exempt);
  for (let count = 0; count < 4; count += 1) assert.deepEqual(await fail(pair, account), exempt);
  assertNear((await fail(pair, account)).wait, 15);
  assert.equal((await fail(pair, account)).was_blocked, true);
  await sql`update identity.throttles set known_until = now() where key = ${known.key}`;
  assertNear(await wait(pair, account, known), HOUR);
  await succeed();
  await pass(90 * DAY - 60);
  assert.equal((await read(known)).known, true);
  await pass(60);
  assert.equal((await read(known)).known, false);
});

test('64 concurrent failures on two replicas are all counted, and five were not blocked', async () => {
  const states = await atOnce(64, (database) => failOn(database, pair, account));
  assert.equal(states.filter(({ was_blocked }) => !was_blocked).length, 5);
  assert.deepEqual(await attempts(), [64, 64]);
});

test('of 64 concurrent attempts on two replicas five are taken; one given back is free again', async () => {
  assert.equal((await atOnce(64, take)).filter(Boolean).length, 5);
  assertNear(await wait(link), 900);
  assertNear(await takeAttempt(one, 'identity', link), 900);
  await giveBackAttempts(one, 'identity', [link.key, pair.key]);
  assert.equal(await wait(link), 0);
  assert.deepEqual([await take(), await take()], [true, false]);
  await pass(900);
  assert.deepEqual([await take(), await take()], [true, true]);
});

test('where one attempt is left, one of two replicas that wait for it takes it', async () => {
  for (let count = 0; count < 4; count += 1) await take();
  const taken = await sql.begin(async (blocker) => {
    await blocker`select from identity.throttles for update`;
    const both = atOnce(2, take);
    await untilLocked(blocker, 2);
    return { both };
  });
  assert.deepEqual((await taken.both).sort(), [false, true]);
});

test('an attempt given back in a later window never makes a count negative', async () => {
  await take();
  await take(one, { ...link, key: key('another') });
  for (const _time of [1, 2]) await giveBackAttempts(one, 'identity', [link.key]);
  assert.deepEqual(await attempts(), [0, 1], 'that of another key stays');
});

test('rows are removed when they no longer count, in batches; those of known callers stay', async () => {
  for (const name of ['1', '2', '3']) await take(one, { ...link, key: key(name) });
  await pass(900);
  await take();
  await fail(pair);
  await pass(12 * HOUR - 60);
  await succeed();
  assert.equal(await removeForgotten(one, 'identity', 2), 2);
  assert.equal(await removeForgotten(one, 'identity', 10), 3);
  assert.equal(await removeForgotten(one, 'identity', 10), 0);
  const left = await sql`select key from identity.throttles`;
  assert.deepEqual(
    left.map((row) => row.key),
    [known.key],
  );
  await pass(90 * DAY);
  assert.equal(await removeForgotten(one, 'identity', 10), 1);
});
