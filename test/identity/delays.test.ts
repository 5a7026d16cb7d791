/** How long the next password has to wait, from counts alone; and what that lets an attacker try. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type FailureCount, secondsToWait, THROTTLES } from '../../src/identity/rules.ts';

const count = (scope: FailureCount['scope'], failures: number, more: Partial<FailureCount> = {}): FailureCount => ({ scope, failures, latest: 0, limiting: null, known: false, ...more });
const HOUR = 3_600;
const DAY = 24 * HOUR;

test('nobody waits who has not failed', () => {
  assert.equal(secondsToWait([]), 0);
  assert.equal(secondsToWait([count('pair', 0, { latest: null, known: true })]), 0);
});

/** How often an account was failed from one network: how long the next try from there waits. */
const DELAYS: ReadonlyArray<readonly [failures: number, seconds: number]> = [
  [1, 0], [2, 0], [3, 0], [4, 0], [5, 15], [6, 30], [7, 60], [8, 120], [9, 240], [10, 480], [11, 900], [12, 900], [50, 900], [5_000, 900],
];

test('an account from one network: four failures are free, the fifth costs 15 s, each further one twice as much, up to 15 minutes', () => {
  for (const [failures, seconds] of DELAYS) assert.equal(secondsToWait([count('pair', failures)]), seconds, `${failures} failures`);
});

test('the delay counts from the latest failure, and what is left of it is never less than nothing', () => {
  for (const [failures, seconds] of DELAYS) {
    for (const latest of [0, 0.25, 14.5, 15, 899, 900, 1_000_000]) {
      assert.equal(secondsToWait([count('pair', failures, { latest })]), Math.max(0, seconds - latest), `${failures} failures, ${latest} s ago`);
    }
  }
});

test('an account or a network at its limit waits until the failure that made it so is an hour old', () => {
  for (const scope of ['account', 'network'] as const) {
    const { limit, seconds } = THROTTLES[scope];
    assert.equal(seconds, HOUR);
    assert.equal(secondsToWait([count(scope, limit - 1)]), 0, 'there is none yet that would make it so');
    for (const [limiting, wait] of [[0, 3_600], [1_800.5, 1_799.5], [3_599, 1], [3_600, 0], [90_000, 0]] as const) {
      assert.equal(secondsToWait([count(scope, limit, { limiting, latest: 0 })]), wait);
    }
  }
  assert.deepEqual([THROTTLES.account.limit, THROTTLES.network.limit], [100, 1_000]);
});

test('the longest of the three waits counts, in whichever order they come', () => {
  const all = [count('pair', 6, { latest: 10 }), count('account', 100, { limiting: 3_000 }), count('network', 1_000, { limiting: 3_550 })];
  assert.deepEqual(all.map((one) => secondsToWait([one])), [20, 600, 50]);
  assert.equal(secondsToWait(all), 600);
  assert.equal(secondsToWait([...all].reverse()), 600);
});

test('in a network from which the account has logged in lately, only its own failures there count', () => {
  const wide = [count('account', 100, { limiting: 0 }), count('network', 1_000, { limiting: 0 })];
  assert.equal(secondsToWait([...wide, count('pair', 4)]), 3_600);
  assert.equal(secondsToWait([...wide, count('pair', 4, { known: true })]), 0);
  assert.equal(secondsToWait([count('pair', 0, { latest: null, known: true }), ...wide]), 0, 'also right after the login');
  assert.equal(secondsToWait([...wide, count('pair', 7, { known: true })]), 60, 'who shares the network is slowed down all the same');
});

/** When the tries of an attacker are let through who never rests, each of them wrong; at most one every so many seconds. */
function attack(seconds: number, networks: number, every: number): number[] {
  const pairs = Array.from({ length: networks }, (): number[] => []);
  const tries: number[] = [];
  const within = (times: readonly number[], now: number, span: number) => times.filter((time) => time > now - span);
  for (let now = 0; now < seconds && tries.length < 5_000; now += every) {
    const account = within(tries, now, THROTTLES.account.seconds);
    const limiting = account.at(-THROTTLES.account.limit);
    const wide = count('account', account.length, { limiting: limiting === undefined ? null : now - limiting });
    for (const pair of pairs) {
      const failures = within(pair, now, THROTTLES.pair.seconds);
      const latest = failures.at(-1);
      if (secondsToWait([wide, count('pair', failures.length, { latest: latest === undefined ? null : now - latest })]) > 0) continue;
      pair.push(now);
      tries.push(now);
      break;
    }
  }
  return tries;
}

test('from one network an attacker gets 13 guesses at one account in the first hour, and 96 on each day after the first', () => {
  const tries = attack(3 * DAY, 1, 1);
  assert.equal(tries.filter((time) => time < HOUR).length, 13);
  assert.equal(tries.filter((time) => time >= DAY && time < 2 * DAY).length, 96);
  assert.equal(tries.filter((time) => time >= 2 * DAY).length, 96);
});

test('from any number of networks an attacker gets 100 guesses at one account in an hour', () => {
  const tries = attack(12 * HOUR, 500, 4);
  for (let hour = 0; hour < 12; hour += 1) {
    const between = tries.filter((time) => time >= hour * HOUR && time < (hour + 1) * HOUR);
    assert.ok(between.length <= 100, `${between.length} in hour ${hour}`);
  }
  assert.ok(tries.length > 1_000, 'and the simulation does try');
});
