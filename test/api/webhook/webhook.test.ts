/** Generic events: how the token may be sent, what is stored, and delivery ids. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { sha256Hex } from '../../../src/platform/crypto/token.ts';
import { ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { addToken } from '../../support/senders.ts';
import { exchange } from '../../support/socket.ts';
import { launchWebhook } from '../../support/webhook.ts';

const EVENT = { event: 'page.updated', data: { page_id: 'p1' } };
const { base, database, webhook, stored, count, ...gatehouse } = await launchWebhook();
const other = await addToken(database, 'generic');

const post = (body: unknown, headers: Record<string, string> = {}, bearer = WEBHOOK_TOKEN) =>
  ask('POST', base, { bearer, body, headers });
/** By how many events there are more afterwards. */
async function storedBy(act: () => Promise<unknown>): Promise<number> {
  const before = await count();
  await act();
  return Number((await count()).events) - Number(before.events);
}

test('an event is answered 200 with an id and "accepted", and is stored by then', async () => {
  const { status, json } = await post(EVENT);
  assert.deepEqual([status, json], [200, { id: json.id, status: 'accepted' }]);
  assert.match(json.id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  // Another connection sees only committed rows.
  const { event, body, delivery_id } = await stored(json.id);
  assert.deepEqual([event, String(body), delivery_id], [EVENT.event, JSON.stringify(EVENT), null]);
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
  ['in the query with one character less', own.slice(0, -1), undefined, 401],
  ['in another case', `token=${WEBHOOK_TOKEN.toUpperCase()}`, undefined, 401],
  ['under another name', `Token=${WEBHOOK_TOKEN}`, undefined, 401],
  ['twice', `${own}&${own}`, undefined, 401],
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

test('no token and no body is logged, and every request has its pattern', () => {
  const written = gatehouse.stdout() + gatehouse.stderr();
  for (const mark of [WEBHOOK_TOKEN, other.token, 'token=', 'page_id', 'page.updated'])
    assert.ok(!written.includes(mark), mark);
  const requests = gatehouse.log().filter(({ message }) => message === 'request');
  assert.deepEqual(
    new Set(requests.map(({ app, route }) => `${app} ${route}`)),
    new Set(['gatehouse-webhook POST /webhook']),
  );
});
