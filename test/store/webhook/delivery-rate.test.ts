import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createRateLimit } from '../../../src/platform/runtime/rate-limit.ts';
import { connect } from '../../../scripts/postgres.ts';
import { stopClock } from '../../support/clock.ts';
import { createDatabase } from '../../support/database.ts';
import {
  type Answer,
  ask,
  type Gatehouse,
  startGatehouse,
  WEBHOOK_TOKEN,
} from '../../support/gatehouse.ts';
import { PATIENT, untilSql } from '../../support/connections.ts';

// Before the first test: node:test must know what ends with the file.
const file = await createDatabase();

/** A rate limit whose clock the test moves. */
function clocked(perSecond: number) {
  const clock = { ms: 1_000_000 };
  const rate = createRateLimit(perSecond, perSecond, () => clock.ms);
  return {
    wait: (key = 'one') => rate.take(key),
    pass(ms: number) {
      clock.ms += ms;
    },
  };
}

test('a burst of one second passes, then one request per share of a second', () => {
  const { wait, pass } = clocked(5);
  assert.deepEqual(
    Array.from({ length: 6 }, () => wait() > 0),
    [false, false, false, false, false, true],
  );
  pass(1_000);
  assert.deepEqual(
    Array.from({ length: 6 }, () => wait() > 0),
    [false, false, false, false, false, true],
  );
  pass(3_600_000);
  assert.equal(
    Array.from({ length: 20 }, () => wait()).filter((seconds) => seconds === 0).length,
    5,
    'a long rest saves up no more than one burst',
  );
});

test('a request after the given time passes', () => {
  for (const perSecond of [1, 5, 1_000, 20_000]) {
    const { wait, pass } = clocked(perSecond);
    while (wait() === 0);
    for (let turn = 0; turn < 20; turn += 1) {
      const seconds = wait();
      assert.ok(seconds > 0 && seconds <= 1 / perSecond + 1e-9, `${seconds} s at ${perSecond}`);
      pass(Math.ceil(seconds * 1_000_000) / 1_000);
      assert.equal(wait(), 0, `${perSecond} a second, turn ${turn}`);
    }
  }
});

test('a sender at twice the rate gets half of its requests through', () => {
  const { wait, pass } = clocked(5);
  let through = 0;
  for (let turn = 0; turn < 600; turn += 1) {
    if (wait() === 0) through += 1;
    pass(100);
  }
  assert.ok(through >= 300 && through <= 306, `${through} of 600 in a minute at 5 a second`);
});

test('one key does not count against another', () => {
  const { wait } = clocked(2);
  while (wait('one') === 0);
  assert.equal(wait('two'), 0);
  assert.ok(wait('one') > 0);
});

test('a clock that stands still or goes back neither adds requests nor blocks anyone', () => {
  const { wait, pass } = clocked(3);
  while (wait() === 0);
  pass(-10_000);
  assert.ok(wait() > 0);
  pass(11_000);
  assert.equal(wait(), 0);
});

const post = (
  { url }: Gatehouse,
  token = WEBHOOK_TOKEN,
  body: unknown = { event: 'e', data: { page_id: 'p' } },
) => ask('POST', `${url.webhook}/webhook`, { bearer: token, body });
const countEvents = async () => (await file.sql`select from webhook.events`).length;

test('beyond WEBHOOK_RATE a token gets 429 with Retry-After, and nothing is stored', async (t) => {
  stopClock(t);
  const gatehouse = await startGatehouse(t, ['webhook'], file.url, { WEBHOOK_RATE: '5' });
  const answers = await Promise.all(Array.from({ length: 20 }, () => post(gatehouse)));
  const refused = answers.filter(({ status }) => status === 429);
  assert.equal(refused.length, 15);
  assert.equal(answers.filter(({ status }) => status === 200).length, 5);
  for (const { headers, json } of refused) {
    assert.match(headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
    assert.equal(json.error.code, 'too_many_requests');
    assert.match(json.error.message, /WEBHOOK_RATE/);
  }
  assert.equal(await countEvents(), answers.length - refused.length);
  const metrics = (await ask('GET', `${gatehouse.url.metrics}/metrics`)).text;
  const labels = 'service="webhook",route="POST /webhook",reason="too_many_requests"';
  assert.ok(metrics.includes(`\ngatehouse_requests_refused_total{${labels}} ${refused.length}\n`));
  await gatehouse.stop();
});

test('beyond 32 MiB of uncommitted events the next get 503 with Retry-After; others are stored', async (t) => {
  // The senders wait as long as a slow machine needs for all of them.
  stopClock(t);
  const settings = { MAX_BODY_BYTES: '2000000', ...PATIENT };
  const gatehouse = await startGatehouse(t, ['webhook'], file.url, settings, 'ready', 240_000);
  const before = await countEvents();
  const big = { event: 'e', data: { page_id: 'p', filling: 'x'.repeat(1_000_000) } };
  const waitingBytes = async () =>
    Number(
      /^gatehouse_events_waiting_bytes(?:\{\})? ([0-9]+)$/m.exec(
        (await ask('GET', `${gatehouse.url.metrics}/metrics`)).text,
      )?.[1],
    );
  const size = Buffer.byteLength(JSON.stringify(big));
  const room = Math.floor((32 * 1024 * 1024) / size);
  const blocker = connect(file.url);
  try {
    await blocker`begin`;
    await blocker`lock table webhook.events in share mode`;
    const waiting: Array<Promise<Answer>> = [];
    // One by one: at once, the bodies being received would exceed another limit.
    while (waiting.length < room) {
      waiting.push(post(gatehouse, WEBHOOK_TOKEN, big));
      const expected = waiting.length * size;
      await untilSql(async () => (await waitingBytes()) === expected, 'the event waits');
    }
    const refused = await post(gatehouse, WEBHOOK_TOKEN, big);
    assert.equal(refused.status, 503, refused.text);
    assert.match(refused.headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
    assert.equal(await waitingBytes(), room * size, 'what is refused takes no room');
    await blocker`commit`;
    assert.deepEqual([...new Set((await Promise.all(waiting)).map(({ status }) => status))], [200]);
  } finally {
    await blocker.end();
  }
  assert.equal(await waitingBytes(), 0);
  assert.equal((await post(gatehouse, WEBHOOK_TOKEN, big)).status, 200);
  assert.equal(await countEvents(), before + room + 1);
});
