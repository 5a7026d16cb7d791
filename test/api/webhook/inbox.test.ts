/** The routes for operators: list and show. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, test } from 'node:test';
import { type Answer, ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { addOperator, openInbox } from '../../support/inbox.ts';

const inbox = await openInbox({ after });
const { url, sql, call, put } = inbox;

const REVOKED = 'revoked-operator-0123456789abcdefghijklmno';
await addOperator(sql, REVOKED);
await sql`update webhook.tokens set revoked_at = now()
  where digest = ${createHash('sha256').update(REVOKED).digest()}`;

// By name: age in seconds, and status.
const known = new Map<string, string>();
for (const [name, wish] of Object.entries({
  oldest: { event: 'page.created', source: 'notion', age: 500 },
  waiting: {
    event: 'page.updated',
    status: 'waiting',
    attempts: 2,
    age: 400,
    errors: ['was busy', 'was busy again'],
  },
  done: { event: 'page.updated', status: 'done', attempts: 1, deliveryId: 'msg_1', age: 300 },
  dead: {
    event: 'push',
    source: 'github',
    status: 'dead',
    attempts: 3,
    age: 200,
    errors: ['one', 'two', 'three'],
  },
  skipped: { event: '100%_sure\\*', source: 'standard', status: 'skipped', age: 100 },
} as const))
  known.set(name, await put(wish));
const ALL = ['skipped', 'dead', 'done', 'waiting', 'oldest'];

const nameOf = (id: string) => [...known].find(([, one]) => one === id)?.[0] ?? id;
const idOf = (name: string) => known.get(name) ?? assert.fail(name);
const namesIn = (answer: Answer): string[] =>
  answer.json.map(({ id }: { id: string }) => nameOf(id));
const query = (parameters: Record<string, string>) => `/events?${new URLSearchParams(parameters)}`;
const received = async (name: string): Promise<Date> =>
  (await sql`select received_at from webhook.events where id = ${idOf(name)}`)[0]?.received_at;
const statusOf = async (id: string) => (await call('GET', `/events/${id}`)).json.event.status;

test('events are listed newest first, with all their fields and without their bodies', async () => {
  const answer = await call('GET', '/events');
  assert.equal(answer.status, 200, answer.text);
  assert.deepEqual(namesIn(answer), ALL);
  assert.deepEqual(answer.json[1], {
    id: idOf('dead'),
    event: 'push',
    source: 'github',
    delivery_id: null,
    received_at: (await received('dead')).toISOString(),
    status: 'dead',
    attempts: 3,
    total_attempts: 3,
    last_error: 'three',
    token: 'first',
    next_attempt_at: null,
  });
  assert.deepEqual(
    answer.json.map((line: Record<string, unknown>) => [
      line.status,
      line.attempts,
      line.last_error,
      line.delivery_id,
    ]),
    [
      ['skipped', 0, null, null],
      ['dead', 3, 'three', null],
      ['done', 1, null, 'msg_1'],
      ['waiting', 2, 'was busy again', null],
      ['stored', 0, null, null],
    ],
  );
  assert.equal(answer.headers.get('link'), null);
  assert.equal(answer.headers.get('cache-control'), 'no-store');
});

const FILTERS: ReadonlyArray<readonly [Record<string, string>, readonly string[]]> = [
  [{ status: 'stored' }, ['oldest']],
  [{ status: 'waiting' }, ['waiting']],
  [{ status: 'done' }, ['done']],
  [{ status: 'dead' }, ['dead']],
  [{ status: 'skipped' }, ['skipped']],
  [{ event: 'page.updated' }, ['done', 'waiting']],
  [{ event: 'page.*' }, ['done', 'waiting', 'oldest']],
  [{ event: '*ed' }, ['done', 'waiting', 'oldest']],
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
  [{ text: 'page_id' }, ALL],
  [{ text: 'page_id', status: 'waiting' }, ['waiting']],
  [{ text: 'PAGE_ID' }, []],
  [{ text: '%' }, ['skipped']],
  [{ until: '2000-01-01T00:00:00Z' }, []],
  [{ until: '9999-01-01T00:00:00Z', source: 'notion' }, ['oldest']],
  [{ source: 'github' }, ['dead']],
  [{ source: 'generic' }, ['done', 'waiting']],
  [{ source: 'generic', status: 'done' }, ['done']],
  [{ source: 'generic', status: 'dead' }, []],
  [{ event: "'; drop table webhook.events; --" }, []],
];
for (const [filter, names] of FILTERS) {
  test(`${query(filter)} lists ${names.join(', ') || 'nothing'}`, async () => {
    const answer = await call('GET', query(filter));
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(namesIn(answer), names);
  });
}

test('since takes a time with any offset, and includes that very moment', async () => {
  await sql`update webhook.events set received_at = date_trunc('milliseconds', received_at)
    where id = ${idOf('done')}`;
  const at = await received('done');
  const later = new Date(at.getTime() + 1);
  const elsewhere = new Date(at.getTime() + 2 * 3_600_000).toISOString().replace('Z', '+02:00');
  for (const [since, names] of [
    [at.toISOString(), ALL.slice(0, 3)],
    [elsewhere, ALL.slice(0, 3)],
    [later.toISOString(), ALL.slice(0, 2)],
    ['9999-12-31T00:00:00Z', []],
  ] as const) {
    assert.deepEqual(namesIn(await call('GET', query({ since }))), names, since);
  }
});

test('a Link header leads through all pages with the same filters', async () => {
  const since = new Date((await received('dead')).getTime() - 1).toISOString();
  // Each filter excludes an event that the next page would have without it.
  await put({ event: 'page.updated', status: 'dead', age: 450 });
  for (const filter of [
    {},
    { since },
    { event: '*.updated' },
    { source: 'generic' },
    { status: 'dead' },
    { event: 'page.*', source: 'generic', status: 'dead', since: '2000-01-01T00:00:00.000Z' },
  ]) {
    const expected = namesIn(await call('GET', query(filter)));
    for (const limit of [1, 2, 3, expected.length]) {
      const seen: string[] = [];
      let next: string | undefined = query({ ...filter, limit: String(limit) });
      for (; next !== undefined;) {
        const answer: Answer = await call('GET', next);
        assert.equal(answer.status, 200, answer.text);
        assert.ok(answer.json.length <= limit && answer.json.length > 0);
        seen.push(...namesIn(answer));
        const link = answer.headers.get('link');
        next =
          link === null
            ? undefined
            : (/^<(\/events\?[^>]+)>; rel="next"$/.exec(link)?.[1] ?? assert.fail(link));
      }
      assert.deepEqual(seen, expected, `${JSON.stringify(filter)}, ${limit} at a time`);
    }
  }
  await sql`delete from webhook.events where received_at < now() - interval '440 seconds'
    and event = 'page.updated'`;
});

test('events of the same moment are paged without a gap or a repetition', async () => {
  const ids = await Promise.all(Array.from({ length: 7 }, () => put({ event: 'same.moment' })));
  await sql`update webhook.events set received_at = now() where event = 'same.moment'`;
  const seen: string[] = [];
  for (let after: string | undefined; ; after = seen.at(-1)) {
    const page = namesIn(
      await call(
        'GET',
        query({ event: 'same.moment', limit: '2', ...(after === undefined ? {} : { after }) }),
      ),
    );
    if (page.length === 0) break;
    seen.push(...page);
  }
  assert.deepEqual(seen, [...ids].sort().reverse());
  await sql`delete from webhook.events where event = 'same.moment'`;
});

test('a page has 20 events by default and at most 100', async () => {
  await sql`insert into webhook.events (id, token_id, event, body) select gen_random_uuid(),
    (select id
    from webhook.tokens limit 1), 'many', '' from generate_series(1, 101)`;
  assert.equal((await call('GET', query({ event: 'many' }))).json.length, 20);
  const most = await call('GET', query({ event: 'many', limit: '100' }));
  assert.equal(most.json.length, 100);
  assert.match(most.headers.get('link') ?? '', /limit=100/);
  await sql`delete from webhook.events where event = 'many'`;
});

test('an event is shown with its body as received, its headers and every failure in order', async () => {
  const body =
    ' {"event":"shown",\r\n"data":{"page_id":"p\\u0000"},"more":"é 🎉\u2028","n":12345678901234567890}\n';
  const answer = await ask('POST', `${url}/webhook`, {
    bearer: WEBHOOK_TOKEN,
    body,
    headers: {
      'webhook-id': 'msg_shown',
      'x-request-id': 'shown-1',
      'user-agent': 'a sender',
      cookie: 'a=b',
      'x-api-key': 'k',
    },
  });
  const { id } = answer.json;
  for (const [attempt, error] of [
    [2, 'the second'],
    [1, 'the first'],
    [3, 'the third'],
  ] as const) {
    await sql`insert into webhook.failures (event_id, attempt, failed_at, error)
      values (${id}, ${attempt}, ${new Date(Date.UTC(2030, 0, attempt))}, ${error})`;
  }
  const { status, json } = await call('GET', `/events/${id}`);
  assert.equal(status, 200);
  const { event, ...rest } = json;
  assert.deepEqual(
    [event.id, event.event, event.delivery_id, event.status, event.last_error],
    [id, 'shown', 'msg_shown', 'stored', 'the third'],
  );
  const [row] = await sql`select token_id from webhook.events where id = ${id}`;
  assert.deepEqual(rest, {
    token_id: row?.token_id,
    ip: '127.0.0.1',
    headers: {
      'content-type': 'application/json',
      'user-agent': 'a sender',
      'webhook-id': 'msg_shown',
      'x-request-id': 'shown-1',
    },
    body,
    attempts: [1, 2, 3].map((attempt) => ({
      run: 1,
      attempt,
      ended_at: `2030-01-0${attempt}T00:00:00.000Z`,
      duration_ms: null,
      error: ['the first', 'the second', 'the third'][attempt - 1],
      answer_status: null,
      answer: null,
      target: null,
    })),
  });
  assert.equal((await call('GET', `/events/${String(id).toUpperCase()}`)).json.event.id, id);
});

test('without a target redelivery is a conflict', async () => {
  for (const name of ['dead', 'waiting', 'oldest']) {
    const before = await statusOf(idOf(name));
    const { status, json } = await call('POST', `/events/${idOf(name)}/redeliver`);
    assert.deepEqual([status, json.error.code], [409, 'conflict']);
    assert.match(json.error.message, /Set a target for their token, or WEBHOOK_FORWARD_URL/);
    assert.equal(await statusOf(idOf(name)), before);
  }
});
