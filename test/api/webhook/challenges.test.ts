/** Checks of an address by senders: methods, challenges, and pages of other sites. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import { type Answer, ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { addToken, signatureOf, SIGNING_SECRETS } from '../../support/senders.ts';
import { CUSTOM_SECRET, launchWebhook } from '../../support/webhook.ts';

const { sql, base, database, customToken, storesNothing } = await launchWebhook();

type Headers = Readonly<Record<string, string>>;
const post = (token: string, body: string, headers: Headers = {}, query = '') =>
  ask('POST', `${base}?token=${token}${query}`, { body, headers: { ...headers } });
const get = (token: string, query = '', headers: Headers = {}) =>
  ask('GET', `${base}?token=${token}${query}`, { headers: { ...headers } });
const macOf = (text: string, secret = CUSTOM_SECRET) =>
  createHmac('sha256', secret).update(text).digest('hex');
function assertText(answer: Answer, text: string) {
  assert.deepEqual([answer.status, answer.text], [200, text]);
  assert.equal(answer.headers.get('content-type'), 'text/plain; charset=utf-8');
  assert.equal(answer.headers.get('x-content-type-options'), 'nosniff');
}

test('HEAD and GET find out whether a token is valid', async () => {
  const { token } = await addToken(database, 'github');
  const valid = await get(token, '&more=%F0%9F%8E%89');
  assert.deepEqual([valid.status, valid.text], [200, '{"status":"pong"}']);
  for (const [query, status] of [
    [`?token=${token}`, 200],
    ['?token=wrong', 401],
    ['', 401],
  ] as const)
    assert.equal((await ask('HEAD', base + query)).status, status);
});

test('twitch and zoom: only a signed challenge is answered, and anything else is an event', async () => {
  const token = await customToken({
    scheme: { header: 'x-s' },
    event: ['/event', 'twitch-eventsub-subscription-type'],
  });
  const send = (body: object, headers: Headers = {}, secret?: string) => {
    const text = JSON.stringify(body);
    return post(token, text, { 'x-s': macOf(text, secret), ...headers });
  };
  const twitch = (type: string, secret?: string) =>
    send(
      { challenge: 'pogchamp', subscription: {} },
      {
        'twitch-eventsub-message-type': type,
        'twitch-eventsub-subscription-type': 'channel.follow',
      },
      secret,
    );
  const zoomOf = (plainToken: string) => ({
    event: 'endpoint.url_validation',
    payload: { plainToken },
  });
  const plainToken = 'qgg8vlvZRS6UYo';
  await storesNothing(async () => {
    assertText(await twitch('webhook_callback_verification'), 'pogchamp');
    assert.equal((await twitch('webhook_callback_verification', 'x')).status, 401);
    const { json } = await send(zoomOf(plainToken));
    assert.deepEqual(json, { plainToken, encryptedToken: macOf(plainToken) });
  });
  assert.equal((await twitch('notification')).json.status, 'accepted');
  // Its signature would be that of a request.
  assert.equal((await send(zoomOf('v0:1700000000:1'))).json.status, 'accepted');
  const unsigned = await customToken({ event: ['/event'] });
  const { json } = await post(unsigned, JSON.stringify(zoomOf(plainToken)));
  assert.equal(json.status, 'accepted', 'there is no secret to sign it with');
});

test('challenges in a body or header get back what they hold, and nothing harmful', async () => {
  const token = await customToken();
  const grid = (code: unknown) =>
    post(token, JSON.stringify([{ data: { validationCode: code } }]), {
      'aeg-event-type': 'SubscriptionValidation',
    });
  await storesNothing(async () => {
    for (const [answer, expected] of [
      [grid('512d38b6-c7b8'), { validationResponse: '512d38b6-c7b8' }],
      [post(token, '{"challenge":"3eZb"}'), { challenge: '3eZb' }],
      [
        post(token, '{"type":"url_verification","token":"t","challenge":"aj"}'),
        { challenge: 'aj' },
      ],
      [get(token, '', { 'x-okta-verification-challenge': 'abc' }), { verification: 'abc' }],
      [
        post(token, '{"challenge":"c1f","webhookId":1}', { 'smartsheet-hook-challenge': 'c1f' }),
        { smartsheetHookResponse: 'c1f' },
      ],
    ] as const)
      assert.deepEqual((await answer).json, expected);
    for (const code of ['<script>', 'a"b', 'x'.repeat(1_025), '', 7, {}, 'é'])
      assert.equal((await grid(code)).status, 400, String(code));
  });
  const event = await post(token, '{"type":"x","challenge":"a"}');
  assert.equal(event.json.status, 'accepted');
});

test('challenges in the query get their text from custom tokens, signed or not', async () => {
  const token = await customToken();
  const signed = await customToken({ scheme: { header: 'x-hub-signature-256' } });
  const github = await addToken(database, 'github');
  const graph = 'Validation: Testing client application reachability for Request-Id: 522a-8e7e';
  const query = `&validationToken=${encodeURIComponent(graph)}`;
  await storesNothing(async () => {
    assertText(await post(token, '', { 'content-type': 'text/plain' }, query), graph);
    assert.equal((await post(signed, '', {}, query)).status, 401);
    for (const one of [token, signed]) {
      assertText(await get(one, '&hub.mode=subscribe&hub.challenge=115&hub.verify_token=x'), '115');
      assertText(await get(one, '&challenge=abc'), 'abc');
      assert.deepEqual((await get(one, '&challenge=%3Cscript%3E')).json, { status: 'pong' });
    }
    assert.deepEqual((await get(github.token, '&challenge=abc')).json, { status: 'pong' });
    assert.equal((await get('wrong', '&challenge=abc')).status, 401);
  });
});

test('asana: its secret is sent back and pending, and events need its confirmation', async () => {
  const { id, token } = await addToken(database, 'asana', null);
  const secret = SIGNING_SECRETS.asana;
  const body = '{"events":[{"action":"added","created_at":"2026-01-01T00:00:00Z"}]}';
  const send = (text: string) => post(token, text, signatureOf('asana', secret, text));
  const first = await post(token, '{}', { 'x-hook-secret': secret });
  assert.deepEqual([first.status, first.headers.get('x-hook-secret')], [200, secret]);
  await storesNothing(async () => assert.equal((await send(body)).status, 401));
  await sql`update webhook.signing_secrets set purpose = 'verify' where token_id = ${id}`;
  assert.equal((await send(body)).json.status, 'accepted');
  assert.equal((await send(body)).json.status, 'duplicate');
  assert.deepEqual((await send('{"events":[]}')).json, { status: 'pong' });
});

test('it does not matter which page sends an event, for it carries its own credential', async () => {
  const body = { event: 'a', data: { page_id: 'p' } };
  for (const headers of [{ origin: 'https://evil.example' }, { 'sec-fetch-site': 'cross-site' }]) {
    const known = { bearer: WEBHOOK_TOKEN, body, headers };
    assert.equal((await ask('POST', base, known)).json.status, 'accepted');
    assert.equal((await ask('HEAD', base, known)).status, 200);
    assert.equal((await ask('POST', base, { body, headers })).status, 401);
  }
});
