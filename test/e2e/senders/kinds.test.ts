/**
 * Every kind of request that a sender makes, as far as its library knows them: all published
 * examples of GitHub, commands and interactions of Slack, both forms of Shopify, replays of Paddle,
 * and the types of events of Stripe, Discord and Linear.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { ask } from '../../support/gatehouse.ts';
import {
  addToken,
  now,
  signedBy,
  type SignedSource,
  SIGNING_SECRETS,
} from '../../support/senders.ts';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { installLibraries, loaderOf, skipWithout } from './install.ts';
import { launchWebhook } from '../../support/webhook.ts';

const LIBRARIES = [
  '@octokit/webhooks-methods',
  '@octokit/webhooks-examples',
  '@slack/bolt',
  '@shopify/shopify-api',
  '@paddle/paddle-node-sdk',
  'stripe',
  'standardwebhooks',
  'svix',
  'discord-interactions',
  '@linear/sdk',
] as const;
const directory = makeTemporary(tmpdir(), 'gatehouse-kinds');
after(() => removeTemporary(directory));
const failed = installLibraries(directory, LIBRARIES);
const load = loaderOf(directory);

const { sql, base, database } = await launchWebhook();
const FORM = { 'content-type': 'application/x-www-form-urlencoded' };

type Headers = Readonly<Record<string, string>>;
async function senderOf(source: SignedSource) {
  const { token } = await addToken(database, source);
  return (body: string, headers: Headers) => ask('POST', base, { bearer: token, body, headers });
}
async function eventOf(id: string) {
  const [row] = await sql`select event, delivery_id, body from webhook.events where id = ${id}`;
  return { event: row?.event, id: row?.delivery_id, body: String(row?.body) };
}

interface GitHubLibrary {
  sign(secret: string, body: string): Promise<string>;
}
interface Definition {
  readonly name: string;
  readonly examples: readonly object[];
}
test(
  'github: every example, as JSON and as a form',
  skipWithout(failed, '@octokit/webhooks-examples'),
  async () => {
    const { sign } = await load<GitHubLibrary>('@octokit/webhooks-methods');
    const file = join(
      directory,
      'node_modules/@octokit/webhooks-examples/api.github.com/index.json',
    );
    const definitions: readonly Definition[] = JSON.parse(readFileSync(file, 'utf8'));
    const send = await senderOf('github');
    let count = 0;
    for (const { name, examples } of definitions) {
      for (const example of examples) {
        const json = JSON.stringify(example);
        const form = new URLSearchParams({ payload: json }).toString();
        for (const [body, type] of [
          [json, {}],
          [form, FORM],
        ] as const) {
          const id = randomUUID();
          const answer = await send(body, {
            ...type,
            'x-github-event': name,
            'x-github-delivery': id,
            'x-hub-signature-256': await sign(SIGNING_SECRETS.github, body),
          });
          assert.equal(answer.status, 200, `${name}: ${answer.text}`);
          if (name !== 'ping')
            assert.deepEqual(await eventOf(answer.json.id), { event: name, id, body });
          count += 1;
        }
      }
    }
    assert.ok(count > 500, String(count));
  },
);

interface SlackLibrary {
  isValidSlackRequest(request: {
    signingSecret: string;
    body: string;
    headers: Record<string, string | number>;
  }): boolean;
}
test(
  'slack: commands, interactions and ssl_check',
  skipWithout(failed, '@slack/bolt'),
  async () => {
    const { isValidSlackRequest } = await load<SlackLibrary>('@slack/bolt');
    const send = await senderOf('slack');
    const interaction = (type: string) =>
      new URLSearchParams({
        payload: JSON.stringify({ type, trigger_id: randomUUID() }),
      }).toString();
    const command = new URLSearchParams({
      command: '/weather',
      text: '94070 é',
      trigger_id: randomUUID(),
    }).toString();
    const kinds = ['block_actions', 'shortcut', 'message_action', 'view_submission', 'view_closed'];
    for (const [body, event] of [
      [command, '/weather'],
      ...kinds.map((type) => [interaction(type), type] as const),
      ['ssl_check=1&token=x', null],
    ] as const) {
      const at = now();
      const headers = signedBy('slack', body, { at });
      const received = { ...headers, 'x-slack-request-timestamp': at };
      const signed = { signingSecret: SIGNING_SECRETS.slack, body, headers: received };
      assert.equal(isValidSlackRequest(signed), true);
      const before = await sql`select id from webhook.events where source = 'slack'`;
      const answer = await send(body, { ...headers, ...FORM });
      assert.deepEqual([answer.status, answer.text], [200, ''], body);
      const known = new Set(before.map(({ id }) => id));
      const rows = await sql`select id, event from webhook.events where source = 'slack'`;
      const added = rows.filter(({ id }) => !known.has(id)).map((row) => row.event);
      assert.deepEqual(added, event === null ? [] : [event]);
    }
  },
);

interface ShopifyLibrary {
  shopifyApi(settings: object): {
    webhooks: { validate(request: { rawBody: string; rawRequest: object }): Promise<unknown> };
  };
}
test('shopify: webhooks and Events', skipWithout(failed, '@shopify/shopify-api'), async () => {
  await load('@shopify/shopify-api/adapters/node');
  const { shopifyApi } = await load<ShopifyLibrary>('@shopify/shopify-api');
  const { webhooks } = shopifyApi({
    apiKey: 'not a real key',
    apiSecretKey: SIGNING_SECRETS.shopify,
    apiVersion: '2026-01',
    hostName: 'shop.example.org',
    isEmbeddedApp: true,
  });
  const send = await senderOf('shopify');
  const body = JSON.stringify({ id: 1, title: 'é' });
  const [mac = ''] = Object.values(signedBy('shopify', body));
  for (const prefix of ['x-shopify-', 'shopify-']) {
    const id = randomUUID();
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
    const verdict = await webhooks.validate({ rawBody: body, rawRequest });
    const { valid }: { valid?: boolean } = Object(verdict);
    assert.equal(valid, true, `${prefix} ${JSON.stringify(verdict)}`);
    const answer = await send(body, headers);
    assert.equal(answer.json.status, 'accepted', answer.text);
    assert.deepEqual(await eventOf(answer.json.id), { event: 'Product', id, body });
    assert.equal((await send(body, headers)).json.status, 'duplicate');
  }
});

interface PaddleLibrary {
  readonly Paddle: new (key: string) => {
    webhooks: {
      isSignatureValid(body: string, secret: string, signature: string): Promise<boolean>;
    };
  };
}
test('paddle: a replay of an event', skipWithout(failed, '@paddle/paddle-node-sdk'), async () => {
  const { Paddle } = await load<PaddleLibrary>('@paddle/paddle-node-sdk');
  const { webhooks } = new Paddle('not a real key');
  const send = await senderOf('paddle');
  const event_id = `evt_${randomUUID()}`;
  const statuses: string[] = [];
  for (const notification_id of ['ntf_01aaa', 'ntf_01bbb']) {
    const body = JSON.stringify({ event_id, event_type: 'transaction.billed', notification_id });
    const headers = signedBy('paddle', body);
    const sent = headers['paddle-signature'] ?? '';
    assert.equal(await webhooks.isSignatureValid(body, SIGNING_SECRETS.paddle, sent), true);
    statuses.push((await send(body, headers)).json.status);
  }
  assert.deepEqual(statuses, ['accepted', 'duplicate']);
});

interface StripeLibrary {
  readonly default: new (key: string) => {
    webhooks: {
      generateTestHeaderString(options: { payload: string; secret: string }): string;
      constructEvent(body: string, header: string, secret: string): { type: string };
    };
    parseEventNotification(body: string, header: string, secret: string): { type: string };
  };
}
test('stripe: every type of event, and of thin event', skipWithout(failed, 'stripe'), async () => {
  const { default: Stripe } = await load<StripeLibrary>('stripe');
  const stripe = new Stripe('sk_test_not_a_real_key');
  const secret = SIGNING_SECRETS.stripe;
  const send = await senderOf('stripe');
  /** The library describes each type, and has no list of them. */
  const typesIn = (file: string) => {
    const text = readFileSync(join(directory, 'node_modules/stripe/esm/resources', file), 'utf8');
    return new Set(
      [...text.matchAll(/type: '([a-z0-9_]+\.[a-z0-9_.]+)'/g)].map(([, type]) => type),
    );
  };
  const kinds = [
    ['event', 'Events.d.ts', stripe.webhooks.constructEvent.bind(stripe.webhooks)],
    ['v2.core.event', 'V2/Core/Events.d.ts', stripe.parseEventNotification.bind(stripe)],
  ] as const;
  for (const [object, file, parse] of kinds) {
    const types = typesIn(file);
    assert.ok(types.size > 20, `${file}: ${types.size}`);
    for (const type of types) {
      const id = `evt_${randomUUID()}`;
      const payload = JSON.stringify({ id, object, type, created: now(), context: null }, null, 2);
      const header = stripe.webhooks.generateTestHeaderString({ payload, secret });
      assert.equal(parse(payload, header, secret).type, type);
      const answer = await send(payload, { 'stripe-signature': header });
      assert.equal(answer.json.status, 'accepted', answer.text);
      assert.deepEqual(await eventOf(answer.json.id), { event: type, id, body: payload });
    }
  }
});

interface StandardLibrary {
  readonly Webhook: new (secret: string) => {
    sign(id: string, time: Date, body: string): string;
    verify(body: string, headers: Headers): unknown;
  };
}
for (const [name, prefix] of [
  ['standardwebhooks', 'webhook'],
  ['svix', 'svix'],
] as const) {
  test(
    `${name}: two secrets in a rotation, and a repetition`,
    skipWithout(failed, name),
    async () => {
      const { Webhook } = await load<StandardLibrary>(name);
      const ours = new Webhook(SIGNING_SECRETS.standard);
      const other = new Webhook(`whsec_${Buffer.alloc(32, 7).toString('base64')}`);
      const send = await senderOf('standard');
      const id = `msg_${randomUUID()}`;
      const body = JSON.stringify({ type: 'contact.created', data: { text: 'é 🎉' } });
      const statuses: string[] = [];
      for (const age of [0, 4]) {
        const time = new Date((now() - age) * 1_000);
        const signatures = [other, ours].map((webhook) => webhook.sign(id, time, body));
        const headers = {
          [`${prefix}-id`]: id,
          [`${prefix}-timestamp`]: String(now() - age),
          [`${prefix}-signature`]: `${signatures.join(' ')} v1a,AAAA`,
        };
        assert.deepEqual(ours.verify(body, headers), JSON.parse(body));
        statuses.push((await send(body, headers)).json.status);
      }
      assert.deepEqual(statuses, ['accepted', 'duplicate']);
    },
  );
}

interface DiscordLibrary {
  readonly WebhookEventType: Readonly<Record<string, string>>;
  verifyKey(body: string, signature: string, time: string, key: string): Promise<boolean>;
}
test(
  'discord: PING and every type of event',
  skipWithout(failed, 'discord-interactions'),
  async () => {
    const { WebhookEventType, verifyKey } = await load<DiscordLibrary>('discord-interactions');
    const send = await senderOf('discord');
    const eventsNow = async () =>
      (
        await sql`select event from webhook.events where source = 'discord' order by received_at`
      ).map(({ event }) => event);
    const types = Object.values(WebhookEventType);
    assert.ok(types.length > 2);
    for (const type of [null, ...types]) {
      const event = { type, timestamp: new Date().toISOString(), data: {} };
      const body = JSON.stringify({
        version: 1,
        type: 1,
        ...(type === null ? { type: 0 } : { event }),
      });
      const headers = signedBy('discord', body);
      const signature = headers['x-signature-ed25519'] ?? '';
      const time = headers['x-signature-timestamp'] ?? '';
      assert.equal(await verifyKey(body, signature, time, SIGNING_SECRETS.discord), true);
      for (const answer of [await send(body, headers), await send(body, headers)])
        assert.deepEqual([answer.status, answer.text], [204, '']);
    }
    assert.deepEqual(await eventsNow(), types);
  },
);

/** LinearWebhookEventType of the library, which exists for its compiler only. */
const LINEAR_TYPES = [
  ...['Attachment', 'AuditEntry', 'Comment', 'Customer', 'CustomerNeed', 'Cycle', 'Document'],
  ...['Initiative', 'InitiativeUpdate', 'Issue', 'IssueLabel', 'Project', 'ProjectUpdate'],
  ...['Reaction', 'User', 'IssueSLA', 'OAuthApp', 'AppUserNotification', 'PermissionChange'],
  'AgentSessionEvent',
];
interface LinearLibrary {
  readonly LinearWebhookClient: new (secret: string) => {
    createHandler(): ((request: Request) => Promise<Response>) & {
      on(type: string, handle: (payload: { type: string }) => void): void;
    };
  };
}
test('linear: every type of event', skipWithout(failed, '@linear/sdk'), async () => {
  const { LinearWebhookClient } = await load<LinearLibrary>('@linear/sdk/webhooks');
  const handler = new LinearWebhookClient(SIGNING_SECRETS.linear).createHandler();
  const handled: string[] = [];
  handler.on('*', ({ type }) => {
    handled.push(type);
  });
  const send = await senderOf('linear');
  for (const type of LINEAR_TYPES) {
    const id = randomUUID();
    const createdAt = new Date().toISOString();
    const body = JSON.stringify({
      action: 'update',
      type,
      createdAt,
      webhookTimestamp: Date.now(),
    });
    const headers = {
      ...signedBy('linear', body),
      'linear-event': type,
      'linear-delivery': id,
    };
    const request = new Request('http://localhost/', { method: 'POST', body, headers });
    assert.equal((await handler(request)).status, 200);
    const answer = await send(body, headers);
    assert.deepEqual(await eventOf(answer.json.id), { event: type, id, body });
    const replayed = await send(body, { ...headers, 'linear-delivery': randomUUID() });
    assert.deepEqual(replayed.json, { id: answer.json.id, status: 'duplicate' });
  }
  assert.deepEqual(handled, LINEAR_TYPES);
});
