/**
 * Handlers that verify the sender's signature themselves, unchanged behind Gatehouse: of octokit,
 * Stripe and Slack, each with the sender's own library.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createServer, type RequestListener } from 'node:http';
import { text } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { runCommand } from '../../support/commands.ts';
import { ask, launch } from '../../support/gatehouse.ts';
import {
  now,
  signatureOf,
  type SignedSource,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { installLibraries } from './libraries.ts';
import { listenOn } from '../../support/ports.ts';

const { load, needs } = installLibraries('@octokit/webhooks', 'stripe', '@slack/bolt');

const SETTINGS = { WEBHOOK_SECRET, WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on' };
const { url, sql, databaseUrl } = await launch(['webhook'], SETTINGS);

/** @returns the address of a program with this handler */
async function listen(handler: RequestListener): Promise<string> {
  return `http://127.0.0.1:${await listenOn({ after }, createServer(handler))}`;
}

/** Sends an event of this source to Gatehouse, for a handler. @returns the event's id */
async function sendTo(
  handler: string,
  source: SignedSource,
  body: string,
  more: Readonly<Record<string, string>> = {},
): Promise<string> {
  const secret = SIGNING_SECRETS[source];
  const words = ['token', 'create', '--source', source, '--signing-secret-file', '-'];
  const target = ['--forward', handler, '--keep-signature'];
  const environment = { ...SETTINGS, DATABASE_URL: databaseUrl };
  const made = await runCommand([...words, ...target], environment, secret);
  assert.equal(made.code, 0, made.stderr);
  const sent = await ask('POST', `${url.webhook}/webhook?token=${made.stdout.trim()}`, {
    body,
    headers: {
      'content-type': 'application/json',
      ...signatureOf(source, secret, body, { at: now() }),
      ...more,
    },
  });
  assert.equal(sent.status, 200, sent.text);
  return sent.json.id;
}

/** Waits for the first attempt. @returns the status that the handler answered */
async function statusOfAttempt(id: string): Promise<number> {
  for (;;) {
    const [row] = await sql`
      select answer_status from webhook.outcomes where event_id = ${id}
      union all select answer_status from webhook.failures where event_id = ${id}`;
    if (row) return Number(row.answer_status);
    await sql`select pg_sleep(0.1)`;
  }
}

test('the middleware of octokit', needs('@octokit/webhooks'), async () => {
  const { Webhooks, createNodeMiddleware } = await load('@octokit/webhooks');
  const webhooks = new Webhooks({ secret: SIGNING_SECRETS.github });
  const handled: unknown[] = [];
  webhooks.on('push', ({ id, payload }) => handled.push([id, payload]));
  const handler = await listen(createNodeMiddleware(webhooks, { path: '/hooks' }));
  const delivery = randomUUID();
  const headers = { 'x-github-event': 'push', 'x-github-delivery': delivery };
  const event = { ref: 'refs/heads/main', text: 'é "\\u00e9" 🎉' };
  const id = await sendTo(`${handler}/hooks`, 'github', JSON.stringify(event, null, 1), headers);
  assert.equal(await statusOfAttempt(id), 200);
  assert.deepEqual(handled, [[delivery, event]]);
});

test('a handler that calls constructEvent of Stripe', needs('stripe'), async () => {
  const { default: Library } = await load('stripe');
  const { webhooks } = new Library('sk_test_not_a_real_key');
  const handled: string[] = [];
  const handler = await listen(async (request, response) => {
    const signature = String(request.headers['stripe-signature']);
    const body = await text(request);
    try {
      handled.push(webhooks.constructEvent(body, signature, SIGNING_SECRETS.stripe).id);
      response.end();
    } catch {
      response.writeHead(400).end();
    }
  });
  const body = JSON.stringify({ id: 'evt_1', object: 'event', type: 'invoice.paid' }, null, 2);
  const id = await sendTo(handler, 'stripe', body);
  assert.equal(await statusOfAttempt(id), 200);
  assert.deepEqual(handled, ['evt_1']);
});

test('an app of Slack Bolt', needs('@slack/bolt'), async () => {
  const { App, HTTPReceiver } = await load('@slack/bolt');
  const receiver = new HTTPReceiver({ signingSecret: SIGNING_SECRETS.slack });
  const authorize = async () => ({ botToken: 'xoxb-1', botId: 'B1', botUserId: 'U1' });
  const app = new App({ receiver, authorize });
  const handled: string[] = [];
  app.event('app_mention', async ({ body }) => {
    handled.push(body.event_id);
  });
  const handler = await listen(receiver.requestListener);
  const event = { type: 'app_mention', user: 'U2', text: 'hello', channel: 'C1', ts: '1' };
  const body = JSON.stringify({
    type: 'event_callback',
    event_id: 'Ev1',
    event_time: now(),
    team_id: 'T1',
    api_app_id: 'A1',
    event,
  });
  const id = await sendTo(`${handler}/slack/events`, 'slack', body);
  assert.equal(await statusOfAttempt(id), 200);
  assert.deepEqual(handled, ['Ev1']);
});
