import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { createRateLimit } from '../../../src/platform/runtime/rate-limit.ts';
import { stopClock } from '../../support/clock.ts';
import { PATIENT, untilSql } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { type Answer, ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';

/** A rate limit whose clock the test moves. `through`: of so many requests, how many may pass. */
function clocked(perSecond: number) {
  let now = 1_000_000;
  const { take } = createRateLimit(perSecond, perSecond, () => now);
  return {
    take,
    through: (requests: number, key = 'one') =>
      Array.from({ length: requests }, () => take(key)).filter((seconds) => seconds === 0).length,
    pass(ms: number) {
      now += ms;
    },
  };
}

test('a burst of one second passes, then one request per share of a second, for each key', () => {
  const { through, pass } = clocked(5);
  assert.deepEqual([through(6), through(1), through(9, 'another')], [5, 0, 5]);
  pass(1_000);
  assert.equal(through(6), 5);
  pass(3_600_000);
  assert.equal(through(20), 5, 'a long rest saves up no more than one burst');
  pass(-10_000);
  assert.equal(through(1), 0, 'a clock that goes back adds nothing');
  pass(10_200);
  assert.equal(through(6), 1, 'and blocks nobody');
  for (const perSecond of [1, 5, 1_000, 20_000]) {
    const { take, through, pass } = clocked(perSecond);
    through(perSecond);
    for (let turn = 0; turn < 20; turn += 1) {
      const seconds = take('one');
      assert.ok(seconds > 0 && seconds <= 1 / perSecond + 1e-9, `${seconds} s at ${perSecond}`);
      pass(Math.ceil(seconds * 1_000_000) / 1_000);
      assert.equal(take('one'), 0, `after the given time, at ${perSecond} a second`);
    }
  }
});

const post = (base: string, body: unknown = { event: 'e', data: { page_id: 'p' } }) =>
  ask('POST', `${base}/webhook`, { bearer: WEBHOOK_TOKEN, body });

test('beyond WEBHOOK_RATE a token gets 429 with Retry-After, and nothing is stored', async (t) => {
  stopClock(t);
  const { url, sql } = await createDatabase(t);
  const gatehouse = await startGatehouse(t, ['webhook'], url, { WEBHOOK_RATE: '5' });
  const answers = await Promise.all(Array.from({ length: 20 }, () => post(gatehouse.url.webhook)));
  const refused = answers.filter(({ status }) => status === 429);
  assert.equal(refused.length, 15);
  for (const { headers, json } of refused) {
    assert.match(headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
    assert.equal(json.error.code, 'too_many_requests');
  }
  assert.equal(answers.filter(({ status }) => status === 200).length, 5);
  assert.equal((await sql`select from webhook.events`).length, 5);
});

test('beyond 32 MiB of uncommitted events the next get 503 with Retry-After; others are stored', async (t) => {
  // The senders wait as long as a slow machine needs for all of them.
  stopClock(t);
  const { url, sql } = await createDatabase(t);
  const settings = { MAX_BODY_BYTES: '2000000', ...PATIENT };
  const gatehouse = await startGatehouse(t, ['webhook'], url, settings, 'ready', 240_000);
  const big = { event: 'e', data: { page_id: 'p', filling: 'x'.repeat(1_900_000) } };
  const size = Buffer.byteLength(JSON.stringify(big));
  const room = Math.floor((32 * 1024 * 1024) / size);
  const send = () => post(gatehouse.url.webhook, big);
  const waitingBytes = async () => {
    const { text } = await ask('GET', `${gatehouse.url.metrics}/metrics`);
    return Number(/^gatehouse_events_waiting_bytes(?:\{\})? ([0-9]+)$/m.exec(text)?.[1]);
  };
  const blocker = connect(url);
  t.after(() => blocker.end());
  await blocker`begin`;
  await blocker`lock table webhook.events in share mode`;
  const waiting: Array<Promise<Answer>> = [];
  // One by one: at once, the bodies being received would exceed another limit.
  while (waiting.length < room) {
    waiting.push(send());
    const expected = waiting.length * size;
    await untilSql(async () => (await waitingBytes()) === expected, 'the event waits');
  }
  const refused = await send();
  assert.equal(refused.status, 503, refused.text);
  assert.match(refused.headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
  assert.equal(await waitingBytes(), room * size, 'what is refused takes no room');
  await blocker`commit`;
  for (const { status } of await Promise.all(waiting)) assert.equal(status, 200);
  assert.equal(await waitingBytes(), 0);
  assert.equal((await send()).status, 200);
  assert.equal((await sql`select from webhook.events`).length, room + 1);
});
