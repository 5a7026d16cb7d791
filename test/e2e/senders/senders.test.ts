/**
 * `make e2e NAME=senders`: every kind of request that a sender's own library signs or verifies is
 * accepted, and wrongly signed ones are rejected.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { type Answer, ask } from '../../support/gatehouse.ts';
import {
  addToken,
  now,
  PUBLIC_KEYS,
  signatureOf,
  type SignedSource,
  SIGNING_SECRETS,
} from '../../support/senders.ts';
import { launchWebhook } from '../../support/webhook.ts';
import { installLibraries } from './libraries.ts';

const { load, needs, read, hasFailed } = installLibraries(
  'standardwebhooks',
  'svix',
  '@octokit/webhooks-methods',
  '@octokit/webhooks-examples',
  'stripe',
  '@slack/bolt',
  '@notionhq/client',
  '@linear/sdk',
  '@paddle/paddle-node-sdk',
  'discord-interactions',
  '@shopify/shopify-api',
);
const { sql, base, database } = await launchWebhook();
const FORM = { 'content-type': 'application/x-www-form-urlencoded' };

type Headers = Readonly<Record<string, string>>;
type Send = (body: string, headers: Headers) => Promise<Answer>;
/** @param time seconds since 1970 */
type Sign = (body: string, secret: string, time: number) => Headers | Promise<Headers>;

async function senderOf(source: SignedSource): Promise<Send> {
  const { token } = await addToken(database, source);
  return (body, headers) => ask('POST', base, { bearer: token, body, headers });
}

async function assertAccepted(answer: Answer, event: string, id: string, body: string) {
  assert.deepEqual([answer.status, answer.json?.status], [200, 'accepted'], answer.text);
  const [row] = await sql`select event, delivery_id, convert_from(body, 'utf8') as body
    from webhook.events where id = ${answer.json.id}`;
  assert.deepEqual({ ...row }, { event, delivery_id: id, body });
}

/**
 * Long bodies and other alphabets are signed as others are; what is signed otherwise is rejected.
 */
async function assertJudged(
  send: Send,
  source: SignedSource,
  sign: Sign,
  hasTime: boolean,
  members: () => object = () => ({}),
) {
  const secret = SIGNING_SECRETS[source];
  const bodyWith = (text: string) =>
    JSON.stringify({ type: 'thing.made', ...members(), text }, null, 2);
  for (const text of ['beyond ASCII: é 🎉', 'x'.repeat(50_000)]) {
    const body = bodyWith(text);
    const headers = await sign(body, secret, now());
    assert.equal((await send(body, headers)).json.status, 'accepted');
    assert.equal((await send(body, headers)).json.status, 'duplicate');
    assert.equal((await send(body.replaceAll('made', 'mode'), headers)).status, 401);
  }
  const body = bodyWith('plain');
  const times = hasTime ? [now() - 310, now() + 310] : [];
  for (const headers of [
    await sign(body, `${secret.slice(0, -4)}AAAA`, now()),
    ...(await Promise.all(times.map((time) => sign(body, secret, time)))),
  ])
    assert.equal((await send(body, headers)).status, 401, JSON.stringify(headers));
}

for (const [name, prefix] of [
  ['standardwebhooks', 'webhook'],
  ['svix', 'svix'],
] as const) {
  test(
    `${name}: signatures, two secrets in a rotation, and a repetition`,
    needs(name),
    async () => {
      const { Webhook } = await load(name);
      const send = await senderOf('standard');
      const other = new Webhook(`whsec_${Buffer.alloc(32, 7).toString('base64')}`);
      const signAs = (id: string, body: string, secret: string, time: number) => {
        const webhooks = [other, new Webhook(secret)];
        const signatures = webhooks.map((webhook) =>
          webhook.sign(id, new Date(time * 1_000), body),
        );
        return {
          [`${prefix}-id`]: id,
          [`${prefix}-timestamp`]: String(time),
          [`${prefix}-signature`]: `${signatures.join(' ')} v1a,AAAA`,
        };
      };
      const id = `msg_${randomUUID()}`;
      const body = JSON.stringify({ type: 'contact.created', data: { text: 'é 🎉' } });
      const headers = signAs(id, body, SIGNING_SECRETS.standard, now());
      assert.ok(new Webhook(SIGNING_SECRETS.standard).verify(body, headers));
      await assertAccepted(await send(body, headers), 'contact.created', id, body);
      const repeated = await send(body, signAs(id, body, SIGNING_SECRETS.standard, now() - 4));
      assert.equal(repeated.json.status, 'duplicate');
      await assertJudged(
        send,
        'standard',
        (text, secret, time) => signAs(`msg_${text.length}`, text, secret, time),
        true,
      );
    },
  );
}

test(
  'github: every example, as JSON and as a form',
  needs('@octokit/webhooks-examples'),
  async () => {
    const { sign } = await load('@octokit/webhooks-methods');
    const send = await senderOf('github');
    const signAs = async (event: string, id: string, body: string, secret: string) => ({
      'x-github-event': event,
      'x-github-delivery': id,
      'x-hub-signature-256': await sign(secret, body),
    });
    const definitions: ReadonlyArray<{ name: string; examples: readonly object[] }> = JSON.parse(
      read('@octokit/webhooks-examples/api.github.com/index.json'),
    );
    const examples = definitions.flatMap(({ name, examples }) =>
      examples.map((example) => ({ name, json: JSON.stringify(example) })),
    );
    assert.ok(examples.length > 250, String(examples.length));
    for (const { name, json } of examples) {
      const form = new URLSearchParams({ payload: json }).toString();
      for (const [body, type] of [
        [json, {}],
        [form, FORM],
      ] as const) {
        const id = randomUUID();
        const signed = await signAs(name, id, body, SIGNING_SECRETS.github);
        const answer = await send(body, { ...type, ...signed });
        if (name === 'ping') assert.equal(answer.status, 200);
        else await assertAccepted(answer, name, id, body);
      }
    }
    const signLength: Sign = (body, secret) => signAs('push', `${body.length}`, body, secret);
    await assertJudged(send, 'github', signLength, false);
  },
);

test('stripe: every type of event, and of thin event', needs('stripe'), async () => {
  const { default: Stripe } = await load('stripe');
  const stripe = new Stripe('sk_test_not_a_real_key');
  const send = await senderOf('stripe');
  const sign: Sign = (payload, secret, timestamp) => ({
    'stripe-signature': stripe.webhooks.generateTestHeaderString({ payload, secret, timestamp }),
  });
  const idOf = () => `evt_${randomUUID()}`;
  for (const [object, file, parse] of [
    ['event', 'Events.d.ts', stripe.webhooks.constructEvent.bind(stripe.webhooks)],
    ['v2.core.event', 'V2/Core/Events.d.ts', stripe.parseEventNotification.bind(stripe)],
  ] as const) {
    // The library describes each type, and has no list of them.
    const described = read(`stripe/esm/resources/${file}`);
    const found = described.matchAll(/type: '([a-z0-9_]+\.[a-z0-9_.]+)'/g);
    const types = new Set([...found].map(([, type = '']) => type));
    assert.ok(types.size > 20, `${file}: ${types.size}`);
    for (const type of types) {
      const id = idOf();
      const body = JSON.stringify({ id, object, type, created: now(), context: null }, null, 2);
      const headers = await sign(body, SIGNING_SECRETS.stripe, now());
      const parsed = parse(body, headers['stripe-signature'] ?? '', SIGNING_SECRETS.stripe);
      assert.equal(parsed.type, type);
      await assertAccepted(await send(body, headers), type, id, body);
    }
  }
  await assertJudged(send, 'stripe', sign, true, () => ({ id: idOf() }));
});

test('slack: events, commands, interactions and ssl_check', needs('@slack/bolt'), async () => {
  const { isValidSlackRequest } = await load('@slack/bolt');
  const send = await senderOf('slack');
  // This library only verifies. Both sides must agree whether a request is valid.
  const sign: Sign = (body, secret, time) => {
    const headers = signatureOf('slack', secret, body, { at: time });
    const received = { ...headers, 'x-slack-request-timestamp': time };
    const signingSecret = SIGNING_SECRETS.slack;
    const isValid = isValidSlackRequest({ signingSecret, body, headers: received });
    assert.equal(isValid, secret === signingSecret && time > now() - 300);
    return headers;
  };
  const form = (fields: Record<string, string>) => new URLSearchParams(fields).toString();
  const kinds = ['block_actions', 'shortcut', 'message_action', 'view_submission', 'view_closed'];
  const events = async () =>
    (await sql`select event from webhook.events where source = 'slack' order by received_at`).map(
      ({ event }) => String(event),
    );
  for (const [body, event] of [
    [form({ command: '/weather', text: '94070 é', trigger_id: 'one' }), ['/weather']],
    ...kinds.map((type) => {
      const payload = JSON.stringify({ type, trigger_id: randomUUID() });
      return [form({ payload }), [type]] as const;
    }),
    ['ssl_check=1&token=x', []],
  ] as const) {
    const before = await events();
    const headers = await sign(body, SIGNING_SECRETS.slack, now());
    const answer = await send(body, { ...headers, ...FORM });
    assert.deepEqual([answer.status, answer.text], [200, ''], body);
    assert.deepEqual(await events(), [...before, ...event]);
  }
  await assertJudged(send, 'slack', sign, true, () => ({ event_id: `Ev${randomUUID()}` }));
});

test('shopify: webhooks and Events', needs('@shopify/shopify-api'), async () => {
  await load('@shopify/shopify-api/adapters/node');
  const { shopifyApi } = await load('@shopify/shopify-api');
  const { webhooks } = shopifyApi({
    apiKey: 'not a real key',
    apiSecretKey: SIGNING_SECRETS.shopify,
    apiVersion: '2026-01',
    hostName: 'shop.example.org',
    isEmbeddedApp: true,
  });
  const send = await senderOf('shopify');
  const signAs = async (prefix: string, id: string, body: string, secret: string) => {
    const [mac = ''] = Object.values(signatureOf('shopify', secret, body));
    const headers = {
      [`${prefix}hmac-sha256`]: mac,
      [`${prefix}topic`]: 'Product',
      [`${prefix}webhook-id`]: id,
      [`${prefix}event-id`]: randomUUID(),
      [`${prefix}shop-domain`]: 'shop.myshopify.com',
      [`${prefix}api-version`]: '2026-04',
      [`${prefix}triggered-at`]: new Date().toISOString(),
      [`${prefix}handle`]: 'h',
      [`${prefix}action`]: 'update',
      [`${prefix}resource-id`]: 'gid://shopify/Product/1',
    };
    const rawRequest = { method: 'POST', url: '/webhook', headers };
    const { valid }: { valid?: boolean } = await webhooks.validate({ rawBody: body, rawRequest });
    assert.equal(valid, secret === SIGNING_SECRETS.shopify);
    return headers;
  };
  const body = JSON.stringify({ id: 1, title: 'é' });
  for (const prefix of ['x-shopify-', 'shopify-']) {
    const id = randomUUID();
    const headers = await signAs(prefix, id, body, SIGNING_SECRETS.shopify);
    await assertAccepted(await send(body, headers), 'Product', id, body);
    assert.equal((await send(body, headers)).json.status, 'duplicate');
  }
  const sign: Sign = (text, secret) => signAs('x-shopify-', `${text.length}`, text, secret);
  await assertJudged(send, 'shopify', sign, false);
});

test('paddle: an event, and its replay', needs('@paddle/paddle-node-sdk'), async () => {
  const { Paddle } = await load('@paddle/paddle-node-sdk');
  const { webhooks } = new Paddle('not a real key');
  const send = await senderOf('paddle');
  const sign: Sign = async (body, secret, time) => {
    const headers = signatureOf('paddle', secret, body, { at: time });
    const sent = headers['paddle-signature'] ?? '';
    // The library throws for some invalid signatures.
    const isValid = await webhooks
      .isSignatureValid(body, SIGNING_SECRETS.paddle, sent)
      .catch(() => false);
    const isRecent = Math.abs(time - now()) < 5;
    if (isRecent) assert.equal(isValid, secret === SIGNING_SECRETS.paddle);
    return headers;
  };
  const event_id = `evt_${randomUUID()}`;
  const statuses: string[] = [];
  for (const notification_id of ['ntf_01aaa', 'ntf_01bbb']) {
    const body = JSON.stringify({ event_id, event_type: 'transaction.billed', notification_id });
    const answer = await send(body, await sign(body, SIGNING_SECRETS.paddle, now()));
    statuses.push(answer.json.status);
  }
  assert.deepEqual(statuses, ['accepted', 'duplicate']);
  const members = () => ({ event_id: `evt_${randomUUID()}`, event_type: 'thing.made' });
  await assertJudged(send, 'paddle', sign, true, members);
});

test('notion: both sides sign alike', needs('@notionhq/client'), async () => {
  const { signWebhookPayload, verifyWebhookSignature } = await load('@notionhq/client');
  const sign: Sign = async (body, secret) => {
    const signature = signatureOf('notion', secret, body)['x-notion-signature'];
    const asked = { body, signature, verificationToken: secret };
    assert.equal(await verifyWebhookSignature(asked), true);
    return { 'x-notion-signature': await signWebhookPayload({ body, verificationToken: secret }) };
  };
  const members = () => ({ id: randomUUID() });
  await assertJudged(await senderOf('notion'), 'notion', sign, false, members);
});

test('discord: PING and every type of event', needs('discord-interactions'), async () => {
  const { WebhookEventType, verifyKey } = await load('discord-interactions');
  const send = await senderOf('discord');
  const key = SIGNING_SECRETS.discord;
  const types = Object.values(WebhookEventType);
  assert.ok(types.length > 2);
  const bodies = [null, ...types].map((type) => {
    const event = { type, timestamp: new Date().toISOString(), data: {} };
    return JSON.stringify({ version: 1, type: type === null ? 0 : 1, ...(type && { event }) });
  });
  const [ping = ''] = bodies;
  for (const [body, signedWith, sent] of [
    ...bodies.map((one) => [one, key, one] as const),
    [ping, PUBLIC_KEYS[1]?.hex ?? '', ping],
    [ping, key, `${ping} `],
  ] as const) {
    const headers = signatureOf('discord', signedWith, body);
    const { 'x-signature-ed25519': signature = '', 'x-signature-timestamp': time = '' } = headers;
    const isValid = await verifyKey(sent, signature, time, key);
    assert.equal(isValid, signedWith === key && sent === body);
    for (const answer of [await send(sent, headers), await send(sent, headers)])
      assert.equal(answer.status, isValid ? 204 : 401);
  }
  const rows = await sql`select event from webhook.events where source = 'discord'
    order by received_at`;
  assert.deepEqual(
    rows.map(({ event }) => event),
    types,
  );
});

/** LinearWebhookEventType of the library, which exists for its compiler only. */
const LINEAR_TYPES = [
  ...['Attachment', 'AuditEntry', 'Comment', 'Customer', 'CustomerNeed', 'Cycle', 'Document'],
  ...['Initiative', 'InitiativeUpdate', 'Issue', 'IssueLabel', 'Project', 'ProjectUpdate'],
  ...['Reaction', 'User', 'IssueSLA', 'OAuthApp', 'AppUserNotification', 'PermissionChange'],
  'AgentSessionEvent',
];
test('linear: every type of event, and late retries', needs('@linear/sdk'), async () => {
  const { LinearWebhookClient } = await load('@linear/sdk/webhooks');
  const secret = SIGNING_SECRETS.linear;
  const client = new LinearWebhookClient(secret);
  const handler = client.createHandler();
  const handled: string[] = [];
  handler.on('*', ({ type }) => {
    handled.push(type);
  });
  const send = await senderOf('linear');
  const createdAt = new Date().toISOString();
  const requestOf = (type: string, signedWith: string, ageMs: number) => {
    const webhookTimestamp = Date.now() - ageMs;
    const body = JSON.stringify({ action: 'update', type, createdAt, webhookTimestamp });
    const id = randomUUID();
    const sender = { 'linear-event': type, 'linear-delivery': id };
    return { body, id, headers: { ...signatureOf('linear', signedWith, body), ...sender } };
  };
  for (const type of LINEAR_TYPES) {
    const { body, id, headers } = requestOf(type, secret, 0);
    const request = new Request('http://localhost/', { method: 'POST', body, headers });
    assert.equal((await handler(request)).status, 200);
    const answer = await send(body, headers);
    await assertAccepted(answer, type, id, body);
    const replayed = await send(body, { ...headers, 'linear-delivery': randomUUID() });
    assert.deepEqual(replayed.json, { id: answer.json.id, status: 'duplicate' });
  }
  assert.deepEqual(handled, LINEAR_TYPES);
  // The library has no time for the retries after an hour and after six, of the same bytes.
  for (const [ageMs, signedWith, isAccepted] of [
    [3_660_000, secret, true],
    [7 * 3_600_000, secret, true],
    [9 * 3_600_000, secret, false],
    [0, 'another secret', false],
  ] as const) {
    const { body, headers } = requestOf('Issue', signedWith, ageMs);
    assert.equal((await send(body, headers)).status, isAccepted ? 200 : 401, `${ageMs} ms old`);
  }
});

test('at least one library could be installed', () => {
  assert.ok(!hasFailed('standardwebhooks') || !hasFailed('stripe'));
});
