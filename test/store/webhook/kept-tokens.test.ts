/**
 * Each replica caches the token of a sender for some seconds. The insert of an event checks it, so
 * the end of a token or of a signing secret counts from the next request on, on every replica. Then
 * a rotation of WEBHOOK_SECRET, with replicas on either value.
 */
import assert from 'node:assert/strict';
import { after, type TestContext } from 'node:test';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { revokeToken } from '../../../src/platform/db/tokens.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import { rotateSecret } from '../../../src/webhook/store/signing-secrets.ts';
import { stopClock } from '../../support/clock.ts';
import { runCommand } from '../../support/commands.ts';
import { createEmptyDatabase } from '../../support/database.ts';
import { ask, type Gatehouse, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { addToken, signatureOf, WEBHOOK_SECRET } from '../../support/senders.ts';
import { connectTo, headOf } from '../../support/socket.ts';
import { createToken, rotateToken } from '../../support/tokens.ts';
import { test } from '../../support/until.ts';
import { launchWebhook } from '../../support/webhook.ts';

const now = await launchWebhook();
const { webhook, sql, database, databaseUrl } = now;
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
const generic = () => addToken(database, 'generic');
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

const SECRETS = { before: `${WEBHOOK_SECRET}-of-before`, now: WEBHOOK_SECRET };
const before = await startGatehouse({ after }, ['webhook'], databaseUrl, {
  WEBHOOK_SECRET: SECRETS.before,
});

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
  const operator = { name: 'kept', role: 'operator', source: 'generic' } as const;
  const { token: bearer } = await createToken(database, operator, null);
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

// --- WEBHOOK_SECRET

const either = { before, now };
const WHICH = ['before', 'now'] as const;

/** The secrets of a sender, sealed under the WEBHOOK_SECRET of the same name. */
const OWN = { before: 'github secret of before', now: 'github secret of now' };

/** @returns the status of the event, or the error's */
async function send(to: Gatehouse, token: string, secret: string) {
  const body = JSON.stringify({ type: 'x' });
  const headers = { 'x-github-event': 'x', ...signatureOf('github', secret, body) };
  const answer = await ask('POST', `${to.url.webhook}/webhook`, { bearer: token, body, headers });
  if (answer.status === 200) return answer.json.status;
  assert.match(answer.headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
  return `${answer.status} ${answer.json.error.code}`;
}
const addOld = () => addToken(database, 'github', OWN.before, SECRETS.before);
const keyErrors = ({ log }: Gatehouse) =>
  log().filter(({ message }) => String(message).startsWith('WEBHOOK_SECRET is missing or wrong'))
    .length;

test('each replica accepts a signature if it can open its secret, and others get 503', async () => {
  const { id, token } = await addOld();
  const assertAccepted = async (
    to: keyof typeof SECRETS,
    secret: keyof typeof SECRETS,
    isAccepted: boolean,
  ) => {
    const { events } = await now.count();
    const logged = keyErrors(either[to]);
    const outcome = await send(either[to], token, OWN[secret]);
    assert.equal(outcome, isAccepted ? 'accepted' : '503 key_unknown');
    const added = [(await now.count()).events - events, keyErrors(either[to]) - logged];
    assert.deepEqual(added, isAccepted ? [1, 0] : [0, 1]);
  };
  for (const secret of WHICH) await assertAccepted('now', secret, false);
  await assertAccepted('before', 'before', true);
  const sealed = sealSecret(createSigningKey(SECRETS.now), OWN.now);
  await rotateSecret(database, id, 3_600, sealed);
  for (const to of WHICH)
    for (const secret of WHICH) await assertAccepted(to, secret, to === secret);
});

test('a replica with both values opens secrets under either; token reseal seals them anew', async (t) => {
  const given = { WEBHOOK_SECRET: SECRETS.now, WEBHOOK_SECRET_PREVIOUS: SECRETS.before };
  const { token } = await addOld();
  const both = await startGatehouse(t, ['webhook'], databaseUrl, given);
  assert.equal(await send(both, token, OWN.before), 'accepted');
  assert.equal(keyErrors(both), 0);
  const told = both.log().filter(({ message }) => String(message).includes('token reseal'));
  assert.equal(told.length, 1, 'the log says how to finish');

  const reseal = async (more: Readonly<Record<string, string>> = {}) => {
    const environment = { DATABASE_URL: databaseUrl, WEBHOOK_SECRET: SECRETS.now, ...more };
    const { code, stderr } = await runCommand(['token', 'reseal'], environment);
    return `${code} ${stderr}`;
  };
  const counts = async (which: keyof typeof SECRETS) => {
    const { id } = createSigningKey(SECRETS[which]);
    return (await sql`select from webhook.signing_secrets where key_id = ${id}`).length;
  };
  const old = await counts('before');
  const all = old + (await counts('now'));
  const missing = new RegExp(`^1 .*${old} could not be decrypted: add the WEBHOOK_SECRET`, 's');
  assert.match(await reseal(), missing);
  assert.equal(await counts('before'), old, 'what cannot be opened is kept');
  assert.equal(await reseal(given), `0 ${old} signing secrets encrypted under WEBHOOK_SECRET.\n`);
  assert.deepEqual([await counts('before'), await counts('now')], [0, all]);
  for (const to of [both, now]) assert.equal(await send(to, token, OWN.before), 'accepted');
  assert.match(await reseal(given), /^0 0 signing secrets/);
});

// --- WEBHOOK_TOKEN

// The first start of several replicas, without WEBHOOK_TOKEN, is in identity/administrator.test.ts.
test('no start replaces a token that exists, whatever is set and even if it is revoked', async (t) => {
  const { url, sql } = await createEmptyDatabase(t);
  /** @returns what the start has said, and the status for this token */
  const start = async (WEBHOOK_TOKEN: string | undefined, bearer: string) => {
    const gatehouse = await startGatehouse(t, ['webhook'], url, { WEBHOOK_TOKEN });
    const body = { event: 'e', data: { page_id: 'p1' } };
    const { status } = await ask('POST', `${gatehouse.url.webhook}/webhook`, { bearer, body });
    await gatehouse.stop();
    return [gatehouse.stderr(), status];
  };
  const said = 'webhook: created the first token: the value of WEBHOOK_TOKEN\n';
  assert.deepEqual(await start(WEBHOOK_TOKEN, WEBHOOK_TOKEN), [said, 200]);
  const other = 'another-token-0123456789abcdefghijklmnopqr';
  assert.deepEqual(await start(other, other), ['', 401]);
  await sql.begin(async (change) => {
    await change`update webhook.tokens set last_used_at = now()`;
    assert.deepEqual(await start(undefined, WEBHOOK_TOKEN), ['', 200], 'it waits for no change');
  });
  await sql`update webhook.tokens set revoked_at = now()`;
  for (const given of [undefined, WEBHOOK_TOKEN])
    assert.deepEqual(await start(given, WEBHOOK_TOKEN), ['', 401]);
  assert.equal((await sql`select from webhook.tokens`).length, 1);
});
