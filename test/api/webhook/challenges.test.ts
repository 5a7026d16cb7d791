/** Checks of an address by senders: methods, challenges, and pages of other sites. */
import assert from 'node:assert/strict';
import { createHmac, randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { sealSecret, unsealServiceSecret } from '../../../src/platform/crypto/service-secret.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import type { CustomSource } from '../../../src/webhook/sources.ts';
import { findSecrets } from '../../../src/webhook/store/signing-secrets.ts';
import { type Answer, ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import {
  addToken,
  now,
  signatureOf,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { createToken } from '../../support/tokens.ts';
import { launchWebhook } from '../../support/webhook.ts';

const { sql, base, database } = await launchWebhook();
const SECRET = 'the secret of a custom sender';
const key = createSigningKey(WEBHOOK_SECRET);

type Headers = Readonly<Record<string, string>>;

/** @returns a token of a custom source, which is not signed by default */
async function customToken(described: Partial<CustomSource> = {}) {
  const custom = { scheme: null, event: ['/type'], deliveryId: [], ...described };
  const row = { name: 'custom', role: 'sender', source: 'custom', custom } as const;
  const sealed = custom.scheme ? sealSecret(key, SECRET) : null;
  return (await createToken(database, row, sealed)).token;
}
const post = (token: string, body: string, headers: Headers = {}, query = '') =>
  ask('POST', `${base}?token=${token}${query}`, { body, headers });
const countEvents = async () => (await sql`select from webhook.events`).length;
async function storesNothing(act: () => Promise<void>) {
  const before = await countEvents();
  await act();
  assert.equal(await countEvents(), before);
}
function assertText(answer: Answer, text: string) {
  assert.deepEqual([answer.status, answer.text], [200, text]);
  assert.equal(answer.headers.get('content-type'), 'text/plain; charset=utf-8');
  assert.equal(answer.headers.get('x-content-type-options'), 'nosniff');
}

test('HEAD and GET find out whether a token is valid, until it is revoked', async () => {
  const { id, token } = await addToken(database, 'github');
  for (const method of ['HEAD', 'GET']) {
    const valid = await ask(method, `${base}?token=${token}&more=%F0%9F%8E%89`);
    assert.deepEqual(
      [valid.status, valid.text],
      [200, method === 'GET' ? '{"status":"pong"}' : ''],
    );
    const asBearer = await ask(method, base, { bearer: WEBHOOK_TOKEN });
    assert.equal(asBearer.status, 200);
    assert.equal((await ask(method, `${base}?token=wrong`)).status, 401);
    assert.equal((await ask(method, base)).status, 401);
  }
  await sql`update webhook.tokens set revoked_at = now() where id = ${id}`;
  assert.equal((await ask('GET', `${base}?token=${token}`)).status, 401);
});

test('twitch: a signed challenge gets its text, and a notification is an event', async () => {
  const token = await customToken({
    scheme: {
      header: 'twitch-eventsub-message-signature',
      prefix: 'sha256=',
      text: '{id}{timestamp}{body}',
      time: 'twitch-eventsub-message-timestamp',
      id: 'twitch-eventsub-message-id',
    },
    event: ['twitch-eventsub-subscription-type'],
    deliveryId: ['twitch-eventsub-message-id'],
  });
  const send = (type: string, body: string, secret = SECRET) => {
    const id = randomUUID();
    const time = new Date().toISOString().replace('Z', '456789Z');
    const mac = createHmac('sha256', secret).update(`${id}${time}${body}`).digest('hex');
    return post(token, body, {
      'twitch-eventsub-message-id': id,
      'twitch-eventsub-message-timestamp': time,
      'twitch-eventsub-message-signature': `sha256=${mac}`,
      'twitch-eventsub-message-type': type,
      'twitch-eventsub-subscription-type': 'channel.follow',
    });
  };
  const body = '{"challenge":"pogchamp","subscription":{}}';
  await storesNothing(async () => {
    assertText(await send('webhook_callback_verification', body), 'pogchamp');
    assert.equal((await send('webhook_callback_verification', body, 'x')).status, 401);
  });
  assert.equal((await send('notification', body)).json.status, 'accepted');
});

test('zoom: a signed validation is answered with its signature', async () => {
  const token = await customToken({
    scheme: {
      header: 'x-zm-signature',
      prefix: 'v0=',
      text: 'v0:{timestamp}:{body}',
      time: 'x-zm-request-timestamp',
    },
    event: ['/event'],
  });
  const send = (plainToken: string) => {
    const body = JSON.stringify({ event: 'endpoint.url_validation', payload: { plainToken } });
    const mac = createHmac('sha256', SECRET).update(`v0:${now()}:${body}`).digest('hex');
    const headers = { 'x-zm-request-timestamp': String(now()), 'x-zm-signature': `v0=${mac}` };
    return post(token, body, headers);
  };
  const encryptedToken = createHmac('sha256', SECRET).update('qgg8vlvZRS6UYo').digest('hex');
  await storesNothing(async () => {
    const answer = await send('qgg8vlvZRS6UYo');
    assert.deepEqual(answer.json, { plainToken: 'qgg8vlvZRS6UYo', encryptedToken });
  });
  // Its signature would be that of a request.
  assert.equal((await send('v0:1700000000:{}')).json.status, 'accepted');
});

test('challenges in a body or header get back what they hold, and nothing harmful', async () => {
  const token = await customToken();
  const grid = (code: unknown) =>
    post(token, JSON.stringify([{ data: { validationCode: code } }]), {
      'aeg-event-type': 'SubscriptionValidation',
    });
  await storesNothing(async () => {
    assert.deepEqual((await grid('512d38b6-c7b8')).json, { validationResponse: '512d38b6-c7b8' });
    const monday = await post(token, '{"challenge":"3eZbrw1aBm2rZ"}');
    assert.deepEqual(monday.json, { challenge: '3eZbrw1aBm2rZ' });
    const lark = await post(token, '{"type":"url_verification","token":"t","challenge":"ajls"}');
    assert.deepEqual(lark.json, { challenge: 'ajls' });
    const okta = await ask('GET', base, {
      bearer: token,
      headers: { 'x-okta-verification-challenge': 'abc' },
    });
    assert.deepEqual(okta.json, { verification: 'abc' });
    const smartsheet = await post(token, '{"challenge":"c1f","webhookId":1}', {
      'smartsheet-hook-challenge': 'c1f',
    });
    assert.deepEqual(smartsheet.json, { smartsheetHookResponse: 'c1f' });
    for (const code of ['<script>', 'a"b', 'x'.repeat(1_025), '', 7, {}, 'é'])
      assert.equal((await grid(code)).status, 400, String(code));
  });
  const event = await post(token, '{"type":"x","challenge":"a"}');
  assert.equal(event.json.status, 'accepted');
});

test('challenges in the query get their text from custom tokens, signed or not', async () => {
  const token = await customToken();
  const signed = await customToken({ scheme: { header: 'x-hub-signature-256' } });
  const graph = 'Validation: Testing client application reachability for Request-Id: 522a-8e7e';
  const query = `&validationToken=${encodeURIComponent(graph)}`;
  await storesNothing(async () => {
    assertText(await post(token, '', { 'content-type': 'text/plain' }, query), graph);
    assert.equal((await post(signed, '', {}, query)).status, 401);
    for (const one of [token, signed]) {
      const meta = `${base}?token=${one}&hub.mode=subscribe&hub.challenge=115&hub.verify_token=x`;
      assertText(await ask('GET', meta), '115');
      assertText(await ask('GET', `${base}?token=${one}&challenge=abc`), 'abc');
      const script = `${base}?token=${one}&challenge=%3Cscript%3E`;
      assert.deepEqual((await ask('GET', script)).json, { status: 'pong' });
    }
    const github = await addToken(database, 'github');
    const other = await ask('GET', `${base}?token=${github.token}&challenge=abc`);
    assert.deepEqual(other.json, { status: 'pong' });
    assert.equal((await ask('GET', `${base}?token=wrong&challenge=abc`)).status, 401);
  });
});

test('asana: its secret is sent back and pending, and events need its confirmation', async () => {
  const { id, token } = await addToken(database, 'asana', null);
  const secret = SIGNING_SECRETS.asana;
  const body = '{"events":[{"action":"added","created_at":"2026-01-01T00:00:00Z"}]}';
  const send = (text: string) => post(token, text, signatureOf('asana', secret, text));
  await storesNothing(async () => {
    const first = await post(token, '{}', { 'x-hook-secret': secret });
    assert.deepEqual([first.status, first.headers.get('x-hook-secret')], [200, secret]);
    assert.equal((await send(body)).status, 401);
  });
  const [pending] = await findSecrets(database, id, 'pending');
  assert.equal(pending && unsealServiceSecret([key], pending), secret);
  await sql`update webhook.signing_secrets set purpose = 'verify' where token_id = ${id}`;
  assert.equal((await send(body)).json.status, 'accepted');
  assert.equal((await send(body)).json.status, 'duplicate');
  assert.deepEqual((await send('{"events":[]}')).json, { status: 'pong' });
});

test('it does not matter which page sends an event, for it carries its own credential', async () => {
  const event = { event: 'a', data: { page_id: 'p' } };
  for (const headers of [
    { origin: 'https://sender.example' },
    { 'sec-fetch-site': 'cross-site' },
  ]) {
    const sent = await ask('POST', base, { bearer: WEBHOOK_TOKEN, body: event, headers });
    assert.equal(sent.json.status, 'accepted');
    const bare = await ask('POST', base, { body: event, headers: { ...headers } });
    assert.equal(bare.status, 401);
  }
  const plain = { WEBHOOK_VARIANT: 'plain' };
  const start = (more: Headers) =>
    startGatehouse({ after }, ['webhook'], undefined, { ...plain, ...more });
  const open = await start({ WEBHOOK_TOKEN: '' });
  const guarded = await start({ WEBHOOK_TOKEN });
  const headers = { origin: 'https://evil.example' };
  const anyone = await ask('POST', `${open.url.webhook}/webhook`, { body: event, headers });
  assert.deepEqual([anyone.status, anyone.json.error.code], [403, 'cross_site']);
  const known = { bearer: WEBHOOK_TOKEN, body: event, headers };
  assert.equal((await ask('POST', `${guarded.url.webhook}/webhook`, known)).status, 200);
  assert.equal((await ask('HEAD', `${guarded.url.webhook}/webhook`, known)).status, 200);
});
