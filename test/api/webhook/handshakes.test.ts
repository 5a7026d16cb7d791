/**
 * Handshakes of senders whose signing secret Gatehouse has or gets, what needs WEBHOOK_SECRET, and
 * checks of an address by senders: methods, challenges, and pages of other sites.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sealSecret, unsealServiceSecret } from '../../../src/platform/crypto/service-secret.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import {
  acceptPending,
  findSecrets,
  fingerprint,
  rotateSecret,
} from '../../../src/webhook/store/signing-secrets.ts';
import { listTokens } from '../../../src/webhook/store/tokens.ts';
import { type Answer, ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { whileLocked } from '../../support/hold.ts';
import {
  addToken,
  openWebhook,
  signatureOf,
  type SignedSource,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { test } from '../../support/until.ts';
import { launchWebhook, macOf, outcomeOf } from '../../support/webhook.ts';

const { sql, databaseUrl, database, base, customToken, storesNothing, ...gatehouse } =
  await launchWebhook();
const key = createSigningKey(WEBHOOK_SECRET);
const github = await addToken(database, 'github');
const slack = await addToken(database, 'slack');
const stripe = await addToken(database, 'stripe');

/** @param secret null for a request without a signature */
function send(
  source: SignedSource,
  token: string,
  body: unknown,
  secret: string | null = SIGNING_SECRETS[source],
  headers: Readonly<Record<string, string>> = {},
  to = base,
) {
  const text = JSON.stringify(body);
  const signature = secret === null ? {} : signatureOf(source, secret, text);
  return ask('POST', to, { bearer: token, body: text, headers: { ...signature, ...headers } });
}
const REFUSED = '401 unauthorized';

test('github and slack: a signed check is answered, any other is 401, and none is an event', () =>
  storesNothing(async () => {
    const headers = { 'x-github-event': 'ping', 'x-github-delivery': randomUUID() };
    const ping = (secret?: string | null) =>
      send('github', github.token, { zen: 'Keep it logically awesome.' }, secret, headers);
    const { status, text } = await ping();
    assert.deepEqual([status, text], [200, '{"status":"pong"}']);
    for (const wrong of [null, 'wrong secret']) assert.equal(outcomeOf(await ping(wrong)), REFUSED);
    const body = { token: 'x', challenge: '3eZbrw1aB1"<é', type: 'url_verification' };
    const { json } = await send('slack', slack.token, body);
    assert.deepEqual(json, { challenge: body.challenge });
    assert.equal(outcomeOf(await send('slack', slack.token, body, null)), REFUSED);
  }));

const NOTION = 'secret_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG';
const DAY = 86_400;

/** A token of Notion, what can be sent with it, and what is pending for it. */
async function notionOf(secret: string | null) {
  const { id, token } = await addToken(database, 'notion', secret);
  return {
    id,
    token,
    hand: async (verification_token: unknown, more: object = {}) =>
      outcomeOf(await send('notion', token, { ...more, verification_token }, null)),
    event: async (signedUnder: string | null) =>
      outcomeOf(await send('notion', token, { id: randomUUID(), type: 'x' }, signedUnder)),
    /** @returns the pending secret; null if there is none */
    async pending() {
      const [found] = await findSecrets(database, id, 'pending');
      const isShown = (await listTokens(database)).find((one) => one.id === id)?.pending;
      assert.equal(isShown, found !== undefined);
      return found ? unsealServiceSecret([key], found) : null;
    },
    accept: (print: string) => acceptPending(database, id, [key], print, DAY),
  };
}

test('notion: its secret is pending until its fingerprint is confirmed, and the old one expires later', async () => {
  const { id, hand, event, pending, accept } = await notionOf(null);
  const seen = 'secret_that_was_seen';
  const since = 'secret_that_came_since';
  await storesNothing(async () => {
    assert.equal(await pending(), null);
    for (const secret of [NOTION, null, '']) assert.equal(await event(secret), REFUSED);
  });
  assert.equal(await hand(NOTION), 'pending');
  assert.deepEqual([await pending(), await event(NOTION)], [NOTION, REFUSED]);
  assert.equal(await accept(fingerprint(NOTION)), true);
  assert.deepEqual([await pending(), await accept(fingerprint(NOTION))], [null, false]);
  assert.deepEqual([await event(NOTION), await event(null)], ['accepted', REFUSED]);

  for (const secret of [seen, since]) assert.equal(await hand(secret), 'pending');
  assert.equal(await pending(), since, 'the last one');
  const outcomes = async () => [await event(NOTION), await event(seen), await event(since)];
  const right = fingerprint(since);
  for (const wrong of [fingerprint(seen), fingerprint(NOTION), '', right.slice(0, -1), `${right}0`])
    assert.equal(await accept(wrong), false);
  assert.deepEqual(await outcomes(), ['accepted', REFUSED, REFUSED]);
  assert.equal(await accept(right), true);
  assert.deepEqual(await outcomes(), ['accepted', REFUSED, 'accepted']);
  const ended = await sql`update webhook.signing_secrets set expires_at = now()
    where token_id = ${id} and expires_at > now() + interval '23 hours'
      and expires_at <= now() + interval '24 hours' returning 1`;
  assert.equal(ended.length, 1);
  assert.deepEqual(await outcomes(), [REFUSED, REFUSED, 'accepted']);

  assert.ok(!(gatehouse.stdout() + gatehouse.stderr()).includes(NOTION.slice(0, 20)));
  const [row] = await sql`select string_agg(s::text, '') as all from webhook.signing_secrets s`;
  assert.ok(!String(row?.all).includes(Buffer.from(NOTION).toString('hex').slice(0, 20)));
});

test('a request that does not consist of a signing secret must be signed', async () => {
  const { token, hand, pending } = await notionOf(NOTION);
  await storesNothing(async () => {
    assert.equal(await hand('secret_x', { id: randomUUID(), type: 'x' }), REFUSED);
    for (const value of [7, null, '', 'x'.repeat(256), 'secret_\u001b[2J', 'secret x y z'])
      assert.equal(await hand(value), REFUSED);
    const handed = { verification_token: NOTION };
    assert.equal(outcomeOf(await send('notion', token, [handed], null)), REFUSED);
    for (const other of [github.token, slack.token, stripe.token, 'a wrong token'])
      assert.equal(outcomeOf(await send('notion', other, handed, null)), REFUSED);
  });
  assert.equal(await pending(), null);
});

test('of two signing secrets that are set at once, one replaces the other', async (t) => {
  const { id } = await addToken(database, 'github');
  const rotations = await whileLocked(
    { url: databaseUrl, sql },
    'webhook.signing_secrets',
    2,
    () =>
      ['first', 'second'].map((secret) =>
        rotateSecret(openWebhook(t, databaseUrl), id, DAY, sealSecret(key, secret)),
      ),
    (blocker) => blocker`commit`,
  );
  assert.deepEqual(rotations, [true, true]);
  const rows = await sql`select expires_at from webhook.signing_secrets where token_id = ${id}`;
  const lasting = rows.filter(({ expires_at }) => expires_at === null);
  assert.deepEqual([rows.length, lasting.length], [3, 1]);
});

test('without WEBHOOK_SECRET, signed requests get 503, and the log says so', async (t) => {
  const { token } = await notionOf(NOTION);
  const other = await startGatehouse(t, ['webhook'], databaseUrl);
  const errors = () =>
    other
      .log()
      .filter(({ message }) => /^WEBHOOK_SECRET is missing or wrong/.test(String(message)));
  const [atStart, ...more] = errors();
  assert.deepEqual([atStart?.level, atStart?.key_id, more.length], ['error', key.id, 0]);
  assert.ok(Number(atStart?.secrets) > 0);
  const to = `${other.url.webhook}/webhook`;
  await storesNothing(async () => {
    for (const answer of [
      await send('stripe', stripe.token, { id: 'evt_1', type: 'x' }, undefined, {}, to),
      await send('github', github.token, {}, undefined, { 'x-github-event': 'ping' }, to),
      await send('notion', token, { verification_token: 'secret_y' }, null, {}, to),
    ]) {
      assert.equal(outcomeOf(answer), '503 key_unknown');
      assert.match(answer.json.error.message, /Nothing was stored/);
    }
    const unsigned = await send('stripe', stripe.token, { id: 'evt_1' }, null, {}, to);
    assert.equal(outcomeOf(unsigned), REFUSED, 'a mistake of the sender');
  });
  assert.equal(errors().length, 4);
});

// --- Checks of an address

type Headers = Readonly<Record<string, string>>;
const post = (token: string, body: string, headers: Headers = {}, query = '') =>
  ask('POST', `${base}?token=${token}${query}`, { body, headers: { ...headers } });
const get = (token: string, query = '', headers: Headers = {}) =>
  ask('GET', `${base}?token=${token}${query}`, { headers: { ...headers } });
function assertText(answer: Answer, text: string) {
  assert.deepEqual([answer.status, answer.text], [200, text]);
  assert.equal(answer.headers.get('content-type'), 'text/plain; charset=utf-8');
  assert.equal(answer.headers.get('x-content-type-options'), 'nosniff');
}

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
    const { json } = await get(github.token, '&more=%F0%9F%8E%89&challenge=abc');
    assert.deepEqual(json, { status: 'pong' });
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
