/**
 * Programs that verify the sender's signature themselves, with the sender's own library, work
 * unchanged behind Gatehouse.
 */
import assert from 'node:assert/strict';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { runCommand } from '../../support/commands.ts';
import { ask, launch } from '../../support/gatehouse.ts';
import { listenOn } from '../../support/ports.ts';
import { now, signatureOf, SIGNING_SECRETS, WEBHOOK_SECRET } from '../../support/senders.ts';
import { installLibraries } from './libraries.ts';

const { load, needs } = installLibraries('@octokit/webhooks-methods', 'stripe', '@slack/bolt');

const SETTINGS = { WEBHOOK_SECRET, WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on' };
const { url, sql, databaseUrl } = await launch(['webhook'], SETTINGS);

interface Handler {
  readonly library: '@octokit/webhooks-methods' | 'stripe' | '@slack/bolt';
  readonly event: object;
  /** Beside the signature. */
  readonly headers?: Readonly<Record<string, string>>;
  /** @throws or resolves to false if the request is not valid */
  verify(body: string, headers: IncomingHttpHeaders): Promise<boolean>;
}

const HANDLERS: Readonly<Record<'github' | 'stripe' | 'slack', Handler>> = {
  github: {
    library: '@octokit/webhooks-methods',
    event: { ref: 'refs/heads/main', text: 'é "\\u00e9" 🎉' },
    headers: { 'x-github-event': 'push', 'x-github-delivery': 'one' },
    async verify(body, headers) {
      const { verify } = await load('@octokit/webhooks-methods');
      return verify(SIGNING_SECRETS.github, body, String(headers['x-hub-signature-256']));
    },
  },
  stripe: {
    library: 'stripe',
    event: { id: 'evt_1', object: 'event', type: 'invoice.paid' },
    async verify(body, headers) {
      const { default: Stripe } = await load('stripe');
      const { webhooks } = new Stripe('sk_test_not_a_real_key');
      const signature = String(headers['stripe-signature']);
      return webhooks.constructEvent(body, signature, SIGNING_SECRETS.stripe).id === 'evt_1';
    },
  },
  slack: {
    library: '@slack/bolt',
    event: { type: 'event_callback', event_id: 'Ev1', event: { type: 'app_mention' } },
    async verify(body, headers) {
      const { isValidSlackRequest } = await load('@slack/bolt');
      const received = {
        'x-slack-signature': String(headers['x-slack-signature']),
        'x-slack-request-timestamp': Number(headers['x-slack-request-timestamp']),
      };
      return isValidSlackRequest({
        signingSecret: SIGNING_SECRETS.slack,
        body,
        headers: received,
      });
    },
  },
};

for (const source of ['github', 'stripe', 'slack'] as const) {
  const { library, event, headers = {}, verify } = HANDLERS[source];
  test(`a program with ${library} accepts what is forwarded`, needs(library), async (t) => {
    const handler = createServer(async (request, response) => {
      const isValid = await verify(await text(request), request.headers).catch(() => false);
      response.writeHead(isValid ? 200 : 400).end();
    });
    const target = ['--forward', `http://127.0.0.1:${await listenOn(t, handler)}`];
    const words = ['token', 'create', '--source', source, '--signing-secret-file', '-'];
    const environment = { ...SETTINGS, DATABASE_URL: databaseUrl };
    const secret = SIGNING_SECRETS[source];
    const made = await runCommand([...words, ...target, '--keep-signature'], environment, secret);
    assert.equal(made.code, 0, made.stderr);
    const body = JSON.stringify(event, null, 1);
    const signed = signatureOf(source, secret, body, { at: now() });
    const sent = await ask('POST', `${url.webhook}/webhook?token=${made.stdout.trim()}`, {
      body,
      headers: { 'content-type': 'application/json', ...signed, ...headers },
    });
    assert.equal(sent.status, 200, sent.text);
    assert.equal(await statusOfAttempt(sent.json.id), 200);
  });
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
