/** `order_by` of a token: which events are delivered one after the other. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { sha256 } from '../../../src/platform/crypto/token.ts';
import { changeSender } from '../../../src/webhook/store/tokens.ts';
import { ask, startGatehouse } from '../../support/gatehouse.ts';
import { createDatabase } from '../../support/database.ts';
import {
  addToken,
  openWebhook,
  SAMPLES,
  signatureOf,
  SIGNED_SOURCES,
  type SignedSource,
  SIGNING_SECRETS,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';

const database = await createDatabase({ after });
// Events wait, because delivery is paused.
const target = {
  WEBHOOK_SECRET,
  WEBHOOK_FORWARD_URL: 'http://127.0.0.1:9/',
  WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
};
const { url } = await startGatehouse({ after }, ['webhook'], database.url, target);
const ordering = { ...target, WEBHOOK_ORDER: 'page_id' };
const { url: other } = await startGatehouse({ after }, ['webhook'], database.url, ordering);
const stored = openWebhook({ after }, database.url);
await database.sql`insert into webhook.pause (paused_by) values ('test')`;

type Headers = Readonly<Record<string, string>>;

async function send(token: string, body: object, headers: Headers = {}, at = url.webhook) {
  const text = JSON.stringify(body);
  return ask('POST', `${at}/webhook`, {
    bearer: token,
    body: text,
    headers: { 'content-type': 'application/json', ...headers },
  });
}

/** @returns the key of an event, as the text that was hashed; null without an order */
async function keyOf(id: string, token: string, candidates: readonly string[]) {
  const [row] = await database.sql<Array<{ order_key: string | null }>>`
    select order_key from webhook.work where event_id = ${id}`;
  assert.ok(row, 'the event waits');
  if (row.order_key === null) return null;
  const isKey = (text: string) =>
    sha256(`${token} ${text}`).toString('base64url') === row.order_key;
  return candidates.find(isKey) ?? assert.fail('another key');
}

test('the value of a member or a header is the key: a text, or a number', async () => {
  const { id, token } = await addToken(stored, 'generic');
  const long = 'x'.repeat(20_000);
  const cases: ReadonlyArray<readonly [string, object, Headers, string | null]> = [
    ['/data/customer', { customer: 'c-1' }, {}, 'c-1'],
    ['/data/customer', { customer: 42 }, {}, '42'],
    ['/data/customer', { customer: 1.5 }, {}, '1.5'],
    ['/data/customer', { customer: '' }, {}, ''],
    ['/data/customer', { customer: long }, {}, long],
    ['/data/customer', { customer: null }, {}, null],
    ['/data/customer', { customer: true }, {}, null],
    ['/data/customer', { customer: { id: 1 } }, {}, null],
    ['/data/customer', {}, {}, null],
    ['/data/a~1b/0', { 'a/b': ['first'] }, {}, 'first'],
    ['x-tenant', { customer: 'c-1' }, { 'X-Tenant': 't' }, 't'],
    ['x-tenant', { customer: 'c-1' }, {}, null],
    ['default', {}, {}, 'p'],
    ['none', {}, {}, null],
  ];
  for (const [order_by, data, headers, expected] of cases) {
    await changeSender(stored, id, { order_by });
    for (const at of [url.webhook, other.webhook]) {
      const body = { event: 'e', data: { page_id: 'p', ...data } };
      const { status, json, text } = await send(token, body, headers, at);
      assert.equal(status, 200, text);
      const key = await keyOf(json.id, id, ['c-1', '42', '1.5', '', long, 'first', 't', 'p']);
      assert.equal(key, expected, `${order_by} ${JSON.stringify(data).slice(0, 50)}`);
    }
  }
});

test('without an order of its own, a token has that of the process', async () => {
  const { id, token } = await addToken(stored, 'generic');
  const body = { event: 'e', data: { page_id: 'p' } };
  const plain = await send(token, body);
  assert.equal(await keyOf(plain.json.id, id, []), null);
  const ordered = await send(token, body, {}, other.webhook);
  assert.equal(await keyOf(ordered.json.id, id, ['p']), 'p');
});

test('a key that is given twice, or cannot be stored, is refused with its place', async () => {
  const { id, token } = await addToken(stored, 'stripe', SIGNING_SECRETS.stripe);
  await changeSender(stored, id, { order_by: '/data/customer' });
  const bodies = [
    '{"id":"e","type":"t","data":{"customer":"a","customer":"b"}}',
    '{"id":"e","type":"t","data":{"customer":"\\ud800"}}',
  ];
  for (const body of bodies) {
    const headers = signatureOf('stripe', SIGNING_SECRETS.stripe, body);
    const { status, json } = await ask('POST', `${url.webhook}/webhook`, {
      bearer: token,
      body,
      headers,
    });
    assert.equal(status, 400);
    assert.equal(json.error.fields[0].path, '/data/customer');
  }
});

test('a delivery that is repeated with another key stays what it was', async () => {
  const { id, token } = await addToken(stored, 'stripe', SIGNING_SECRETS.stripe);
  await changeSender(stored, id, { order_by: 'default' });
  const deliver = (object: string) => {
    const body = JSON.stringify({ id: 'evt_1', type: 't', data: { object: { id: object } } });
    const headers = signatureOf('stripe', SIGNING_SECRETS.stripe, body);
    return ask('POST', `${url.webhook}/webhook`, { bearer: token, body, headers });
  };
  const first = await deliver('one');
  const again = await deliver('two');
  assert.deepEqual([again.status, again.json], [200, { id: first.json.id, status: 'duplicate' }]);
  assert.equal(await keyOf(first.json.id, id, ['one', 'two']), 'one');
});

/** What a sample of each source is about. Other samples of these sources have nothing there. */
const SUBJECTS: Partial<Record<SignedSource, object>> = {
  github: { repository: { id: 7 } },
  gitlab: { project: { id: 7 } },
  gitea: { repository: { id: 7 } },
  bitbucket: { repository: { uuid: '7' } },
  stripe: { data: { object: { id: '7' } } },
  paddle: { data: { id: '7' } },
  shopify: { id: 7 },
  slack: { event: { type: 'message', channel: '7' } },
  linear: { data: { id: '7' } },
  sentry: { data: { issue: { id: '7' } } },
  zendesk: { detail: { id: '7' } },
  notion: { entity: { id: '7' } },
  asana: { events: [{ action: 'changed', created_at: 'now', resource: { gid: '7' } }] },
};

for (const name of SIGNED_SOURCES) {
  const { [name]: members } = SUBJECTS;
  if (!members) continue;
  test(`${name}: by default, events about one thing are in order`, async () => {
    const { id, token } = await addToken(stored, name, SIGNING_SECRETS[name]);
    await changeSender(stored, id, { order_by: 'default' });
    const sample = SAMPLES[name]();
    const text = JSON.stringify({ ...sample.body, ...members });
    const headers = { ...sample.headers, ...signatureOf(name, SIGNING_SECRETS[name], text) };
    const answer = await ask('POST', `${url.webhook}/webhook`, {
      bearer: token,
      body: text,
      headers,
    });
    assert.equal(answer.status, 200, answer.text);
    const [event] = await database.sql`select id from webhook.events where token_id = ${id}`;
    assert.equal(await keyOf(event?.id, id, ['7']), '7');
  });
}
