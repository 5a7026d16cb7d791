/**
 * `make e2e NAME=senders`: Gatehouse accepts requests signed by the current releases of the
 * senders' own libraries, and rejects wrongly signed ones. The libraries are installed into a
 * temporary directory.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { ask, startGatehouse } from '../../support/gatehouse.ts';
import {
  addToken,
  now,
  openWebhook,
  PUBLIC_KEYS,
  signatureOf,
  type SignedSource,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { installLibraries, loaderOf, type Package, PACKAGES, skipWithout } from './install.ts';

const directory = makeTemporary(tmpdir(), 'gatehouse-senders');
after(() => removeTemporary(directory));
const failed = installLibraries(directory);
const load = loaderOf(directory);

const { url: databaseUrl, sql } = await createDatabase();
const gatehouse = await startGatehouse({ after }, ['webhook'], databaseUrl, { WEBHOOK_SECRET });
const database = openWebhook({ after }, databaseUrl);

/** Some libraries throw for an invalid signature. */
const agrees = async (verify: () => boolean | Promise<boolean>) => {
  try {
    return await verify();
  } catch {
    return false;
  }
};

interface SignedRequest {
  readonly body: string;
  readonly headers: Record<string, string>;
}
/** Signs a body with a secret. @param time seconds since 1970 */
type Sign = (body: string, secret: string, time: number) => Promise<SignedRequest>;

interface Subject {
  readonly name: Package;
  readonly source: SignedSource;
  /** Whether the scheme signs a time. */
  readonly signsTime: boolean;
}

function testLibrary({ name, source, signsTime }: Subject, start: () => Promise<Sign>): void {
  const options = skipWithout(failed, name);
  test(`${name}: valid ${source} signatures are accepted, others rejected`, options, async () => {
    const manifest = readFileSync(join(directory, 'node_modules', name, 'package.json'), 'utf8');
    const { version }: { version: string } = JSON.parse(manifest);
    process.stdout.write(`${name} ${version}\n`);
    const sign = await start();
    const secret = SIGNING_SECRETS[source];
    const { token } = await addToken(database, source, secret);
    const url = `${gatehouse.url.webhook}/webhook?token=${token}`;
    const send = ({ body, headers }: SignedRequest) => ask('POST', url, { body, headers });
    const bodyWith = (members: object) => {
      const id = randomUUID();
      const ids = { id: `evt_${id}`, event_id: `Ev${id}`, event_type: 'thing.made' };
      return JSON.stringify({ ...ids, type: 'thing.made', ...members }, null, 2);
    };
    for (const text of ['plain', 'beyond ASCII: é 🎉', 'x'.repeat(50_000)]) {
      const body = bodyWith({ text });
      const request = await sign(body, secret, now());
      const answer = await send(request);
      assert.deepEqual([answer.status, answer.json.status], [200, 'accepted'], answer.text);
      assert.equal((await send(request)).json.status, 'duplicate');
      const [row] =
        await sql`select source, event, body from webhook.events where id = ${answer.json.id}`;
      assert.deepEqual(
        [row?.source, row?.event, row?.body.toString()],
        [source, 'thing.made', body],
      );
      assert.equal((await send({ ...request, body: body.replaceAll('made', 'mode') })).status, 401);
    }
    const body = bodyWith({});
    const isRejected = async (usedSecret: string, time: number, what: string) =>
      assert.equal((await send(await sign(body, usedSecret, time))).status, 401, what);
    await isRejected(`${secret.slice(0, -4)}AAAA`, now(), 'another secret');
    if (signsTime)
      for (const offset of [-310, 310])
        await isRejected(secret, now() + offset, `${offset} seconds off`);
  });
}

interface StandardLibrary {
  readonly Webhook: new (secret: string) => { sign(id: string, time: Date, body: string): string };
}
for (const [name, prefix] of [
  ['standardwebhooks', 'webhook'],
  ['svix', 'svix'],
] as const) {
  testLibrary({ name, source: 'standard', signsTime: true }, async () => {
    const { Webhook } = await load<StandardLibrary>(name);
    return async (body, secret, time) => {
      const id = `msg_${randomUUID()}`;
      const signature = new Webhook(secret).sign(id, new Date(time * 1000), body);
      const headers = {
        [`${prefix}-id`]: id,
        [`${prefix}-timestamp`]: String(time),
        [`${prefix}-signature`]: signature,
      };
      return { body, headers };
    };
  });
}

interface GitHubLibrary {
  sign(secret: string, body: string): Promise<string>;
}
testLibrary({ name: '@octokit/webhooks-methods', source: 'github', signsTime: false }, async () => {
  const { sign } = await load<GitHubLibrary>('@octokit/webhooks-methods');
  return async (body, secret) => {
    const signature = await sign(secret, body);
    const event = { 'x-github-event': 'thing.made', 'x-github-delivery': randomUUID() };
    return { body, headers: { ...event, 'x-hub-signature-256': signature } };
  };
});

interface StripeLibrary {
  readonly default: new (key: string) => {
    webhooks: {
      generateTestHeaderString(options: {
        payload: string;
        secret: string;
        timestamp: number;
      }): string;
    };
  };
}
testLibrary({ name: 'stripe', source: 'stripe', signsTime: true }, async () => {
  const { default: Stripe } = await load<StripeLibrary>('stripe');
  const { webhooks } = new Stripe('sk_test_not_a_real_key');
  return async (payload, secret, timestamp) => {
    const signature = webhooks.generateTestHeaderString({ payload, secret, timestamp });
    return { body: payload, headers: { 'stripe-signature': signature } };
  };
});

interface SlackLibrary {
  isValidSlackRequest(request: {
    signingSecret: string;
    body: string;
    headers: Record<string, string | number>;
  }): boolean;
}
testLibrary({ name: '@slack/bolt', source: 'slack', signsTime: true }, async () => {
  const { isValidSlackRequest } = await load<SlackLibrary>('@slack/bolt');
  // This library only verifies. Requests are signed here, and both sides must agree whether they
  // are valid.
  return async (body, secret, time) => {
    const headers = signatureOf('slack', secret, body, { at: time });
    const received = { ...headers, 'x-slack-request-timestamp': time };
    const isValid = isValidSlackRequest({
      signingSecret: SIGNING_SECRETS.slack,
      body,
      headers: received,
    });
    assert.equal(isValid, secret === SIGNING_SECRETS.slack && time > now() - 300);
    return { body, headers };
  };
});

interface NotionLibrary {
  signWebhookPayload(options: { body: string; verificationToken: string }): Promise<string>;
  verifyWebhookSignature(request: {
    body: string;
    signature: string | undefined;
    verificationToken: string;
  }): Promise<boolean>;
}
testLibrary({ name: '@notionhq/client', source: 'notion', signsTime: false }, async () => {
  const { signWebhookPayload, verifyWebhookSignature } =
    await load<NotionLibrary>('@notionhq/client');
  return async (body, secret) => {
    const ours = signatureOf('notion', secret, body)['x-notion-signature'];
    assert.equal(
      await verifyWebhookSignature({ body, signature: ours, verificationToken: secret }),
      true,
    );
    const signature = await signWebhookPayload({ body, verificationToken: secret });
    return { body, headers: { 'x-notion-signature': signature } };
  };
});

interface LinearLibrary {
  readonly LinearWebhookClient: new (secret: string) => {
    verify(body: Buffer, signature: string, timestamp?: number): boolean;
  };
}
/** The time is in the body, so the body is signed with it. */
test(
  '@linear/sdk: both sides agree whether a request is valid, and its late retries are',
  skipWithout(failed, '@linear/sdk'),
  async () => {
    const { LinearWebhookClient } = await load<LinearLibrary>('@linear/sdk/webhooks');
    const secret = SIGNING_SECRETS.linear;
    const { token } = await addToken(database, 'linear', secret);
    const client = new LinearWebhookClient(secret);
    // The library has no time for the retries after an hour and after six, of the same bytes.
    for (const [ageMs, signedWith, isRetry] of [
      [0, secret, false],
      [3_660_000, secret, true],
      [7 * 3_600_000, secret, true],
      [9 * 3_600_000, secret, false],
      [0, 'another secret', false],
    ] as const) {
      const webhookTimestamp = Date.now() - ageMs;
      const body = JSON.stringify({ action: 'create', type: 'Issue', webhookTimestamp });
      const signature = signatureOf('linear', signedWith, body);
      const sent = signature['linear-signature'] ?? '';
      const isValid = await agrees(() => client.verify(Buffer.from(body), sent, webhookTimestamp));
      const { status } = await ask('POST', `${gatehouse.url.webhook}/webhook`, {
        bearer: token,
        body,
        headers: { ...signature, 'linear-event': 'Issue', 'linear-delivery': randomUUID() },
      });
      assert.equal(status === 200, isValid || isRetry, `${ageMs} ms old`);
    }
  },
);

interface PaddleLibrary {
  readonly Paddle: new (key: string) => {
    webhooks: {
      isSignatureValid(body: string, secret: string, signature: string): Promise<boolean>;
    };
  };
}
testLibrary({ name: '@paddle/paddle-node-sdk', source: 'paddle', signsTime: true }, async () => {
  const { Paddle } = await load<PaddleLibrary>('@paddle/paddle-node-sdk');
  const { webhooks } = new Paddle('not a real key');
  return async (body, secret, time) => {
    const headers = signatureOf('paddle', secret, body, { at: time });
    const sent = headers['paddle-signature'] ?? '';
    const isValid = await agrees(() =>
      webhooks.isSignatureValid(body, SIGNING_SECRETS.paddle, sent),
    );
    const isRecent = Math.abs(time - now()) < 5;
    if (isRecent) assert.equal(isValid, secret === SIGNING_SECRETS.paddle);
    return { body, headers };
  };
});

interface DiscordLibrary {
  verifyKey(body: string, signature: string, time: string, key: string): Promise<boolean>;
}
test(
  'discord-interactions: both sides agree whether a request is valid',
  skipWithout(failed, 'discord-interactions'),
  async () => {
    const { verifyKey } = await load<DiscordLibrary>('discord-interactions');
    const key = SIGNING_SECRETS.discord;
    const { token } = await addToken(database, 'discord', key);
    const body = JSON.stringify({ version: 1, type: 1, event: { type: 'ENTITLEMENT_CREATE' } });
    const other = PUBLIC_KEYS[1]?.hex ?? '';
    for (const [signedWith, sent] of [
      [key, body],
      [other, body],
      [key, `${body} `],
    ] as const) {
      const headers = signatureOf('discord', signedWith, body);
      const isValid = await verifyKey(
        sent,
        headers['x-signature-ed25519'] ?? '',
        headers['x-signature-timestamp'] ?? '',
        key,
      );
      const answer = await ask('POST', `${gatehouse.url.webhook}/webhook`, {
        bearer: token,
        body: sent,
        headers,
      });
      assert.equal(answer.status, isValid ? 204 : 401);
    }
  },
);

interface ShopifyLibrary {
  shopifyApi(settings: object): {
    webhooks: { validate(request: { rawBody: string; rawRequest: object }): Promise<unknown> };
  };
}
testLibrary({ name: '@shopify/shopify-api', source: 'shopify', signsTime: false }, async () => {
  await load('@shopify/shopify-api/adapters/node');
  const { shopifyApi } = await load<ShopifyLibrary>('@shopify/shopify-api');
  const { webhooks } = shopifyApi({
    apiKey: 'not a real key',
    apiSecretKey: SIGNING_SECRETS.shopify,
    apiVersion: '2026-01',
    hostName: 'shop.example.org',
    isEmbeddedApp: true,
  });
  // This library only verifies, as the one of Slack.
  return async (body, secret) => {
    const headers = {
      ...signatureOf('shopify', secret, body),
      'x-shopify-topic': 'thing.made',
      'x-shopify-webhook-id': randomUUID(),
      'x-shopify-shop-domain': 'shop.myshopify.com',
      'x-shopify-api-version': '2026-01',
    };
    const verdict = await webhooks.validate({
      rawBody: body,
      rawRequest: { method: 'POST', url: '/webhook', headers },
    });
    const { valid }: { valid?: boolean } = Object(verdict);
    assert.equal(valid, secret === SIGNING_SECRETS.shopify, JSON.stringify(verdict));
    return { body, headers };
  };
});

test('at least one library could be installed', () => {
  assert.ok(failed.size < PACKAGES.length, [...failed.values()].join('\n'));
});
