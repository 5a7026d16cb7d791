/** Bodies as senders send them: their types, marks, forms, members given twice, and ids. */
import assert from 'node:assert/strict';
import { createHmac, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import type { CustomSource } from '../../../src/webhook/sources.ts';
import { type Answer, ask, WEBHOOK_TOKEN, assertStatus } from '../../support/gatehouse.ts';
import { addToken, signedBy, type SignedSource, WEBHOOK_SECRET } from '../../support/senders.ts';
import { createToken } from '../../support/tokens.ts';
import { launchWebhook } from '../../support/webhook.ts';
import { gzipSync } from 'node:zlib';
import { connectTo, exchange, headOf } from '../../support/socket.ts';

const { sql, base, database } = await launchWebhook();
const SECRET = 'the secret of a custom sender';
const FORM = 'application/x-www-form-urlencoded';

type Headers = Readonly<Record<string, string>>;
const post = (bearer: string, body: string | Buffer, headers: Headers) =>
  ask('POST', base, { bearer, body, headers });

/** @returns sends a signed request of a source */
async function senderOf(source: SignedSource) {
  const { token } = await addToken(database, source);
  return (body: string | Buffer, headers: Headers = {}) =>
    post(token, body, { ...signedBy(source, body), ...headers });
}
/** The same of a custom source, which names the event in a header by default. */
async function customOf(described: Partial<CustomSource> = {}) {
  const custom = {
    scheme: { header: 'x-s' },
    event: ['x-event'],
    deliveryId: [],
    ...described,
  };
  const row = { name: 'custom', role: 'sender', source: 'custom', custom } as const;
  const sealed = sealSecret(createSigningKey(WEBHOOK_SECRET), SECRET);
  const { token } = await createToken(database, row, custom.scheme ? sealed : null);
  return (body: string | Buffer, headers: Headers = {}) => {
    const signature = createHmac('sha256', SECRET).update(body).digest('hex');
    return post(token, body, { 'x-s': signature, 'x-event': 'sent', ...headers });
  };
}
async function stored({ status, json, text }: Answer) {
  assert.deepEqual([status, json.status], [200, 'accepted'], text);
  const [row] = await sql`select event, delivery_id, body from webhook.events
    where id = ${json.id}`;
  return { event: row?.event, id: row?.delivery_id, body: String(row?.body) };
}
const problemOf = ({ status, json }: Answer) => [status, json.error?.fields?.[0]?.path];

const { token } = await addToken(database, 'stripe');

test('JSON is read whatever its content type, but for the generic source', async () => {
  const github = await senderOf('github');
  const signed = await customOf();
  const unsigned = await customOf({ scheme: null });
  for (const type of ['text/plain; charset=UTF-8', 'application/octet-stream', '', FORM]) {
    for (const send of [github, signed, unsigned]) {
      const body = ` {"a":"${randomUUID()}"}`;
      const answer = await send(body, { 'content-type': type, 'x-github-event': 'push' });
      assert.equal((await stored(answer)).body, body, type);
    }
    const generic = await post(WEBHOOK_TOKEN, '{"event":"a","data":{"page_id":"p"}}', {
      'content-type': type,
    });
    assert.equal(generic.status, 415, type);
  }
  const compressed = await signed('{}', { 'content-encoding': 'gzip' });
  assert.equal(compressed.status, 415);
  assert.match(compressed.json.error.message, /uncompressed JSON/);
});

test('a byte order mark is ignored, and stored', async () => {
  const github = await senderOf('github');
  const body = '\ufeff{"data":{"page_id":"p"}}';
  assert.equal((await stored(await github(body, { 'x-github-event': 'push' }))).body, body);
  const generic = '\ufeff{"event":"a","data":{"page_id":"p"}}';
  const type = { 'content-type': 'application/json' };
  assert.equal((await stored(await post(WEBHOOK_TOKEN, generic, type))).body, generic);
  const utf16 = Buffer.from('\ufeff{"a":1}', 'utf16le');
  assert.equal((await github(utf16, { 'x-github-event': 'push' })).status, 400);
});

test('a form has fields of any text, and members only where its payload is JSON', async () => {
  const send = await customOf({ event: ['/name', 'x-event'] });
  const form = (body: string | Buffer) => send(body, { 'content-type': FORM });
  for (const [body, event] of [
    ['payload=plain+text&a=1', 'sent'],
    ['payload=(x&name=y', 'y'],
    ['a=é&name=ñ', 'ñ'],
    ['name=last\r\n', 'last'],
    [`payload=${encodeURIComponent('{"name":"inner"}')}&name=outer`, 'inner'],
  ] as const) {
    const row = await stored(await form(body));
    assert.deepEqual([row.event, row.body], [event, body]);
  }
  for (const body of ['payload=%7B', 'name=a&name=b', 'payload=a&payload=b', 'a=\0']) {
    assert.equal((await form(body)).status, 400, body);
  }
  assert.equal((await form(Buffer.from([0x61, 0x3d, 0xe9]))).status, 400);
});

test('only members that decide something must be given once', async () => {
  const send = await customOf({ event: ['/name'], deliveryId: ['/a/b/id'] });
  const violation = '{"level":"WARNING","name":"violation","level":"Warning","data":{"x":1,"x":2}}';
  assert.equal((await stored(await send(violation))).body, violation);
  for (const [body, path] of [
    ['{"name":"a","name":"b"}', '/name'],
    ['{"name":"a","\\u006eame":"b"}', '/name'],
    ['{"name":"a","a":{"b":{"id":"1","id":"2"}}}', '/a/b/id'],
    ['{"name":"a","data":{"page_id":"1","page_id":"2"}}', '/data/page_id'],
    ['{"name":"a","data":{},"data":{"page_id":"2"}}', '/data'],
  ] as const)
    assert.deepEqual(problemOf(await send(body)), [400, path], body);
  const type = { 'content-type': 'application/json' };
  const generic = '{"event":"a","x":1,"x":2,"data":{"page_id":"p"}}';
  assert.deepEqual(problemOf(await post(WEBHOOK_TOKEN, generic, type)), [400, '/x']);
});

test('a delivery id may be a whole number', async () => {
  const send = await customOf({ deliveryId: ['/id'] });
  const first = await send('{"id":8123456789}');
  assert.equal((await stored(first)).id, '8123456789');
  assert.equal((await send('{"id":8123456789}')).json.status, 'duplicate');
  for (const id of ['1.5', '9007199254740993', 'true', '{}'])
    assert.equal((await send(`{"id":${id}}`)).status, 400, id);
});

test('slack: commands and interactions are stored and get an empty 200', async () => {
  const slack = await senderOf('slack');
  const send = (body: string) => slack(body, { 'content-type': FORM });
  const rows = async () =>
    (
      await sql`select event, delivery_id from webhook.events where source = 'slack'
      order by received_at`
    ).map((row) => ({ ...row }));
  const trigger = randomUUID();
  const command = `token=x&team_id=T0001&command=%2Fweather&text=94070&trigger_id=${trigger}`;
  const action = JSON.stringify({ type: 'block_actions', trigger_id: '13345.1', actions: [] });
  const interaction = `payload=${encodeURIComponent(action)}`;
  for (const body of [command, command, interaction, 'ssl_check=1&token=x']) {
    const answer = await send(body);
    assert.deepEqual([answer.status, answer.text], [200, ''], body);
    assert.match(answer.headers.get('content-type') ?? '', /^text\/plain/);
  }
  assert.deepEqual(await rows(), [
    { event: '/weather', delivery_id: trigger },
    { event: 'block_actions', delivery_id: '13345.1' },
  ]);
  const unsigned = await slack(command, {
    'content-type': FORM,
    'x-slack-signature': `v0=${'0'.repeat(64)}`,
  });
  assert.equal(unsigned.status, 401);
});

test('shopify: Events have headers without x-', async () => {
  const send = await senderOf('shopify');
  const body = '{"id":1}';
  const [value = ''] = Object.values(signedBy('shopify', body));
  const id = randomUUID();
  const headers = {
    'x-shopify-hmac-sha256': '',
    'shopify-hmac-sha256': value,
    'shopify-topic': 'Product',
    'shopify-action': 'update',
    'shopify-webhook-id': id,
  };
  const { 'x-shopify-hmac-sha256': _, ...sent } = headers;
  const { token } = await addToken(database, 'shopify');
  const answer = await post(token, body, sent);
  const row = await stored(answer);
  assert.deepEqual([row.event, row.id], ['Product', id]);
  const [{ headers: kept } = { headers: {} }] = await sql`select headers from webhook.events
    where id = ${answer.json.id}`;
  assert.equal(kept['shopify-action'], 'update');
  assert.equal(kept['shopify-hmac-sha256'], undefined);
  assert.equal((await post(token, body, { ...sent, 'shopify-hmac-sha256': 'AAAA' })).status, 401);
  assert.equal((await send(body, headers)).status, 401, 'names are not mixed');
});

test('gitea: of a form, its payload is signed', async () => {
  const { token } = await addToken(database, 'gitea');
  const json = '{"ref":"refs/heads/é main","a":"b+c"}';
  const headers = {
    ...signedBy('gitea', json),
    'content-type': FORM,
    'x-gitea-event': 'push',
    'x-gitea-delivery': randomUUID(),
  };
  const form = `payload=${encodeURIComponent(json).replaceAll('%20', '+')}`;
  assert.equal((await stored(await post(token, form, headers))).body, form);
  for (const body of [`${form}&a=1`, `a=1&${form}`, form.replace('main', 'other'), 'payload=', ''])
    assert.equal((await post(token, body, headers)).status, 401, body);
});

const countEvents = async () => (await sql`select from webhook.events`).length;

async function storesNothing(act: () => Promise<void>): Promise<void> {
  const before = await countEvents();
  await act();
  assert.equal(await countEvents(), before);
}

const payload = (bytes: number) => {
  const whole = (more: string) => JSON.stringify({ id: `evt_${randomUUID()}`, type: 'x', more });
  return whole('x'.repeat(bytes - whole('').length));
};

const signed = (body: string) => ({
  authorization: `Bearer ${token}`,
  'content-type': 'application/json',
  ...signedBy('stripe', body),
});

const headLines = (headers: Record<string, string>) => [
  'POST /webhook HTTP/1.1',
  'Host: x',
  ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
];

const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;

test('a signed body may be chunked; too large is 413, a form or compression 415', async () => {
  const whole = payload(1_000);
  const chunked = await exchange(
    base,
    headLines({ ...signed(whole), 'transfer-encoding': 'chunked' }),
    `${chunk(whole.slice(0, 1))}${chunk(whole.slice(1, 500))}${chunk(whole.slice(500))}0\r\n\r\n`,
  );
  assert.deepEqual([chunked.status, chunked.json.status], [200, 'accepted']);
  const [row] = await sql`select body from webhook.events where id = ${chunked.json.id}`;
  assert.equal(row?.body.toString(), whole);
  const exact = payload(65_536);
  assert.equal((await ask('POST', base, { body: exact, headers: signed(exact) })).status, 200);
  await storesNothing(async () => {
    const large = payload(65_537);
    assert.equal((await ask('POST', base, { body: large, headers: signed(large) })).status, 413);
    assert.equal(
      (
        await exchange(
          base,
          headLines({ ...signed(large), 'transfer-encoding': 'chunked' }),
          `${chunk(large)}0\r\n\r\n`,
        )
      ).status,
      413,
    );
    const form = { 'content-type': 'application/x-www-form-urlencoded' };
    const fields = await ask('POST', base, { body: 'a=1', headers: { ...signed('a=1'), ...form } });
    assert.equal(fields.status, 415);
    // Signed over the original or over the compressed bytes: both are rejected.
    for (const headers of [signed(whole), signed(gzipSync(whole).toString('latin1'))]) {
      assertStatus(
        await ask('POST', base, {
          body: gzipSync(whole),
          headers: { ...headers, 'content-encoding': 'gzip' },
        }),
        415,
      );
    }
  });
});

test('an incomplete signed body stores nothing, and the next one is accepted', async () => {
  const whole = payload(1_000);
  await storesNothing(async () => {
    for (const framing of [{ 'content-length': '1000' }, { 'transfer-encoding': 'chunked' }]) {
      const client = await connectTo(base);
      client.send(
        headOf(headLines({ ...signed(whole), ...framing })),
        'content-length' in framing ? whole.slice(0, 999) : chunk(whole.slice(0, 999)),
      );
      client.socket.end();
      // A reply or the end of the connection: the service has processed it by then.
      assert.doesNotMatch(await client.closed(), /^HTTP\/1\.1 2/);
    }
  });
  assert.equal((await ask('POST', base, { body: whole, headers: signed(whole) })).status, 200);
});
