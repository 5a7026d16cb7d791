/**
 * Every kind of request that a sender makes, as far as its library knows them: all published
 * examples of GitHub, commands and interactions of Slack, both forms of Shopify, replays of Paddle.
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
