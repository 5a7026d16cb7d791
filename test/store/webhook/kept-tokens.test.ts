/**
 * Each replica caches the token of a sender for some seconds. The insert of an event checks it, so
 * the end of a token or of a signing secret counts from the next request on, on every replica.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import { revokeToken } from '../../../src/platform/db/tokens.ts';
import { createToken, rotateToken } from '../../support/tokens.ts';
import { rotateSecret } from '../../../src/webhook/store/signing-secrets.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, type Gatehouse, startGatehouse, assertStatus } from '../../support/gatehouse.ts';
import { rounds } from '../../support/rounds.ts';
import { addToken, openWebhook, signatureOf, WEBHOOK_SECRET } from '../../support/senders.ts';
import { latch } from '../../support/until.ts';

const { url, sql } = await createDatabase();
const settings = { WEBHOOK_SECRET, TRUSTED_PROXIES: '127.0.0.1' };
const replicas = [
  await startGatehouse({ after }, ['webhook'], url, settings),
  await startGatehouse({ after }, ['webhook'], url, settings),
] as const;
const database = openWebhook({ after }, url);

/** Each way in which a credential ends is tried so often, with 50 requests each time. */
const ROUNDS = rounds(5, 50);
const CLIENTS = 10;
const REQUESTS = 4;

/** Each round sends from a network of its own: rejected credentials are limited by network. */
let network = 0;
const from = () => ({ 'x-forwarded-for': `10.${network}.0.1` });

interface Sender {
  readonly send: (replica: Gatehouse, event: string) => Promise<number>;
  /** Ends the credential. @returns what sends with the one that took its place, if there is one */
  readonly end: () => Promise<Sender['send'] | null>;
}

const sendGeneric =
  (token: string): Sender['send'] =>
  async (replica, event) => {
    const body = { event, data: { page_id: 'p' } };
    const headers = from();
    return (await ask('POST', `${replica.url.webhook}/webhook`, { bearer: token, body, headers }))
      .status;
  };

const sendSigned =
  (token: string, secret: string): Sender['send'] =>
  async (replica, event) => {
    const body = '{"signed":true}';
    const headers = {
      'x-github-event': event,
      ...signatureOf('github', secret, body),
      ...from(),
    };
    return (await ask('POST', `${replica.url.webhook}/webhook`, { bearer: token, body, headers }))
      .status;
  };

const generic = () =>
  createToken(database, { name: 'kept', role: 'sender', source: 'generic' }, null);

async function rotated(id: string, overlap: number): Promise<Sender['send']> {
  const token = await rotateToken(database, id, overlap);
  assert.ok(typeof token === 'string');
  return sendGeneric(token);
}

const ENDS: Readonly<Record<string, () => Promise<Sender>>> = {
  async 'a revoked token'() {
    const { id, token } = await generic();
    return {
      send: sendGeneric(token),
      end: async () => ((await revokeToken(database, 'webhook', id)) ? null : assert.fail()),
    };
  },
  async 'a rotated token'() {
    const { id, token } = await generic();
    return { send: sendGeneric(token), end: () => rotated(id, 0) };
  },
  async 'a rotated token whose overlap ends'() {
    const { id, token } = await generic();
    const next = await rotated(id, 3_600);
    const end = () =>
      sql`update webhook.tokens set previous_until = clock_timestamp() where id = ${id}`;
    return { send: sendGeneric(token), end: () => end().then(() => next) };
  },
  async 'a rotated signing secret'() {
    const { id, token } = await addToken(database, 'github', 'the first secret');
    const sealed = sealSecret(createSigningKey(WEBHOOK_SECRET), 'the next secret');
    const end = () => rotateSecret(database, id, 0, sealed).then((done) => assert.ok(done));
    return {
      send: sendSigned(token, 'the first secret'),
      end: () => end().then(() => sendSigned(token, 'the next secret')),
    };
  },
};

for (const [what, prepare] of Object.entries(ENDS)) {
  test(`${what} is rejected at the next request on every replica`, async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      network += 1;
      const { send, end } = await prepare();
      const early = `early ${what} ${round}`;
      const late = `late ${what} ${round}`;
      let isOver = false;
      let answers = 0;
      let accepted = 0;
      const { opened: isBusy, open: letGo } = latch();
      const request = async (number: number) => {
        const event = isOver ? late : early;
        const status = await send(replicas[number % 2 === 0 ? 0 : 1], event);
        assert.ok(
          event === late ? status === 401 : status === 200 || status === 401,
          `${event}: ${status}`,
        );
        if (status === 200) accepted += 1;
        answers += 1;
        if (answers === CLIENTS) letGo();
      };
      const client = async (number: number) => {
        for (let count = 0; count < REQUESTS; count += 1) await request(number + count);
      };
      const ended = isBusy.then(async () => {
        const next = await end();
        isOver = true;
        return next;
      });
      await Promise.all(Array.from({ length: CLIENTS }, (_, number) => client(number)));
      const next = await ended;
      await Promise.all(Array.from({ length: CLIENTS }, (_, number) => request(number)));
      assert.ok(accepted >= 1, 'some were accepted before');
      const stored =
        await sql`select event from webhook.events where event in ${sql([early, late])}`;
      assert.deepEqual(
        stored.map(({ event }) => event),
        Array<string>(accepted).fill(early),
      );
      if (next) for (const replica of replicas) assert.equal(await next(replica, 'next'), 200);
    }
  });
}

for (const [status, request] of [
  [400, { body: { no: 'event' } }],
  [413, { body: ' '.repeat(70_000) }],
  [415, { body: 'text', headers: { 'content-type': 'text/plain' } }],
] as const) {
  test(`a token is looked up before the reply ${status}`, async () => {
    const { id, token } = await generic();
    const [replica] = replicas;
    const statusOf = async () =>
      (await ask('POST', `${replica.url.webhook}/webhook`, { bearer: token, ...request })).status;
    assert.equal(await statusOf(), status);
    assert.equal(await sendGeneric(token)(replica, 'kept'), 200);
    await revokeToken(database, 'webhook', id);
    assert.equal(await statusOf(), 401);
  });
}

test('a token is looked up before a handshake is answered', async () => {
  const { id, token } = await addToken(database, 'github', 'a secret');
  const [replica] = replicas;
  const send = sendSigned(token, 'a secret');
  assert.equal(await send(replica, 'push'), 200);
  assert.equal(await send(replica, 'ping'), 200);
  await revokeToken(database, 'webhook', id);
  assert.equal(await send(replica, 'ping'), 401);
});

test("an operator's token is cached for no sender", async () => {
  const { token } = await createToken(
    database,
    { name: 'kept', role: 'operator', source: 'generic' },
    null,
  );
  const [replica] = replicas;
  assert.equal((await ask('GET', `${replica.url.webhook}/events`, { bearer: token })).status, 200);
  assertStatus(
    await ask('POST', `${replica.url.webhook}/webhook`, { bearer: token, body: 'text' }),
    401,
  );
  assert.equal(await sendGeneric(token)(replica, 'kept'), 401);
});

test('in a shared statement, an event with an ended token harms no other', async () => {
  const tokens = await Promise.all(Array.from({ length: 4 }, generic));
  const sends = tokens.map(({ token }) => sendGeneric(token));
  const all = (event: string) =>
    Promise.all(
      Array.from({ length: 32 }, (_, number) =>
        sends[number % 4]?.(replicas[0], `${event} ${number}`),
      ),
    );
  assert.ok((await all('before')).every((status) => status === 200));
  await revokeToken(database, 'webhook', tokens[1]?.id ?? '');
  const expected = Array.from({ length: 32 }, (_, number) => (number % 4 === 1 ? 401 : 200));
  assert.deepEqual(await all('after'), expected);
  assert.equal((await sql`select from webhook.events where event like 'after %'`).length, 24);
});
