/**
 * `make test-senders`: the senders' own libraries, as their registry has them today, sign requests that a real Gatehouse
 * accepts, and refuse what it refuses. They are installed beside the project for as long as this runs.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import type { SourceName } from '../../src/webhook/sources.ts';
import { createDatabase } from '../../test/support/database.ts';
import { ask, startGatehouse } from '../../test/support/gatehouse.ts';
import { addToken, now, openWebhook, signatureOf, SIGNING_SECRETS, WEBHOOK_SECRET } from '../../test/support/senders.ts';
import { makeTemporary, removeTemporary } from '../temporary.ts';
import { installLibraries, type Package, PACKAGES } from './install.ts';

const directory = makeTemporary(tmpdir(), 'gatehouse-senders');
after(() => removeTemporary(directory));
const missing = installLibraries(directory);

const { url: databaseUrl, sql } = await createDatabase();
const gatehouse = await startGatehouse({ after }, ['webhook'], databaseUrl, { WEBHOOK_SECRET });
const database = openWebhook({ after }, databaseUrl);

// Libraries are found from where the asking program lies.
const beside = join(directory, 'beside.mjs');
writeFileSync(beside, 'export const load = (name) => import(name);');

/** What a library exports. */
async function load<Exports>(name: Package): Promise<Exports> {
  const program: { load(name: string): Promise<Exports> } = await import(pathToFileURL(beside).href);
  return program.load(name);
}

interface Request {
  readonly body: string;
  readonly headers: Record<string, string>;
}
/** A request with this body, signed by a library with this secret at this time. */
type Sign = (body: string, secret: string, at: number) => Promise<Request>;

/** @param stale whether the scheme signs a time */
function library(name: Package, source: Exclude<SourceName, 'generic'>, stale: boolean, start: () => Promise<Sign>): void {
  const reason = missing.get(name);
  test(`${name}: what it signs is accepted as ${source}, and what it signs wrongly is not`, reason === undefined ? {} : { skip: reason }, async () => {
    const manifest: { version: string } = JSON.parse(readFileSync(join(directory, 'node_modules', name, 'package.json'), 'utf8'));
    process.stdout.write(`${name} ${manifest.version}\n`);
    const sign = await start();
    const secret = SIGNING_SECRETS[source];
    const { token } = await addToken(database, source, secret);
    const send = ({ body, headers }: Request) => ask('POST', `${gatehouse.url.webhook}/webhook?token=${token}`, { body, headers });
    for (const text of ['plain', 'beyond ASCII: é 🎉', 'x'.repeat(50_000)]) {
      const body = JSON.stringify({ id: `evt_${randomUUID()}`, event_id: `Ev${randomUUID()}`, type: 'thing.made', text }, null, 2);
      const request = await sign(body, secret, now());
      const answer = await send(request);
      assert.deepEqual([answer.status, answer.json.status], [200, 'accepted'], answer.text);
      assert.equal((await send(request)).json.status, 'duplicate');
      const [row] = await sql`select source, event, body from webhook.events where id = ${answer.json.id}`;
      assert.deepEqual([row?.source, row?.event, row?.body.toString()], [source, 'thing.made', body]);
      assert.equal((await send({ ...request, body: body.replace('made', 'mode') })).status, 401);
    }
    const body = JSON.stringify({ id: `evt_${randomUUID()}`, event_id: `Ev${randomUUID()}`, type: 'thing.made' });
    assert.equal((await send(await sign(body, `${secret.slice(0, -4)}AAAA`, now()))).status, 401, 'another secret');
    if (stale) for (const off of [-310, 310]) assert.equal((await send(await sign(body, secret, now() + off))).status, 401, `${off} seconds off`);
  });
}

interface Webhooks {
  readonly Webhook: new (secret: string) => { sign(id: string, at: Date, body: string): string };
}
for (const [name, prefix] of [['standardwebhooks', 'webhook'], ['svix', 'svix']] as const) {
  library(name, 'standard', true, async () => {
    const { Webhook } = await load<Webhooks>(name);
    return async (body, secret, at) => {
      const id = `msg_${randomUUID()}`;
      return { body, headers: { [`${prefix}-id`]: id, [`${prefix}-timestamp`]: String(at), [`${prefix}-signature`]: new Webhook(secret).sign(id, new Date(at * 1000), body) } };
    };
  });
}

library('@octokit/webhooks-methods', 'github', false, async () => {
  const { sign } = await load<{ sign(secret: string, body: string): Promise<string> }>('@octokit/webhooks-methods');
  return async (body, secret) => ({ body, headers: { 'x-github-event': 'thing.made', 'x-github-delivery': randomUUID(), 'x-hub-signature-256': await sign(secret, body) } });
});

interface StripeLibrary {
  readonly default: new (key: string) => { webhooks: { generateTestHeaderString(wish: { payload: string; secret: string; timestamp: number }): string } };
}
library('stripe', 'stripe', true, async () => {
  const { default: Stripe } = await load<StripeLibrary>('stripe');
  const { webhooks } = new Stripe('sk_test_of_nobody');
  return async (payload, secret, timestamp) => ({ body: payload, headers: { 'stripe-signature': webhooks.generateTestHeaderString({ payload, secret, timestamp }) } });
});

interface SlackLibrary {
  isValidSlackRequest(request: { signingSecret: string; body: string; headers: Record<string, string | number> }): boolean;
}
library('@slack/bolt', 'slack', true, async () => {
  const { isValidSlackRequest } = await load<SlackLibrary>('@slack/bolt');
  // It signs nothing: what it is to find valid, or not, is signed here, and must be judged alike there.
  return async (body, secret, at) => {
    const headers = signatureOf('slack', secret, body, { at });
    const isRight = secret === SIGNING_SECRETS.slack && at > now() - 300;
    assert.equal(isValidSlackRequest({ signingSecret: SIGNING_SECRETS.slack, body, headers: { ...headers, 'x-slack-request-timestamp': at } }), isRight);
    return { body, headers };
  };
});

interface NotionLibrary {
  signWebhookPayload(wish: { body: string; verificationToken: string }): Promise<string>;
  verifyWebhookSignature(request: { body: string; signature: string | undefined; verificationToken: string }): Promise<boolean>;
}
library('@notionhq/client', 'notion', false, async () => {
  const { signWebhookPayload, verifyWebhookSignature } = await load<NotionLibrary>('@notionhq/client');
  return async (body, secret) => {
    const ours = signatureOf('notion', secret, body)['x-notion-signature'];
    assert.equal(await verifyWebhookSignature({ body, signature: ours, verificationToken: secret }), true);
    return { body, headers: { 'x-notion-signature': await signWebhookPayload({ body, verificationToken: secret }) } };
  };
});

test('at least one library could be had', () => {
  assert.ok(missing.size < PACKAGES.length, [...missing.values()].join('\n'));
});
