/** Deliveries that share statements: own replies, exact rows, and order. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import type { Database, Sql } from '../../../src/platform/db/pool.ts';
import { ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { openInbox } from '../../support/inbox.ts';
import { createDatabase } from '../../support/database.ts';
import { openConnections, untilSql } from '../../support/connections.ts';
import { startRecorder } from '../../support/recorder.ts';
import {
  addToken,
  openWebhook,
  signatureOf,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { exchangeAtOnce, headOf } from '../../support/socket.ts';
import { test } from '../../support/until.ts';
import { newEvent, openWorkQueue, store, type TestToken } from '../../support/webhook-store.ts';

const { url, sql, databaseUrl } = await openInbox({ after }, { WEBHOOK_SECRET });
const database = openWebhook({ after }, databaseUrl);
const github = await addToken(database, 'github');
const second = await addToken(database, 'generic');
const revoked = await addToken(database, 'generic');
await sql`update webhook.tokens set revoked_at = now() where id = ${revoked.id}`;

interface Delivery {
  readonly token: string;
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
}

const inOneTurn = (to: string, deliveries: readonly Delivery[]) =>
  exchangeAtOnce(
    to,
    deliveries.map(({ token, body, headers = {} }) => {
      const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
      const first = ['POST /webhook HTTP/1.1', 'Host: gatehouse', `Authorization: Bearer ${token}`];
      const type = ['Content-Type: application/json', `Content-Length: ${Buffer.byteLength(body)}`];
      return `${headOf([...first, ...type, ...lines])}${body}`;
    }),
  );

const atOnce = (to: string, deliveries: readonly Delivery[]) =>
  Promise.all(
    deliveries.map(({ token, body, headers }) =>
      ask('POST', `${to}/webhook`, {
        bearer: token,
        body,
        ...(headers ? { headers: { ...headers } } : {}),
      }),
    ),
  );

const bodyOf = (page: string, event = 'page.updated') =>
  JSON.stringify({ event, data: { page_id: page } });
const pushBody = (ref: string) => JSON.stringify({ ref });

/** Forty of every kind, with what is expected: `new`, `duplicate`, or an error status. */
function forty(): Array<
  Delivery & { readonly fate: 'new' | number; readonly of?: string; readonly id: string | null }
> {
  const run = randomUUID();
  const ids = [1, 2, 3, 4].map((number) => `delivery-${number}-${run}`);
  const generic = (token: string, body: string, id: string | null) => ({
    token,
    body,
    id,
    ...(id === null ? {} : { headers: { 'webhook-id': id } }),
  });
  const signed = (body: string, id: string, secret = SIGNING_SECRETS.github) => ({
    token: github.token,
    body,
    id,
    headers: {
      'x-github-event': 'push',
      'x-github-delivery': id,
      ...signatureOf('github', secret, body),
    },
  });
  return [
    // For each id: new, then a duplicate, then a conflict with another body.
    ...ids.flatMap((id) => [
      { ...generic(WEBHOOK_TOKEN, bodyOf(`one ${id}`), id), fate: 'new' as const },
      { ...generic(WEBHOOK_TOKEN, bodyOf(`one ${id}`), id), fate: 200, of: id },
      { ...generic(WEBHOOK_TOKEN, bodyOf(`two ${id}`), id), fate: 409 },
      // The same id of another sender is a new delivery.
      { ...generic(second.token, bodyOf(`two ${id}`), id), fate: 'new' as const },
      { ...signed(pushBody(id), id), fate: 'new' as const },
      { ...signed(pushBody(`other ${id}`), id), fate: 200, of: id },
      { ...generic(WEBHOOK_TOKEN, bodyOf(`one ${id}`), id), fate: 200, of: id },
    ]),
    // Without an id every delivery is new.
    ...Array.from({ length: 5 }, () => ({
      ...generic(second.token, bodyOf('the same'), null),
      fate: 'new' as const,
    })),
    { ...signed(pushBody('x'), `forged-${run}`, 'another secret'), fate: 401 },
    { ...generic(revoked.token, bodyOf('revoked'), `revoked-${run}`), fate: 401 },
    {
      ...generic('no-token-0123456789abcdef0123456789abcdef', bodyOf('unknown'), `unknown-${run}`),
      fate: 401,
    },
    { ...generic(second.token, '{"event":', `broken-${run}`), fate: 400 },
    {
      ...generic(second.token, bodyOf('NULL "{\\}", \n 😀'), `odd,"{\\}-${run}`),
      fate: 'new' as const,
    },
    {
      ...generic(second.token, bodyOf('p', 'NULL'), `NULL`.concat('-', run)),
      fate: 'new' as const,
    },
    {
      ...generic(second.token, bodyOf('p', 'a "quoted", {braced} \\ event\n\uffff'), `last-${run}`),
      fate: 'new' as const,
    },
  ];
}

const eventOf = (delivery: Delivery) =>
  delivery.token === github.token ? 'push' : JSON.parse(delivery.body).event;

test('forty deliveries in one turn get their own replies and share a commit', async () => {
  const deliveries = forty();
  assert.equal(deliveries.length, 40);
  const answers = await inOneTurn(url, deliveries);
  const firsts = new Map<string, string>();
  for (const [index, { fate, token, id, of }] of deliveries.entries()) {
    const { status, json, body } = answers[index] ?? assert.fail();
    assert.equal(status, fate === 'new' ? 200 : fate, `${index}: ${body}`);
    if (fate === 'new') {
      assert.equal(json.status, 'accepted', `${index}`);
      firsts.set(`${token} ${id}`, json.id);
    }
    if (of !== undefined)
      assert.deepEqual(json, { id: firsts.get(`${token} ${of}`), status: 'duplicate' });
    if (fate === 409) assert.equal(json.error.code, 'conflict');
  }
  const ids = answers
    .filter(({ json }) => json.status === 'accepted')
    .map(({ json }) => String(json.id));
  const rows =
    await sql`select id, token_id, delivery_id, event, body, xmin::text as commit, headers
      from webhook.events`;
  assert.deepEqual(rows.map(({ id }) => id).sort(), [...ids].sort(), 'these are all');
  for (const [index, delivery] of deliveries.entries()) {
    if (delivery.fate !== 'new') continue;
    const row = rows.find(({ id }) => id === answers[index]?.json.id);
    assert.equal(row?.body.toString(), delivery.body);
    assert.deepEqual(
      [row?.event, row?.delivery_id, row?.headers['content-type']],
      [eventOf(delivery), delivery.id, 'application/json'],
    );
    if (delivery.token === github.token) assert.equal(row?.token_id, github.id);
  }
  assert.ok(
    new Set(rows.map(({ commit }) => commit)).size <= 3,
    'those that arrive together share commits',
  );
});

test('forty deliveries on connections of their own are accepted once; another body is a conflict if it is not signed', async () => {
  for (let round = 0; round < 3; round += 1) {
    const deliveries = forty();
    const before = Number((await sql`select count(*)::int as n from webhook.events`)[0]?.n);
    const answers = await atOnce(url, deliveries);
    const pairs = deliveries.map((delivery, index) => ({
      delivery,
      key: delivery.id === null ? null : `${delivery.token} ${delivery.id}`,
      answer: answers[index] ?? assert.fail(),
    }));
    let accepted = 0;
    for (const key of new Set(pairs.map((pair) => pair.key))) {
      const group = pairs.filter((pair) => pair.key === key);
      const first = group.filter(({ answer }) => answer.json.status === 'accepted');
      accepted += first.length;
      const expectedNone = group.every(({ delivery: { fate } }) => fate === 401 || fate === 400);
      if (key === null) assert.equal(first.length, group.length);
      else assert.equal(first.length, expectedNone ? 0 : 1);
      if (key === null || expectedNone) {
        for (const { delivery, answer } of group)
          assert.equal(answer.status, delivery.fate === 'new' ? 200 : delivery.fate);
        continue;
      }
      const [row] =
        await sql`select body from webhook.events where id = ${first[0]?.answer.json.id}`;
      for (const { delivery, answer } of group.filter((one) => one !== first[0])) {
        const isSigned = delivery.token === github.token;
        if (isSigned || delivery.body === row?.body.toString())
          assert.deepEqual(answer.json, { id: first[0]?.answer.json.id, status: 'duplicate' });
        else assert.equal(answer.status, 409, answer.text);
      }
    }
    assert.equal(
      Number((await sql`select count(*)::int as n from webhook.events`)[0]?.n),
      before + accepted,
    );
  }
});

test('events of a page that arrive in one turn are delivered in order of arrival', async (t) => {
  const recorder = await startRecorder(t);
  recorder.answer((response) => response.writeHead(200).end());
  const place = await createDatabase(t);
  const { url: ordered } = await startGatehouse(t, ['webhook'], place.url, {
    WEBHOOK_FORWARD_URL: recorder.url,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    WEBHOOK_ORDER: 'page_id',
  });
  const PAGES = ['a', 'b', 'c', 'd', 'e'];
  const deliveries = Array.from({ length: 150 }, (_, number) => ({
    token: WEBHOOK_TOKEN,
    body: bodyOf(PAGES[number % PAGES.length] ?? '', `event ${number}`),
  }));
  const answers = await inOneTurn(ordered.webhook, deliveries);
  assert.deepEqual(
    [...new Set(answers.map(({ status, json }) => `${status} ${json.status}`))],
    ['200 accepted'],
  );
  assert.ok(
    (await place.sql`select distinct xmin::text from webhook.events`).length < 10,
    'they shared statements',
  );
  await untilSql(
    async () =>
      (await place.sql`select from webhook.outcomes where status = 'done'`).length ===
      deliveries.length,
    'all are delivered',
  );
  const came = recorder.received.map(({ body }) => body);
  for (const page of PAGES) {
    const ofPage = (list: readonly string[]) =>
      list.filter((body) => JSON.parse(body).data.page_id === page);
    assert.deepEqual(ofPage(came), ofPage(deliveries.map(({ body }) => body)), page);
  }
});

async function countDeadlocks(sql: Sql): Promise<number> {
  const [counts] = await sql`
    select deadlocks from pg_stat_database where datname = current_database()`;
  return Number(counts?.deadlocks);
}

test('shared statements with the same deliveries in opposite order do not deadlock', async (t) => {
  const place = await openWorkQueue(t);
  // Each statement waits before its second row until the test releases the lock.
  await place.sql`create function pause() returns trigger language plpgsql
    as 'begin perform pg_advisory_xact_lock_shared(1); return new; end'`;
  await place.sql`create trigger pause before insert on webhook.events
    for each row when (new.event = 'second') execute function pause()`;
  const deadlocks = () => countDeadlocks(place.sql);
  const waiting = () => place.sql`
    select from pg_stat_activity where wait_event = 'advisory' and datname = current_database()`;
  const [token] = await place.sql<TestToken[]>`select id, digest from webhook.tokens`;
  assert.ok(token);
  const same = (deliveryId: string, event: string) =>
    newEvent(token, { delivery_id: deliveryId, event });
  const before = await deadlocks();
  const blocker = connect(place.databaseUrl);
  t.after(() => blocker.end({ timeout: 0 }));
  await blocker`select pg_advisory_lock(1)`;
  const replicas: Database[] = [];
  const calls = [
    ['d-1', 'd-2'],
    ['d-2', 'd-1'],
  ].flatMap((ids) => {
    const replica = openConnections(t, place.databaseUrl, 'replica');
    replicas.push(replica);
    return ids.map(async (deliveryId, index) => {
      const outcome = await store(replica, same(deliveryId, index === 0 ? 'first' : 'second'));
      assert.ok(outcome !== 'conflict');
      return { deliveryId, ...outcome };
    });
  });
  const outcomes = Promise.all(calls);
  await untilSql(async () => (await waiting()).length === 2, 'both are on their way');
  await blocker`select pg_advisory_unlock(1)`;
  const told = await outcomes;
  assert.deepEqual(told.map(({ status }) => status).sort(), [
    'accepted',
    'accepted',
    'duplicate',
    'duplicate',
  ]);
  for (const replica of replicas)
    await replica.write((sql) => sql`select pg_stat_force_next_flush()`);
  assert.equal(await deadlocks(), before);
  const rows = await place.sql`select e.id, delivery_id from webhook.events e
      join webhook.work w on w.event_id = e.id
      order by delivery_id`;
  assert.deepEqual(
    rows.map(({ delivery_id: id }) => id),
    ['d-1', 'd-2'],
  );
  for (const { id, delivery_id: deliveryId } of rows) {
    assert.deepEqual(
      told.filter((one) => one.deliveryId === deliveryId).map((one) => one.id),
      [id, id],
    );
  }
});
