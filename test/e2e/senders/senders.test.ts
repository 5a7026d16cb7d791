/**
 * `make e2e NAME=senders`: every kind of request that a sender's own library signs or verifies is
 * accepted. What is rejected, test/unit/webhook/signatures.test.ts and test/api/webhook/ test.
 */
import assert from 'node:assert/strict';
import { createHmac, randomUUID } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { runCommand } from '../../support/commands.ts';
import { type Answer, ask } from '../../support/gatehouse.ts';
import {
  addToken,
  now,
  SAMPLES,
  type SignedSource,
  signedBy,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { launchWebhook } from '../../support/webhook.ts';
import { wordsOf } from '../../support/words.ts';
import { addPackages, createPackages } from '../tools.ts';

/**
 * Installs the current releases of the senders' own libraries, which are no dependencies of
 * Gatehouse. One at a time, so that the failure of one does not affect the others.
 */
function installLibraries(...names: readonly string[]) {
  const directory = createPackages();
  const failed = new Map<string, string>();
  for (const name of names) {
    const { output } = addPackages(directory, name);
    if (existsSync(join(directory, 'node_modules', name))) continue;
    const code = output.split('\n').find((line) => /npm (error|ERR!) code/.test(line));
    failed.set(name, `npm install ${name}: ${code ?? 'failed'}`);
  }
  assert.ok(failed.size < names.length, 'at least one could be installed');
  // Node resolves packages relative to the importing file, so the import must be in the directory.
  const loader = join(directory, 'loader.mjs');
  writeFileSync(loader, 'export const load = (name) => import(name);');
  return {
    /** Options of a test that needs a library. */
    needs: (name: string) => ({
      timeout: 60_000,
      ...(failed.has(name) ? { skip: failed.get(name) ?? '' } : {}),
    }),
    read: (file: string) => readFileSync(join(directory, 'node_modules', file), 'utf8'),
    load: async (name: string) => (await import(pathToFileURL(loader).href)).load(name),
  };
}

const { load, needs, read } = installLibraries(
  ...wordsOf(`
    standardwebhooks svix stripe square discord-interactions @octokit/webhooks-methods
    @octokit/webhooks-examples @slack/bolt @notionhq/client @linear/sdk @paddle/paddle-node-sdk
    @shopify/shopify-api @hubspot/api-client @zoom/rivet
  `),
);
const { base, database, databaseUrl, stored } = await launchWebhook();
const FORM = { 'content-type': 'application/x-www-form-urlencoded' };

type Headers = Readonly<Record<string, string>>;
type Send = (body: string, headers: Headers) => Promise<Answer>;
/** The headers with the signature of a body. */
type Sign = (body: string) => Headers | Promise<Headers>;

async function senderOf(source: SignedSource): Promise<Send> {
  const { token } = await addToken(database, source);
  return (body, headers) => ask('POST', base, { bearer: token, body, headers });
}

async function assertAccepted(answer: Answer, event: string, id: string, body: string) {
  assert.deepEqual([answer.status, answer.json?.status], [200, 'accepted'], answer.text);
  const { event: name, delivery_id, body: kept } = await stored(answer.json.id);
  assert.deepEqual([name, delivery_id, String(kept)], [event, id, body]);
}

/** Long bodies and other alphabets are signed as others are. */
const TEXTS = ['beyond ASCII: é 🎉', 'x'.repeat(50_000)];

async function assertAnyText(send: Send, sign: Sign, members: () => object = () => ({})) {
  for (const text of TEXTS) {
    const body = JSON.stringify({ type: 'thing.made', ...members(), text }, null, 2);
    assert.equal((await send(body, await sign(body))).json.status, 'accepted');
  }
}

for (const [name, prefix] of [
  ['standardwebhooks', 'webhook'],
  ['svix', 'svix'],
] as const) {
  test(`${name}: signatures of two secrets in a rotation`, needs(name), async () => {
    const { Webhook } = await load(name);
    const send = await senderOf('standard');
    const other = new Webhook(`whsec_${Buffer.alloc(32, 7).toString('base64')}`);
    const own = new Webhook(SIGNING_SECRETS.standard);
    const signAs = (id: string, body: string) => {
      const time = now();
      const at = new Date(time * 1_000);
      return {
        [`${prefix}-id`]: id,
        [`${prefix}-timestamp`]: String(time),
        [`${prefix}-signature`]: `${other.sign(id, at, body)} ${own.sign(id, at, body)} v1a,AAAA`,
      };
    };
    const id = `msg_${randomUUID()}`;
    const body = JSON.stringify({ type: 'contact.created', data: { text: 'é 🎉' } });
    const headers = signAs(id, body);
    assert.ok(own.verify(body, headers));
    await assertAccepted(await send(body, headers), 'contact.created', id, body);
    await assertAnyText(send, (text) => signAs(`msg_${text.length}`, text));
  });
}

const EXAMPLES = '@octokit/webhooks-examples';
test('github: every example, as JSON and as a form', needs(EXAMPLES), async () => {
  const { sign } = await load('@octokit/webhooks-methods');
  const send = await senderOf('github');
  const signAs = async (event: string, id: string, body: string) => ({
    'x-github-event': event,
    'x-github-delivery': id,
    'x-hub-signature-256': await sign(SIGNING_SECRETS.github, body),
  });
  const definitions: ReadonlyArray<{ name: string; examples: readonly object[] }> = JSON.parse(
    read(`${EXAMPLES}/api.github.com/index.json`),
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
      const answer = await send(body, { ...type, ...(await signAs(name, id, body)) });
      if (name === 'ping') assert.equal(answer.status, 200);
      else await assertAccepted(answer, name, id, body);
    }
  }
  await assertAnyText(send, (body) => signAs('push', `${body.length}`, body));
});

test('stripe: every type of event, and of thin event', needs('stripe'), async () => {
  const { default: Stripe } = await load('stripe');
  const stripe = new Stripe('sk_test_not_a_real_key');
  const send = await senderOf('stripe');
  const secret = SIGNING_SECRETS.stripe;
  const sign = (payload: string) => {
    const signed = { payload, secret, timestamp: now() };
    return { 'stripe-signature': stripe.webhooks.generateTestHeaderString(signed) };
  };
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
      const headers = sign(body);
      assert.equal(parse(body, headers['stripe-signature'], secret).type, type);
      await assertAccepted(await send(body, headers), type, id, body);
    }
  }
  await assertAnyText(send, sign, () => ({ id: idOf() }));
});

test('notion: both sides sign alike', needs('@notionhq/client'), async () => {
  const { signWebhookPayload } = await load('@notionhq/client');
  const verificationToken = SIGNING_SECRETS.notion;
  const sign: Sign = async (body) => ({
    'x-notion-signature': await signWebhookPayload({ body, verificationToken }),
  });
  await assertAnyText(await senderOf('notion'), sign, () => ({ id: randomUUID() }));
});

// --- Libraries that only verify: they agree with the signatures of the other tests

type Verify = (body: string, headers: Headers) => unknown;

async function verifyShopify(library: string): Promise<Verify> {
  await load(`${library}/adapters/node`);
  const { shopifyApi } = await load(library);
  const { webhooks } = shopifyApi({
    apiKey: 'not a real key',
    apiSecretKey: SIGNING_SECRETS.shopify,
    apiVersion: '2026-01',
    hostName: 'shop.example.org',
    isEmbeddedApp: true,
  });
  const kept = {
    'x-shopify-event-id': randomUUID(),
    'x-shopify-shop-domain': 'shop.myshopify.com',
    'x-shopify-api-version': '2026-04',
    'x-shopify-triggered-at': new Date().toISOString(),
    'x-shopify-handle': 'h',
    'x-shopify-action': 'update',
    'x-shopify-resource-id': 'gid://shopify/Product/1',
  };
  return async (rawBody, own) => {
    for (const prefix of ['x-shopify-', 'shopify-']) {
      const all = Object.entries({ ...kept, ...own });
      const named = all.map(([name, value]) => [name.replace('x-shopify-', prefix), value]);
      const rawRequest = { method: 'POST', url: '/webhook', headers: Object.fromEntries(named) };
      if (!(await webhooks.validate({ rawBody, rawRequest })).valid) return false;
    }
    return true;
  };
}

function testVerifier(
  source: SignedSource,
  library: string,
  open: (library: string) => Promise<Verify>,
) {
  test(`${source}: the library verifies what the other tests sign`, needs(library), async () => {
    const verify = await open(library);
    for (const text of TEXTS) {
      const { body: members, headers } = SAMPLES[source]();
      const body = JSON.stringify({ ...members, createdAt: new Date().toISOString(), text });
      assert.equal(await verify(body, { ...headers, ...signedBy(source, body) }), true);
    }
  });
}

testVerifier('shopify', '@shopify/shopify-api', verifyShopify);

testVerifier('slack', '@slack/bolt', async (library) => {
  const { isValidSlackRequest } = await load(library);
  const signingSecret = SIGNING_SECRETS.slack;
  const time = 'x-slack-request-timestamp';
  return (body, headers) =>
    isValidSlackRequest({
      signingSecret,
      body,
      headers: { ...headers, [time]: Number(headers[time]) },
    });
});

testVerifier('paddle', '@paddle/paddle-node-sdk', async (library) => {
  const { Paddle } = await load(library);
  const { webhooks } = new Paddle('not a real key');
  return (body, { 'paddle-signature': signature }) =>
    webhooks.isSignatureValid(body, SIGNING_SECRETS.paddle, signature);
});

testVerifier('discord', 'discord-interactions', async (library) => {
  const { verifyKey } = await load(library);
  return (body, { 'x-signature-ed25519': signature, 'x-signature-timestamp': time }) =>
    verifyKey(body, signature, time, SIGNING_SECRETS.discord);
});

testVerifier('linear', '@linear/sdk', async (library) => {
  const { LinearWebhookClient } = await load(`${library}/webhooks`);
  const handler = new LinearWebhookClient(SIGNING_SECRETS.linear).createHandler();
  return async (body, headers) => {
    const request = new Request('http://localhost/', { method: 'POST', body, headers });
    return (await handler(request)).status === 200;
  };
});

// --- Senders without a row of their own, as docs/custom-senders.md describes them

const SECRET = 'the signing secret of a sender';
const mac = (text: string) => createHmac('sha256', SECRET).update(text);

/** Makes a token. @returns a function that sends a request with it */
async function customSender(...description: readonly string[]): Promise<Send> {
  const words = ['token', 'create', '--source', 'custom', '--signing-secret-file', '-'];
  const environment = { DATABASE_URL: databaseUrl, WEBHOOK_SECRET };
  const { code, stdout, stderr } = await runCommand(
    [...words, ...description],
    environment,
    SECRET,
  );
  assert.equal(code, 0, stderr);
  return (body, headers) => ask('POST', base, { bearer: stdout.trim(), body, headers });
}

test('square: the notification address is a part of the text', needs('square'), async () => {
  const { WebhooksHelper } = await load('square');
  const notificationUrl = 'https://hooks.example.org/square';
  const header = 'x-square-hmacsha256-signature';
  const send = await customSender(
    ...['--signature-header', header, '--encoding', 'base64'],
    ...['--signed-text', `${notificationUrl}{body}`],
    ...['--event-name', '/type', '--delivery-id', '/event_id'],
  );
  const id = randomUUID();
  const body = JSON.stringify({ type: 'payment.made', event_id: id, data: { object: {} } });
  const signature = mac(notificationUrl + body).digest('base64');
  const signed = { requestBody: body, signatureHeader: signature, signatureKey: SECRET };
  assert.ok(await WebhooksHelper.verifySignature({ ...signed, notificationUrl }));
  await assertAccepted(await send(body, { [header]: signature }), 'payment.made', id, body);
});

test('hubspot: method, address, body and time', needs('@hubspot/api-client'), async () => {
  const { Signature } = await load('@hubspot/api-client');
  const address = 'https://hooks.example.org/hubspot';
  const send = await customSender(
    ...['--signature-header', 'X-HubSpot-Signature-v3', '--encoding', 'base64'],
    ...['--signed-text', `POST${address}{body}{timestamp}`],
    ...['--time', 'X-HubSpot-Request-Timestamp', '--event-name', '/0/subscriptionType'],
  );
  const body = JSON.stringify([{ subscriptionType: 'contact.made', objectId: 1 }]);
  const timestamp = Date.now();
  const signature = mac(`POST${address}${body}${timestamp}`).digest('base64');
  const signed = { method: 'POST', url: address, requestBody: body, timestamp, signature };
  assert.ok(Signature.isValid({ ...signed, signatureVersion: 'v3', clientSecret: SECRET }));
  const { json } = await send(body, {
    'x-hubspot-request-timestamp': `${timestamp}`,
    'x-hubspot-signature-v3': signature,
  });
  assert.equal((await stored(json.id)).event, 'contact.made');
});

test('zoom: events, and the answer to the check of the address', needs('@zoom/rivet'), async () => {
  const { AwsLambdaReceiver } = await load('@zoom/rivet/users');
  const receive = new AwsLambdaReceiver({ webhooksSecretToken: SECRET }).start();
  const send = await customSender(
    ...['--signature-header', 'x-zm-signature', '--signature-prefix', 'v0='],
    ...['--signed-text', 'v0:{timestamp}:{body}', '--time', 'x-zm-request-timestamp'],
    ...['--event-name', '/event'],
  );
  const event = { event: 'meeting.made', payload: {} };
  const payload = { plainToken: 'qgg8vlvZRS6UYooatFL8Aw' };
  for (const content of [event, { event: 'endpoint.url_validation', payload }]) {
    const body = JSON.stringify(content);
    const time = `${now()}`;
    const signature = `v0=${mac(`v0:${time}:${body}`).digest('hex')}`;
    const headers = { 'x-zm-request-timestamp': time, 'x-zm-signature': signature };
    const known = await receive({ body, headers, isBase64Encoded: false }, {});
    const { status, json } = await send(body, headers);
    assert.deepEqual([known.statusCode, status], [200, 200]);
    if (content === event) assert.equal((await stored(json.id)).event, 'meeting.made');
    else assert.deepEqual(json, JSON.parse(known.body));
  }
});
