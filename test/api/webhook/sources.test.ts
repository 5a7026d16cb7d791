/**
 * Each source over real sockets: names, delivery ids, signatures, and what is kept. And tokens of
 * the source `custom`, which describe how their sender signs: `transcripts/custom.txt` has what is
 * refused, and senders that do not sign.
 */
import assert from 'node:assert/strict';
import crypto, { createHmac, randomUUID } from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { test } from 'node:test';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { sha256Hex } from '../../../src/platform/crypto/token.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import { rotateSecret } from '../../../src/webhook/store/signing-secrets.ts';
import { runCommand } from '../../support/commands.ts';
import { type Answer, ask } from '../../support/gatehouse.ts';
import {
  addToken,
  now,
  PUBLIC_KEYS,
  type Sample,
  SAMPLES,
  signatureOf,
  SIGNED_SOURCES,
  type SignedSource,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { CUSTOM_SECRET as SECRET, launchWebhook, macOf } from '../../support/webhook.ts';

const { sql, databaseUrl, base, database, stdout, log, stored, storesNothing } =
  await launchWebhook();

/** Discord and Asana have no delivery ids, and tests of their own. */
const SOURCES = SIGNED_SOURCES.filter((source) => !['discord', 'asana'].includes(source));
const tokens = new Map<SignedSource, { id: string; token: string }>();
for (const source of SIGNED_SOURCES) tokens.set(source, await addToken(database, source));
const tokenOf = (source: SignedSource) => tokens.get(source)?.token ?? '';

interface Changes {
  readonly text?: string;
  /** The text that is signed, if it is another one. */
  readonly signed?: string;
  readonly secret?: string;
  readonly at?: number;
  readonly token?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Sends a sample with a valid signature, unless the changes make it wrong. */
function send(source: SignedSource, sample: Sample, changes: Changes = {}): Promise<Answer> {
  const { text = JSON.stringify(sample.body), signed = text, at = now() } = changes;
  const { secret = SIGNING_SECRETS[source], token = tokenOf(source), headers } = changes;
  const signature = signatureOf(source, secret, signed, { id: sample.deliveryId, at });
  return ask('POST', `${base}?token=${token}`, {
    body: text,
    headers: { ...sample.headers, ...signature, ...headers },
  });
}

const codeOf = ({ status, json }: Answer) => [status, json?.error?.code];
const UNAUTHORIZED = [401, 'unauthorized'];
const INVALID = [400, 'invalid_body'];

for (const source of SOURCES) {
  test(`${source}: an event is accepted with its name and id; a repetition is a duplicate`, async () => {
    const sample = SAMPLES[source]();
    const text = JSON.stringify(sample.body, null, 1).replace('{', '{ \t');
    const { status, json } = await send(source, sample, { text });
    assert.deepEqual([status, json], [200, { id: json.id, status: 'accepted' }]);
    const token_id = tokens.get(source)?.id;
    const { event, deliveryId: delivery_id } = sample;
    const { headers: _, body, received_at: __, body_digest: ___, ...row } = await stored(json.id);
    const expected = { id: json.id, token_id, source, event, delivery_id, ip: '127.0.0.1' };
    assert.deepEqual([row, String(body)], [expected, text]);
    const other = JSON.stringify({ ...sample.body, more: 'CONFLICTING' });
    await storesNothing(async () => {
      for (const again of [text, other]) {
        // With a new signature, as senders make for each attempt.
        const repeated = await send(source, sample, { text: again, at: now() - 1 });
        assert.deepEqual(
          [repeated.status, repeated.json],
          [200, { id: json.id, status: 'duplicate' }],
        );
      }
    });
    const warnings = log().filter(
      ({ level, event_id }) => level === 'warn' && event_id === json.id,
    );
    assert.deepEqual(
      warnings.map((line) => [line.message, line.body_sha256, line.token_id, line.delivery_id]),
      [['delivery id reused with another body', sha256Hex(other), token_id, delivery_id]],
    );
    assert.equal(String((await stored(json.id)).body), text);
    assert.ok(!stdout().includes('CONFLICTING'));
  });

  test(`${source}: a signed body that is not an event of this source is 400`, async () => {
    const sample = SAMPLES[source]();
    // The name of the event may be in a header.
    const headers = Object.entries(sample.headers).filter(([, value]) => value !== sample.event);
    const unnamed = { ...sample, headers: Object.fromEntries(headers) };
    const types = ['', 'a\0b', 'x'.repeat(1_025), 7].map((type) => JSON.stringify({ type }));
    await storesNothing(async () => {
      for (const text of ['', '{"type":', '[]', 'null', '"text"', '{}', ...types]) {
        const answer = await send(source, unnamed, { text });
        // Linear signs a time in the body, which is looked at first.
        const isUntimed = source === 'linear' && answer.status === 401;
        if (!isUntimed) assert.deepEqual(codeOf(answer), INVALID);
      }
    });
  });
}

test('without a signature of its own secret and time, it is 401 and not stored', async () => {
  const sample = SAMPLES.stripe();
  const wrong: ReadonlyArray<readonly [said: RegExp, changes: Changes]> = [
    [/signature is wrong/, { secret: `${SIGNING_SECRETS.stripe.slice(0, -4)}AAAA` }],
    [/signature is wrong/, { signed: JSON.stringify({ ...sample.body, more: 1 }) }],
    [/lacks the header/, { token: tokenOf('paddle') }],
    [/five minutes/, { at: now() - 400 }],
    [/five minutes/, { at: now() + 400 }],
  ];
  await storesNothing(async () => {
    for (const [said, changes] of wrong) {
      const answer = await send('stripe', sample, changes);
      assert.deepEqual(codeOf(answer), UNAUTHORIZED);
      assert.match(answer.json.error.message, said);
    }
  });
});

test('with the same secret, GitLab and Standard Webhooks do not accept each other', async () => {
  for (const [source, other] of [
    ['gitlab', 'standard'],
    ['standard', 'gitlab'],
  ] as const) {
    const { token } = await addToken(database, other, SIGNING_SECRETS[source]);
    assert.deepEqual(codeOf(await send(source, SAMPLES[source](), { token })), INVALID);
  }
});

test('discord: an event and a PING get 204 without a body; only the event is stored', async () => {
  const sample = SAMPLES.discord();
  const ping = { ...sample, body: { version: 1, application_id: '1', type: 0 } };
  for (const one of [sample, ping]) {
    const { status, text, headers } = await send('discord', one);
    const type = headers.get('content-type');
    assert.deepEqual([status, text, type], [204, '', 'application/json; charset=utf-8']);
  }
  const rows = await sql`select event, body from webhook.events where source = 'discord'`;
  assert.deepEqual(
    rows.map(({ event, body }) => [event, String(body)]),
    [[sample.event, JSON.stringify(sample.body)]],
  );
  for (const headers of [
    { 'x-signature-ed25519': 'a'.repeat(128) },
    { 'x-signature-ed25519': '' },
    { 'x-signature-timestamp': String(now() - 1) },
  ])
    assert.deepEqual(codeOf(await send('discord', ping, { headers })), UNAUTHORIZED);
});

test('only safe headers are stored: no credential and no signature', async () => {
  const kept = {
    'user-agent': 'GitHub-Hookshot/1',
    'x-github-hook-id': '42',
    'x-request-id': 'one',
  };
  const github = SAMPLES.github();
  const { json } = await send('github', github, {
    headers: {
      ...kept,
      ...{ authorization: 'Basic c2VjcmV0', cookie: 'session=x', 'x-api-key': 'k' },
      ...{ 'x-hub-signature': 'sha1=0', 'proxy-authorization': 'x', 'x-github-token': 'x' },
      ...{ 'x-forwarded-for': '192.0.2.1', 'webhook-signature': 'v1,x', 'stripe-signature': 't=1' },
    },
  });
  const type = { 'content-type': 'application/json' };
  assert.deepEqual((await stored(json.id)).headers, { ...type, ...kept, ...github.headers });
  const at = now();
  const standard = SAMPLES.standard();
  const headers = { 'user-agent': 'x'.repeat(2_000), 'x-request-id': 'two' };
  const one = await send('standard', standard, { at, headers });
  assert.deepEqual((await stored(one.json.id)).headers, {
    ...{ ...type, ...headers, 'user-agent': 'x'.repeat(1_024) },
    ...{ 'webhook-id': standard.deliveryId, 'webhook-timestamp': String(at) },
  });
});

test('a delivery id in the body must be visible ASCII', async () => {
  await storesNothing(async () => {
    for (const id of ['', 'a b', 'é', 'x'.repeat(256), 7.5, null, {}]) {
      const sample = SAMPLES.stripe();
      const body = { ...sample.body, id };
      assert.deepEqual(codeOf(await send('stripe', { ...sample, body })), INVALID);
    }
    const sample = { ...SAMPLES.stripe(), body: { id: 'a b', type: 'x' } };
    const alike = await send('stripe', sample, { headers: { 'x-request-id': 'a b' } });
    assert.deepEqual(codeOf(alike), INVALID, 'whatever a header says');
  });
});

test('slack: without an inner event or an id, the name is the type of the body', async () => {
  const body = { type: 'app_rate_limited', minute_rate_limited: 1 };
  const { json } = await send('slack', { ...SAMPLES.slack(), body });
  const { event, delivery_id } = await stored(json.id);
  assert.deepEqual([event, delivery_id], ['app_rate_limited', null]);
});

test('at most two signatures of a request are verified with each public key', async (t) => {
  const verify = t.mock.method(crypto, 'verify');
  syncBuiltinESMExports();
  t.after(() => {
    verify.mock.restore();
    syncBuiltinESMExports();
  });
  const [own = assert.fail(), another = assert.fail()] = PUBLIC_KEYS;
  const { id, token } = await addToken(database, 'standard', own.standard);
  const sample = SAMPLES.standard();
  const headers = { 'webhook-signature': `v1a,${'A'.repeat(86)}== `.repeat(8) };
  /** @returns the status, and how often a signature was verified meanwhile */
  const sendMany = async () => {
    verify.mock.resetCalls();
    const { status } = await send('standard', sample, { token, headers });
    return [status, verify.mock.callCount()];
  };
  for (const state of ['looked up', 'cached', 'cached'])
    assert.deepEqual(await sendMany(), [401, 2], state);
  const sealed = sealSecret(createSigningKey(WEBHOOK_SECRET), another.standard);
  await rotateSecret(database, id, 3_600, sealed);
  // The sender signs with two keys.
  for (const { standard: secret } of PUBLIC_KEYS)
    assert.equal((await send('standard', SAMPLES.standard(), { token, secret })).status, 200);
  assert.deepEqual(await sendMany(), [401, 4], 'each with either key');
});

// --- Custom senders

/** @returns sends a request with a token that describes its sender so */
async function customSender(options: string, secret = SECRET) {
  const words = ['token', 'create', '--source=custom', '--signing-secret-file=-'];
  const environment = { DATABASE_URL: databaseUrl, WEBHOOK_SECRET };
  const given = [...words, ...options.split(' ')];
  const { code, stdout, stderr } = await runCommand(given, environment, secret);
  assert.equal(code, 0, stderr);
  return (body: string, headers: Readonly<Record<string, string>> = {}) =>
    ask('POST', base, { bearer: stdout.trim(), body, headers: { ...headers } });
}
const hmac = (text: string, key: string | Buffer = SECRET) =>
  createHmac('sha256', key).update(text);

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
  const send = await customSender(SHOP);
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
});

test('of a list of signatures in a header, one must be right', async () => {
  const send = await customSender(`${HEADER} --signature-prefix v1=`);
  const right = `v1=${macOf(BODY)}`;
  const wrong = `v1=${macOf(BODY, 'the secret before')}`;
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
  const v1 = (time: number | string, secret = SECRET) => `v1=${macOf(`${time}.${BODY}`, secret)}`;
  const text = '--signed-text {timestamp}.{body} --time X-S --signature-prefix v1=';
  const options = `${HEADER} ${text}`;
  const send = await customSender(options);
  const named = await customSender(`${options} --time-prefix ts=`);
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
    ['--encoding hex-upper', SECRET, macOf(BODY).toUpperCase()],
    ['--encoding base64url', SECRET, hmac(BODY).digest('base64url')],
    ['--secret-encoding hex', '00FF10ab00ff10ab', hmac(BODY, key).digest('hex')],
    ['--secret-encoding base64', 'AP8QqwD/EKs=', hmac(BODY, key).digest('hex')],
  ] as const) {
    const send = await customSender(`${HEADER} ${options}`, secret);
    assert.equal((await send(BODY, { 'x-s': signature })).status, 200, options);
    assert.equal((await send(BODY, { 'x-s': macOf(BODY) })).status, 401, options);
  }
});

test('a repetition may be as old as the token says', async () => {
  const options = `${HEADER} --time /at --delivery-id /id`;
  const lenient = await customSender(`${options} --max-age 6h`);
  const strict = await customSender(options);
  for (const [send, age, status] of [
    [lenient, 6 * 3_600 - 60, 200],
    [lenient, 6 * 3_600 + 10, 401],
    [lenient, -600, 401],
    [strict, 310, 401],
  ] as const) {
    const body = `{"type":"made","id":"${randomUUID()}","at":${now() - age},"more":1}`;
    assert.equal((await send(body, { 'x-s': macOf(body) })).status, status, `${age} s`);
  }
});
