/**
 * Generic events: how the token may be sent, what is stored, and delivery ids. Bodies as senders
 * send them: their types, marks, forms, members given twice, and ids. And the plain variant, which
 * prints events and has no database.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { sha256Hex } from '../../../src/platform/crypto/token.ts';
import type { CustomSource } from '../../../src/webhook/sources.ts';
import { type Answer, ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { addToken, signedBy, type SignedSource } from '../../support/senders.ts';
import { exchange } from '../../support/socket.ts';
import { launchWebhook, macOf } from '../../support/webhook.ts';

const EVENT = { event: 'page.updated', data: { page_id: 'p1' } };
const JSON_TYPE = { 'content-type': 'application/json' };
const { sql, base, database, webhook, customToken, stored, count } = await launchWebhook();
const other = await addToken(database, 'generic');

const post = (body: unknown, headers: Record<string, string> = {}, bearer = WEBHOOK_TOKEN) =>
  ask('POST', base, { bearer, body, headers });
/** By how many events there are more afterwards. */
async function storedBy(act: () => Promise<unknown>): Promise<number> {
  const before = await count();
  await act();
  return Number((await count()).events) - Number(before.events);
}

const guarded = await start({ APP_NAME: 'letterbox' });
const open = await start({ WEBHOOK_TOKEN: undefined });

test('an event is answered 200 with an id and "accepted", and is stored by then', async () => {
  // Fields of other sources have no effect.
  const sent = JSON.stringify({ ...EVENT, type: 'other', id: 'evt_1' });
  const github = { 'x-github-event': 'ping', 'x-github-delivery': randomUUID() };
  const { status, json } = await post(sent, { ...JSON_TYPE, ...github, 'stripe-signature': 'x' });
  assert.deepEqual([status, json], [200, { id: json.id, status: 'accepted' }]);
  assert.match(json.id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  // Another connection sees only committed rows.
  const { source, event, body, delivery_id } = await stored(json.id);
  const expected = ['generic', EVENT.event, sent, null];
  assert.deepEqual([source, event, String(body), delivery_id], expected);
});

const own = `token=${WEBHOOK_TOKEN}`;
/** Of each row, `test/api/contract` sends no token, unknown and revoked ones, and other schemes. */
const CREDENTIALS: ReadonlyArray<
  readonly [what: string, query: string, authorization: string | undefined, status: 200 | 401]
> = [
  ['in the query', own, undefined, 200],
  ['in the query, percent-encoded', own.replaceAll('-', '%2D'), undefined, 200],
  ['in the query beside other parameters', `a=1&${own}&token2=x`, undefined, 200],
  // Some senders append their own with a second question mark.
  ['in the query before a second question mark', `a=1&${own}?b=1&c`, undefined, 200],
  ['in both places', own, `Bearer ${WEBHOOK_TOKEN}`, 200],
  ['beside a credential of another scheme, such as a proxy adds', own, 'Basic eDp5', 200],
  ['that another sender has', `token=${other.token}`, undefined, 200],
  ['under another name', `Token=${WEBHOOK_TOKEN}`, undefined, 401],
  ['beside a wrong one in the query', `${own}&token=x`, undefined, 401],
  ['in the query beside a wrong bearer', own, 'Bearer wrong', 401],
  ['as the digest that is stored', `token=${sha256Hex(WEBHOOK_TOKEN)}`, undefined, 401],
];

test('the token is a bearer token, or stands once in the query', async () => {
  for (const [what, query, authorization, status] of CREDENTIALS) {
    const headers = authorization === undefined ? {} : { headers: { authorization } };
    const added = await storedBy(async () => {
      const answer = await ask('POST', `${base}?${query}`, { body: EVENT, ...headers });
      assert.equal(answer.status, status, what);
    });
    assert.equal(added, status === 200 ? 1 : 0, what);
  }
});

const BODIES: Readonly<Record<string, string>> = {
  'odd spacing': ' {\t"data" : {"page_id":"p1"}\r\n,"event":"x"   }\n\n',
  'members that nobody asked for':
    '{"event":"x","id":7,"data":{"page_id":"p1","__proto__":{"a":1}},"more":[1,{"b":null}]}',
  'escapes where there could be characters':
    '{"\\u0065vent":"\\u0078","data":{"page_id":"\\u0070\\/1"}}',
  'surrogate pairs as escapes': '{"event":"\\ud83d\\ude00","data":{"page_id":"\\ud83d\\ude00"}}',
  'half of a surrogate pair and U+0000 where nobody looks':
    '{"event":"x","data":{"page_id":"p\\u0000"},"more":"\\ud83d\\u0000"}',
  'numbers that a double cannot hold':
    '{"event":"x","data":{"page_id":"p"},"id":12345678901234567890,"e":1e400,"z":-0.0}',
  'the same member twice, where no decision hangs on it':
    '{"event":"x","data":{"page_id":"p","more":{"a":1,"a":2}}}',
  'text beyond ASCII': '{"event":"événement 🎉","data":{"page_id":""},"e\u0301":"\u2028"}',
};

test('a body is stored byte for byte', async () => {
  for (const [what, body] of Object.entries(BODIES)) {
    const row = await stored((await post(body)).json.id);
    assert.deepEqual([String(row.body), row.event], [body, JSON.parse(body).event], what);
  }
});

for (const name of ['webhook-id', 'Idempotency-Key']) {
  test(`${name} has 1 to 255 visible ASCII characters`, async () => {
    for (const value of ['!', 'x'.repeat(255), '"a,b;c~'])
      assert.equal((await post(EVENT, { [name]: value })).status, 200, value);
    for (const value of ['', 'x'.repeat(256), 'a b', 'a\tb', 'é']) {
      const { status, json } = await post(EVENT, { [name]: value });
      assert.deepEqual([status, json.error.code], [400, 'invalid_header'], value);
      assert.equal(json.error.fields[0].path, name.toLowerCase());
    }
  });
}

test('webhook-id takes precedence over Idempotency-Key, and either finds a repetition', async () => {
  const one = randomUUID();
  const two = randomUUID();
  const { json } = await post(EVENT, { 'webhook-id': one, 'idempotency-key': two });
  assert.equal((await stored(json.id)).delivery_id, one);
  const again = await post(EVENT, { 'webhook-id': one, 'idempotency-key': randomUUID() });
  assert.deepEqual([again.status, again.json], [200, { id: json.id, status: 'duplicate' }]);
  const other = await post(EVENT, { 'idempotency-key': two });
  assert.equal(other.json.status, 'accepted');
  const repeated = await post(EVENT, { 'idempotency-key': two });
  assert.deepEqual(repeated.json, { id: other.json.id, status: 'duplicate' });
});

test('a delivery id in two headers of one name is rejected', async () => {
  const body = JSON.stringify(EVENT);
  const type = ['Content-Type: application/json', `Content-Length: ${body.length}`];
  const head = [`POST /webhook?${own} HTTP/1.1`, 'Host: a', ...type];
  const ids = ['webhook-id: a', 'webhook-id: b'];
  assert.equal((await exchange(webhook, [...head, ...ids], body)).status, 400);
});

// --- Bodies of other sources

const FORM = 'application/x-www-form-urlencoded';

type Headers = Readonly<Record<string, string>>;
const sendAs = (bearer: string, body: string | Buffer, headers: Headers) =>
  ask('POST', base, { bearer, body, headers: { ...headers } });

/** @returns sends a signed request of a source */
async function senderOf(source: SignedSource) {
  const { token } = await addToken(database, source);
  return (body: string | Buffer, headers: Headers = {}) =>
    sendAs(token, body, { ...signedBy(source, body), ...headers });
}
/** The same of a custom source, which names the event in a header by default. */
async function customOf(described: Partial<CustomSource> = {}) {
  const token = await customToken({ scheme: { header: 'x-s' }, event: ['x-event'], ...described });
  return (body: string | Buffer, headers: Headers = {}) =>
    sendAs(token, body, { 'x-s': macOf(body), 'x-event': 'sent', ...headers });
}
async function accepted({ status, json, text }: Answer) {
  assert.deepEqual([status, json.status], [200, 'accepted'], text);
  const { event, delivery_id, body, headers } = await stored(json.id);
  return { event, id: delivery_id, body: String(body), headers };
}
const problemOf = ({ status, json }: Answer) => [status, json.error?.fields?.[0]?.path];

test('JSON is read whatever its content type, but for the generic source', async () => {
  const senders = [await senderOf('github'), await customOf(), await customOf({ scheme: null })];
  for (const type of ['text/plain; charset=UTF-8', 'application/octet-stream', '', FORM]) {
    for (const send of senders) {
      const body = ` {"a":"${randomUUID()}"}`;
      const answer = await send(body, { 'content-type': type, 'x-github-event': 'push' });
      assert.equal((await accepted(answer)).body, body, type);
    }
    const body = '{"event":"a","data":{"page_id":"p"}}';
    const generic = await sendAs(WEBHOOK_TOKEN, body, { 'content-type': type });
    assert.equal(generic.status, 415, type);
  }
});

test('a byte order mark is ignored, and stored', async () => {
  const github = await senderOf('github');
  const body = '\ufeff{"data":{"page_id":"p"}}';
  assert.equal((await accepted(await github(body, { 'x-github-event': 'push' }))).body, body);
  const generic = '\ufeff{"event":"a","data":{"page_id":"p"}}';
  assert.equal((await accepted(await sendAs(WEBHOOK_TOKEN, generic, JSON_TYPE))).body, generic);
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
    [`payload=${encodeURIComponent('{"name":"inner"}')}&name=outer&a=%26`, 'inner'],
  ] as const) {
    const row = await accepted(await form(body));
    assert.deepEqual([row.event, row.body, row.headers['content-type']], [event, body, FORM]);
  }
  const invalid = ['payload=%7B', 'payload=%5B1', 'name=a&name=b', 'payload=a&payload=b', 'a=\0'];
  for (const body of [...invalid, 'a&'.repeat(1_001), Buffer.from([0x61, 0x3d, 0xe9])])
    assert.equal((await form(body)).status, 400, String(body).slice(0, 20));
});

test('a form is 415 for sources that send none', async () => {
  const stripe = await senderOf('stripe');
  const refused = await stripe('type=x', { 'content-type': FORM });
  assert.deepEqual([refused.status, refused.json.error.code], [415, 'unsupported_media_type']);
  assert.match(refused.json.error.message, /sends no forms/);
});

test('only members that decide something must be given once', async () => {
  const send = await customOf({ event: ['/name'], deliveryId: ['/a/b/id'] });
  const violation = '{"level":"WARNING","name":"violation","level":"Warning","data":{"x":1,"x":2}}';
  assert.equal((await accepted(await send(violation))).body, violation);
  for (const [body, path] of [
    ['{"name":"a","name":"b"}', '/name'],
    ['{"name":"a","\\u006eame":"b"}', '/name'],
    ['{"name":"a","a":{"b":{"id":"1","id":"2"}}}', '/a/b/id'],
    ['{"name":"a","data":{"page_id":"1","page_id":"2"}}', '/data/page_id'],
    ['{"name":"a","data":{},"data":{"page_id":"2"}}', '/data'],
  ] as const)
    assert.deepEqual(problemOf(await send(body)), [400, path], body);
  const generic = '{"event":"a","x":1,"x":2,"data":{"page_id":"p"}}';
  assert.deepEqual(problemOf(await sendAs(WEBHOOK_TOKEN, generic, JSON_TYPE)), [400, '/x']);
});

test('a delivery id may be a whole number', async () => {
  const send = await customOf({ deliveryId: ['/id'] });
  assert.equal((await accepted(await send('{"id":8123456789}'))).id, '8123456789');
  assert.equal((await send('{"id":8123456789}')).json.status, 'duplicate');
  for (const id of ['1.5', '9007199254740993', 'true', '{}'])
    assert.equal((await send(`{"id":${id}}`)).status, 400, id);
});

test('slack: commands and interactions are stored and get an empty 200', async () => {
  const slack = await senderOf('slack');
  const trigger = randomUUID();
  const command = `token=x&command=%2Fweather&text=94070&trigger_id=${trigger}`;
  const action = JSON.stringify({ type: 'block_actions', trigger_id: '13345.1', actions: [] });
  const interaction = `payload=${encodeURIComponent(action)}`;
  for (const body of [command, command, interaction, 'ssl_check=1&token=x']) {
    const { status, text, headers } = await slack(body, { 'content-type': FORM });
    const type = headers.get('content-type');
    assert.deepEqual([status, text, type], [200, '', 'text/plain; charset=utf-8'], body);
  }
  const rows = await sql`select event, delivery_id as id from webhook.events
    where source = 'slack' order by received_at`;
  assert.deepEqual(
    rows.map(({ event, id }) => [event, id]),
    [
      ['/weather', trigger],
      ['block_actions', '13345.1'],
    ],
  );
  const wrong = { 'content-type': FORM, 'x-slack-signature': `v0=${'0'.repeat(64)}` };
  assert.equal((await slack(command, wrong)).status, 401);
});

test('shopify: Events have headers without x-, which are not mixed with the others', async () => {
  const { token } = await addToken(database, 'shopify');
  const body = '{"id":1}';
  const { 'x-shopify-hmac-sha256': value = '' } = signedBy('shopify', body);
  const kept = { 'shopify-topic': 'Product', 'shopify-action': 'update' };
  const headers = { ...kept, 'shopify-webhook-id': randomUUID(), 'shopify-hmac-sha256': value };
  const row = await accepted(await sendAs(token, body, headers));
  assert.deepEqual([row.event, row.id], ['Product', headers['shopify-webhook-id']]);
  const { 'shopify-action': action, 'shopify-hmac-sha256': signature } = row.headers;
  assert.deepEqual([action, signature], ['update', undefined]);
  for (const wrong of [{ 'shopify-hmac-sha256': 'AAAA' }, { 'x-shopify-hmac-sha256': '' }])
    assert.equal((await sendAs(token, body, { ...headers, ...wrong })).status, 401);
});

test('gitea: of a form, its payload is signed', async () => {
  const { token } = await addToken(database, 'gitea');
  const json = '{"ref":"refs/heads/é main","a":"b+c"}';
  const headers = {
    ...signedBy('gitea', json),
    ...{ 'content-type': FORM, 'x-gitea-event': 'push', 'x-gitea-delivery': randomUUID() },
  };
  const form = `payload=${encodeURIComponent(json).replaceAll('%20', '+')}`;
  assert.equal((await accepted(await sendAs(token, form, headers))).body, form);
  for (const body of [`${form}&a=1`, `a=1&${form}`, form.replace('main', 'other'), 'payload=', ''])
    assert.equal((await sendAs(token, body, headers)).status, 401, body);
});

// --- The plain variant

async function start(settings: Record<string, string | undefined>) {
  const plain = { WEBHOOK_VARIANT: 'plain', ...settings };
  const started = await startGatehouse({ after }, ['webhook'], undefined, plain);
  const { url, log, stdout } = started;
  return {
    log,
    written: () => stdout() + started.stderr(),
    events: () => log().filter(({ message }) => message === 'event'),
    /** The line of an event. */
    line: (id: string) =>
      stdout()
        .split('\n')
        .find((text) => text.includes(`"id":"${id}"`)) ?? '',
    send: (body: unknown, headers: Record<string, string> = {}, query = '') =>
      ask('POST', `${url.webhook}/webhook${query}`, { body, headers }),
  };
}
const postPlain = (body: unknown, headers: Record<string, string> = {}) =>
  guarded.send(body, { authorization: `Bearer ${WEBHOOK_TOKEN}`, ...headers });

test('an event becomes one JSON line with its body, and the reply is 200 with its id', async () => {
  const request_id = randomUUID();
  const body = { ...EVENT, more: [1, null] };
  const { status, json } = await postPlain(body, { 'x-request-id': request_id });
  assert.deepEqual([status, json], [200, { id: json.id, status: 'accepted' }]);
  const [{ time, ...line } = {}, ...others] = guarded.events().filter(({ id }) => id === json.id);
  assert.equal(new Date(String(time)).toISOString(), time);
  const ids = { id: json.id, request_id, delivery_id: null };
  assert.deepEqual([line, others], [{ app: 'letterbox', message: 'event', ...ids, body }, []]);
});

test('the line has the body unchanged, without characters that a terminal obeys', async () => {
  const body =
    '{\n  "event": "x",\r\n\t"data": { "page_id": "a\\nb\u2028\u009b31m\u202e" },\n' +
    '"order":12345678901234567890\n}\n';
  const line = guarded.line((await postPlain(body)).json.id);
  assert.deepEqual(JSON.parse(line).body, JSON.parse(body));
  assert.doesNotMatch(line, /[\p{Cc}\p{Cf}\p{Zl}]/u);
  assert.match(line, /"order":12345678901234567890 \}/, 'a number that a double cannot hold');
});

test('a delivery id is printed, and a repeated delivery is printed again', async () => {
  const key = randomUUID();
  const answers = [
    await postPlain(EVENT, { 'webhook-id': key }),
    await postPlain(EVENT, { 'idempotency-key': key }),
  ];
  const printed = guarded.events().filter((line) => line.delivery_id === key);
  assert.deepEqual(
    answers.map(({ json }) => json),
    printed.map(({ id }) => ({ id, status: 'accepted' })),
  );
});

test('a token is needed if WEBHOOK_TOKEN is set, and the start warns if it is not', async () => {
  const counts = () => [guarded, open].map(({ events }) => events().length);
  const [ofGuarded = 0, ofOpen = 0] = counts();
  const answers = [
    await guarded.send(EVENT),
    await guarded.send(EVENT, {}, `?token=${WEBHOOK_TOKEN}`),
    await open.send(EVENT),
  ];
  assert.deepEqual(
    answers.map(({ status }) => status),
    [401, 200, 200],
  );
  assert.deepEqual(counts(), [ofGuarded + 1, ofOpen + 1]);
  const warned = /^WEBHOOK_TOKEN is not set.*accepts events from anyone/;
  const warnings = ({ log }: typeof open) =>
    log().filter(({ message }) => warned.test(String(message))).length;
  assert.deepEqual([warnings(open), warnings(guarded)], [1, 0]);
});

test('it does not matter which page sends an event, unless no token is needed', async () => {
  for (const headers of [{ origin: 'https://evil.example' }, { 'sec-fetch-site': 'cross-site' }]) {
    assert.equal((await postPlain(EVENT, headers)).json.status, 'accepted');
    const anyone = await open.send(EVENT, headers);
    assert.deepEqual([anyone.status, anyone.json.error.code], [403, 'cross_site']);
  }
});

test('no event that is invalid is printed, and no token ever', async () => {
  const before = guarded.events().length;
  for (const [status, body, headers] of [
    [400, { event: 'marked-event', data: 'marked-data' }, {}],
    [400, EVENT, { 'webhook-id': 'a b' }],
    [413, { ...EVENT, more: 'x'.repeat(65_536) }, {}],
  ] as const)
    assert.equal((await postPlain(body, headers)).status, status);
  assert.equal(guarded.events().length, before);
  for (const mark of [WEBHOOK_TOKEN, 'token=', 'marked-'])
    assert.ok(!guarded.written().includes(mark), mark);
});
