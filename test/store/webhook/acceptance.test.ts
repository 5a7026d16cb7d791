/** Deliveries that share statements, and that meet another copy. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after } from 'node:test';
import { ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
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
    const headers = isSigned ? { 'x-github-event': 'push', ...signedBy('github', body) } : {};
    return `${headOf([
      ...['POST /webhook HTTP/1.1', 'Host: gatehouse', `Authorization: Bearer ${token}`],
      ...['Content-Type: application/json', `Content-Length: ${Buffer.byteLength(body)}`],
      ...(id === null ? [] : [`${isSigned ? 'x-github-delivery' : 'webhook-id'}: ${id}`]),
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
