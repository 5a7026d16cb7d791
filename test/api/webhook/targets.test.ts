/**
 * A target of its own for a token: set, changed and removed while events wait. And `order_by` of a
 * token: which events are delivered one after the other.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { sha256 } from '../../../src/platform/crypto/token.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import { changeSender, setTarget } from '../../../src/webhook/store/tokens.ts';
import { untilSql } from '../../support/connections.ts';
import { ask, startGatehouse } from '../../support/gatehouse.ts';
import { openInbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import {
  addToken,
  now,
  SAMPLES,
  signatureOf,
  SIGNED_SOURCES,
  signedBy,
  type SignedSource,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { until } from '../../support/until.ts';
import { launchWebhook } from '../../support/webhook.ts';

/** A program behind Gatehouse. */
async function startTarget(status = 200) {
  const { url, received, answer } = await startRecorder({ after });
  answer(reply(status, 'answered'));
  const find = (id: string) => received.find(({ headers }) => headers['webhook-id'] === id);
  return { url: `${url}/hook`, received, find };
}
type Target = Awaited<ReturnType<typeof startTarget>>;

const { sql, call, url, databaseUrl, database } = await openInbox(
  { after },
  {
    WEBHOOK_SECRET,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    WEBHOOK_RETRY_SCHEDULE: '1h',
    WEBHOOK_ORDER: 'page_id',
  },
);
const one = await startTarget();
const other = await startTarget();

// Events wait, because delivery is paused.
const TARGET = {
  WEBHOOK_FORWARD_URL: 'http://127.0.0.1:9/',
  WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
};
const paused = await launchWebhook(TARGET);
const ordered = await startGatehouse({ after }, ['webhook'], paused.databaseUrl, {
  ...TARGET,
  WEBHOOK_SECRET,
  WEBHOOK_ORDER: 'page_id',
});
const ordering = `${ordered.url.webhook}/webhook`;
await paused.sql`insert into webhook.pause (paused_by) values ('test')`;

const put = (id: string, body: object, to = url) =>
  ask('PATCH', `${to}/tokens/${id}/target`, { body, bearer: OPERATOR_TOKEN });
/** A new sender with this target, and how it sends. */
async function senderTo(target: object | null) {
  const { id, token } = await addToken(database, 'generic');
  if (target) assert.equal((await put(id, target)).status, 200);
  return { id, send: (event?: string, page?: string) => send(token, event, page) };
}
async function send(token: string, event = 'page.updated', page: string = randomUUID()) {
  const body = { event, data: { page_id: page } };
  const { status, json, text } = await ask('POST', `${url}/webhook`, { bearer: token, body });
  assert.equal(status, 200, text);
  return json.id as string;
}
const statusOf = async (id: string) =>
  (await call('GET', `/events/${id}`)).json.event.status as string;
const untilReceived = (target: Target, id: string) =>
  until(() => target.find(id) !== undefined, 'the event arrives');

/** Lets the time of their retries come, until all have arrived. */
const untilArrived = (target: Target, ids: readonly string[]) =>
  untilSql(async () => {
    await sql`update webhook.work set due_at = now() where lease is null`;
    await sql`update webhook.pages p set due_at = now() where not exists (
      select from webhook.work w where w.order_key = p.order_key and w.lease is not null)`;
    return ids.every((id) => target.find(id));
  }, 'all have arrived');

test('events go to the present target of their token, if it selects them, and to no other', async () => {
  const first = await senderTo({ url: one.url, events: ['order.*'] });
  const second = await senderTo(null);
  const stored = await second.send();
  assert.equal(await statusOf(stored), 'stored', 'without a target');
  assert.equal((await call('POST', `/events/${stored}/redeliver`)).status, 409, 'only others have');
  // The token was looked up before this change.
  const change = { target: { url: other.url }, keep_signature: false, secret: null };
  await setTarget(database, second.id, change);
  const ids = [await first.send('order.made'), await second.send()] as const;
  await untilReceived(one, ids[0]);
  await untilReceived(other, ids[1]);
  assert.ok(!one.find(ids[1]) && !other.find(ids[0]));
  assert.equal(await statusOf(await first.send('page.updated')), 'skipped');
});

test('a changed target applies to events that wait, and a removed one lets them wait', async () => {
  const down = await startTarget(500);
  const sender = await senderTo({ url: down.url });
  const ids = [
    await sender.send('first', 'one page'),
    await sender.send('second', 'one page'),
    await sender.send(),
  ];
  await until(() => down.received.length >= 2);
  await call('DELETE', `/tokens/${sender.id}/target`);
  const waiting = await sql`select from webhook.work join webhook.events e on e.id = event_id
    where e.token_id = ${sender.id} and queue = '00000000-0000-0000-0000-000000000000'`;
  assert.equal(waiting.length, 3, 'they wait in the common queue');
  const next = await startTarget();
  await put(sender.id, { url: next.url });
  await untilArrived(next, ids);
  const arrived = next.received.map(({ headers }) => String(headers['webhook-id']));
  assert.deepEqual(arrived.toSorted(), ids.toSorted());
  const [first = '', second = ''] = ids;
  assert.ok(arrived.indexOf(first) < arrived.indexOf(second), 'a page arrives in order');
});

test('a target that fails holds up no other, and its own events only', async () => {
  await sql`delete from webhook.failing_targets`; // of other tests
  const bad = await senderTo({ url: (await startTarget(503)).url });
  const good = await senderTo({ url: one.url });
  await bad.send();
  const isCounted = async () => (await sql`select from webhook.failing_targets`).length === 1;
  await untilSql(isCounted, 'the failure');
  await sql`update webhook.failing_targets
    set failures = 100, failing_since = now() - interval '1 hour',
      probe_at = now() + interval '1 hour'`;
  const blocked = await bad.send();
  await untilReceived(one, await good.send());
  const tokens = (await call('GET', '/tokens')).json as Array<Record<string, unknown>>;
  const shown = tokens.find(({ id }) => id === bad.id);
  assert.ok(shown?.next_probe_at, 'the list shows that it is only probed');
  assert.equal(await statusOf(blocked), 'waiting');
  // As if it was under delivery: it stays as it is.
  const lease = randomUUID();
  await sql`update webhook.work set lease = ${lease} where event_id = ${blocked}`;
  assert.equal((await call('POST', `/events/${blocked}/redeliver`)).status, 200);
  const freed = await sql`
    update webhook.work set lease = null where event_id = ${blocked} and lease = ${lease}`;
  assert.equal(freed.count, 1);
  // A target that works, in its place, gets the events at once.
  const works = await startTarget();
  await put(bad.id, { url: works.url });
  await untilArrived(works, [blocked]);
});

test('requests are signed with the secret of the target, sealed, and never shown', async () => {
  const secret = SIGNING_SECRETS.standard;
  const sender = await senderTo({ url: one.url, secret, timeout_seconds: 5 });
  const id = await sender.send();
  await untilReceived(one, id);
  const { headers, body } = one.find(id) ?? assert.fail();
  const at = Number(headers['webhook-timestamp']);
  const { 'webhook-signature': expected } = signatureOf('standard', secret, body, { id, at });
  assert.equal(headers['webhook-signature'], expected);
  const [row] = await sql`select target::text from webhook.tokens where id = ${sender.id}`;
  for (const text of [(await call('GET', '/tokens')).text, String(row?.target)])
    assert.ok(!text.includes(secret.slice(6)));
});

test('with a secret that cannot be opened, nothing is sent: it would be unsigned', async () => {
  const { url: to, received } = await startTarget();
  const { id, token } = await addToken(database, 'generic');
  const secret = sealSecret(createSigningKey('x'.repeat(40)), SIGNING_SECRETS.standard);
  await setTarget(database, id, {
    target: { url: to, is_signed: true },
    keep_signature: false,
    secret,
  });
  const event = await send(token);
  const attempts = async () => (await call('GET', `/events/${event}`)).json.attempts;
  await untilSql(async () => (await attempts()).length === 1, 'an attempt');
  const tried = await ask('POST', `${url}/tokens/${id}/test`, { bearer: OPERATOR_TOKEN });
  const error = 'WEBHOOK_SECRET is missing or wrong: signing secrets are sealed under another one';
  assert.deepEqual([(await attempts())[0].error, tried.json.error, received], [error, error, []]);
  // The target can still be replaced, and the event arrives.
  assert.equal((await put(id, { url: one.url, secret: null })).status, 200);
  await untilArrived(one, [event]);
});

test('the headers of the sender are passed on; its signature only if the token says so', async () => {
  for (const [source, keep_signature] of [
    ['github', false],
    ['github', true],
    // With the time, which it signs.
    ['slack', true],
  ] as const) {
    const sender = await addToken(database, source);
    await put(sender.id, { url: one.url, keep_signature });
    const sample = SAMPLES[source]();
    const body = JSON.stringify(sample.body);
    const signature = signedBy(source, body);
    const kept = { ...sample.headers, 'user-agent': 'GitHub-Hookshot/1' };
    const headers = { ...kept, ...signature };
    const { json } = await ask('POST', `${url}/webhook`, { bearer: sender.token, body, headers });
    await untilReceived(one, json.id);
    const sent = one.find(json.id) ?? assert.fail();
    const expected = { ...(keep_signature ? headers : kept), 'gatehouse-event': sample.event };
    const names = [...Object.keys(headers), 'gatehouse-event'];
    const found = Object.entries(sent.headers).filter(([name]) => names.includes(name));
    assert.deepEqual([Object.fromEntries(found), sent.body], [expected, body]);
  }
});

test('a kept signature by Standard Webhooks has the id and the time of its sender', async () => {
  const { id, token } = await addToken(database, 'standard');
  await put(id, { url: one.url, keep_signature: true });
  const body = JSON.stringify(SAMPLES.standard().body);
  const headers = signedBy('standard', body, { id: 'msg_kept', at: now() - 60 });
  await ask('POST', `${url}/webhook`, { bearer: token, body, headers });
  await untilReceived(one, 'msg_kept');
  const sent = one.find('msg_kept') ?? assert.fail();
  const found = Object.keys(headers).map((name) => [name, sent.headers[name]]);
  assert.deepEqual([Object.fromEntries(found), sent.body], [headers, body]);
});

test('invalid targets and commands over HTTP are refused, and nothing changes', async () => {
  const { id } = await senderTo(null);
  const read = async () => [
    ...(await sql`select target, revision from webhook.tokens where id = ${id}`),
  ];
  const before = await read();
  for (const body of [
    { url: 'ftp://example.org/' },
    { url: 'http://user:secret@example.org/' },
    { url: 'not a url' },
    { url: one.url, command: ['/bin/true'] },
    { command: ['/bin/true'] },
    { url: one.url, secret: 'short' },
  ]) {
    const { status, json } = await put(id, body);
    assert.deepEqual([status, json.error.code], [400, 'invalid_body'], JSON.stringify(body));
  }
  assert.deepEqual(await read(), before);
});

test('without WEBHOOK_FORWARD_ALLOW_PRIVATE or WEBHOOK_SECRET, a target that needs it is refused', async (t) => {
  const closed = await startGatehouse(t, ['webhook'], databaseUrl);
  const { id } = await senderTo(null);
  const refused = async (body: object) =>
    (await put(id, body, closed.url.webhook)).json.error.fields[0];
  for (const host of ['127.0.0.1', '169.254.169.254', '[::1]', '10.0.0.1'])
    assert.match((await refused({ url: `http://${host}/` })).message, /private address/);
  const secret = SIGNING_SECRETS.standard;
  assert.deepEqual(await refused({ url: 'https://example.org/', secret }), {
    path: '/secret',
    message: 'needs WEBHOOK_SECRET, under which it is stored',
  });
});

test('without a target of its own, a test event goes to that of the process, signed with its secret', async (t) => {
  const common = await startTarget();
  const { url: to } = await startGatehouse(t, ['webhook'], databaseUrl, {
    WEBHOOK_FORWARD_URL: common.url,
    WEBHOOK_FORWARD_SECRET: SIGNING_SECRETS.standard,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
  });
  const { id } = await senderTo(null);
  const path = `${to.webhook}/tokens/${id}/test`;
  const { json } = await ask('POST', path, { bearer: OPERATOR_TOKEN });
  assert.deepEqual([json.error, json.answer_status], [null, 200]);
  const { headers, body } =
    common.received.find((one) => one.headers['gatehouse-event'] === 'gatehouse.test') ??
    assert.fail();
  const signed = { id: String(headers['webhook-id']), at: Number(headers['webhook-timestamp']) };
  const { 'webhook-signature': expected } = signedBy('standard', body, signed);
  assert.equal(headers['webhook-signature'], expected);
});

// --- order_by

type Headers = Readonly<Record<string, string>>;

/** @returns how events of a new token are sent, and its order is changed */
async function orderedSender(source: SignedSource | 'generic') {
  const { id, token } = await addToken(paused.database, source);
  return {
    id,
    orderBy: (order_by: string) => changeSender(paused.database, id, { order_by }),
    send(body: unknown, headers: Headers = {}, to = paused.base) {
      const text = typeof body === 'string' ? body : JSON.stringify(body);
      const signature = source === 'generic' ? {} : signedBy(source, text);
      return ask('POST', to, { bearer: token, body: text, headers: { ...headers, ...signature } });
    },
    /** @returns the key of an event, as the text that was hashed; null without an order */
    async keyOf(event: string, candidates: readonly string[]) {
      const [row] = await paused.sql`select order_key from webhook.work where event_id = ${event}`;
      assert.ok(row, 'the event waits');
      const isKey = (text: string) =>
        sha256(`${id} ${text}`).toString('base64url') === row.order_key;
      return row.order_key === null ? null : (candidates.find(isKey) ?? assert.fail('another key'));
    },
  };
}

test('the value of a member or a header is the key: a text, or a number', async () => {
  const { orderBy, send, keyOf } = await orderedSender('generic');
  const long = 'x'.repeat(20_000);
  const cases: ReadonlyArray<readonly [string, object, Headers, string | null]> = [
    ['/data/customer', { customer: 'c-1' }, {}, 'c-1'],
    ['/data/customer', { customer: 42 }, {}, '42'],
    ['/data/customer', { customer: 1.5 }, {}, '1.5'],
    ['/data/customer', { customer: '' }, {}, ''],
    ['/data/customer', { customer: long }, {}, long],
    ['/data/customer', { customer: null }, {}, null],
    ['/data/customer', { customer: { id: 1 } }, {}, null],
    ['/data/customer', {}, {}, null],
    ['/data/a~1b/0', { 'a/b': ['first'] }, {}, 'first'],
    ['x-tenant', { customer: 'c-1' }, { 'X-Tenant': 't' }, 't'],
    ['x-tenant', { customer: 'c-1' }, {}, null],
    ['default', {}, {}, 'p'],
    ['none', {}, {}, null],
  ];
  for (const [order_by, data, headers, expected] of cases) {
    await orderBy(order_by);
    for (const to of [paused.base, ordering]) {
      const body = { event: 'e', data: { page_id: 'p', ...data } };
      const { json } = await send(body, headers, to);
      const key = await keyOf(json.id, ['c-1', '42', '1.5', '', long, 'first', 't', 'p']);
      assert.equal(key, expected, `${order_by} ${JSON.stringify(data).slice(0, 50)}`);
    }
  }
});

test('without an order of its own, a token has that of the process', async () => {
  const { send, keyOf } = await orderedSender('generic');
  const body = { event: 'e', data: { page_id: 'p' } };
  assert.equal(await keyOf((await send(body)).json.id, []), null);
  assert.equal(await keyOf((await send(body, {}, ordering)).json.id, ['p']), 'p');
});

test('a key that is given twice, or cannot be stored, is refused with its place', async () => {
  const { orderBy, send } = await orderedSender('stripe');
  await orderBy('/data/customer');
  for (const data of ['{"customer":"a","customer":"b"}', '{"customer":"\\ud800"}']) {
    const { status, json } = await send(`{"id":"e","type":"t","data":${data}}`);
    assert.deepEqual([status, json.error.fields[0].path], [400, '/data/customer']);
  }
});

/** What a sample of each source is about. Other samples of these sources have nothing there. */
const SUBJECTS: Partial<Record<SignedSource, object>> = {
  github: { repository: { id: 7 } },
  gitlab: { project: { id: 7 } },
  gitea: { repository: { id: 7 } },
  bitbucket: { repository: { uuid: '7' } },
  stripe: { data: { object: { id: '7' } } },
  paddle: { data: { id: '7' } },
  shopify: { id: 7 },
  slack: { event: { type: 'message', channel: '7' } },
  linear: { data: { id: '7' } },
  sentry: { data: { issue: { id: '7' } } },
  zendesk: { detail: { id: '7' } },
  notion: { entity: { id: '7' } },
  asana: { events: [{ action: 'changed', created_at: 'now', resource: { gid: '7' } }] },
};

for (const name of SIGNED_SOURCES.filter((one) => SUBJECTS[one])) {
  test(`${name}: by default, events about one thing are in order`, async () => {
    const { id, orderBy, send, keyOf } = await orderedSender(name);
    await orderBy('default');
    const { body, headers } = SAMPLES[name]();
    const { status, text } = await send({ ...body, ...SUBJECTS[name] }, headers);
    assert.equal(status, 200, text);
    const [event] = await paused.sql`select id from webhook.events where token_id = ${id}`;
    assert.equal(await keyOf(event?.id, ['7']), '7');
  });
}
