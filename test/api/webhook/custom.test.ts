/**
 * Tokens of the source `custom`, which describe how their sender signs and names its events.
 * `transcripts/custom.txt` has what is refused.
 */
import assert from 'node:assert/strict';
import { createHmac, randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { runCommand } from '../../support/commands.ts';
import { makeDirectory } from '../../support/directories.ts';
import { ask } from '../../support/gatehouse.ts';
import { now, WEBHOOK_SECRET } from '../../support/senders.ts';
import { CUSTOM_SECRET as SECRET, launchWebhook } from '../../support/webhook.ts';

const { sql, databaseUrl, base, stored } = await launchWebhook();
const environment = { DATABASE_URL: databaseUrl, WEBHOOK_SECRET };
const run = (words: readonly string[], input = '') =>
  runCommand(['token', ...words], environment, input);

/** @param secret null for a sender that does not sign */
function create(options: string, secret: string | null = SECRET) {
  const file = secret === null ? [] : ['--signing-secret-file', '-'];
  return run(['create', '--source', 'custom', ...options.split(' '), ...file], secret ?? '');
}

type Headers = Readonly<Record<string, string>>;
/** @returns sends a request with a token that describes its sender so */
async function senderOf(options: string, secret: string | null = SECRET) {
  const { code, stdout, stderr } = await create(options, secret);
  assert.equal(code, 0, stderr);
  return (body: string, headers: Headers = {}) =>
    ask('POST', base, { bearer: stdout.trim(), body, headers: { ...headers } });
}
const hmac = (text: string, key: string | Buffer = SECRET) =>
  createHmac('sha256', key).update(text);
const hex = (text: string, key = SECRET) => hmac(text, key).digest('hex');

const BODY = '{"type":"made"}';
const HEADER = '--event-name /type --signature-header X-S';

const SHOP =
  '--signature-header X-Shop-Signature --signature-prefix v1= --encoding base64 --algorithm hmac-sha512' +
  ' --signed-text POST:{timestamp}.{id}.{body}! --time X-Shop-Time --event-name /data/~1type --delivery-id X-Shop-Id';
const SHOP_BODY = '{"data":{"/type":"order.made"}}';

function shopRequest({ at = now(), secret = SECRET, body = SHOP_BODY } = {}) {
  const id = randomUUID();
  const signature = createHmac('sha512', secret).update(`POST:${at}.${id}.${body}!`);
  const value = `v1=${signature.digest('base64')}`;
  return { 'x-shop-signature': value, 'x-shop-time': `${at}`, 'x-shop-id': id };
}

test('a custom sender is verified as its token describes', async () => {
  const send = await senderOf(SHOP);
  const headers = shopRequest();
  const { status, json } = await send(SHOP_BODY, headers);
  assert.deepEqual([status, json.status], [200, 'accepted']);
  const { source, event, delivery_id } = await stored(json.id);
  assert.deepEqual([source, event, delivery_id], ['custom', 'order.made', headers['x-shop-id']]);
  assert.equal((await send(SHOP_BODY, headers)).json.status, 'duplicate');
  for (const [what, wrong, body = SHOP_BODY] of [
    ['another body', headers, SHOP_BODY.replace('made', 'mode')],
    ['another secret', shopRequest({ secret: 'another secret' })],
    ['an old time', shopRequest({ at: now() - 301 })],
    ['another id', { ...headers, 'x-shop-id': 'x' }],
  ] as const)
    assert.equal((await send(body, wrong)).status, 401, what);
  const { stdout } = await run(['list']);
  assert.match(stdout, /x-shop-signature: hmac-sha512 of POST:\{timestamp\}\.\{id\}\.\{body\}!/);
});

test('of a list of signatures in a header, one must be right', async () => {
  const send = await senderOf(`${HEADER} --signature-prefix v1=`);
  const right = `v1=${hex(BODY)}`;
  const wrong = `v1=${hex(BODY, 'the secret before')}`;
  for (const separator of [',', ', ', ';', ' ']) {
    for (const [status, ...list] of [
      [200, wrong, right],
      [200, right, wrong],
      [200, 'v2=x', wrong, right],
      [401, wrong, wrong],
    ] as const) {
      const value = list.join(separator);
      assert.equal((await send(BODY, { 'x-s': value })).status, status, value);
    }
  }
});

test('the time may be in the header of the signature', async () => {
  const at = now();
  const old = at - 301;
  const v1 = (time: number | string, secret = SECRET) => `v1=${hex(`${time}.${BODY}`, secret)}`;
  const text = '--signed-text {timestamp}.{body} --time X-S --signature-prefix v1=';
  const options = `${HEADER} ${text}`;
  const send = await senderOf(options);
  const named = await senderOf(`${options} --time-prefix ts=`);
  for (const [by, value, status] of [
    [send, `t=${at},${v1(at)}`, 200],
    [send, `t=${at}000, ${v1(`${at}000`)}`, 200],
    [send, `t=${at},${v1(at, 'before')} t=${at},${v1(at)}`, 200],
    [send, `t=${old},${v1(old)}`, 401],
    [send, `t=${at},${v1(old)}`, 401],
    [send, v1(at), 401],
    [named, `ts=${at};${v1(at)}`, 200],
  ] as const)
    assert.equal((await by(BODY, { 'x-s': value })).status, status, value);
});

test('signatures and secrets are read in the encoding that the token says', async () => {
  const key = Buffer.from('00ff10ab00ff10ab', 'hex');
  for (const [options, secret, signature] of [
    ['--encoding hex-upper', SECRET, hex(BODY).toUpperCase()],
    ['--encoding base64url', SECRET, hmac(BODY).digest('base64url')],
    ['--secret-encoding hex', '00FF10ab00ff10ab', hmac(BODY, key).digest('hex')],
    ['--secret-encoding base64', 'AP8QqwD/EKs=', hmac(BODY, key).digest('hex')],
  ] as const) {
    const send = await senderOf(`${HEADER} ${options}`, secret);
    assert.equal((await send(BODY, { 'x-s': signature })).status, 200, options);
    assert.equal((await send(BODY, { 'x-s': hex(BODY) })).status, 401, options);
  }
});

test('a sender that does not sign is received by its token alone, which is said', async () => {
  const made = await create('--event-name /status --name alerts', null);
  assert.equal(made.code, 0, made.stderr);
  assert.match(made.stderr, /not signed: whoever has the token can send events/);
  assert.match((await run(['list'])).stdout, /alerts .*not signed: the token alone decides/);
  const send = (bearer: string) => ask('POST', base, { bearer, body: '{"status":"firing"}' });
  const { json } = await send(made.stdout.trim());
  assert.equal((await stored(json.id)).event, 'firing');
  assert.equal((await send('another-token')).status, 401);
  const rotated = await run(['rotate', randomUUID(), '--signing-secret-file', '-'], SECRET);
  assert.equal(rotated.code, 1);
});

test('events get a fixed name if their sender gives none', async () => {
  const unsigned = await senderOf('--event-name fixed:pushed', null);
  assert.equal((await stored((await unsigned('{"a":1}')).json.id)).event, 'pushed');
  const signed = await senderOf('--event-name fixed:x --signature-header X-S');
  const { json } = await signed('{"a":1}', { 'x-s': hex('{"a":1}') });
  assert.equal((await stored(json.id)).event, 'x');
  assert.equal((await signed('{"a":1}', { 'x-s': hex('{}') })).status, 401);
});

test('a repetition may be as old as the token says', async () => {
  const options = `${HEADER} --time /at --delivery-id /id`;
  const lenient = await senderOf(`${options} --max-age 6h`);
  const strict = await senderOf(options);
  for (const [send, age, status] of [
    [lenient, 6 * 3_600 - 60, 200],
    [lenient, 6 * 3_600 + 10, 401],
    [lenient, -600, 401],
    [strict, 310, 401],
  ] as const) {
    const body = `{"type":"made","id":"${randomUUID()}","at":${now() - age},"more":1}`;
    assert.equal((await send(body, { 'x-s': hex(body) })).status, status, `${age} s`);
  }
});

test('headers of CloudEvents are kept, and those that the token names', async () => {
  const places = '--event-name ce-type --delivery-id ce-id --keep-headers X-Tenant,x-shop-*';
  const send = await senderOf(places, null);
  const kept = {
    ...{ 'ce-specversion': '1.0', 'ce-type': 'com.example.made', 'ce-id': randomUUID() },
    ...{ 'x-tenant': 'one', 'x-shop-domain': 'shop' },
  };
  const { json } = await send('{}', { ...kept, 'x-other': 'x', cookie: 'a=b' });
  const { headers, event, delivery_id } = await stored(json.id);
  assert.deepEqual([event, delivery_id], [kept['ce-type'], kept['ce-id']]);
  const { 'user-agent': _, 'content-type': __, 'x-request-id': ___, ...found } = headers;
  assert.deepEqual(found, kept);
});

test('token test says whether a captured request verifies, and what differs', async () => {
  const created = await create(`${SHOP} --name captured`);
  assert.equal(created.code, 0, created.stderr);
  const file = join(makeDirectory({ after }, 'custom'), 'request');
  const headers = shopRequest();
  const plain = `v1=${hmac(SHOP_BODY).digest('base64')}`;
  for (const [code, said, changed, body = SHOP_BODY] of [
    [0, /signature: valid\nevent name: order.made/, shopRequest({ at: now() - 86_400 })],
    [1, /without the line break at the end/, headers, `${SHOP_BODY}\n`],
    [
      1,
      /with --signed-text '\{body\}' --algorithm hmac-sha256 --encoding base64/,
      { ...headers, 'x-shop-signature': plain },
    ],
    [1, /lacks the header x-shop-time/, { ...headers, 'x-shop-time': '' }],
  ] as const) {
    const lines = Object.entries(changed).map(([name, value]) => `${name}: ${value}\r\n`);
    writeFileSync(file, `POST /webhook HTTP/1.1\r\n${lines.join('')}\r\n${body}`);
    const result = await run(['test', 'captured', '--request', file]);
    assert.equal(result.code, code, result.stderr);
    assert.match(result.stdout + result.stderr, said);
  }
});
