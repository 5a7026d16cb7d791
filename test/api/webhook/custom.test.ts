/** Tokens that describe how their sender signs, and forms. */
import assert from 'node:assert/strict';
import { createHmac, randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { runCommand } from '../../support/commands.ts';
import { ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { addToken, now, signedBy, WEBHOOK_SECRET } from '../../support/senders.ts';
import { launchWebhook } from '../../support/webhook.ts';

const directory = makeTemporary(tmpdir(), 'gatehouse-custom');
after(() => removeTemporary(directory));
const SECRET = 'the secret of a custom sender';
const file = join(directory, 'secret');
writeFileSync(file, SECRET);

const { sql, databaseUrl, database, base } = await launchWebhook();
const environment = { DATABASE_URL: databaseUrl, WEBHOOK_SECRET };
const run = (words: readonly string[]) => runCommand(['token', ...words], environment);

const BASE = ['create', '--source', 'custom', '--signing-secret-file', file];
const SHOP = [
  ['--signature-header', 'X-Shop-Signature'],
  ['--signature-prefix', 'v1='],
  ['--encoding', 'base64'],
  ['--algorithm', 'hmac-sha512'],
  ['--signed-text', 'POST {timestamp}.{id}.{body}!'],
  ['--time', 'X-Shop-Time'],
  ['--event-name', '/data/~1type'],
  ['--delivery-id', 'X-Shop-Id'],
];

function signed(body: string, { at = now(), secret = SECRET } = {}) {
  const id: string = randomUUID();
  const text = `POST ${at}.${id}.${body}!`;
  const signature = createHmac('sha512', secret).update(text).digest('base64');
  const headers = {
    'x-shop-signature': `v1=${signature}`,
    'x-shop-time': `${at}`,
    'x-shop-id': id,
  };
  return { body, headers };
}
const post = (bearer: string, request: { body: string; headers: Record<string, string> }) =>
  ask('POST', base, { bearer, ...request });

test('a custom sender is verified as its token describes', async () => {
  const created = await run([...BASE, '--name', 'shop', ...SHOP.flat()]);
  assert.equal(created.code, 0, created.stderr);
  const token = created.stdout.trim();
  const request = signed('{"data":{"/type":"order.made"}}');
  const answer = await post(token, request);
  assert.deepEqual([answer.status, answer.json.status], [200, 'accepted'], answer.text);
  const [row] = await sql`select source, event, delivery_id from webhook.events
    where id = ${answer.json.id}`;
  assert.deepEqual(
    { ...row },
    {
      source: 'custom',
      event: 'order.made',
      delivery_id: request.headers['x-shop-id'],
    },
  );
  assert.equal((await post(token, request)).json.status, 'duplicate');
  const refused = async (wrong: typeof request, what: string) =>
    assert.equal((await post(token, wrong)).status, 401, what);
  await refused({ ...request, body: request.body.replace('made', 'mode') }, 'another body');
  await refused(signed(request.body, { secret: 'another secret' }), 'another secret');
  await refused(signed(request.body, { at: now() - 301 }), 'an old time');
  await refused({ ...request, headers: { ...request.headers, 'x-shop-id': 'x' } }, 'another id');
  const listed = await run(['list']);
  assert.match(
    listed.stdout,
    /x-shop-signature: hmac-sha512 of POST \{timestamp\}\.\{id\}\.\{body\}!/,
  );
});

test('a description that could not verify is refused, and no token is made', async () => {
  const tokens = async () => (await sql`select from webhook.tokens`).length;
  const before = await tokens();
  const header = ['--signature-header', 'X-Sig'];
  const event = ['--event-name', '/type'];
  for (const [words, said] of [
    [[...header], /needs --event-name/],
    [
      [...header, ...event, '--signed-text', '{body}{nonce}'],
      /has \{nonce\}; it may have \{body\}/,
    ],
    [[...header, ...event, '--signed-text', 'x'], /must have \{body\} once/],
    [[...header, ...event, '--signed-text', '{body}{body}'], /must have \{body\} once/],
    [[...header, '--event-name', '/a~2'], /JSON pointer/],
    [[...header, '--event-name', '/'.padEnd(256, 'a')], /at most 255 characters/],
    [[...header, '--event-name', 'a b'], /name of a header/],
    [[...header, ...event, '--algorithm', 'md5'], /must be one of hmac-sha256/],
    [
      [...header, ...event, '--encoding', 'base32'],
      /must be one of hex, hex-upper, base64, base64url/,
    ],
    [[...header, ...event, '--signed-text', '{timestamp}{body}'], /--time must name a header/],
    [
      [...header, ...event, '--signed-text', '{id}{body}', '--delivery-id', '/id'],
      /must name a header/,
    ],
    [[...header, ...event, '--time', 'X-Time'], /protects only if it is signed/],
    [[...header, ...event, '--algorithm', 'ed25519'], /is one line of the public key of 32 bytes/],
  ] as const) {
    const { code, stderr } = await run([...BASE, ...words]);
    assert.equal(code, 2, stderr);
    assert.match(stderr, said);
  }
  const other = await run(['create', '--source', 'generic', ...header]);
  assert.match(other.stderr, /--signature-header needs --source custom/);
  assert.equal(await tokens(), before);
});

test('token test says whether a captured request verifies, and what differs', async () => {
  const created = await run([...BASE, '--name', 'captured', ...SHOP.flat()]);
  assert.equal(created.code, 0, created.stderr);
  const check = async ({ body, headers }: ReturnType<typeof signed>) => {
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    const request = join(directory, 'request');
    const head = 'POST /webhook HTTP/1.1\r\ncontent-type: application/json\r\n';
    writeFileSync(request, `${head}${lines.join('')}\r\n${body}`);
    return run(['test', 'captured', '--request', request]);
  };
  const body = '{"data":{"/type":"order.made"}}';
  const old = await check(signed(body, { at: now() - 86_400 }));
  assert.equal(old.code, 0, old.stderr);
  assert.match(old.stdout, /signature: valid\nevent name: order.made/);
  const request = signed(body);
  const longer = await check({ ...request, body: `${body}\n` });
  assert.equal(longer.code, 1);
  assert.match(longer.stderr, /without the line break at the end/);
  const text = createHmac('sha256', SECRET).update(body).digest('base64');
  const plain = await check({
    body,
    headers: { ...request.headers, 'x-shop-signature': `v1=${text}` },
  });
  assert.match(
    plain.stderr,
    /with --signed-text '\{body\}' --algorithm hmac-sha256 --encoding base64/,
  );
  const missing = await check({ body, headers: { ...request.headers, 'x-shop-time': '' } });
  assert.match(missing.stderr, /lacks the header x-shop-time/);
});

test('a form is stored as it was sent, by sources that send forms only', async () => {
  const { token } = await addToken(database, 'github');
  const type = 'application/x-www-form-urlencoded';
  const send = (bearer: string, body: string, more: Record<string, string> = {}) =>
    post(bearer, {
      body,
      headers: {
        'content-type': type,
        'x-github-event': 'push',
        ...signedBy('github', body),
        ...more,
      },
    });
  const body = `payload=${encodeURIComponent('{"data":{"page_id":"p é"}}')}&a=%26`;
  const answer = await send(token, body);
  assert.equal(answer.status, 200, answer.text);
  const [row] = await sql`select event, body, headers from webhook.events
    where id = ${answer.json.id}`;
  assert.deepEqual(
    [row?.event, row?.body.toString(), row?.headers['content-type']],
    ['push', body, type],
  );
  for (const wrong of ['payload=%7B', 'payload=%5B1', 'a=\0', 'a&'.repeat(1_001)])
    assert.equal((await send(token, wrong)).status, 400, wrong.slice(0, 20));
  const generic = await send(WEBHOOK_TOKEN, 'event=x');
  assert.equal(generic.status, 415);
  assert.match(generic.json.error.message, /application\/json/);
  const stripe = await addToken(database, 'stripe');
  const signature = signedBy('stripe', 'type=x');
  assert.equal((await send(stripe.token, 'type=x', signature)).status, 415);
});
