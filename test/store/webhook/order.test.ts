import assert from 'node:assert/strict';
import { after } from 'node:test';
import { isSelected } from '../../../src/webhook/event-names.ts';
import { delayOf, errorLine } from '../../../src/webhook/worker.ts';
import { createDatabase } from '../../support/database.ts';
import { startGatehouse } from '../../support/gatehouse.ts';
import { untilSql } from '../../support/connections.ts';
import { startRecorder } from '../../support/recorder.ts';
import { someTurns, test } from '../../support/until.ts';
import {
  FAILED,
  openWorkQueue,
  stateOf,
  untilStatus,
  sendEvent,
} from '../../support/webhook-store.ts';

const queue = await openWorkQueue({ after });
const nothingWaits = () =>
  untilSql(async () => (await queue.sql`select from webhook.work`).length === 0, 'nothing waits');

test('events of one key are delivered in turn on two replicas, even behind a failing one', async () => {
  const KEYS = ['a', 'b', 'c', 'd'];
  const ids = new Map<string, string>();
  const begun: string[] = [];
  const active = new Map<string, number>();
  let overlaps = 0;
  for (let number = 0; number < 12; number += 1) {
    for (const key of KEYS)
      ids.set(await queue.put({ order_key: key, event: `${key} ${number}` }), `${key} ${number}`);
  }
  const workers = [1, 2].map(() =>
    queue.startWorker(
      async ({ event, attempt }) => {
        const [key = '', number] = event.split(' ');
        active.set(key, (active.get(key) ?? 0) + 1);
        if (active.get(key) !== 1) overlaps += 1;
        if (attempt === 1) begun.push(event);
        await someTurns();
        active.set(key, (active.get(key) ?? 0) - 1);
        // First events that fail for a while, and one that ends as dead.
        if (key === 'a' && number === '0') return FAILED;
        return Number(number) % 3 === 0 && attempt < 3 ? FAILED : null;
      },
      { maxAttempts: 4 },
    ),
  );
  await nothingWaits();
  assert.equal(overlaps, 0, 'two of the same key at once');
  for (const key of KEYS)
    assert.deepEqual(
      begun.filter((event) => event.startsWith(key)),
      Array.from({ length: 12 }, (_, number) => `${key} ${number}`),
    );
  assert.ok(
    begun.indexOf('b 11') > begun.indexOf('a 0') && begun.indexOf('b 1') < begun.indexOf('a 11'),
    'keys go side by side',
  );
  for (const [id, event] of ids)
    assert.equal((await queue.stateOf(id)).status, event === 'a 0' ? 'dead' : 'done', event);
  await Promise.all(workers.map((worker) => worker.stop()));
});

test('while the first event of a key waits for its retry, only later ones of that key wait', async () => {
  const head = await queue.put({ order_key: 'k', event: 'fails' });
  const behind = await queue.put({ order_key: 'k' });
  const other = await queue.put({ order_key: 'l' });
  const none = await queue.put();
  const worker = queue.startWorker(async ({ event, attempt }) =>
    event === 'fails' && attempt === 1 ? { error: 'not now', retryAfter: 3_600 } : null,
  );
  for (const id of [other, none])
    await untilSql(async () => (await queue.stateOf(id)).status === 'done', 'it is done');
  await untilSql(
    async () => (await queue.stateOf(head)).errors.length === 1,
    'the head has failed',
  );
  // If the waiting one were due, it would be claimed together with this one.
  const last = await queue.put();
  worker.notify();
  await untilSql(
    async () => (await queue.stateOf(last)).status === 'done',
    'another claim was made',
  );
  assert.deepEqual(await queue.stateOf(behind), { status: 'waiting', attempts: 0, errors: [] });
  await queue.sql`update webhook.pages set due_at = now()`;
  worker.notify();
  await nothingWaits();
  assert.equal((await queue.stateOf(behind)).status, 'done');
  await worker.stop();
});

test('WEBHOOK_ORDER orders by data.page_id, and WEBHOOK_EVENTS selects what is delivered', async (t) => {
  const recorder = await startRecorder(t);
  for (const ordered of [true, false]) {
    const { url, sql } = await createDatabase(t);
    const fail = { on: true };
    recorder.answer((response, { body }) =>
      response
        .writeHead(fail.on && body.includes('head') ? 503 : 200, { 'retry-after': '3600' })
        .end(),
    );
    const gatehouse = await startGatehouse(t, ['webhook'], url, {
      WEBHOOK_FORWARD_URL: recorder.url,
      WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
      WEBHOOK_EVENTS: 'page.*, *.head',
      WEBHOOK_ORDER: ordered ? 'page_id' : undefined,
    });
    const post = (event: string, page: string) => sendEvent(gatehouse.url.webhook, event, page);
    const head = await post('the.head', 'p1');
    await untilSql(
      async () => (await stateOf(sql, head)).errors.length === 1,
      'the head has failed',
    );
    const same = await post('page.updated', 'p1');
    const other = await post('page.updated', 'p2');
    const skipped = await post('comment.page.', 'p1');
    for (const id of ordered ? [other] : [other, same]) await untilStatus(sql, id, 'done');
    assert.equal((await stateOf(sql, same)).status, ordered ? 'waiting' : 'done');
    assert.deepEqual(await stateOf(sql, skipped), { status: 'skipped', attempts: 0, errors: [] });
    await gatehouse.stop();
  }
});

test('a pattern matches whole names, only * is special, and no pattern selects all', () => {
  const cases: ReadonlyArray<readonly [patterns: string[], selected: string[], left: string[]]> = [
    [[], ['', 'anything'], []],
    [['*'], ['', 'a', 'a\nb'], []],
    [
      ['page.updated'],
      ['page.updated'],
      ['page.updated2', 'xpage.updated', 'pageXupdated', 'PAGE.UPDATED', ''],
    ],
    [['page.*'], ['page.', 'page.a', 'page.a.b'], ['page', 'pages.a', 'a.page.b']],
    [['*.created'], ['a.created', '.created', 'a.b.created'], ['created', 'a.created.b']],
    [['a*c*e'], ['ace', 'abcde', 'accce'], ['acd', 'aec']],
    [
      ['aba*ba', 'a**z'],
      ['ababa', 'abaxba', 'az', 'a*z'],
      ['aba', 'abba', 'a', 'z', 'xaz'],
    ],
    [
      ['a', 'b*'],
      ['a', 'b', 'bc'],
      ['c', 'ab'],
    ],
    [
      ['(a|b)', '[ab]', 'a+', 'a?', '^a$', '\\d', 'a{2}', 'a/b-c'],
      ['(a|b)', '[ab]', 'a+', 'a?', '^a$', '\\d', 'a{2}', 'a/b-c'],
      ['a', 'b', 'aa', '5', ''],
    ],
  ];
  for (const [patterns, selected, left] of cases) {
    for (const name of selected)
      assert.equal(
        isSelected(patterns, name),
        true,
        `${patterns.join()} selects ${JSON.stringify(name)}`,
      );
    for (const name of left)
      assert.equal(
        isSelected(patterns, name),
        false,
        `${patterns.join()} leaves ${JSON.stringify(name)}`,
      );
  }
});

/** Every text of these letters, up to a length. */
const textsOf = (letters: string, most: number): string[] =>
  most === 0
    ? ['']
    : [
        '',
        ...[...letters].flatMap((letter) =>
          textsOf(letters, most - 1).map((rest) => letter + rest),
        ),
      ];

test('short patterns select the same names as a regular expression', () => {
  const names = textsOf('ab', 5);
  for (const pattern of textsOf('ab*', 5)) {
    const expected = new RegExp(`^${pattern.replaceAll('*', '.*')}$`);
    for (const name of names)
      assert.equal(isSelected([pattern], name), expected.test(name), `"${pattern}" and "${name}"`);
  }
});

test('no event name makes a pattern with many stars slow', () => {
  // A regular expression would take hours.
  assert.equal(isSelected([`${'*a'.repeat(30)}*b`], 'a'.repeat(1_024)), false);
});

test('a delay is within 20 % of its pause, at least Retry-After, which counts up to a day', () => {
  assert.deepEqual(
    [0, 0.5, 1].map((random) => Math.round(delayOf(1_000, null, random))),
    [800, 1_000, 1_200],
  );
  assert.equal(delayOf(0, null, 1), 0);
  assert.equal(delayOf(30_000, 120, 1), 120_000);
  assert.equal(delayOf(1_000_000, 10, 0), 800_000, 'what is asked for is the least');
  assert.equal(delayOf(30_000, 200_000, 0), 86_400_000);
  assert.equal(delayOf(604_800_000, 200_000, 0.5), 604_800_000);
  const drawn = Array.from({ length: 1_000 }, () => delayOf(10, null));
  assert.ok(
    Math.min(...drawn) < 8.5 &&
      Math.max(...drawn) > 11.5 &&
      drawn.every((delay) => delay >= 8 && delay <= 12),
    'drawn from the whole range',
  );
});

test('an error is one line of at most 1,000 characters without control characters', () => {
  assert.equal(
    errorLine(' a\r\n\tb\u0000c\u001b[31m\u202ed\u2028e\ufefff\u0085 '),
    'a b c [31m d e f',
  );
  assert.equal(errorLine('x'.repeat(2_000)).length, 1_000);
});
