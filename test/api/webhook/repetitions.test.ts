/**
 * Repetitions as each sender makes them, and recorded requests that are sent again with changes
 * that their signatures do not cover.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { connect } from '../../../scripts/postgres.ts';
import { untilLocked } from '../../support/connections.ts';
import { type Answer, ask } from '../../support/gatehouse.ts';
import {
  addToken,
  now,
  SAMPLES,
  SIGNED_SOURCES,
  signedBy,
  type SignedSource,
} from '../../support/senders.ts';
import { connectTo, headOf } from '../../support/socket.ts';
import { until } from '../../support/until.ts';
import { launchWebhook, macOf, outcomeOf } from '../../support/webhook.ts';

/** With a target, and paused: what is due stays due. */
const gatehouse = await launchWebhook({
  WEBHOOK_FORWARD_URL: 'http://127.0.0.1:9/',
  WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
});
const { sql, database, databaseUrl, base, stored, storesNothing, count, customToken } = gatehouse;
await sql`insert into webhook.pause default values`;
const tokens = new Map<SignedSource, string>();
for (const source of SIGNED_SOURCES) tokens.set(source, (await addToken(database, source)).token);

type Headers = Readonly<Record<string, string>>;
const post = (token: string | undefined, body: unknown, headers: Headers) =>
  ask('POST', `${base}?token=${token}`, { body, headers: { ...headers } });

/** Sends a body with a valid signature. */
const send = (source: SignedSource, body: string, id: string, headers: Headers = {}) =>
  post(tokens.get(source), body, { ...headers, ...signedBy(source, body, { id }) });
const isRepetition = ({ json }: Answer, id: string) =>
  json.status === 'duplicate' && json.id === id;

/** How often the log says that the id of an event came with another body. */
const warnings = (id: string) =>
  gatehouse
    .log()
    .filter(({ message }) => message === 'delivery id reused with another body')
    .filter(({ event_id }) => event_id === id).length;

/** Bodies of one event, in which `attempt` is what its sender changes. */
const BODIES = {
  notion: (id: string, attempt: string, more = '') =>
    `{"id":"${id}","attempt_number": ${attempt},"type":"page.created","entity":{"id":"p","type":"page"${more}}}`,
  stripe: (id: string, attempt: string, more = '') =>
    `{"id":"${id}","type":"charge.failed","data":{"object":{"id":"ch"${more}}},"pending_webhooks":${attempt}}`,
  paddle: (id: string, attempt: string, more = '') =>
    `{"event_id":"${id}","event_type":"transaction.billed","notification_id":"ntf_${attempt}","data":{"id":"txn_1"${more}}}`,
  linear: (id: string, attempt: string, more = '') =>
    `{"action":"create","type":"Issue","data":{"id":"${id}"${more}},"webhookTimestamp":${now() * 1_000 - Number(attempt)}}`,
} as const;
const repeat = (source: keyof typeof BODIES, body: string, id: string) =>
  send(source, body, id, source === 'linear' ? { 'linear-delivery': id } : {});

for (const source of ['notion', 'stripe', 'paddle', 'linear'] as const) {
  test(`${source}: a repetition is a duplicate, with a warning if more differs than its sender changes`, async () => {
    const id = randomUUID();
    const body = BODIES[source](id, '1');
    const first = await repeat(source, body, id);
    assert.equal(outcomeOf(first), 'accepted', first.text);
    const usual = ['1', '2', '8', '0', '99999'].map((attempt) => BODIES[source](id, attempt));
    const varying = /"(attempt_number|pending_webhooks|notification_id|data)"/;
    const unusual = [
      BODIES[source](id, '2', ',"more":1'),
      body.replace(':', ': '),
      BODIES[source](id, '2').replace(varying, '"another"'),
    ];
    await storesNothing(async () => {
      for (const [bodies, warned] of [
        [usual, 0],
        [unusual, unusual.length],
      ] as const) {
        for (const other of bodies)
          assert.ok(isRepetition(await repeat(source, other, id), first.json.id), other);
        assert.equal(warnings(first.json.id), warned);
      }
    });
    assert.equal(String((await stored(first.json.id)).body), body, 'the first body is kept');
    // Of a dead event, a repetition delivers it again, whatever differs.
    for (const other of [BODIES[source](id, '2'), ...unusual]) {
      await sql`with ended as (delete from webhook.work where event_id = ${first.json.id})
        insert into webhook.outcomes (event_id, status, attempts)
        values (${first.json.id}, 'dead', 3)`;
      assert.ok(isRepetition(await repeat(source, other, id), first.json.id), other);
      const work = await sql`select from webhook.work where event_id = ${first.json.id}`;
      assert.equal(work.length, 1);
    }
  });
}

test('linear: retries are accepted as late as they come, and not later', async () => {
  for (const [age, outcomes] of [
    [61, ['accepted', 'duplicate']],
    [7 * 3_600 + 60, ['accepted', 'duplicate']],
    [-290, ['accepted', 'duplicate']],
    [8 * 3_600 + 5, ['401 unauthorized']],
    [-305, ['401 unauthorized']],
  ] as const) {
    const id = randomUUID();
    const body = JSON.stringify({ type: 'Issue', webhookTimestamp: Date.now() - age * 1_000 });
    for (const outcome of outcomes)
      assert.equal(outcomeOf(await repeat('linear', body, id)), outcome, `${age} s old`);
  }
});

test('zendesk: each invocation of a trigger is an event, and each event by its own id', async () => {
  const invoke = (body: object, id: string) =>
    send('zendesk', JSON.stringify(body), '', { 'x-zendesk-webhook-invocation-id': id });
  const trigger = (status: string) => ({ type: `ticket.${status}`, id: '35436', status });
  const ids = [randomUUID(), randomUUID()] as const;
  const opened = await invoke(trigger('open'), ids[0]);
  assert.equal(outcomeOf(opened), 'accepted');
  assert.equal(outcomeOf(await invoke(trigger('solved'), ids[1])), 'accepted');
  assert.ok(isRepetition(await invoke(trigger('open'), ids[0]), opened.json.id));
  const event = { type: 'zen:event-type:user.created', id: randomUUID() };
  assert.equal(outcomeOf(await invoke(event, randomUUID())), 'accepted');
  assert.equal(outcomeOf(await invoke(event, randomUUID())), 'duplicate');
});

/** A lone surrogate, as JSON writes it. It has no UTF-8 form. */
const LONE = ['\\ud800', 'a\\udfff', '\\udc00\\ud800', 'x\\ud83d'];
const pageOf = (id: string) => `"data":{"page_id":"${id}"}`;

test('a lone surrogate in a name, page or delivery id is 400; nothing is stored', async () => {
  const id = randomUUID();
  const cases: ReadonlyArray<
    readonly [source: SignedSource, bodyOf: (lone: string) => string, said: RegExp]
  > = [
    ['stripe', (lone) => `{"type":"${lone}","id":"${id}"}`, /^ must name the event in the body/],
    ['slack', (lone) => `{"event":{"type":"${lone}"}}`, /^ must name the event in the body/],
    ['standard', (lone) => `{"type":"x",${pageOf(lone)}}`, /^\/data\/page_id must not contain/],
    ['stripe', (lone) => `{"type":"x","id":"${lone}"}`, /^ the delivery id must have 1 to 255/],
    ['slack', (lone) => `{"type":"x","event_id":"${lone}"}`, /^ the delivery id must have 1 to/],
  ];
  await storesNothing(async () => {
    for (const lone of LONE) {
      for (const [source, bodyOf, said] of cases) {
        const { status, json } = await send(source, bodyOf(lone), id);
        const { code, fields } = json.error;
        assert.deepEqual([status, code], [400, 'invalid_body']);
        assert.match(`${fields[0].path} ${fields[0].message}`, said);
      }
    }
  });
});

// --- Recorded requests

const renamed = (headers: Headers): Headers =>
  Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.replace('webhook-', 'svix-'), value]),
  );

/** A signed request of a source, which can be sent with other headers. */
function record(source: SignedSource) {
  const sample = SAMPLES[source]();
  const body = JSON.stringify(sample.body);
  const token = tokens.get(source);
  const signed = signedBy(source, body, { id: sample.deliveryId });
  const resend = (headers: Headers) => post(token, body, { ...sample.headers, ...headers });
  return { body, token, sample, signed, resend };
}

test('the delivery id is the signed one, whatever other headers say', async () => {
  for (const source of ['gitlab', 'standard'] as const) {
    const { signed, sample, resend } = record(source);
    const own = source === 'standard' ? renamed(signed) : signed;
    const { json } = await resend(own);
    assert.equal(json.status, 'accepted');
    const { delivery_id, headers } = await stored(json.id);
    assert.equal(delivery_id, sample.deliveryId);
    const kept = Object.keys(own).filter((name) => name in headers);
    const prefix = source === 'standard' ? 'svix' : 'webhook';
    assert.deepEqual(kept, [`${prefix}-id`, `${prefix}-timestamp`]);
    await storesNothing(async () => {
      for (const name of ['webhook-id', 'svix-id', 'idempotency-key']) {
        const answer = await resend({ ...own, [name]: 'another' });
        assert.ok(answer.status === 401 || isRepetition(answer, json.id), `${source}, ${name}`);
      }
    });
  }
});

test('discord: a recorded request is no second event, and another event is one', async () => {
  const { signed, resend, sample } = record('discord');
  const { events } = await count();
  for (const headers of [signed, signed, { ...signed, 'x-request-id': 'another' }])
    assert.equal((await resend(headers)).status, 204);
  assert.equal((await count()).events, events + 1);
  const later = { ...Object(sample.body.event), timestamp: '2024-10-18T18:41:21.109605' };
  for (const event of [later, { type: 'UNTIMED' }, { type: 'UNTIMED' }]) {
    const { status } = await send('discord', JSON.stringify({ ...sample.body, event }), '');
    assert.equal(status, 204);
  }
  assert.equal((await count()).events, events + 4, 'without a time, equal bodies are two events');
});

test('linear: a recorded request is no second event under another id or name', async () => {
  const { body, signed, resend } = record('linear');
  const { events } = await count();
  // At once, so that only the database can tell.
  const names = ['linear-delivery', 'linear-event', 'x-request-id'];
  const altered = names.flatMap((name) => [{ [name]: 'one' }, { [name]: 'two' }]);
  const answers = await Promise.all(altered.map((headers) => resend({ ...headers, ...signed })));
  const first = answers.find(({ json }) => json.status === 'accepted') ?? assert.fail();
  const unnamed = await post(tokens.get('linear'), body, signed);
  for (const answer of [...answers, unnamed])
    assert.ok(answer === first || isRepetition(answer, first.json.id), answer.text);
  assert.equal((await count()).events, events + 1);
  assert.equal((await stored(first.json.id)).event, 'Issue', 'as the body says');
  const later = body.replace(/\d+(?=})/, (time) => String(Number(time) + 1));
  assert.equal(outcomeOf(await send('linear', later, '')), 'accepted');
});

/** JSON that is no time, although some of it would become one as a text. */
const NOT_TIMES = [
  ...['{"toString":1}', '{"toString":null,"valueOf":null}', `{"toJSON":"${now()}"}`],
  ...[`[${now()}]`, `[[["${now()}"]]]`, `${'['.repeat(20_000)}${']'.repeat(20_000)}`],
  ...['true', 'null', '1e999', '"now"'],
];

test('a signed time in the body that is neither a number nor a time as text is a wrong time', async () => {
  const token = await customToken({ scheme: { header: 'x-signature' }, time: '/created' });
  for (const time of NOT_TIMES) {
    const timed = `{"type":"a","created":${time}}`;
    const answer = await post(token, timed, { 'x-signature': macOf(timed) });
    const linear = await send('linear', `{"type":"x","webhookTimestamp":${time}}`, '');
    assert.deepEqual([answer.status, linear.status], [401, 401], time.slice(0, 40));
  }
});

test('names, ids and pages that are neither numbers nor texts are refused without an error', async () => {
  for (const value of NOT_TIMES) {
    for (const member of ['type', 'id', 'data', 'data":{"page_id']) {
      const close = member.includes('{') ? '}' : '';
      const answer = await send('stripe', `{"type":"a","${member}":${value}${close}}`, '');
      assert.ok([200, 400].includes(answer.status), `${member}: ${answer.text}`);
    }
  }
});

for (const [what, table] of [
  ['its token is looked up', 'webhook.tokens'],
  ['it is being stored', 'webhook.events'],
] as const) {
  test(`an event whose sender leaves while ${what} is stored, and its repetition is not`, async (t) => {
    const { token } = await addToken(database, 'generic');
    const id = randomUUID();
    const body = '{"event":"left","data":{"page_id":"p"}}';
    const blocker = connect(databaseUrl);
    t.after(() => blocker.end());
    await blocker`begin`;
    await blocker`lock table ${blocker(table)} in access exclusive mode`;
    const sender = await connectTo(base);
    const head = ['Host: x', 'Content-Type: application/json', `Content-Length: ${body.length}`];
    const target = `POST /webhook?token=${token} HTTP/1.1`;
    sender.send(headOf([target, `webhook-id: ${id}`, ...head]) + body);
    await untilLocked(sql, 1);
    sender.socket.resetAndDestroy();
    // After another reply, the service has noticed that the sender left.
    assert.equal((await ask('GET', `${gatehouse.webhook}/livez`)).status, 200);
    await blocker`commit`;
    const { inFlight } = gatehouse.listenerOf('webhook');
    await until(() => inFlight.size === 0, 'the end of the exchange');
    const repeated = await post(token, body, { 'webhook-id': id });
    assert.equal(outcomeOf(repeated), 'duplicate');
    assert.equal((await stored(repeated.json.id)).delivery_id, id);
  });
}
