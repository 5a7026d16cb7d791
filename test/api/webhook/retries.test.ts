/**
 * Senders whose retries count their attempts in the body, and names that cannot be stored as they
 * are.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { type Answer, ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import {
  addToken,
  openWebhook,
  signatureOf,
  type SignedSource,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';

const { url: databaseUrl, sql } = await createDatabase();
const gatehouse = await startGatehouse({ after }, ['webhook'], databaseUrl, { WEBHOOK_SECRET });
/** With a target, and paused: what is due stays due. */
const delivering = await startGatehouse({ after }, ['webhook'], databaseUrl, {
  WEBHOOK_SECRET,
  WEBHOOK_FORWARD_URL: 'http://127.0.0.1:9/',
  WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
});
await sql`insert into webhook.pause default values`;
const database = openWebhook({ after }, databaseUrl);
const tokens = new Map<SignedSource, string>();
for (const source of ['standard', 'stripe', 'slack', 'notion'] as const) {
  tokens.set(source, (await addToken(database, source, SIGNING_SECRETS[source])).token);
}

/** Sends a body with a valid signature. */
function send(
  source: SignedSource,
  body: string,
  deliveryId: string,
  headers: Record<string, string> = {},
  to = gatehouse,
): Promise<Answer> {
  const signature = signatureOf(source, SIGNING_SECRETS[source], body, { id: deliveryId });
  const url = `${to.url.webhook}/webhook?token=${tokens.get(source)}`;
  return ask('POST', url, { body, headers: { ...headers, ...signature } });
}
const outcomeOf = ({ status, json }: Answer) => json.status ?? `${status} ${json.error.code}`;
const countEvents = async () => (await sql`select from webhook.events`).length;

const BODIES = {
  notion: (id: string, attempt: unknown, more = '') =>
    `{"id":"${id}","attempt_number": ${attempt},"type":"page.created","entity":{"id":"p","type":"page"${more}}}`,
  stripe: (id: string, attempt: unknown, more = '') =>
    `{"id":"${id}","type":"charge.failed","data":{"object":{"id":"ch"${more}}},"pending_webhooks":${attempt}}`,
} as const;

for (const source of ['notion', 'stripe'] as const) {
  test(`${source}: a retry that counts its attempt is a duplicate, and other content is a conflict`, async () => {
    const id = randomUUID();
    const first = await send(source, BODIES[source](id, 1), id);
    assert.equal(outcomeOf(first), 'accepted');
    for (const attempt of [1, 2, 8, 0, 12345678901234567890n]) {
      const retry = await send(source, BODIES[source](id, attempt), id);
      assert.deepEqual(
        [retry.status, retry.json],
        [200, { id: first.json.id, status: 'duplicate' }],
      );
    }
    const before = await countEvents();
    for (const body of [
      BODIES[source](id, 2, ',"more":1'),
      BODIES[source](id, '"2"'),
      BODIES[source](id, -2),
      BODIES[source](id, 1).replace(':', ': '),
      BODIES[source](id, 2).replace(/"(attempt_number|pending_webhooks)"/, '"attempt"'),
      BODIES[source](id, 2, ',"attempt_number":2'),
    ]) {
      assert.equal(outcomeOf(await send(source, body, id)), '409 conflict', body);
    }
    assert.equal(await countEvents(), before);
    const [row] = await sql`select body from webhook.events where id = ${first.json.id}`;
    assert.equal(row?.body.toString(), BODIES[source](id, 1), 'the first body is kept');
  });

  test(`${source}: a retry of a dead event delivers it again`, async () => {
    const id = randomUUID();
    const first = await send(source, BODIES[source](id, 1), id);
    await sql`insert into webhook.outcomes (event_id, status, attempts) values (${first.json.id}, 'dead', 3)`;
    assert.equal(
      outcomeOf(await send(source, BODIES[source](id, 2, ',"more":1'), id)),
      '409 conflict',
    );
    assert.equal((await sql`select from webhook.work where event_id = ${first.json.id}`).length, 0);
    const again = await send(source, BODIES[source](id, 2), id, {}, delivering);
    assert.equal(outcomeOf(again), 'duplicate');
    assert.equal((await sql`select from webhook.work where event_id = ${first.json.id}`).length, 1);
  });

  test(`${source}: of retries that arrive together one is stored, and other content is a conflict`, async () => {
    const id = randomUUID();
    const same = Array.from({ length: 8 }, (_, attempt) => BODIES[source](id, attempt + 1));
    const other = Array.from({ length: 4 }, (_, index) =>
      BODIES[source](id, 1, `,"more":${index}`),
    );
    const answers = await Promise.all(same.map((body) => send(source, body, id)));
    const others = await Promise.all(other.map((body) => send(source, body, id)));
    assert.deepEqual(answers.map(outcomeOf).sort(), [
      'accepted',
      ...same.slice(1).map(() => 'duplicate'),
    ]);
    assert.deepEqual(
      others.map(outcomeOf),
      other.map(() => '409 conflict'),
    );
    const mixed = await Promise.all(
      other.map((_, index) =>
        send(source, BODIES[source](`${id}x`, 1, `,"more":${index}`), `${id}x`),
      ),
    );
    assert.deepEqual(mixed.map(outcomeOf).sort(), [
      '409 conflict',
      '409 conflict',
      '409 conflict',
      'accepted',
    ]);
  });
}

test('a member that counts nothing for its source makes another body', async () => {
  const id = randomUUID();
  const body = (attempt: number) => ({
    event: 'x',
    attempt_number: attempt,
    pending_webhooks: attempt,
    data: { page_id: 'p' },
  });
  const post = (attempt: number) =>
    ask('POST', `${gatehouse.url.webhook}/webhook`, {
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
    ask('POST', `${gatehouse.url.webhook}/webhook`, {
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
