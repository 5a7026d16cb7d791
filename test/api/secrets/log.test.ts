/**
 * Each event of a secret is one log line and one count, without content. Wrong keys change only a
 * counter.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { ask, AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { meanwhile } from '../../support/meanwhile.ts';
import { onOneServer } from '../../support/one-server.ts';
import { requestsClient } from '../../support/secret-requests.ts';
import {
  type SecretsClient,
  secretsClient,
  storedSecret,
  wrongKey,
} from '../../support/secrets.ts';

const TEXT = 'marked-password-text';
const passphrase = 'marked passphrase';

const gatehouse = await launch(['secrets'], { SHARE_PAGES: 'on' });
const { sql, secrets: base, metrics } = gatehouse;
const { keep, receipt, remove, decrypt } = secretsClient(base);

const keyIdOf = async (id: string): Promise<string> => (await storedSecret(sql, id)).key_id;

/** The counts by event. */
async function counts(): Promise<Record<string, number>> {
  const { text } = await ask('GET', `${metrics}/metrics`);
  const found = text.matchAll(/^gatehouse_secret_events_total\{event="(\w+)"\} (\d+)$/gm);
  return Object.fromEntries([...found].map(([, event = '', count]) => [event, Number(count)]));
}

/** The log lines and counts that a request causes, without the request's own line. */
async function traced(
  work: (by: SecretsClient, headers: Record<string, string>) => Promise<unknown>,
) {
  const requestId = randomUUID();
  const headers = { 'x-request-id': requestId };
  const before = await counts();
  const written = gatehouse.log().length;
  await work(secretsClient(base, headers), headers);
  const counted = Object.entries(await counts())
    .map(([event, count]) => [event, count - (before[event] ?? 0)] as const)
    .filter(([, count]) => count > 0);
  const lines = gatehouse
    .log()
    .slice(written)
    .filter(({ message }) => message !== 'request' && message !== 'server secret')
    .map(({ time: _, instance: __, version: ___, ...line }) => line);
  return { lines, counted: Object.fromEntries(counted), requestId };
}

/** Exactly one line with exactly these members, and one count. */
function assertEvent(
  { lines, counted, requestId }: Awaited<ReturnType<typeof traced>>,
  event: string,
  id: string,
  keyId: string | null,
  reason?: string,
): void {
  const ids = { secret_id: id, key_id: keyId, request_id: requestId, ip: '127.0.0.1' };
  const about = { level: 'info', service: 'secrets', message: `secret ${event}` };
  assert.deepEqual(lines, [{ ...about, ...ids, ...(reason === undefined ? {} : { reason }) }]);
  assert.deepEqual(counted, { [event.replace(' ', '_')]: 1 });
}

/** As a share page reads it. */
const readByLink = (id: string, body: object) =>
  traced((_, headers) => ask('POST', `${base}/s/${id}`, { body, headers }));

test('one line and one count for storing, reading and deleting a secret', async () => {
  for (const options of [{}, { passphrase }]) {
    let kept = { id: '', secret: '' };
    const creation = await traced(async (by) => {
      kept = await by.keep(TEXT, options);
    });
    const { id, secret } = kept;
    const keyId = await keyIdOf(id);
    assert.match(keyId, /^[0-9a-f]{16}$/);
    assertEvent(creation, 'stored', id, keyId);
    const read = (by: SecretsClient) => by.decrypt(id, secret, options.passphrase);
    for (let count = 0; count < 2; count += 1) assertEvent(await traced(read), 'read', id, keyId);
    assertEvent(await readByLink(id, { secret, ...options }), 'read', id, keyId);
    assertEvent(await traced((by) => by.remove(id)), 'deleted', id, keyId);
    assertEvent(await traced(read), 'read failed', id, keyId, 'unknown or ended');
  }
});

test('one line and one count for asking, answering and withdrawing a request', async () => {
  const { request, answerBody, post } = requestsClient(base);
  const asked = await request();
  const answering = await traced(async (_, headers) => {
    const sent = { ...headers, 'x-link-key': asked.digest };
    await post(`/answer/${asked.id}`, await answerBody(asked, TEXT), sent);
  });
  assertEvent(answering, 'stored', asked.id, await keyIdOf(asked.id));
  let id = '';
  const asking = await traced(async (_, headers) => {
    const options = { bearer: AUTH_TOKEN, body: asked.body, headers };
    id = (await ask('POST', `${base}/api/store/request`, options)).json.id;
  });
  assertEvent(asking, 'requested', id, null);
  assertEvent(await traced((by) => by.remove(id)), 'request withdrawn', id, null);
});

test('each failed read is one line with its reason and one count', async () => {
  const { id, secret } = await keep(TEXT, { passphrase, max_reads: 1 });
  const keyId = await keyIdOf(id);
  const unknown = randomUUID();
  for (const [about, key, typed, reason] of [
    [id, wrongKey(), undefined, 'wrong key'],
    [id, 'marked-and-no-key', undefined, 'malformed key'],
    [id, secret, 'marked and wrong', 'wrong passphrase'],
    [unknown, wrongKey(), undefined, 'unknown or ended'],
  ] as const) {
    const read = await traced((by) => by.decrypt(about, key, typed));
    assertEvent(read, 'read failed', about, about === id ? keyId : null, reason);
  }
  const byLink = await readByLink(id, { secret: wrongKey() });
  assertEvent(byLink, 'read failed', id, keyId, 'wrong key');
  assert.equal((await receipt(id)).json.failed_reads, 4);
});

test('a reader whose secret ends before its read is used up is logged', onOneServer, async () => {
  const { id, secret } = await keep(TEXT, { max_reads: 1 });
  const keyId = await keyIdOf(id);
  const read = await traced((by) =>
    meanwhile(
      sql,
      (held) => held`update secrets.secrets set blob = null, tag = null, ending = 'read', reads = 1
        where id = ${id}`,
      () => [by.decrypt(id, secret)],
    ),
  );
  assertEvent(read, 'read failed', id, keyId, 'unknown or ended');
});

test('no line for receipts, lists, second deletions and rejected requests', async () => {
  const { id, secret } = await keep(TEXT, { passphrase });
  const gone = await keep(TEXT);
  await remove(gone.id);
  const { lines, counted } = await traced(async (by) => {
    const url = `${base}/api/store/decrypt?id=${id}`;
    for (const [answer, status] of [
      [by.receipt(id), 200],
      [by.list(), 200],
      [by.options(), 200],
      [by.remove(gone.id), 200],
      [by.decrypt(id, secret), 403],
      [by.remove(randomUUID()), 404],
      [by.encrypt({ password: '' }), 400],
      [by.decrypt(id, 1), 400],
      [ask('POST', url, { body: { secret } }), 401],
    ] as const)
      assert.equal((await answer).status, status);
  });
  assert.deepEqual([lines, counted], [[], {}]);
});

test('no text, key, passphrase, token or stored content is logged, nor a key in a path', async () => {
  const { id, secret } = await keep(TEXT);
  for (const encoded of ['%23', '%2523']) await ask('GET', `${base}/s/${id}${encoded}${secret}`);
  const { blob, commitment, tag } = await storedSecret(sql, id);
  await decrypt(id, secret);
  const { text } = await ask('GET', `${metrics}/metrics`);
  const written = gatehouse.stdout() + gatehouse.stderr() + text;
  const stored = [blob, commitment, tag].flatMap((part: Buffer) => [
    part.toString('hex'),
    part.toString('base64url'),
  ]);
  for (const mark of ['marked', secret, AUTH_TOKEN, ...stored])
    assert.ok(!written.includes(mark), mark);
});
