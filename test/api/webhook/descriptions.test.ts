/** Senders of many kinds, as tokens of the source `custom` describe them. */
import assert from 'node:assert/strict';
import { createHmac, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { runCommand } from '../../support/commands.ts';
import { ask, launch } from '../../support/gatehouse.ts';
import { now, WEBHOOK_SECRET } from '../../support/senders.ts';

const SECRET = 'the secret of a sender';
const gatehouse = await launch(['webhook'], { WEBHOOK_SECRET });
const { sql, databaseUrl } = gatehouse;
const environment = { DATABASE_URL: databaseUrl, WEBHOOK_SECRET };

const create = (options: readonly string[], secret: string | null) => {
  const words = ['token', 'create', '--source', 'custom', ...options];
  if (secret === null) return runCommand(words, environment);
  return runCommand([...words, '--signing-secret-file', '-'], environment, secret);
};

/** @returns sends a request with a token that describes its sender so */
async function senderOf(options: readonly string[], secret: string | null = SECRET) {
  const { code, stdout, stderr } = await create(options, secret);
  assert.equal(code, 0, stderr);
  const bearer = stdout.trim();
  return (body: string, headers: Readonly<Record<string, string>> = {}) =>
    ask('POST', `${gatehouse.url.webhook}/webhook`, { bearer, body, headers });
}
const hmac = (text: string, key: string | Buffer = SECRET) =>
  createHmac('sha256', key).update(text);
const hex = (text: string, key = SECRET) => hmac(text, key).digest('hex');
const stored = async (id: string) => ({
  ...(await sql`select event, delivery_id, headers from webhook.events where id = ${id}`)[0],
});

const BODY = '{"type":"made"}';
const NAMED = ['--event-name', '/type'];

test('of a list of signatures in a header, one must be right', async () => {
  const send = await senderOf([
    ...['--signature-header', 'X-Signature', '--signature-prefix', 'v1=', ...NAMED],
  ]);
  const right = `v1=${hex(BODY)}`;
  const wrong = `v1=${hex(BODY, 'the secret before')}`;
  for (const separator of [',', ', ', ';', ' ']) {
    for (const list of [[right], [wrong, right], [right, wrong], ['v2=x', wrong, right]]) {
      const value = list.join(separator);
      assert.equal((await send(BODY, { 'x-signature': value })).status, 200, value);
    }
    const none = [wrong, wrong].join(separator);
    assert.equal((await send(BODY, { 'x-signature': none })).status, 401, none);
  }
});

test('the time may be in the header of the signature', async () => {
  const at = now();
  const v1 = (time: number | string, secret = SECRET) => `v1=${hex(`${time}.${BODY}`, secret)}`;
  const options = [
    ...['--signature-header', 'Sender-Signature', '--signature-prefix', 'v1='],
    ...['--signed-text', '{timestamp}.{body}', '--time', 'Sender-Signature', ...NAMED],
  ];
  const send = await senderOf(options);
  const status = async (value: string) => (await send(BODY, { 'sender-signature': value })).status;
  const old = at - 301;
  assert.equal(await status(`t=${at},${v1(at)}`), 200);
  assert.equal(await status(`t=${at}000, ${v1(`${at}000`)}`), 200, 'in milliseconds');
  assert.equal(await status(`t=${at},${v1(at, 'before')} t=${at},${v1(at)}`), 200, 'two sets');
  assert.equal(await status(`t=${old},${v1(old)}`), 401);
  assert.equal(await status(`t=${at},${v1(old)}`), 401);
  assert.equal(await status(v1(at)), 401);
  const other = await senderOf([...options, '--time-prefix', 'ts=']);
  const named = { 'sender-signature': `ts=${at};${v1(at)}` };
  assert.equal((await other(BODY, named)).status, 200);
});

test('signatures and secrets are read in the encoding that the token says', async () => {
  const header = ['--signature-header', 'X-Signature', ...NAMED];
  const key = Buffer.from('00ff10ab00ff10ab', 'hex');
  for (const [options, secret, signature, wrong] of [
    [['--encoding', 'hex-upper'], SECRET, hex(BODY).toUpperCase(), hex(BODY)],
    [['--encoding', 'base64url'], SECRET, hmac(BODY).digest('base64url'), hex(BODY)],
    [['--secret-encoding', 'hex'], '00FF10ab00ff10ab', hmac(BODY, key).digest('hex'), hex(BODY)],
    [['--secret-encoding', 'base64'], 'AP8QqwD/EKs=', hmac(BODY, key).digest('hex'), hex(BODY)],
  ] as const) {
    const send = await senderOf([...header, ...options], secret);
    assert.equal((await send(BODY, { 'x-signature': signature })).status, 200, options.join(' '));
    assert.equal((await send(BODY, { 'x-signature': wrong })).status, 401, options.join(' '));
  }
});

test('a sender that does not sign is received by its token alone, which is said', async () => {
  const made = await create(['--event-name', '/status', '--name', 'alerts'], null);
  assert.equal(made.code, 0, made.stderr);
  assert.match(made.stderr, /not signed: whoever has the token can send events/);
  const list = await runCommand(['token', 'list'], environment);
  assert.match(list.stdout, /alerts .*not signed: the token alone decides/);
  const alert = '{"version":"4","status":"firing","alerts":[{"labels":{"alertname":"x"}}]}';
  const post = (bearer: string) =>
    ask('POST', `${gatehouse.url.webhook}/webhook`, { bearer, body: alert });
  const { status, json } = await post(made.stdout.trim());
  assert.deepEqual([status, (await stored(json.id)).event], [200, 'firing']);
  assert.equal((await post('another-token')).status, 401);
  const file = await runCommand(
    ['token', 'rotate', randomUUID(), '--signing-secret-file', '-'],
    environment,
    SECRET,
  );
  assert.equal(file.code, 1);
});

test('events get a fixed name if their sender gives none', async () => {
  const push = '{"push_data":{"tag":"latest"},"repository":{"repo_name":"a/b"}}';
  const unsigned = await senderOf(['--event-name', 'fixed:image pushed'], null);
  assert.equal((await stored((await unsigned(push)).json.id)).event, 'image pushed');
  const signed = await senderOf(['--event-name', 'fixed:x', '--signature-header', 'X-S']);
  const { json } = await signed(push, { 'x-s': hex(push) });
  assert.equal((await stored(json.id)).event, 'x');
  assert.equal((await signed(push, { 'x-s': hex('{}') })).status, 401);
});

test('a repetition may be as old as the token says', async () => {
  const options = [
    ...['--signature-header', 'X-S', '--time', '/at', ...NAMED],
    ...['--delivery-id', '/id'],
  ];
  const event = (age: number) =>
    `{"type":"made","id":"${randomUUID()}","at":${now() - age},"more":1}`;
  const send = await senderOf([...options, '--max-age', '6h']);
  const status = async (body: string) => (await send(body, { 'x-s': hex(body) })).status;
  assert.equal(await status(event(6 * 3_600 - 10)), 200);
  assert.equal(await status(event(6 * 3_600 + 10)), 401);
  assert.equal(await status(event(-310)), 401);
  const strict = await senderOf(options);
  const body = event(310);
  assert.equal((await strict(body, { 'x-s': hex(body) })).status, 401);
});

test('headers of CloudEvents are kept, and those that the token names', async () => {
  const send = await senderOf(
    [
      ...['--event-name', 'ce-type', '--delivery-id', 'ce-id'],
      ...['--keep-headers', 'X-Tenant,x-shop-*'],
    ],
    null,
  );
  const kept = {
    'ce-specversion': '1.0',
    'ce-type': 'com.example.made',
    'ce-source': '/s',
    'ce-id': randomUUID(),
    'ce-time': '2026-01-01T00:00:00Z',
    'x-tenant': 'one',
    'x-shop-domain': 'shop',
  };
  const { json } = await send('{}', { ...kept, 'x-other': 'x', cookie: 'a=b' });
  const { headers, event, delivery_id } = await stored(json.id);
  assert.deepEqual([event, delivery_id], [kept['ce-type'], kept['ce-id']]);
  const others = { 'content-type': 'application/json', 'x-request-id': headers['x-request-id'] };
  const { 'user-agent': _, ...found } = headers;
  assert.deepEqual(found, { ...others, ...kept });
});

test('a description that could never verify is refused, and no token is made', async () => {
  const count = async () => (await sql`select from webhook.tokens`).length;
  const before = await count();
  const header = ['--signature-header', 'X-S', ...NAMED];
  const timed = [...header, '--signed-text', '{timestamp}.{body}'];
  const identified = [...header, '--signed-text', '{id}.{body}'];
  for (const [options, said] of [
    [[...NAMED, '--encoding', 'hex'], /--encoding needs --signature-header/],
    [[...NAMED, '--time', '/at'], /--time needs --signature-header/],
    [NAMED, /the signing secret is not used: requests of source custom are not signed/],
    [[...identified, '--delivery-id', 'x-s'], /no request can be signed/],
    [[...header, '--signature-prefix', ' v1='], /no request can be signed/],
    [[...header, '--signature-prefix', 'ключ='], /no request can be signed/],
    [[...timed, '--time', 'X-T', '--time-prefix', 't='], /--time-prefix needs --time/],
    [[...header, '--max-age', '1h'], /--max-age needs --time/],
    [[...timed, '--time', 'X-T', '--max-age', '8d'], /from 1s to 7d/],
    [[...header, '--secret-encoding', 'hex'], /is one line of at least 8 characters in hex/],
    [['--event-name', 'fixed:'], /1 to 255 printable characters/],
    [[...header, '--keep-headers', 'x-*'], /\* only at the end/],
    [[...header, '--keep-headers', 'cookie'], /cannot be cookie/],
  ] as const) {
    const { code, stderr } = await create(options, SECRET);
    assert.equal(code, 2, stderr);
    assert.match(stderr, said);
  }
  for (const secret of [' secret of a sender', 'secret of a sender ', 'secret of a sender\u00a0']) {
    const { code, stderr } = await create(header, secret);
    assert.equal(code, 2, stderr);
    assert.match(stderr, /has spaces around it/);
  }
  assert.equal(await count(), before);
});
