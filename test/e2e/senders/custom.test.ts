/**
 * Senders without a row of their own, described by a token of the source `custom` as
 * docs/custom-senders.md says, each beside its own library: both sides must agree whether a request
 * is valid.
 */
import assert from 'node:assert/strict';
import { createHmac, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { runCommand } from '../../support/commands.ts';
import { type Answer, ask, launch } from '../../support/gatehouse.ts';
import { now, WEBHOOK_SECRET } from '../../support/senders.ts';
import { installLibraries } from './libraries.ts';

const { load, needs } = installLibraries('square', '@hubspot/api-client', '@zoom/rivet');
const SECRET = 'the signing secret of a sender';
const { sql, databaseUrl, url } = await launch(['webhook'], { WEBHOOK_SECRET });

interface SignedRequest {
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Makes a token. @returns a function that sends a request with it */
async function senderOf(name: string, description: readonly string[]) {
  const { code, stdout, stderr } = await runCommand(
    [
      ...['token', 'create', '--name', name, '--source', 'custom'],
      ...['--signing-secret-file', '-', ...description],
    ],
    { DATABASE_URL: databaseUrl, WEBHOOK_SECRET },
    SECRET,
  );
  assert.equal(code, 0, stderr);
  const bearer = stdout.trim();
  return ({ body, headers }: SignedRequest) =>
    ask('POST', `${url.webhook}/webhook`, { bearer, body, headers });
}

/** A valid request and others, which the library and Gatehouse must judge alike. */
async function compare(
  send: (request: SignedRequest) => Promise<Answer>,
  isValid: (request: SignedRequest) => Promise<boolean>,
  sign: (body: string, secret: string) => SignedRequest,
  body: string,
) {
  const request = sign(body, SECRET);
  const wrong = [
    { ...request, body: body.replace('made', 'mode') },
    { ...request, body: `${body} ` },
    sign(body, 'another secret'),
  ];
  assert.equal(await isValid(request), true);
  assert.equal((await send(request)).status, 200);
  for (const other of wrong) {
    assert.equal(await isValid(other), false);
    assert.equal((await send(other)).status, 401);
  }
}

const hmac = (secret: string, text: string) => createHmac('sha256', secret).update(text);
const eventNamed = async (name: string) =>
  (await sql`select source, delivery_id from webhook.events where event = ${name}`).map((row) => ({
    ...row,
  }));

test('square: the notification address is a part of the text', needs('square'), async () => {
  const { WebhooksHelper } = await load('square');
  const notificationUrl = 'https://hooks.example.org/square';
  const header = 'x-square-hmacsha256-signature';
  const send = await senderOf('square', [
    ...['--signature-header', header, '--encoding', 'base64'],
    ...['--signed-text', `${notificationUrl}{body}`],
    ...['--event-name', '/type', '--delivery-id', '/event_id'],
  ]);
  const id = randomUUID();
  await compare(
    send,
    ({ body, headers }) =>
      WebhooksHelper.verifySignature({
        requestBody: body,
        signatureHeader: headers[header] ?? '',
        signatureKey: SECRET,
        notificationUrl,
      }),
    (body, secret) => {
      const signature = hmac(secret, notificationUrl + body).digest('base64');
      return { body, headers: { [header]: signature } };
    },
    JSON.stringify({ type: 'payment.made', event_id: id, data: { object: {} } }),
  );
  assert.deepEqual(await eventNamed('payment.made'), [{ source: 'custom', delivery_id: id }]);
});

test(
  'hubspot: method, address, body and time are signed',
  needs('@hubspot/api-client'),
  async () => {
    const { Signature } = await load('@hubspot/api-client');
    const address = 'https://hooks.example.org/hubspot';
    const send = await senderOf('hubspot', [
      ...['--signature-header', 'X-HubSpot-Signature-v3', '--encoding', 'base64'],
      ...['--signed-text', `POST${address}{body}{timestamp}`],
      ...['--time', 'X-HubSpot-Request-Timestamp', '--event-name', '/0/subscriptionType'],
    ]);
    const signAt = (time: number) => (body: string, secret: string) => ({
      body,
      headers: {
        'x-hubspot-request-timestamp': `${time}`,
        'x-hubspot-signature-v3': hmac(secret, `POST${address}${body}${time}`).digest('base64'),
      },
    });
    const isValid = async ({ body, headers }: SignedRequest) =>
      Signature.isValid({
        method: 'POST',
        signatureVersion: 'v3',
        url: address,
        requestBody: body,
        signature: headers['x-hubspot-signature-v3'] ?? '',
        clientSecret: SECRET,
        timestamp: Number(headers['x-hubspot-request-timestamp']),
      });
    const body = JSON.stringify([{ subscriptionType: 'contact.made', objectId: 1 }]);
    await compare(send, isValid, signAt(Date.now()), body);
    assert.deepEqual(await eventNamed('contact.made'), [{ source: 'custom', delivery_id: null }]);
    const old = signAt(Date.now() - 310_000)(body, SECRET);
    await assert.rejects(isValid(old), /Timestamp is invalid/);
    assert.equal((await send(old)).status, 401);
  },
);

test(
  'zoom: events are verified, and the check of the address is answered',
  needs('@zoom/rivet'),
  async () => {
    const { AwsLambdaReceiver } = await load('@zoom/rivet/users');
    const receiver = new AwsLambdaReceiver({ webhooksSecretToken: SECRET });
    const receive = receiver.start();
    const send = await senderOf('zoom', [
      ...['--signature-header', 'x-zm-signature', '--signature-prefix', 'v0='],
      ...['--signed-text', 'v0:{timestamp}:{body}', '--time', 'x-zm-request-timestamp'],
      ...['--event-name', '/event'],
    ]);
    const sign = (body: string, secret: string) => {
      const time = now();
      const signature = hmac(secret, `v0:${time}:${body}`).digest('hex');
      return {
        body,
        headers: { 'x-zm-request-timestamp': `${time}`, 'x-zm-signature': `v0=${signature}` },
      };
    };
    const isValid = async ({ body, headers }: SignedRequest) => {
      // The library signs the body as it writes it again, so a space at its end changes nothing.
      if (JSON.stringify(JSON.parse(body)) !== body) return false;
      const { statusCode } = await receive({ body, headers, isBase64Encoded: false }, {});
      return statusCode === 200;
    };
    await compare(send, isValid, sign, JSON.stringify({ event: 'meeting.made', payload: {} }));
    assert.equal((await eventNamed('meeting.made')).length, 1);
    const check = {
      event: 'endpoint.url_validation',
      payload: { plainToken: 'qgg8vlvZRS6UYooatFL8Aw' },
    };
    const { body, headers } = sign(JSON.stringify(check), SECRET);
    const known = await receive({ body, headers, isBase64Encoded: false }, {});
    const answer = await send({ body, headers });
    assert.equal(answer.status, 200);
    assert.deepEqual(answer.json, JSON.parse(known.body));
    assert.equal((await eventNamed('endpoint.url_validation')).length, 0, 'no event');
  },
);
