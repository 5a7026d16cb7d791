/**
 * WEBHOOK_MAX_BODY_BYTES: events of signed sources that are larger than MAX_BODY_BYTES, as GitHub
 * sends them.
 */
import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { addToken, signedBy } from '../../support/senders.ts';
import { exchange } from '../../support/socket.ts';
import { test } from '../../support/until.ts';
import { launchWebhook } from '../../support/webhook.ts';

const LIMIT = 25 * 1024 * 1024;
const { url, sql, base, database } = await launchWebhook({ WEBHOOK_MAX_BODY_BYTES: String(LIMIT) });
const { token } = await addToken(database, 'github');

const headersFor = (body: string) => ({
  'x-github-event': 'push',
  'x-github-delivery': randomUUID(),
  ...signedBy('github', body),
});

test('a signed event of 25 MiB is stored unchanged', async () => {
  const body = JSON.stringify({ text: 'x'.repeat(LIMIT - '{"text":""}'.length) });
  assert.equal(Buffer.byteLength(body), LIMIT);
  const answer = await ask('POST', base, {
    bearer: token,
    body,
    headers: headersFor(body),
  });
  assert.deepEqual([answer.status, answer.json.status], [200, 'accepted']);
  const [row] =
    await sql`select encode(sha256(body), 'hex') as digest, octet_length(body) as length from webhook.events`;
  assert.deepEqual(row, { digest: createHash('sha256').update(body).digest('hex'), length: LIMIT });
});

test('a signed event of more than 25 MiB gets 413 by its Content-Length, before it is read', async () => {
  const head = ['POST /webhook HTTP/1.1', 'Host: a', 'Content-Type: application/json'];
  const refused = await exchange(url.webhook, [
    ...head,
    `Authorization: Bearer ${token}`,
    `Content-Length: ${LIMIT + 1}`,
  ]);
  assert.deepEqual([refused.status, refused.json.error.code], [413, 'body_too_large']);
  assert.match(refused.json.error.message, /at most 26214400 bytes/);
  const unauthorized = await exchange(url.webhook, [...head, `Content-Length: ${LIMIT}`]);
  assert.equal(unauthorized.status, 401, 'the credential is checked first');
});

/** What takes `JSON.parse` longest for its length. */
const HOSTILE: ReadonlyArray<readonly [what: string, part: string]> = [
  ['objects', '{},'],
  ['nested arrays', '['],
  ['numbers', '1,'],
];

for (const [what, part] of HOSTILE) {
  test(`25 MiB of ${what} are rejected without being parsed`, async (t) => {
    const { parse } = JSON;
    const parsed: number[] = [];
    t.mock.method(JSON, 'parse', (text: string) => {
      if (text.length > LIMIT / 2) parsed.push(text.length);
      return parse(text);
    });
    const body = '{"a":['.padEnd(LIMIT, part);
    const send = (signature: Record<string, string>) =>
      ask('POST', base, {
        bearer: token,
        body,
        headers: { ...headersFor(''), ...signature },
      });
    assert.equal((await send({})).status, 401, 'the signature is checked first');
    const signed = await send(signedBy('github', body));
    assert.equal(signed.json.error.code, 'invalid_body');
    assert.deepEqual(parsed, []);
  });
}

test('a signed body that is valid but has too many parts is rejected with the limit', async () => {
  const body = `{"a":[${'{},'.repeat(1_000_000)}0]}`;
  const answer = await ask('POST', base, {
    bearer: token,
    body,
    headers: headersFor(body),
  });
  assert.equal(answer.status, 400);
  assert.match(
    answer.json.error.fields[0].message,
    /more than 1000000 strings, brackets and commas/,
  );
});

test('unsigned sources keep MAX_BODY_BYTES', async () => {
  const body = JSON.stringify({ event: 'a', data: { page_id: 'b' }, text: 'x'.repeat(65_536) });
  assert.equal((await ask('POST', base, { bearer: WEBHOOK_TOKEN, body })).status, 413);
});
