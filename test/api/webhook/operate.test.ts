/**
 * What operators do with many events: counts, bulk redelivery, pause, attempts with answers, and
 * bounded lists.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { after } from 'node:test';
import { ask } from '../../support/gatehouse.ts';
import { untilSql } from '../../support/connections.ts';
import { openInbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { test } from '../../support/until.ts';
import { listenOn } from '../../support/ports.ts';

/** A target that fails until `isWorking`. */
let isWorking = false;
const target = createServer((request, response) => {
  request.resume();
  if (isWorking) response.writeHead(201).end('taken\u0000 over');
  else response.writeHead(503, { 'content-type': 'text/plain' }).end(`busy\n${'x'.repeat(5_000)}`);
});
const port = await listenOn({ after }, target);

const inbox = await openInbox(
  { after },
  {
    WEBHOOK_FORWARD_URL: `http://127.0.0.1:${port}/path-secret`,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    WEBHOOK_RETRY_SCHEDULE: '1h,2d',
    WEBHOOK_EVENTS: 'order.*',
  },
);
const { url, sql, call, put, send } = inbox;
const post = (path: string, body?: unknown) =>
  ask('POST', url + path, { bearer: OPERATOR_TOKEN, ...(body === undefined ? {} : { body }) });
const details = async (id: string) => (await call('GET', `/events/${id}`)).json;
const clear = () =>
  sql`truncate webhook.events, webhook.work, webhook.outcomes, webhook.failures,
    webhook.failing_targets`;

test('each attempt has its duration and the start of the answer; a redelivery begins another run', async () => {
  const id = await send('order.paid');
  await untilSql(async () => (await details(id)).attempts.length === 1, 'the first attempt');
  const first = await details(id);
  const seconds = (new Date(first.event.next_attempt_at).getTime() - Date.now()) / 1_000;
  assert.ok(seconds > 2_800 && seconds < 4_400, `the next attempt is due in ${seconds} s`);
  const [failed] = first.attempts;
  assert.deepEqual(
    [failed.run, failed.attempt, failed.error, failed.answer_status, failed.answer],
    [1, 1, 'the target answered 503', 503, `busy\n${'x'.repeat(1_019)}`],
  );
  assert.ok(Number.isInteger(failed.duration_ms));
  isWorking = true;
  assert.equal((await call('POST', `/events/${id}/redeliver`)).status, 200);
  await untilSql(async () => (await details(id)).event.status === 'done', 'delivered');
  assert.equal((await call('POST', `/events/${id}/redeliver`)).status, 200);
  const view = async () =>
    (await details(id)).attempts.map((one: Record<string, unknown>) => [
      one.run,
      one.attempt,
      one.error,
      one.answer_status,
      one.answer,
    ]);
  await untilSql(async () => (await view()).length === 3, 'delivered once more');
  isWorking = false;
  assert.deepEqual((await view()).slice(1), [
    [1, 2, null, 201, 'taken  over'],
    [2, 1, null, 201, 'taken  over'],
  ]);
});

test('the state of delivery shows the target without its path, its failures, and the schedule', async () => {
  isWorking = false;
  const id = await send('order.fails');
  await untilSql(async () => (await details(id)).attempts.length === 1, 'it failed');
  await untilSql(
    async () => (await sql`select from webhook.failing_targets`).length === 1,
    'it is counted',
  );
  const { status, json } = await call('GET', '/events/delivery');
  assert.deepEqual(
    [status, json],
    [
      200,
      {
        target: `forward http://127.0.0.1:${port}`,
        own_targets: 0,
        schedule: ['1h', '2d'],
        paused_at: null,
        paused_by: null,
        user: null,
        failures: json.failures,
        failing_since: json.failing_since,
        next_probe_at: null,
      },
    ],
  );
  await sql`update webhook.failing_targets set failures = 10,
    failing_since = now() - interval '1 hour'`;
  const failing = (await call('GET', '/events/delivery')).json;
  assert.ok(
    failing.failures >= 10 && failing.next_probe_at !== null && failing.failing_since !== null,
  );
  await clear();
});

test('pause and resume tell by whom, and are idempotent', async () => {
  const first = await post('/events/pause');
  assert.deepEqual([first.status, first.json.paused_by], [200, 'an operator']);
  assert.equal(
    (await post('/events/pause')).json.paused_at,
    first.json.paused_at,
    'the first time stays',
  );
  isWorking = true;
  const id = await send('order.waits');
  assert.equal((await details(id)).event.status, 'waiting');
  assert.equal((await post('/events/resume')).json.paused_at, null);
  assert.equal((await post('/events/resume')).status, 200);
  await untilSql(
    async () => (await details(id)).event.status === 'done',
    'it is delivered after the pause',
  );
  isWorking = false;
});

test('counts tell the statuses, the last hour and the last day', async () => {
  await clear();
  for (const status of ['stored', 'done', 'dead', 'skipped', 'dead'] as const)
    await put({ status, age: 4_000 });
  await put({ status: 'waiting' });
  await untilSql(
    async () => (await call('GET', '/events/counts')).json.counts.dead === 2,
    'they are counted',
  );
  const { counts, minutes, hours } = (await call('GET', '/events/counts')).json;
  assert.deepEqual(counts, { stored: 1, waiting: 1, done: 1, dead: 2, skipped: 1 });
  const sum = (bars: Array<Record<string, number>>, name: string) =>
    bars.reduce((total, bar) => total + (bar[name] ?? 0), 0);
  assert.deepEqual([minutes.length, sum(minutes, 'received'), sum(minutes, 'dead')], [60, 1, 2]);
  assert.deepEqual([hours.length, sum(hours, 'received'), sum(hours, 'dead')], [24, 6, 2]);
  assert.ok(
    minutes.every(
      (bar: { from: string }, at: number) =>
        at === 0 || Date.parse(bar.from) - Date.parse(minutes[at - 1].from) === 60_000,
    ),
  );
});

test('counts that failed are read again at the next request', async () => {
  const read = async () => (await call('GET', '/events/counts')).status;
  await sql`alter table webhook.outcomes rename to absent`;
  await untilSql(async () => (await read()) !== 200, 'the counts before are too old');
  await sql`alter table webhook.absent rename to outcomes`;
  assert.equal(await read(), 200);
});

test('redelivery by ids and by filter counts first, takes all pages and leaves other events', async () => {
  await clear();
  await post('/events/pause');
  const ids = await Promise.all(
    [1, 2, 3].map(() => put({ event: 'order.a', status: 'dead', attempts: 3 })),
  );
  const other = await put({ event: 'other', status: 'dead', attempts: 3 });
  await sql`
    with new as (insert into webhook.events (id, token_id, event, body)
      select gen_random_uuid(), (select id from webhook.tokens limit 1), 'order.many', ''
        from generate_series(1, 1200)
      returning id, received_at)
    insert into webhook.outcomes (event_id, status, attempts, received_at) select id, 'dead', 3,
      received_at from new`;
  const byIds = await post('/events/redeliver', { ids: [...ids, randomUUID()] });
  assert.deepEqual(byIds.json, { matched: 4, redelivered: 3, next: null });
  const all = async (dry_run: boolean) => {
    let matched = 0;
    let redelivered = 0;
    let requests = 0;
    for (let after: string | undefined; ;) {
      const filter = { status: 'dead', event: 'order.*' };
      const { status, json, text } = await post('/events/redeliver', {
        filter,
        dry_run,
        ...(after && { after }),
      });
      assert.equal(status, 200, text);
      matched += json.matched;
      redelivered += json.redelivered;
      requests += 1;
      if (json.next === null) return [matched, redelivered, requests];
      after = json.next;
    }
  };
  assert.deepEqual(await all(true), [1_200, 0, 3]);
  assert.deepEqual(await all(false), [1_200, 1_200, 3]);
  assert.deepEqual(await all(true), [0, 0, 1]);
  assert.equal((await details(other)).event.status, 'dead');
  await clear();
  await post('/events/resume');
});

test('a bulk redelivery that is unclear is 400, and redelivers nothing', async () => {
  const id = await put({ status: 'dead' });
  for (const body of [{}, { ids: [id], filter: {} }]) {
    const { status, json } = await post('/events/redeliver', body);
    assert.deepEqual([status, json.error.code], [400, 'invalid_body'], JSON.stringify(body));
  }
  assert.equal((await details(id)).event.status, 'dead');
});

test('a list looks at a limited number of events, and its Link continues after them', async () => {
  await clear();
  const oldest = await put({
    event: 'needle',
    body: '{"event":"needle","data":{"page_id":"hay"}}',
    age: 9_000,
  });
  await sql`
    insert into webhook.events (id, token_id, event, body, received_at)
    select gen_random_uuid(), (select id from webhook.tokens limit 1), 'order.hay', 'hay',
      now() - n * interval '100 milliseconds' from generate_series(1, 10050) n`;
  for (const [filter, pages] of [
    ['event=needle', 2],
    ['text=needle', 6],
  ] as const) {
    const found: string[] = [];
    let requests = 0;
    for (let next: string | undefined = `/events?${filter}`; next !== undefined; requests += 1) {
      const answer = await call('GET', next);
      assert.equal(answer.status, 200, answer.text);
      found.push(...answer.json.map(({ id }: { id: string }) => id));
      next = /^<([^>]+)>/.exec(answer.headers.get('link') ?? '')?.[1];
    }
    assert.deepEqual([found, requests], [[oldest], pages], filter);
  }
  assert.deepEqual(
    (await call('GET', '/events?status=dead')).json,
    [],
    'a small table needs one look',
  );
  await clear();
});
