/**
 * Each replica caches the token of a sender for some seconds. The insert of an event checks it, so
 * the end of a token or of a signing secret counts from the next request on, on every replica.
 */
import assert from 'node:assert/strict';
import { after, type TestContext } from 'node:test';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { revokeToken } from '../../../src/platform/db/tokens.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import { rotateSecret } from '../../../src/webhook/store/signing-secrets.ts';
import { stopClock } from '../../support/clock.ts';
import { ask, startGatehouse } from '../../support/gatehouse.ts';
import { addToken, signatureOf, WEBHOOK_SECRET } from '../../support/senders.ts';
import { connectTo, headOf } from '../../support/socket.ts';
import { createToken, rotateToken } from '../../support/tokens.ts';
import { test } from '../../support/until.ts';
import { launchWebhook } from '../../support/webhook.ts';

const { webhook, sql, database, databaseUrl } = await launchWebhook();
const { url } = await startGatehouse({ after }, ['webhook'], databaseUrl, { WEBHOOK_SECRET });
const replicas = [webhook, url.webhook] as const;

/** @returns the status */
type Send = (replica: string, event: string) => Promise<number>;

const sendGeneric =
  (token: string): Send =>
  async (replica, event) => {
    const body = { event, data: { page_id: 'p' } };
    return (await ask('POST', `${replica}/webhook`, { bearer: token, body })).status;
  };
const sendSigned =
  (token: string, secret: string): Send =>
  async (replica, event) => {
    const body = '{"signed":true}';
    const headers = { 'x-github-event': event, ...signatureOf('github', secret, body) };
    return (await ask('POST', `${replica}/webhook`, { bearer: token, body, headers })).status;
  };
const generic = (role: 'sender' | 'operator' = 'sender') =>
  createToken(database, { name: 'kept', role, source: 'generic' }, null);
const rotated = async (id: string, overlap: number) =>
  sendGeneric((await rotateToken(database, id, overlap)) ?? assert.fail());

/** What sends, and what ends the credential. @returns what sends with the next one, if any */
type Sender = readonly [send: Send, end: () => Promise<Send | null>];

const ENDS: Readonly<Record<string, () => Promise<Sender>>> = {
  async 'a revoked token'() {
    const { id, token } = await generic();
    return [sendGeneric(token), () => revokeToken(database, 'webhook', id).then(() => null)];
  },
  async 'a rotated token'() {
    const { id, token } = await generic();
    return [sendGeneric(token), () => rotated(id, 0)];
  },
  async 'a rotated token whose overlap ends'() {
    const { id, token } = await generic();
    const next = await rotated(id, 3_600);
    const end = () => sql`
      update webhook.tokens set previous_until = clock_timestamp() where id = ${id}`;
    return [sendGeneric(token), () => end().then(() => next)];
  },
  async 'a rotated signing secret'() {
    const { id, token } = await addToken(database, 'github', 'the first secret');
    const sealed = sealSecret(createSigningKey(WEBHOOK_SECRET), 'the next secret');
    const end = () => rotateSecret(database, id, 0, sealed);
    const next = sendSigned(token, 'the next secret');
    return [sendSigned(token, 'the first secret'), () => end().then(() => next)];
  },
  async 'a signing secret whose overlap ends'() {
    const { id, token } = await addToken(database, 'github', 'the only secret');
    const end = () => sql`
      update webhook.signing_secrets set expires_at = clock_timestamp() where token_id = ${id}`;
    return [sendSigned(token, 'the only secret'), () => end().then(() => null)];
  },
};

for (const [what, prepare] of Object.entries(ENDS)) {
  test(`${what} is rejected at the next request on every replica`, async () => {
    const [send, end] = await prepare();
    for (const replica of replicas) assert.equal(await send(replica, `early ${what}`), 200);
    const next = await end();
    for (const replica of replicas) assert.equal(await send(replica, `late ${what}`), 401);
    const stored = await sql`select event from webhook.events where event like ${`% ${what}`}`;
    assert.deepEqual(
      stored.map(({ event }) => event),
      Array(2).fill(`early ${what}`),
    );
    if (next) for (const replica of replicas) assert.equal(await next(replica, 'next'), 200);
  });
}

for (const [status, request] of [
  [400, { body: { no: 'event' } }],
  [413, { body: ' '.repeat(70_000) }],
  [415, { body: 'text', headers: { 'content-type': 'text/plain' } }],
] as const) {
  test(`a token is looked up before the reply ${status}`, async () => {
    const { id, token } = await generic();
    const send = async () =>
      (await ask('POST', `${webhook}/webhook`, { bearer: token, ...request })).status;
    const before = [await send(), await sendGeneric(token)(webhook, 'kept')];
    await revokeToken(database, 'webhook', id);
    assert.deepEqual([...before, await send()], [status, 200, 401]);
  });
}

/** The largest body, and how many of them are received from one network at a time. */
const BODY_BYTES = 65_536;
const BODIES_OF_NETWORK = 64;

/** Clients whose token is found in the cache and then revoked, and whose body does not end. */
async function beginBodies(t: TestContext, count: number) {
  const { id, token } = await generic();
  assert.equal(await sendGeneric(token)(webhook, 'kept'), 200);
  const pass = stopClock(t);
  const begin = async () => {
    const client = await connectTo(webhook);
    t.after(client.leave);
    client.send(
      headOf([
        'POST /webhook HTTP/1.1',
        'Host: gatehouse.test',
        `Authorization: Bearer ${token}`,
        `Content-Length: ${BODY_BYTES}`,
        'Expect: 100-continue',
      ]),
    );
    return client;
  };
  const clients = await Promise.all(Array.from({ length: count }, begin));
  for (const client of clients) assert.equal((await client.answer()).status, 100);
  await revokeToken(database, 'webhook', id);
  return { clients, begin, pass };
}

test('a token is looked up before the reply 408', async (t) => {
  const { clients, pass } = await beginBodies(t, 1);
  pass(3_600);
  for (const client of clients) assert.equal((await client.answer()).status, 401);
});

test('a token is looked up before the reply 503', async (t) => {
  const { begin } = await beginBodies(t, BODIES_OF_NETWORK);
  const client = await begin();
  assert.equal((await client.answer()).status, 401);
});

test('a token is looked up before a handshake is answered', async () => {
  const { id, token } = await addToken(database, 'github', 'a secret');
  const send = sendSigned(token, 'a secret');
  const before = [await send(webhook, 'push'), await send(webhook, 'ping')];
  await revokeToken(database, 'webhook', id);
  assert.deepEqual([...before, await send(webhook, 'ping')], [200, 200, 401]);
});

test("an operator's token is cached for no sender", async () => {
  const { token: bearer } = await generic('operator');
  const text = () => ask('POST', `${webhook}/webhook`, { bearer, body: 'text' });
  const listed = await ask('GET', `${webhook}/events`, { bearer });
  const statuses = [listed.status, (await text()).status, await sendGeneric(bearer)(webhook, 'e')];
  assert.deepEqual(statuses, [200, 401, 401]);
});

test('in a shared statement, an event with an ended token harms no other', async () => {
  const tokens = await Promise.all(Array.from({ length: 4 }, () => generic()));
  const sends = tokens.map(({ token }) => sendGeneric(token));
  const all = (event: string) =>
    Promise.all(Array.from({ length: 32 }, (_, n) => sends[n % 4]?.(webhook, `${event} ${n}`)));
  assert.deepEqual(await all('before'), Array(32).fill(200));
  await revokeToken(database, 'webhook', tokens[1]?.id ?? '');
  const expected = Array.from({ length: 32 }, (_, n) => (n % 4 === 1 ? 401 : 200));
  assert.deepEqual(await all('after'), expected);
  assert.equal((await sql`select from webhook.events where event like 'after %'`).length, 24);
});
