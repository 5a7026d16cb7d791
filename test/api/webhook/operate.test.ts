/**
 * What operators do with many events: counts, bulk redelivery, pause, attempts with answers, and
 * bounded lists.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after } from 'node:test';
import { stopClock } from '../../support/clock.ts';
import { untilSql } from '../../support/connections.ts';
import { ask } from '../../support/gatehouse.ts';
import { openInbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { test } from '../../support/until.ts';

const target = await startRecorder({ after });
const FAILS = reply(503, `busy\n${'x'.repeat(5_000)}`);
const WORKS = reply(201, 'taken\u0000 over');
target.answer(FAILS);

const { gatehouse, url, sql, call, put, send } = await openInbox(
  { after },
  {
    WEBHOOK_FORWARD_URL: `${target.url}/path-secret`,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    WEBHOOK_RETRY_SCHEDULE: '1h,2d',
    WEBHOOK_EVENTS: 'order.*',
  },
);
const post = (path: string, body?: unknown) =>
  ask('POST', url + path, { bearer: OPERATOR_TOKEN, ...(body === undefined ? {} : { body }) });
const get = async (path: string) => (await call('GET', path)).json;
const details = (id: string) => get(`/events/${id}`);
const untilAttempts = (id: string, count: number) =>
  untilSql(async () => (await details(id)).attempts.length === count, `${count} attempts`);
const untilDone = (id: string) =>
  untilSql(async () => (await details(id)).event.status === 'done', 'it is delivered');
const clear = () =>
  sql`truncate webhook.events, webhook.work, webhook.outcomes, webhook.failures,
    webhook.failing_targets`;

test('an event that WEBHOOK_EVENTS does not select is skipped', async () => {
  const { event, attempts } = await details(await send('other.order.'));
  assert.deepEqual([event.status, event.attempts, attempts], ['skipped', 0, []]);
});

test('each attempt has its duration and the start of the answer; a redelivery begins another run', async () => {
  const id = await send('order.paid');
  await untilAttempts(id, 1);
  const [due] = await sql`select extract(epoch from due_at - failed_at)::float8 as seconds
    from webhook.work w join webhook.failures f using (event_id) where event_id = ${id}`;
  assert.ok(due?.seconds > 2_800 && due?.seconds < 4_400, `due in ${due?.seconds} s`);
  target.answer(WORKS);
  assert.equal((await post(`/events/${id}/redeliver`)).status, 200);
  await untilDone(id);
  assert.equal((await post(`/events/${id}/redeliver`)).status, 200);
  await untilAttempts(id, 3);
  target.answer(FAILS);
  const { attempts } = await details(id);
  assert.ok(Number.isInteger(attempts[0].duration_ms));
  assert.deepEqual(
    attempts.map((one: Record<string, unknown>) => [
      one.run,
      one.attempt,
      one.error,
      one.answer_status,
      one.answer,
    ]),
    [
      [1, 1, 'the target answered 503', 503, `busy\n${'x'.repeat(1_019)}`],
      [1, 2, null, 201, 'taken  over'],
      [2, 1, null, 201, 'taken  over'],
    ],
  );
});

test('the state of delivery shows the target without its path, its failures, and the schedule', async () => {
  await untilAttempts(await send('order.fails'), 1);
  const isCounted = async () => (await sql`select from webhook.failing_targets`).length === 1;
  await untilSql(isCounted, 'it is counted');
  const { failures: _, failing_since: __, ...state } = await get('/events/delivery');
  assert.deepEqual(state, {
    ...{ target: `forward ${target.url}`, own_targets: 0, schedule: ['1h', '2d'] },
    ...{ paused_at: null, paused_by: null, user: null, next_probe_at: null },
  });
  await sql`update webhook.failing_targets
    set failures = 10, failing_since = now() - interval '1 hour'`;
  const failing = await get('/events/delivery');
  assert.ok(failing.failures >= 10 && failing.next_probe_at && failing.failing_since);
  await clear();
});

test('pause and resume tell by whom, and are idempotent', async () => {
  target.answer(WORKS);
  const { json } = await post('/events/pause');
  assert.deepEqual([json.paused_by, typeof json.paused_at], ['an operator', 'string']);
  assert.equal((await post('/events/pause')).json.paused_at, json.paused_at);
  const id = await send('order.waits');
  assert.equal((await details(id)).event.status, 'waiting');
  for (let time = 0; time < 2; time += 1)
    assert.equal((await post('/events/resume')).json.paused_at, null);
  await untilDone(id);
  target.answer(FAILS);
});

test('counts tell the statuses, the last hour and the last day', async () => {
  await clear();
  for (const status of ['stored', 'done', 'dead', 'skipped', 'dead'] as const)
    await put({ status, age: 4_000 });
  await put({ status: 'waiting' });
  await sql`update webhook.outcomes set ended_at = now() - interval '2 minutes'`;
  const isCounted = async () => (await get('/events/counts')).counts.dead === 2;
  await untilSql(isCounted, 'they are counted');
  const { counts, minutes, hours } = await get('/events/counts');
  assert.deepEqual(counts, { stored: 1, waiting: 1, done: 1, dead: 2, skipped: 1 });
  type Bar = Readonly<{ from: string; received: number; dead: number }>;
  const summary = (bars: readonly Bar[]) => {
    const sum = (of: 'received' | 'dead') => bars.reduce((total, bar) => total + bar[of], 0);
    const times = bars.map(({ from }) => Date.parse(from));
    const steps = times.slice(1).map((time, at) => time - (times[at] ?? 0));
    return [bars.length, sum('received'), sum('dead'), ...new Set(steps)];
  };
  assert.deepEqual(summary(minutes), [60, 1, 2, 60_000]);
  assert.deepEqual(summary(hours), [24, 6, 2, 3_600_000]);
});

test('the metrics have the backlog, and no old numbers', async (t) => {
  await clear();
  await post('/events/pause');
  for (const status of ['waiting', 'waiting', 'dead', 'done'] as const)
    await put({ status, age: status === 'waiting' ? 5_100 : 0 });
  await gatehouse.runJobs(/measure the backlog/);
  const read = async () => {
    const { text } = await ask('GET', `${gatehouse.metrics}/metrics`);
    const gauge =
      /^gatehouse_(events_waiting|events_oldest_seconds|events_dead|delivery_paused)\b.* (\S+)$/gm;
    return Object.fromEntries([...text.matchAll(gauge)].map(([, name, value]) => [name, value]));
  };
  const { events_oldest_seconds: oldest, ...counted } = await read();
  assert.deepEqual(counted, { events_waiting: '2', events_dead: '1', delivery_paused: '1' });
  assert.equal(Math.floor(Number(oldest) / 1_000), 5);
  const pass = stopClock(t);
  // The service measures it from time to time.
  await untilSql(async () => {
    pass(60);
    return Object.values(await read()).every((value) => value === 'NaN');
  }, 'the numbers are too old');
  await post('/events/resume');
  await clear();
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
  const dead = { event: 'order.a', status: 'dead', attempts: 3 } as const;
  const ids = [await put(dead), await put(dead), randomUUID()];
  const other = await put({ ...dead, event: 'other' });
  await sql`
    with new as (insert into webhook.events (id, token_id, event, body)
      select gen_random_uuid(), (select id from webhook.tokens limit 1), 'order.many', ''
        from generate_series(1, 1200)
      returning id, received_at)
    insert into webhook.outcomes (event_id, status, attempts, received_at)
      select id, 'dead', 3, received_at from new`;
  const byIds = await post('/events/redeliver', { ids });
  assert.deepEqual(byIds.json, { matched: 3, redelivered: 2, next: null });
  const all = async (dry_run: boolean) => {
    const total = { matched: 0, redelivered: 0, requests: 0 };
    for (let after: string | undefined; ;) {
      const filter = { status: 'dead', event: 'order.*' };
      const body = { filter, dry_run, ...(after && { after }) };
      const { json } = await post('/events/redeliver', body);
      total.matched += json.matched;
      total.redelivered += json.redelivered;
      total.requests += 1;
      if (json.next === null) return total;
      after = json.next;
    }
  };
  assert.deepEqual(await all(true), { matched: 1_200, redelivered: 0, requests: 3 });
  assert.deepEqual(await all(false), { matched: 1_200, redelivered: 1_200, requests: 3 });
  assert.deepEqual(await all(true), { matched: 0, redelivered: 0, requests: 1 });
  for (const unclear of [{}, { ids: [other], filter: {} }]) {
    const { status, json } = await post('/events/redeliver', unclear);
    assert.deepEqual([status, json.error.code], [400, 'invalid_body']);
  }
  assert.equal((await details(other)).event.status, 'dead');
  await clear();
  await post('/events/resume');
});

test('a list looks at a limited number of events, and its Link continues after them', async () => {
  const body = '{"event":"needle","data":{"page_id":"hay"}}';
  const oldest = await put({ event: 'needle', body, age: 9_000 });
  await sql`
    insert into webhook.events (id, token_id, event, body, received_at)
    select gen_random_uuid(), (select id from webhook.tokens limit 1), 'order.hay', 'hay',
      now() - n * interval '100 milliseconds' from generate_series(1, 10050) n`;
  for (const [filter, pages] of [
    ['event=needle', 2],
    ['text=needle', 6],
    ['status=dead', 1],
  ] as const) {
    const found: string[] = [];
    let requests = 0;
    for (let next: string | undefined = `/events?${filter}`; next; requests += 1) {
      const { json, headers } = await call('GET', next);
      found.push(...json.map(({ id }: { id: string }) => id));
      next = /^<([^>]+)>/.exec(headers.get('link') ?? '')?.[1];
    }
    const expected = pages === 1 ? [] : [oldest];
    assert.deepEqual([found, requests], [expected, pages], filter);
  }
  await clear();
});

async function redeliver(id: string) {
  const { status, json } = await post(`/events/${id}/redeliver`);
  assert.deepEqual([status, json], [200, { id, status: 'waiting' }]);
}
/** The run and the error of each attempt. */
const attemptsOf = async (id: string): Promise<unknown[][]> =>
  (await details(id)).attempts.map((one: Record<string, unknown>) => [one.run, one.error]);

test('an event that has ended is redelivered from its first attempt, with its failures', async () => {
  target.answer(WORKS);
  for (const [status, run] of [
    ['stored', 1],
    ['done', 2],
    ['dead', 2],
    ['skipped', 1],
  ] as const) {
    const attempts = status === 'dead' ? 12 : 0;
    const id = await put({ status, attempts, errors: ['as before'] });
    await redeliver(id);
    await untilSql(async () => {
      const rows = await sql`select from webhook.outcomes
        where event_id = ${id} and status = 'done' and attempts = 1`;
      return rows.length === 1;
    }, 'it is done, at the first attempt');
    const expected = [
      [1, 'as before'],
      [run, null],
    ];
    assert.deepEqual(await attemptsOf(id), expected, status);
  }
});

test('concurrent redeliveries of one event all succeed', async () => {
  const id = await put({ status: 'dead', attempts: 3 });
  await Promise.all(Array.from({ length: 20 }, () => redeliver(id)));
  await untilSql(async () => (await details(id)).event.status === 'done', 'the event is done');
  assert.equal((await sql`select from webhook.work where event_id = ${id}`).length, 0);
});
