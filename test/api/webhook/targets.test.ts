/** A target of its own for a token: set, changed and removed while events wait. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { type Received, reply, startRecorder } from '../../support/recorder.ts';
import { OPERATOR_TOKEN, openInbox } from '../../support/inbox.ts';
import { ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import {
  addToken,
  openWebhook,
  SAMPLES,
  signatureOf,
  signedBy,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { until } from '../../support/until.ts';
import { setTarget } from '../../../src/webhook/store/tokens.ts';

/** A program behind Gatehouse. */
async function startTarget(status = 200) {
  const program = await startRecorder({ after });
  program.answer(reply(status, 'answered'));
  return { url: `${program.url}/hook`, received: program.received };
}

const inbox = await openInbox(
  { after },
  {
    WEBHOOK_SECRET,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    WEBHOOK_RETRY_SCHEDULE: '1h',
    WEBHOOK_ORDER: 'page_id',
  },
);
const { sql, call, url } = inbox;
const database = openWebhook({ after }, inbox.databaseUrl);
const one = await startTarget();
const other = await startTarget();

const newSender = () => addToken(database, 'generic');
const put = (id: string, body: object, bearer = OPERATOR_TOKEN) =>
  ask('PATCH', `${url}/tokens/${id}/target`, { body, bearer });
async function send(token: string, event = 'page.updated', page = ''): Promise<string> {
  const body = { event, data: { page_id: page || randomUUID() } };
  const answer = await ask('POST', `${url}/webhook`, { bearer: token, body });
  assert.equal(answer.status, 200, answer.text);
  return answer.json.id;
}
const statusOf = async (id: string) =>
  (await call('GET', `/events/${id}`)).json.event.status as string;
const idsAt = ({ received }: { received: readonly Received[] }) =>
  received.map(({ headers }) => headers['webhook-id']);

/** Lets the time of their retries come, until all have arrived. */
const untilArrived = (target: { received: readonly Received[] }, ids: readonly string[]) =>
  untilSql(async () => {
    await sql`update webhook.work set due_at = now() where lease is null`;
    await sql`update webhook.pages p set due_at = now() where not exists (
      select from webhook.work w where w.order_key = p.order_key and w.lease is not null)`;
    return ids.every((id) => idsAt(target).includes(id));
  }, 'all have arrived');

test('events go to the target of their token, and to no other', async () => {
  const first = await newSender();
  const second = await newSender();
  assert.equal((await put(first.id, { url: one.url })).status, 200);
  assert.equal((await put(second.id, { url: other.url })).status, 200);
  const ids = [await send(first.token), await send(second.token)];
  await until(() => idsAt(one).includes(ids[0]) && idsAt(other).includes(ids[1]));
  assert.ok(!idsAt(one).includes(ids[1]) && !idsAt(other).includes(ids[0]));
  const stored = await send(WEBHOOK_TOKEN);
  assert.equal(await statusOf(stored), 'stored', 'without a target, an event is only stored');
});

test('a changed target applies to events that wait, and a removed one lets them wait', async () => {
  const sender = await newSender();
  const down = await startTarget(500);
  await put(sender.id, { url: down.url });
  const page = 'one page';
  const ids = [
    await send(sender.token, 'first', page),
    await send(sender.token, 'second', page),
    await send(sender.token),
  ];
  await until(() => down.received.length >= 2);
  await call('DELETE', `/tokens/${sender.id}/target`);
  const [row] = await sql`select count(*)::int as n from webhook.work w join webhook.events e
    on e.id = w.event_id where e.token_id = ${sender.id}
      and queue = '00000000-0000-0000-0000-000000000000'`;
  assert.equal(row?.n, 3, 'they wait in the common queue');
  const next = await startTarget();
  await put(sender.id, { url: next.url });
  await untilArrived(next, ids);
  const arrived = idsAt(next);
  assert.deepEqual(new Set(arrived), new Set(ids));
  const place = (index: number) => arrived.indexOf(ids[index]);
  assert.ok(place(0) < place(1), 'the events of a page arrive in order');
});

test('only selected events wait for a target of its own', async () => {
  const sender = await newSender();
  await put(sender.id, { url: one.url, events: ['order.*'] });
  const skipped = await send(sender.token, 'page.updated');
  assert.equal(await statusOf(skipped), 'skipped');
  const id = await send(sender.token, 'order.made');
  await until(() => idsAt(one).includes(id));
});

test('a target that fails holds up no other, and its own events only', async () => {
  const bad = await newSender();
  const good = await newSender();
  const down = await startTarget(503);
  await sql`delete from webhook.failing_targets`; // of other tests
  await put(bad.id, { url: down.url });
  await put(good.id, { url: one.url });
  await send(bad.token);
  await untilSql(
    async () => (await sql`select from webhook.failing_targets`).length === 1,
    'the failure',
  );
  await sql`update webhook.failing_targets
    set failures = 100, failing_since = now() - interval '1 hour',
      probe_at = now() + interval '1 hour'`;
  const blocked = await send(bad.token);
  const id = await send(good.token);
  await until(() => idsAt(one).includes(id));
  const tokens = (await call('GET', '/tokens')).json as Array<Record<string, unknown>>;
  const shown = tokens.find((token) => token.id === bad.id);
  assert.ok(shown?.next_probe_at, 'the list shows that it is only probed');
  assert.equal(await statusOf(blocked), 'waiting');
  // A target that works, in its place, gets the events at once.
  const works = await startTarget();
  await put(bad.id, { url: works.url });
  await untilArrived(works, [blocked]);
});

test('an event is decided by the present target, although its token was looked up before', async () => {
  const sender = await newSender();
  assert.equal(await statusOf(await send(sender.token)), 'stored');
  await setTarget(database, sender.id, {
    target: { url: one.url },
    keep_signature: false,
    secret: null,
  });
  const id = await send(sender.token);
  await until(() => idsAt(one).includes(id));
});

test('requests are signed with the secret of the target, sealed, and never shown', async () => {
  const sender = await newSender();
  const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
  await put(sender.id, { url: one.url, secret, timeout_seconds: 5 });
  const id = await send(sender.token);
  await until(() => idsAt(one).includes(id));
  const sent = one.received.find(({ headers }) => headers['webhook-id'] === id);
  assert.ok(sent);
  const at = Number(sent.headers['webhook-timestamp']);
  const expected = signatureOf('standard', secret, sent.body, { id, at });
  assert.equal(sent.headers['webhook-signature'], expected['webhook-signature']);
  assert.ok(!(await call('GET', '/tokens')).text.includes(secret.slice(6)));
  const rows = await sql`select target::text from webhook.tokens where id = ${sender.id}`;
  assert.ok(!String(rows[0]?.target).includes(secret.slice(6)));
});

test('the headers of the sender are passed on; its signature only if the token says so', async () => {
  for (const keep_signature of [false, true]) {
    const sender = await addToken(database, 'github');
    await put(sender.id, { url: one.url, keep_signature });
    const sample = SAMPLES.github();
    const body = JSON.stringify(sample.body);
    const signature = signedBy('github', body);
    const headers = { ...sample.headers, ...signature, 'user-agent': 'GitHub-Hookshot/1' };
    const { json } = await ask('POST', `${url}/webhook`, { bearer: sender.token, body, headers });
    await until(() => idsAt(one).includes(json.id));
    const sent = one.received.find((request) => request.headers['webhook-id'] === json.id);
    assert.equal(sent?.body, body);
    const seen = sent?.headers ?? {};
    assert.deepEqual(
      [seen['x-github-event'], seen['x-github-delivery'], seen['user-agent']],
      [sample.event, sample.deliveryId, 'GitHub-Hookshot/1'],
    );
    const passed = keep_signature ? signature['x-hub-signature-256'] : undefined;
    assert.equal(seen['x-hub-signature-256'], passed);
    assert.equal(seen['gatehouse-event'], sample.event);
  }
});

test('invalid targets and commands over HTTP are refused, and nothing changes', async () => {
  const sender = await newSender();
  const before = await sql`select target, revision from webhook.tokens where id = ${sender.id}`;
  for (const body of [
    { url: 'ftp://example.org/' },
    { url: 'http://user:secret@example.org/' },
    { url: 'not a url' },
    { url: one.url, command: ['/bin/true'] },
    { command: ['/bin/true'] },
    { url: one.url, secret: 'short' },
  ]) {
    const { status, json } = await put(sender.id, body);
    assert.deepEqual([status, json.error.code], [400, 'invalid_body'], JSON.stringify(body));
  }
  const [operator] = await sql`select id from webhook.tokens where role = 'operator'`;
  assert.equal((await put(String(operator?.id), { url: one.url })).status, 404);
  const rows = await sql`select target, revision from webhook.tokens where id = ${sender.id}`;
  assert.deepEqual([...rows], [...before]);
});

test('without WEBHOOK_FORWARD_ALLOW_PRIVATE, a private address is refused', async (t) => {
  const closed = await openInbox(t);
  const sender = await addToken(openWebhook(t, closed.databaseUrl), 'generic');
  for (const host of ['127.0.0.1', '169.254.169.254', '[::1]', '10.0.0.1']) {
    const { status, json } = await closed.call('GET', '/tokens');
    assert.deepEqual([status, json.length > 0], [200, true]);
    const answer = await ask('PATCH', `${closed.url}/tokens/${sender.id}/target`, {
      body: { url: `http://${host}/` },
      bearer: OPERATOR_TOKEN,
    });
    assert.match(answer.json.error.fields[0].message, /private address/);
  }
});
