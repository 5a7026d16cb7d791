import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { test } from 'node:test';
import { type Answer, ask, launch, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const EVENT = { event: 'page.updated', data: { page_id: 'p1' } };

const gatehouse = await launch(['webhook']);
const { sql } = gatehouse;
const base = `${gatehouse.url.webhook}/webhook`;

const insertToken = (token: string, revoked = false) => sql`
  insert into webhook.tokens (id, name, digest, revoked_at)
  values (${randomUUID()}, 'test', ${createHash('sha256').update(token).digest()},
    ${revoked ? new Date() : null})`;
const OTHER_TOKEN = 'other-token-0123456789abcdefghijklmnopqrst';
const REVOKED_TOKEN = 'revoked-token-0123456789abcdefghijklmnopqr';
await insertToken(OTHER_TOKEN);
await insertToken(REVOKED_TOKEN, true);

const post = (body: unknown, headers: Record<string, string> = {}) =>
  ask('POST', base, { bearer: WEBHOOK_TOKEN, body, headers });
const countEvents = async () => Number((await sql`select count(*) from webhook.events`)[0]?.count);
const pathsOf = (answer: Answer) =>
  answer.json.error.fields.map((field: { path: string }) => field.path);

test('an event is answered 200 with an id and "accepted", and is stored by then', async () => {
  const { status, json, headers } = await post(EVENT);
  assert.equal(status, 200);
  assert.deepEqual(Object.keys(json), ['id', 'status']);
  assert.match(json.id, UUID);
  assert.equal(json.status, 'accepted');
  assert.equal(headers.get('content-type'), 'application/json; charset=utf-8');
  // Another connection sees only committed rows.
  const [row] =
    await sql`select event, body, delivery_id from webhook.events where id = ${json.id}`;
  assert.deepEqual(
    { ...row, body: row?.body.toString() },
    { event: 'page.updated', body: JSON.stringify(EVENT), delivery_id: null },
  );
});

const query = (token: string) => `?token=${token}`;
const CREDENTIALS: ReadonlyArray<
  readonly [why: string, query: string, authorization: string | undefined, status: 200 | 401]
> = [
  ['the token in the query', query(WEBHOOK_TOKEN), undefined, 200],
  [
    'the token in the query, percent-encoded',
    query(WEBHOOK_TOKEN.replaceAll('-', '%2D')),
    undefined,
    200,
  ],
  [
    'the token in the query beside other parameters',
    `${query(WEBHOOK_TOKEN)}&token2=x`,
    undefined,
    200,
  ],
  ['the token as bearer', '', `Bearer ${WEBHOOK_TOKEN}`, 200],
  ['the token as bearer in lower case', '', `bearer ${WEBHOOK_TOKEN}`, 200],
  ['the token in both places', query(WEBHOOK_TOKEN), `Bearer ${WEBHOOK_TOKEN}`, 200],
  [
    'the token in the query and a credential of another scheme, such as a proxy adds',
    query(WEBHOOK_TOKEN),
    'Basic eDp5',
    200,
  ],
  ['another live token', query(OTHER_TOKEN), undefined, 200],
  // Some senders append their own with a second question mark.
  ['the token and other parameters', `?a=1&${query(WEBHOOK_TOKEN).slice(1)}?b=1&c`, undefined, 200],
  ['no token', '', undefined, 401],
  ['an empty token', '?token=', undefined, 401],
  ['a wrong token', query(`${WEBHOOK_TOKEN}x`), undefined, 401],
  ['a shorter token', query(WEBHOOK_TOKEN.slice(0, -1)), undefined, 401],
  ['the token in another case', query(WEBHOOK_TOKEN.toUpperCase()), undefined, 401],
  ['the token under another name', `?Token=${WEBHOOK_TOKEN}`, undefined, 401],
  [
    'the token in the query twice',
    `${query(WEBHOOK_TOKEN)}&token=${WEBHOOK_TOKEN}`,
    undefined,
    401,
  ],
  ['a right and a wrong token in the query', `${query(WEBHOOK_TOKEN)}&token=x`, undefined, 401],
  ['a revoked token in the query', query(REVOKED_TOKEN), undefined, 401],
  ['a revoked token as bearer', '', `Bearer ${REVOKED_TOKEN}`, 401],
  ['a wrong bearer, whatever the query says', query(WEBHOOK_TOKEN), 'Bearer wrong', 401],
  [
    'the digest that is stored',
    query(createHash('sha256').update(WEBHOOK_TOKEN).digest('hex')),
    undefined,
    401,
  ],
];
for (const [why, search, authorization, status] of CREDENTIALS) {
  test(`${why}: ${status}`, async () => {
    const before = await countEvents();
    const answer = await ask('POST', base + search, {
      body: EVENT,
      headers: authorization === undefined ? {} : { authorization },
    });
    assert.equal(answer.status, status);
    assert.equal((await countEvents()) - before, status === 200 ? 1 : 0);
    if (status === 200) return;
    assert.equal(answer.headers.get('www-authenticate'), 'Bearer');
    assert.equal(answer.json.error.code, 'unauthorized');
  });
}

const CONTENT_TYPES: ReadonlyArray<readonly [type: string, status: 200 | 415]> = [
  ['application/json', 200],
  ['application/json; charset=utf-8', 200],
  ['application/json;charset=UTF-8', 200],
  ['Application/JSON', 200],
  ['application/cloudevents+json', 200],
  ['application/cloudevents+json; charset=utf-8', 200],
  ['application/vnd.api+json', 200],
  // More than one suffix is well-formed (RFC 6838, 4.2) and in use for W3C credentials.
  ['application/vc+ld+json', 200],
  ['', 415],
  ['text/plain', 415],
  ['text/json', 415],
  ['application/x-www-form-urlencoded', 415],
  ['multipart/form-data; boundary=x', 415],
  ['application/jsonp', 415],
  ['application/json-patch', 415],
  ['application/xml; type=application/json', 415],
  ['application/cloudevents+json+xml', 415],
  ['json', 415],
  ['+json', 415],
  ['application/+json', 415],
];
for (const [type, status] of CONTENT_TYPES) {
  test(`the content type "${type}" is answered ${status}`, async () => {
    const before = await countEvents();
    const answer = await post(EVENT, { 'content-type': type });
    assert.equal(answer.status, status);
    assert.equal((await countEvents()) - before, status === 200 ? 1 : 0);
    if (status === 415) assert.equal(answer.json.error.code, 'unsupported_media_type');
  });
}

test('a missing content type and a compressed body are answered 415', async () => {
  const body = Buffer.from(JSON.stringify(EVENT));
  const bare = await fetch(base + query(WEBHOOK_TOKEN), { method: 'POST', body });
  assert.equal(bare.status, 415);
  assert.equal((await post(EVENT, { 'content-encoding': 'gzip' })).status, 415);
});

test('a body above 64 KiB is answered 413; one of exactly 64 KiB is accepted', async () => {
  const before = await countEvents();
  const envelope = JSON.stringify({ ...EVENT, more: '' }).length;
  const sized = (bytes: number) => JSON.stringify({ ...EVENT, more: 'x'.repeat(bytes - envelope) });
  assert.equal((await post(sized(65_537))).status, 413);
  assert.equal(await countEvents(), before);
  assert.equal((await post(sized(65_536))).status, 200);
});

const BODIES: ReadonlyArray<readonly [what: string, body: string]> = [
  ['odd spacing', ' {\t"data" : {"page_id":"p1"}\r\n,"event":"x"   }\n\n'],
  [
    'members that nobody asked for',
    '{"event":"x","id":7,"data":{"page_id":"p1","title":"t","__proto__":{"a":1}},"more":[1,{"b":null}]}',
  ],
  [
    'escapes where there could be characters',
    '{"\\u0065vent":"\\u0078","data":{"page_id":"\\u0070\\/1"}}',
  ],
  [
    'half of a surrogate pair where nobody looks',
    '{"event":"x","data":{"page_id":"p"},"more":"\\ud83d"}',
  ],
  [
    'a NUL character where nobody looks',
    '{"event":"x","data":{"page_id":"p\\u0000"},"more":"\\u0000"}',
  ],
  [
    'numbers that a double cannot hold',
    '{"event":"x","data":{"page_id":"p"},"id":12345678901234567890,"e":1e400,"z":-0.0}',
  ],
  [
    'the same member twice, where no decision hangs on it',
    '{"event":"x","data":{"page_id":"p","more":{"a":1,"a":2}}}',
  ],
  ['text beyond ASCII', '{"event":"événement 🎉","data":{"page_id":""},"e\u0301":"\u2028"}'],
];
for (const [what, body] of BODIES) {
  test(`a body is stored byte for byte: ${what}`, async () => {
    const { status, json } = await post(body);
    assert.equal(status, 200);
    const [row] = await sql`select event, body from webhook.events where id = ${json.id}`;
    assert.equal(row?.body.toString(), body);
    assert.equal(row?.event, JSON.parse(body).event);
  });
}

for (const name of ['webhook-id', 'idempotency-key', 'Webhook-Id', 'Idempotency-Key']) {
  test(`a delivery with the same ${name} is answered 200 with the first id and "duplicate"`, async () => {
    const key = randomUUID();
    const before = await countEvents();
    const first = await post(EVENT, { [name]: key });
    assert.equal(first.json.status, 'accepted');
    const again = await post(EVENT, { [name]: key });
    assert.equal(again.status, 200);
    assert.deepEqual(again.json, { id: first.json.id, status: 'duplicate' });
    assert.equal((await countEvents()) - before, 1);
    const [row] =
      await sql`select event, delivery_id from webhook.events where id = ${first.json.id}`;
    assert.deepEqual({ ...row }, { event: EVENT.event, delivery_id: key });
  });
}

test('webhook-id takes precedence over Idempotency-Key', async () => {
  const webhookId = randomUUID();
  const idempotencyKey = randomUUID();
  const first = await post(EVENT, { 'webhook-id': webhookId, 'idempotency-key': idempotencyKey });
  const again = await post(EVENT, { 'webhook-id': webhookId, 'idempotency-key': randomUUID() });
  assert.deepEqual(again.json, { id: first.json.id, status: 'duplicate' });
  assert.equal((await post(EVENT, { 'idempotency-key': idempotencyKey })).json.status, 'accepted');
});

test('the same delivery id under another token is another event', async () => {
  const headers = { 'webhook-id': randomUUID() };
  const one = await post(EVENT, headers);
  const other = await ask('POST', base, { bearer: OTHER_TOKEN, body: EVENT, headers });
  assert.equal(other.json.status, 'accepted');
  assert.notEqual(other.json.id, one.json.id);
});

test('without a delivery id every delivery is a new event', async () => {
  const one = await post(EVENT);
  const other = await post(EVENT);
  assert.equal(other.json.status, 'accepted');
  assert.notEqual(one.json.id, other.json.id);
});

const IDS: ReadonlyArray<readonly [what: string, value: string, status: 200 | 400]> = [
  ['one character', '!', 200],
  ['255 characters', 'x'.repeat(255), 200],
  ['punctuation', '"a,b;c~', 200],
  ['nothing', '', 400],
  ['256 characters', 'x'.repeat(256), 400],
  ['a space within', 'a b', 400],
  ['a tab within', 'a\tb', 400],
  ['a character beyond ASCII', 'é', 400],
];
for (const [what, value, status] of IDS) {
  for (const name of ['webhook-id', 'idempotency-key']) {
    test(`${name} with ${what} is answered ${status}`, async () => {
      await sql`delete from webhook.events`;
      const answer = await post(EVENT, { [name]: value });
      assert.equal(answer.status, status);
      assert.equal(await countEvents(), status === 200 ? 1 : 0);
      if (status === 200) return;
      assert.equal(answer.json.error.code, 'invalid_header');
      assert.deepEqual(pathsOf(answer), [name]);
    });
  }
}

test('a delivery id in two headers of one name is rejected', async () => {
  const status = await new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${WEBHOOK_TOKEN}`,
      'content-type': 'application/json',
      'webhook-id': ['a', 'b'],
    };
    request(base, { method: 'POST', headers }, (response) => resolve(response.resume().statusCode))
      .on('error', reject)
      .end(JSON.stringify(EVENT));
  });
  assert.equal(status, 400);
});

test('no token and no body is logged, and every request has its pattern', () => {
  const written = gatehouse.stdout() + gatehouse.stderr();
  for (const mark of [
    WEBHOOK_TOKEN,
    OTHER_TOKEN,
    REVOKED_TOKEN,
    'token=',
    'page_id',
    'page.updated',
  ])
    assert.ok(!written.includes(mark), mark);
  for (const line of gatehouse.log().filter(({ message }) => message === 'request')) {
    assert.match(String(line.route), /^(POST \/webhook|\(none\))$/);
    assert.equal(line.app, 'gatehouse-webhook');
  }
});
