/** The routes for operators: list and show. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { type Answer, ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { openInbox, type Wish } from '../../support/inbox.ts';

const { url, sql, call, put } = await openInbox({ after });

const WISHES: Readonly<Record<string, Wish>> = {
  stored: { event: 'page.created', source: 'notion', age: 500 },
  waiting: { status: 'waiting', age: 400 },
  done: { status: 'done', deliveryId: 'msg_1', age: 300 },
  dead: {
    ...{ event: 'push', source: 'github', status: 'dead', attempts: 3, age: 200 },
    errors: ['one', 'two', 'three'],
  },
  skipped: { event: '100%_sure\\*', source: 'standard', status: 'skipped', age: 100 },
};
const ids = new Map<string, string>();
for (const [name, wish] of Object.entries(WISHES)) ids.set(name, await put(wish));
/** The events, of which each has the status of its name. */
const ALL = ['skipped', 'dead', 'done', 'waiting', 'stored'];

const idOf = (name: string) => ids.get(name) ?? assert.fail(name);
const nameOf = (id: string) => [...ids].find(([, one]) => one === id)?.[0] ?? id;
const query = (parameters: Record<string, string>) => `/events?${new URLSearchParams(parameters)}`;
/** The names, or ids, of the events of a page. */
async function list(parameters: Record<string, string> = {}): Promise<string[]> {
  const { status, json, text } = await call('GET', query(parameters));
  assert.equal(status, 200, text);
  return json.map(({ id }: { id: string }) => nameOf(id));
}
const received = async (name: string): Promise<Date> =>
  (await sql`select received_at from webhook.events where id = ${idOf(name)}`)[0]?.received_at;

test('events are listed newest first, with all their fields and without their bodies', async () => {
  const { json, headers } = await call('GET', '/events');
  assert.deepEqual(json[1], {
    ...{ id: idOf('dead'), event: 'push', source: 'github', delivery_id: null },
    ...{ received_at: (await received('dead')).toISOString(), status: 'dead', token: 'first' },
    ...{ attempts: 3, total_attempts: 3, last_error: 'three', next_attempt_at: null },
  });
  const statuses = json.map(({ status }: { status: string }) => status);
  assert.deepEqual(statuses, ALL);
  assert.equal(headers.get('link'), null);
});

const FILTERS: ReadonlyArray<readonly [Record<string, string>, readonly string[]]> = [
  [{ status: 'stored' }, ['stored']],
  [{ status: 'waiting' }, ['waiting']],
  [{ status: 'done' }, ['done']],
  [{ status: 'dead' }, ['dead']],
  [{ status: 'skipped' }, ['skipped']],
  [{ event: 'page.updated' }, ['done', 'waiting']],
  [{ event: 'page.*' }, ['done', 'waiting', 'stored']],
  [{ event: '*ed' }, ['done', 'waiting', 'stored']],
  [{ event: '*' }, ALL],
  [{ event: 'page' }, []],
  [{ event: 'PUSH' }, []],
  // LIKE's own wildcards are literal.
  [{ event: 'pus_' }, []],
  [{ event: '%' }, []],
  [{ event: '100%_sure\\*' }, ['skipped']],
  [{ event: '*%_sure\\*' }, ['skipped']],
  [{ delivery_id: 'msg_1' }, ['done']],
  [{ delivery_id: 'msg_' }, []],
  [{ delivery_id: 'msg_1', status: 'dead' }, []],
  [{ text: '"event":"push"' }, ['dead']],
  [{ text: 'page_id', status: 'waiting' }, ['waiting']],
  [{ text: 'PAGE_ID' }, []],
  [{ text: '%' }, ['skipped']],
  [{ until: '2000-01-01T00:00:00Z' }, []],
  [{ until: '9999-01-01T00:00:00Z', source: 'notion' }, ['stored']],
  [{ source: 'generic' }, ['done', 'waiting']],
  [{ source: 'generic', status: 'done' }, ['done']],
  [{ source: 'generic', status: 'dead' }, []],
  [{ event: "'; drop table webhook.events; --" }, []],
];

test('each filter lists the events that match it', async () => {
  for (const [filter, names] of FILTERS)
    assert.deepEqual(await list(filter), names, JSON.stringify(filter));
});

test('no event name makes a list by a filter with many stars slow', async () => {
  const id = await put({ event: 'a'.repeat(1_024), status: 'done' });
  assert.deepEqual(await list({ event: `${'*a'.repeat(200)}*b` }), []);
  await sql`delete from webhook.events where id = ${id}`;
});

test('since takes a time with any offset, and includes that very moment', async () => {
  await sql`update webhook.events set received_at = date_trunc('milliseconds', received_at)
    where id = ${idOf('done')}`;
  const at = await received('done');
  const elsewhere = new Date(at.getTime() + 2 * 3_600_000).toISOString().replace('Z', '+02:00');
  for (const [since, names] of [
    [at.toISOString(), ALL.slice(0, 3)],
    [elsewhere, ALL.slice(0, 3)],
    [new Date(at.getTime() + 1).toISOString(), ALL.slice(0, 2)],
    ['9999-12-31T00:00:00Z', []],
  ] as const)
    assert.deepEqual(await list({ since }), names, since);
});

test('a Link header leads through all pages with the same filters', async () => {
  const since = new Date((await received('dead')).getTime() - 1).toISOString();
  // Each filter excludes an event that the next page would have without it.
  const id = await put({ status: 'dead', age: 450 });
  for (const filter of [
    {},
    { since },
    { event: '*.updated' },
    { source: 'generic' },
    { status: 'dead' },
    { event: 'page.*', source: 'generic', status: 'dead', since: '2000-01-01T00:00:00.000Z' },
  ]) {
    const expected = await list(filter);
    for (const limit of [1, 2, expected.length]) {
      const seen: string[] = [];
      let next: string | undefined = query({ ...filter, limit: String(limit) });
      while (next !== undefined) {
        const { json, headers }: Answer = await call('GET', next);
        assert.ok(json.length <= limit && json.length > 0);
        seen.push(...json.map((event: { id: string }) => nameOf(event.id)));
        const link = headers.get('link');
        next = link?.replace(/^<(\/events\?[^>]+)>; rel="next"$/, '$1');
      }
      assert.deepEqual(seen, expected, `${JSON.stringify(filter)}, ${limit} at a time`);
    }
  }
  await sql`delete from webhook.events where id = ${id}`;
});

test('events of the same moment are paged without a gap or a repetition', async () => {
  const same = await Promise.all(Array.from({ length: 7 }, () => put({ event: 'same.moment' })));
  await sql`update webhook.events set received_at = now() where event = 'same.moment'`;
  const seen: string[] = [];
  for (let page = ['']; page.length > 0; seen.push(...page)) {
    const after = seen.at(-1);
    page = await list({ event: 'same.moment', limit: '2', ...(after ? { after } : {}) });
  }
  assert.deepEqual(seen, same.sort().reverse());
  await sql`delete from webhook.events where event = 'same.moment'`;
});

test('a page has 20 events by default and at most 100', async () => {
  await sql`insert into webhook.events (id, token_id, event, body)
    select gen_random_uuid(), (select id from webhook.tokens limit 1), 'many', ''
    from generate_series(1, 101)`;
  const lengths = [await list({ event: 'many' }), await list({ event: 'many', limit: '100' })];
  assert.deepEqual(
    lengths.map(({ length }) => length),
    [20, 100],
  );
  await sql`delete from webhook.events where event = 'many'`;
});

test('an event is shown with its body as received, its headers and every failure in order', async () => {
  const body =
    ' {"event":"shown",\r\n"data":{"page_id":"p\\u0000"},"more":"é 🎉\u2028","n":12345678901234567890}\n';
  const kept = { 'webhook-id': 'msg_shown', 'x-request-id': 'shown-1', 'user-agent': 'a sender' };
  const headers = { ...kept, cookie: 'a=b', 'x-api-key': 'k' };
  const sent = await ask('POST', `${url}/webhook`, { bearer: WEBHOOK_TOKEN, body, headers });
  const { id } = sent.json;
  for (const attempt of [2, 1, 3]) {
    await sql`insert into webhook.failures (event_id, attempt, failed_at, error)
      values (${id}, ${attempt}, ${`2030-01-0${attempt}T00:00:00Z`}, ${`error ${attempt}`})`;
  }
  const { json } = await call('GET', `/events/${String(id).toUpperCase()}`);
  const { event, ...rest } = json;
  assert.deepEqual(
    [event.id, event.event, event.delivery_id, event.status, event.last_error],
    [id, 'shown', 'msg_shown', 'stored', 'error 3'],
  );
  const [row] = await sql`select token_id from webhook.events where id = ${id}`;
  assert.deepEqual(rest, {
    token_id: row?.token_id,
    ip: '127.0.0.1',
    headers: { 'content-type': 'application/json', ...kept },
    body,
    attempts: [1, 2, 3].map((attempt) => ({
      ...{ run: 1, attempt, ended_at: `2030-01-0${attempt}T00:00:00.000Z`, duration_ms: null },
      ...{ error: `error ${attempt}`, answer_status: null, answer: null, target: null },
    })),
  });
});

test('without a target redelivery is a conflict', async () => {
  for (const name of ['dead', 'waiting', 'stored']) {
    const path = `/events/${idOf(name)}`;
    const before = (await call('GET', path)).text;
    const { status, json } = await call('POST', `${path}/redeliver`);
    assert.deepEqual([status, json.error.code], [409, 'conflict']);
    assert.match(json.error.message, /Set a target for their token, or WEBHOOK_FORWARD_URL/);
    assert.equal((await call('GET', path)).json.event.status, JSON.parse(before).event.status);
  }
});
