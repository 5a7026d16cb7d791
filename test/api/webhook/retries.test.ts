/**
 * Repetitions as each sender makes them, and names that cannot be stored as they are.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import {
  type Answer,
  ask,
  type Gatehouse,
  startGatehouse,
  WEBHOOK_TOKEN,
} from '../../support/gatehouse.ts';
import {
  addToken,
  now,
  SIGNED_SOURCES,
  signedBy,
  type SignedSource,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { launchWebhook } from '../../support/webhook.ts';

const gatehouse = await launchWebhook();
const { sql, databaseUrl, database, base } = gatehouse;
/** With a target, and paused: what is due stays due. */
const delivering = await startGatehouse({ after }, ['webhook'], databaseUrl, {
  WEBHOOK_SECRET,
  WEBHOOK_FORWARD_URL: 'http://127.0.0.1:9/',
  WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
});
await sql`insert into webhook.pause default values`;
const tokens = new Map<SignedSource, string>();
for (const source of SIGNED_SOURCES) {
  tokens.set(source, (await addToken(database, source)).token);
}

/** Sends a body with a valid signature. */
function send(
  source: SignedSource,
  body: string,
  deliveryId: string,
  headers: Record<string, string> = {},
  to: Gatehouse = gatehouse,
): Promise<Answer> {
  const signature = signedBy(source, body, { id: deliveryId });
  const url = `${to.url.webhook}/webhook?token=${tokens.get(source)}`;
  return ask('POST', url, { body, headers: { ...headers, ...signature } });
}
const outcomeOf = ({ status, json }: Answer) => json.status ?? `${status} ${json.error.code}`;
const countEvents = async () => (await sql`select from webhook.events`).length;

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
const headersOf = (source: SignedSource, id: string) => ({
  ...(source === 'linear' ? { 'linear-event': 'Issue', 'linear-delivery': id } : {}),
});
const repeat = (source: keyof typeof BODIES, body: string, id: string, to?: Gatehouse) =>
  send(source, body, id, headersOf(source, id), to);

for (const source of ['notion', 'stripe', 'paddle', 'linear'] as const) {
  test(`${source}: a repetition that differs as its sender changes it is a duplicate, without a word`, async () => {
    const id = randomUUID();
    const body = BODIES[source](id, '1');
    const first = await repeat(source, body, id);
    assert.equal(outcomeOf(first), 'accepted', first.text);
    for (const attempt of ['1', '2', '8', '0', '99999']) {
      const again = await repeat(source, BODIES[source](id, attempt), id);
      assert.deepEqual(
        [again.status, again.json],
        [200, { id: first.json.id, status: 'duplicate' }],
      );
    }
    assert.equal(warnings(first.json.id), 0);
    const [row] = await sql`select body from webhook.events where id = ${first.json.id}`;
    assert.equal(row?.body.toString(), body, 'the first body is kept');
  });

  test(`${source}: a repetition that differs elsewhere is a duplicate with a warning`, async () => {
    const id = randomUUID();
    const body = BODIES[source](id, '1');
    const first = await repeat(source, body, id);
    const before = await countEvents();
    const others = [
      BODIES[source](id, '2', ',"more":1'),
      body.replace(':', ': '),
      BODIES[source](id, '2').replace(
        /"(attempt_number|pending_webhooks|notification_id|data)"/,
        '"another"',
      ),
    ];
    for (const other of others) {
      const again = await repeat(source, other, id);
      assert.deepEqual(
        [again.status, again.json],
        [200, { id: first.json.id, status: 'duplicate' }],
      );
    }
    assert.equal(warnings(first.json.id), others.length);
    assert.equal(await countEvents(), before);
  });

  test(`${source}: a repetition of a dead event delivers it again, whatever differs`, async () => {
    for (const more of ['', ',"more":1']) {
      const id = randomUUID();
      const first = await repeat(source, BODIES[source](id, '1'), id);
      await sql`insert into webhook.outcomes (event_id, status, attempts) values (${first.json.id}, 'dead', 3)`;
      const again = await repeat(source, BODIES[source](id, '2', more), id, delivering);
      assert.equal(outcomeOf(again), 'duplicate');
      const work = await sql`select from webhook.work where event_id = ${first.json.id}`;
      assert.equal(work.length, 1);
    }
  });

  test(`${source}: of repetitions that arrive together one is stored`, async () => {
    const id = randomUUID();
    const bodies = Array.from({ length: 8 }, (_, attempt) =>
      BODIES[source](id, String(attempt), attempt % 2 === 0 ? '' : `,"more":${attempt}`),
    );
    const answers = await Promise.all(bodies.map((body) => repeat(source, body, id)));
    assert.deepEqual(answers.map(outcomeOf).sort(), [
      'accepted',
      ...bodies.slice(1).map(() => 'duplicate'),
    ]);
  });
}

test('linear: retries are accepted as late as they come, and not later', async () => {
  const event = (age: number) => {
    const webhookTimestamp = Date.now() - age * 1_000;
    return JSON.stringify({ action: 'create', type: 'Issue', webhookTimestamp });
  };
  for (const age of [61, 3_660, 7 * 3_600 + 60, -290]) {
    const id = randomUUID();
    const body = event(age);
    assert.equal(outcomeOf(await repeat('linear', body, id)), 'accepted', `${age} s old`);
    assert.equal(outcomeOf(await repeat('linear', body, id)), 'duplicate', `${age} s old`);
  }
  for (const age of [8 * 3_600 + 5, -305]) {
    const answer = await repeat('linear', event(age), randomUUID());
    assert.equal(outcomeOf(answer), '401 unauthorized', `${age} s old`);
  }
});

test('zendesk: each invocation of a trigger is an event, and each event by its own id', async () => {
  const post = (body: object, invocation: string) =>
    send('zendesk', JSON.stringify(body), '', { 'x-zendesk-webhook-invocation-id': invocation });
  const trigger = (status: string) => ({ type: `ticket.${status}`, id: '35436', status });
  const ids = [randomUUID(), randomUUID()] as const;
  const opened = await post(trigger('open'), ids[0]);
  assert.equal(outcomeOf(opened), 'accepted');
  assert.equal(outcomeOf(await post(trigger('solved'), ids[1])), 'accepted');
  const again = await post(trigger('open'), ids[0]);
  assert.deepEqual([outcomeOf(again), again.json.id], ['duplicate', opened.json.id]);
  const event = { type: 'zen:event-type:user.created', id: randomUUID() };
  assert.equal(outcomeOf(await post(event, randomUUID())), 'accepted');
  assert.equal(outcomeOf(await post(event, randomUUID())), 'duplicate');
});

test('a member that counts nothing for its source makes another body', async () => {
  const id = randomUUID();
  const body = (attempt: number) => ({
    event: 'x',
    attempt_number: attempt,
    pending_webhooks: attempt,
    data: { page_id: 'p' },
  });
  const post = (attempt: number) =>
    ask('POST', base, {
      bearer: WEBHOOK_TOKEN,
      headers: { 'webhook-id': id },
      body: body(attempt),
    });
  assert.deepEqual(
    [outcomeOf(await post(1)), outcomeOf(await post(1)), outcomeOf(await post(2))],
    ['accepted', 'duplicate', '409 conflict'],
  );
});

/**
 * A lone surrogate, as JSON writes it. It has no UTF-8 form, and would be stored as another
 * character.
 */
const LONE = ['\\ud800', 'a\\udfff', '\\udc00\\ud800', 'x\\ud83d'];

const NO_LONE = 'must not contain a lone surrogate';
const NAMED =
  'must name the event in the body as "type", in 1 to 1024 characters, without U+0000 and lone surrogates';
const NO_ID = /^the delivery id must have 1 to 255/;

type Invalid = readonly [answer: Promise<Answer>, path: string, message: string | RegExp];
const withLoneSurrogate = (lone: string, id: string): readonly Invalid[] => {
  const generic = (body: string) =>
    ask('POST', base, {
      bearer: WEBHOOK_TOKEN,
      body,
      headers: { 'content-type': 'application/json' },
    });
  const page = `"data":{"page_id":"${lone}"}`;
  const slackName = `{"event":{"type":"${lone}"},"event_id":"${id}"}`;
  const named = { 'webhook-id': id };
  return [
    [generic(`{"event":"${lone}","data":{"page_id":"p"}}`), '/event', NO_LONE],
    [generic(`{"event":"x",${page}}`), '/data/page_id', NO_LONE],
    [send('standard', `{"type":"${lone}"}`, id, named), '', NAMED],
    [send('stripe', `{"type":"${lone}","id":"${id}"}`, id), '', NAMED],
    [send('notion', `{"type":"${lone}","id":"${id}"}`, id), '', NAMED],
    [send('slack', slackName, id), '', /^must name the event in the body/],
    [send('standard', `{"type":"x",${page}}`, id, named), '/data/page_id', NO_LONE],
    [send('notion', `{"type":"x","id":"${id}",${page}}`, id), '/data/page_id', NO_LONE],
    [send('stripe', `{"type":"x","id":"${lone}"}`, id), '', NO_ID],
    [send('notion', `{"type":"x","id":"${lone}"}`, id), '', NO_ID],
    [send('slack', `{"type":"x","event_id":"${lone}"}`, id), '', NO_ID],
  ];
};

test('a lone surrogate in a name, page or delivery id is 400 for all sources; nothing is stored', async () => {
  const before = await countEvents();
  for (const lone of LONE) {
    for (const [answer, path, message] of withLoneSurrogate(lone, randomUUID())) {
      const { status, json, text } = await answer;
      assert.deepEqual(
        [status, json.error?.code, json.error?.fields?.length],
        [400, 'invalid_body', 1],
        text,
      );
      assert.equal(json.error.fields[0].path, path);
      if (typeof message === 'string') assert.equal(json.error.fields[0].message, message);
      else assert.match(json.error.fields[0].message, message);
    }
  }
  assert.equal(await countEvents(), before);
});

test('a surrogate pair is a character; a lone surrogate elsewhere in the body is kept as sent', async () => {
  const id = randomUUID();
  const body = `{"type":"\\ud83d\\ude00","id":"${id}","attempt_number":1,"data":{"page_id":"\\ud83d\\ude00"},"more":"\\ud800"}`;
  const { json } = await send('notion', body, id);
  const [row] = await sql`select event, body from webhook.events where id = ${json.id}`;
  assert.deepEqual([row?.event, row?.body.toString()], ['😀', body]);
});
