/**
 * WEBHOOK_MAX_BODY_BYTES: events of signed sources that are larger than MAX_BODY_BYTES; and
 * hundreds of large events at the same instant: none is refused while the token is looked up.
 */
import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { after } from 'node:test';
import { holdTimers, stopClock } from '../../support/clock.ts';
import { PATIENT } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { addToken, signedBy } from '../../support/senders.ts';
import { exchange, exchangeAtOnce, headOf } from '../../support/socket.ts';
import { test } from '../../support/until.ts';
import { launchWebhook } from '../../support/webhook.ts';

const LIMIT = 25 * 1024 * 1024;
// A slow machine needs longer than a request may take.
const settings = { ...PATIENT, WEBHOOK_MAX_BODY_BYTES: String(LIMIT) };
const { webhook, base, database, sql } = await launchWebhook(settings, 240_000);
const { token } = await addToken(database, 'github');

const { url: databaseUrl } = await createDatabase();
const many = await startGatehouse(
  { after },
  ['webhook'],
  `${databaseUrl}?connect_timeout=99`,
  PATIENT,
  'ready',
  240_000,
);

const post = (body: string, signature = signedBy('github', body)) =>
  ask('POST', base, {
    bearer: token,
    body,
    headers: { 'x-github-event': 'push', 'x-github-delivery': randomUUID(), ...signature },
  });

test('a signed event of 25 MiB is stored unchanged', async () => {
  const body = JSON.stringify({ text: 'x'.repeat(LIMIT - '{"text":""}'.length) });
  const { status, json } = await post(body);
  assert.deepEqual([status, json.status], [200, 'accepted']);
  const [row] = await sql`
    select encode(sha256(body), 'hex') as digest, octet_length(body) as length
    from webhook.events where id = ${json.id}`;
  assert.deepEqual(row, { digest: createHash('sha256').update(body).digest('hex'), length: LIMIT });
});

test('a signed event of more than 25 MiB gets 413 by its Content-Length, before it is read', async () => {
  const head = ['POST /webhook HTTP/1.1', 'Host: a', `Content-Length: ${LIMIT + 1}`];
  const refused = await exchange(webhook, [...head, `Authorization: Bearer ${token}`]);
  assert.deepEqual([refused.status, refused.json.error.code], [413, 'body_too_large']);
  assert.match(refused.json.error.message, /at most 26214400 bytes/);
  assert.equal((await exchange(webhook, head)).status, 401, 'the credential is checked first');
});

/** What takes `JSON.parse` longest for its length. */
for (const [what, part] of [
  ['objects', '{},'],
  ['nested arrays', '['],
  ['numbers', '1,'],
] as const) {
  test(`25 MiB of ${what} are rejected without being parsed`, async (t) => {
    const { parse } = JSON;
    const parsed: number[] = [];
    t.mock.method(JSON, 'parse', (text: string) => {
      if (text.length > LIMIT / 2) parsed.push(text.length);
      return parse(text);
    });
    const body = '{"a":['.padEnd(LIMIT, part);
    assert.equal((await post(body, signedBy('github', ''))).status, 401, 'the signature is first');
    assert.equal((await post(body)).json.error.code, 'invalid_body');
    assert.deepEqual(parsed, []);
  });
}

test('a signed body that is valid but has too many parts is rejected with the limit', async () => {
  const { status, json } = await post(`{"a":[${'{},'.repeat(1_000_000)}0]}`);
  assert.equal(status, 400);
  assert.match(json.error.fields[0].message, /more than 1000000 strings, brackets and commas/);
});

test('unsigned sources keep MAX_BODY_BYTES', async () => {
  const body = JSON.stringify({ event: 'a', data: { page_id: 'b' }, text: 'x'.repeat(65_536) });
  assert.equal((await ask('POST', base, { bearer: WEBHOOK_TOKEN, body })).status, 413);
});

// --- Many at once

const EVENTS = 512;
const SIZE = 60_000;
const HEAD = headOf([
  ...['POST /webhook HTTP/1.1', 'Host: gatehouse.test', 'Content-Type: application/json'],
  ...[`Authorization: Bearer ${WEBHOOK_TOKEN}`, `Content-Length: ${SIZE}`],
]);
const BODY = '{"event":"made","data":{"page_id":"p"}}'.padEnd(SIZE);

/** How long connections are paused, and bodies wait for room: a slow machine needs longer. */
const WAITS_MS = [1_000, 2_000];

test(`${EVENTS} events of ${SIZE} bytes that one sender sends at once are accepted`, async (t) => {
  for (const ms of WAITS_MS) holdTimers(t, ms);
  // An event waits a limited time for a statement.
  stopClock(t);
  const answers = await exchangeAtOnce(many.url.webhook, Array<string>(EVENTS).fill(HEAD + BODY));
  const refused = answers.filter(({ status }) => status !== 200);
  assert.deepEqual([refused.length, refused[0]?.body], [0, undefined]);
});
