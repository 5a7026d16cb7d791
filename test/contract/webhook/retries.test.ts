/** Senders whose retries count their attempts in the body, and names that cannot be stored as they are. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { type Answer, ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { addToken, openWebhook, signatureOf, type SignedSource, SIGNING_SECRETS, WEBHOOK_SECRET } from '../../support/senders.ts';

const { url: databaseUrl, sql } = await createDatabase();
const gatehouse = await startGatehouse({ after }, ['webhook'], databaseUrl, { WEBHOOK_SECRET });
const database = openWebhook({ after }, databaseUrl);
const tokens = new Map<SignedSource, string>();
for (const source of ['standard', 'stripe', 'slack', 'notion'] as const) {
  tokens.set(source, (await addToken(database, source, SIGNING_SECRETS[source])).token);
}

/** Sends a body with a valid signature. */
function send(source: SignedSource, body: string, deliveryId: string, headers: Record<string, string> = {}): Promise<Answer> {
  const signature = signatureOf(source, SIGNING_SECRETS[source], body, { id: deliveryId });
  const url = `${gatehouse.url.webhook}/webhook?token=${tokens.get(source)}`;
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
      assert.deepEqual([retry.status, retry.json], [200, { id: first.json.id, status: 'duplicate' }]);
    }
    const before = await countEvents();
    for (const body of [
      BODIES[source](id, 2, ',"more":1'), BODIES[source](id, '"2"'), BODIES[source](id, -2), BODIES[source](id, 1).replace(':', ': '),
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
    assert.equal(outcomeOf(await send(source, BODIES[source](id, 2, ',"more":1'), id)), '409 conflict');
    assert.equal((await sql`select from webhook.work where event_id = ${first.json.id}`).length, 0);
    assert.equal(outcomeOf(await send(source, BODIES[source](id, 2), id)), 'duplicate');
    assert.equal((await sql`select from webhook.work where event_id = ${first.json.id}`).length, 1);
  });

  test(`${source}: of retries that arrive together one is stored, and other content is a conflict`, async () => {
    const id = randomUUID();
    const same = Array.from({ length: 8 }, (_, attempt) => BODIES[source](id, attempt + 1));
    const other = Array.from({ length: 4 }, (_, index) => BODIES[source](id, 1, `,"more":${index}`));
    const [answers, others] = [
      await Promise.all(same.map((body) => send(source, body, id))),
      await Promise.all(other.map((body) => send(source, body, id))),
    ];
    assert.deepEqual(answers.map(outcomeOf).sort(), ['accepted', ...same.slice(1).map(() => 'duplicate')]);
    assert.deepEqual(others.map(outcomeOf), other.map(() => '409 conflict'));
    const mixed = await Promise.all(other.map((_, index) => send(source, BODIES[source](`${id}x`, 1, `,"more":${index}`), `${id}x`)));
    assert.deepEqual(mixed.map(outcomeOf).sort(), ['409 conflict', '409 conflict', '409 conflict', 'accepted']);
  });
}

test('a member that counts nothing for its source makes another body', async () => {
  const id = randomUUID();
  const body = (attempt: number) => ({ event: 'x', attempt_number: attempt, pending_webhooks: attempt, data: { page_id: 'p' } });
  const post = (attempt: number) => ask('POST', `${gatehouse.url.webhook}/webhook`, { bearer: WEBHOOK_TOKEN, headers: { 'webhook-id': id }, body: body(attempt) });
  assert.deepEqual([outcomeOf(await post(1)), outcomeOf(await post(1)), outcomeOf(await post(2))], ['accepted', 'duplicate', '409 conflict']);
});
