/** Deliveries that share statements, that meet another copy, and that are too many. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { createRateLimit } from '../../../src/platform/runtime/rate-limit.ts';
import { stopClock } from '../../support/clock.ts';
import { PATIENT, untilSql } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { type Answer, ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { whileLocked } from '../../support/hold.ts';
import { seeded } from '../../support/random.ts';
import { addToken, signedBy } from '../../support/senders.ts';
import { exchangeAtOnce, headOf } from '../../support/socket.ts';
import { test } from '../../support/until.ts';
import { openWorkQueue } from '../../support/webhook-store.ts';
import { launchWebhook } from '../../support/webhook.ts';

const { sql, database, databaseUrl, webhook: url } = await launchWebhook();
const other = await startGatehouse({ after }, ['webhook'], databaseUrl);
const github = await addToken(database, 'github');
const second = await addToken(database, 'generic');
const revoked = await addToken(database, 'generic');
await sql`update webhook.tokens set revoked_at = now() where id = ${revoked.id}`;

/** `fate`: `accepted`, `duplicate`, or an error status. */
type Delivery = readonly [token: string, id: string | null, body: string, fate: string | number];

const bodyOf = (page: string, event = 'page.updated') =>
  JSON.stringify({ event, data: { page_id: page } });

const DELIVERIES: readonly Delivery[] = [
  ...['d-1', 'd-2', 'd-3', 'd-4'].flatMap((id): Delivery[] => [
    [WEBHOOK_TOKEN, id, bodyOf(`one ${id}`), 'accepted'],
    [WEBHOOK_TOKEN, id, bodyOf(`one ${id}`), 'duplicate'],
    [WEBHOOK_TOKEN, id, bodyOf(`two ${id}`), 409],
    // The same id of another sender is a new delivery. A signed one may have another body.
    [second.token, id, bodyOf(`two ${id}`), 'accepted'],
    [github.token, id, JSON.stringify({ ref: id }), 'accepted'],
    [github.token, id, JSON.stringify({ ref: `other ${id}` }), 'duplicate'],
  ]),
  // Without an id every delivery is new.
  [second.token, null, bodyOf('the same'), 'accepted'],
  [second.token, null, bodyOf('the same'), 'accepted'],
  [revoked.token, 'revoked', bodyOf('revoked'), 401],
  [second.token, 'broken', '{"event":', 400],
  [second.token, 'odd,"{\\}', bodyOf('NULL "{\\}", \n 😀'), 'accepted'],
  [second.token, 'NULL', bodyOf('p', 'NULL'), 'accepted'],
  [second.token, 'last', bodyOf('p', 'a "quoted", {braced} \\ event\n\uffff'), 'accepted'],
];

test('deliveries of one turn get their own replies and share a commit', async () => {
  const requests = DELIVERIES.map(([token, id, body]) => {
    const isSigned = token === github.token;
    const headers = {
      ...(id !== null && { [isSigned ? 'x-github-delivery' : 'webhook-id']: id }),
      ...(isSigned && { 'x-github-event': 'push', ...signedBy('github', body) }),
    };
    return `${headOf([
      ...['POST /webhook HTTP/1.1', 'Host: gatehouse', `Authorization: Bearer ${token}`],
      ...['Content-Type: application/json', `Content-Length: ${Buffer.byteLength(body)}`],
      ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    ])}${body}`;
  });
  const answers = await exchangeAtOnce(url, requests);
  const rows = await sql`
    select id, token_id, delivery_id, event, body, xmin::text as commit from webhook.events`;
  const firsts = new Map<string, string>();
  for (const [index, [token, id, body, fate]] of DELIVERIES.entries()) {
    const { status, json, body: text } = answers[index] ?? assert.fail();
    assert.equal(typeof fate === 'number' ? status : json.status, fate, `${index}: ${text}`);
    if (fate === 'duplicate') assert.equal(json.id, firsts.get(`${token} ${id}`));
    if (fate !== 'accepted') continue;
    firsts.set(`${token} ${id}`, json.id);
    const row = rows.find((one) => one.id === json.id);
    const event = token === github.token ? 'push' : JSON.parse(body).event;
    assert.deepEqual([row?.body.toString(), row?.event, row?.delivery_id], [body, event, id]);
    if (token === github.token) assert.equal(row?.token_id, github.id);
  }
  const accepted = DELIVERIES.filter(([, , , fate]) => fate === 'accepted');
  assert.equal(rows.length, accepted.length, 'these are all');
  const commits = new Set(rows.map(({ commit }) => commit));
  assert.ok(commits.size <= 3, `${commits.size} commits`);
});

test('bodies that share statements are stored byte for byte, and compressed by LZ4', async (t) => {
  const { put, sql } = await openWorkQueue(t);
  const int = seeded(7);
  const parts = ['a', ' ', '\n', '\\u0061', '\\\\', '\\"', 'é', '€', '😀', '\ufeff', '\u2028'];
  const bodies = Array.from({ length: 200 }, (_, number) => {
    const length = int(4) === 0 ? int(20_000) : int(20);
    const text = Array.from({ length }, () => parts[int(parts.length)] ?? '').join('');
    return Buffer.from(`{"event":"a","data":{"page_id":"${number}"}, "text":"${text}"}`);
  });
  const ids = await Promise.all(bodies.map((body) => put({ body })));
  const rows = await sql`
    select id, body, xmin::text as commit, pg_column_compression(body) as method
    from webhook.events`;
  const stored = new Map(rows.map(({ id, body }) => [id, body]));
  for (const [index, id] of ids.entries()) {
    assert.ok(bodies[index]?.equals(stored.get(id)), String(index));
  }
  // Statements that wait for a lock, as for the end of the file of a table, are done alone.
  assert.ok(new Set(rows.map(({ commit }) => commit)).size < bodies.length / 2);
  const [server] = await sql`
    select 'lz4' = any (enumvals) as has_lz4 from pg_settings
    where name = 'default_toast_compression'`;
  const methods = new Set(rows.map(({ method }) => method).filter(Boolean));
  assert.deepEqual([...methods], [server?.has_lz4 ? 'lz4' : 'pglz']);
});

test('events of a page that arrive in one turn are numbered in the order of arrival', async (t) => {
  const { put, sql } = await openWorkQueue(t);
  const numbers = Array.from({ length: 150 }, (_, number) => number);
  await Promise.all(
    numbers.map((number) => put({ event: String(number), order_key: `page ${number % 5}` })),
  );
  const rows = await sql`
    select event::int4, seq::int4, order_key, e.xmin::text as commit
    from webhook.work join webhook.events e on e.id = event_id order by event::int4`;
  assert.deepEqual(
    rows.map(({ event, seq, order_key }) => [event, seq, order_key]),
    numbers.map((number) => [number, 1 + Math.floor(number / 5), `page ${number % 5}`]),
  );
  assert.ok(new Set(rows.map(({ commit }) => commit)).size < 10, 'they shared statements');
});

test('200 is sent only after the commit, and one of many copies in flight is accepted', async () => {
  const id = randomUUID();
  const body = { event: 'page.updated', data: { page_id: 'p1' } };
  const headers = { 'webhook-id': id };
  const post = (replica: string) =>
    ask('POST', `${replica}/webhook`, { bearer: WEBHOOK_TOKEN, body, headers });
  const replicas = Array.from({ length: 20 }, () => [url, other.url.webhook]).flat();
  const answers = await whileLocked(
    { url: databaseUrl, sql },
    'webhook.events',
    2,
    () => replicas.map(post),
    (blocker) => blocker`commit`,
  );
  const stored = await sql`select id from webhook.events where delivery_id = ${id}`;
  assert.equal(stored.length, 1);
  const told = answers.map(({ status, json }) => [status, json.id, json.status]).sort();
  const expected = (status: string) => [200, stored[0]?.id, status];
  assert.deepEqual(told, [expected('accepted'), ...Array(39).fill(expected('duplicate'))]);
});

// --- Too many

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
