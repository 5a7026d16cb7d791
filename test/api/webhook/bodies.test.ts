/** Bodies as senders send them: their types, marks, forms, members given twice, and ids. */
import assert from 'node:assert/strict';
import { createHmac, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { CustomSource } from '../../../src/webhook/sources.ts';
import { type Answer, ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { addToken, signedBy, type SignedSource } from '../../support/senders.ts';
import { CUSTOM_SECRET, launchWebhook } from '../../support/webhook.ts';

const { sql, base, database, customToken, ...webhook } = await launchWebhook();
const FORM = 'application/x-www-form-urlencoded';
const JSON_TYPE = { 'content-type': 'application/json' };

type Headers = Readonly<Record<string, string>>;
const post = (bearer: string, body: string | Buffer, headers: Headers) =>
  ask('POST', base, { bearer, body, headers: { ...headers } });

/** @returns sends a signed request of a source */
async function senderOf(source: SignedSource) {
  const { token } = await addToken(database, source);
  return (body: string | Buffer, headers: Headers = {}) =>
    post(token, body, { ...signedBy(source, body), ...headers });
}
/** The same of a custom source, which names the event in a header by default. */
async function customOf(described: Partial<CustomSource> = {}) {
  const token = await customToken({ scheme: { header: 'x-s' }, event: ['x-event'], ...described });
  return (body: string | Buffer, headers: Headers = {}) => {
    const signature = createHmac('sha256', CUSTOM_SECRET).update(body).digest('hex');
    return post(token, body, { 'x-s': signature, 'x-event': 'sent', ...headers });
  };
}
async function stored({ status, json, text }: Answer) {
  assert.deepEqual([status, json.status], [200, 'accepted'], text);
  const { event, delivery_id, body, headers } = await webhook.stored(json.id);
  return { event, id: delivery_id, body: String(body), headers };
}
const problemOf = ({ status, json }: Answer) => [status, json.error?.fields?.[0]?.path];

test('JSON is read whatever its content type, but for the generic source', async () => {
  const senders = [await senderOf('github'), await customOf(), await customOf({ scheme: null })];
  for (const type of ['text/plain; charset=UTF-8', 'application/octet-stream', '', FORM]) {
    for (const send of senders) {
      const body = ` {"a":"${randomUUID()}"}`;
      const answer = await send(body, { 'content-type': type, 'x-github-event': 'push' });
      assert.equal((await stored(answer)).body, body, type);
    }
    const body = '{"event":"a","data":{"page_id":"p"}}';
    const generic = await post(WEBHOOK_TOKEN, body, { 'content-type': type });
    assert.equal(generic.status, 415, type);
  }
});

test('a byte order mark is ignored, and stored', async () => {
  const github = await senderOf('github');
  const body = '\ufeff{"data":{"page_id":"p"}}';
  assert.equal((await stored(await github(body, { 'x-github-event': 'push' }))).body, body);
  const generic = '\ufeff{"event":"a","data":{"page_id":"p"}}';
  assert.equal((await stored(await post(WEBHOOK_TOKEN, generic, JSON_TYPE))).body, generic);
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
    const row = await stored(await form(body));
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
  assert.equal((await stored(await send(violation))).body, violation);
  for (const [body, path] of [
    ['{"name":"a","name":"b"}', '/name'],
    ['{"name":"a","\\u006eame":"b"}', '/name'],
    ['{"name":"a","a":{"b":{"id":"1","id":"2"}}}', '/a/b/id'],
    ['{"name":"a","data":{"page_id":"1","page_id":"2"}}', '/data/page_id'],
    ['{"name":"a","data":{},"data":{"page_id":"2"}}', '/data'],
  ] as const)
    assert.deepEqual(problemOf(await send(body)), [400, path], body);
  const generic = '{"event":"a","x":1,"x":2,"data":{"page_id":"p"}}';
  assert.deepEqual(problemOf(await post(WEBHOOK_TOKEN, generic, JSON_TYPE)), [400, '/x']);
});

test('a delivery id may be a whole number', async () => {
  const send = await customOf({ deliveryId: ['/id'] });
  assert.equal((await stored(await send('{"id":8123456789}'))).id, '8123456789');
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
  const row = await stored(await post(token, body, headers));
  assert.deepEqual([row.event, row.id], ['Product', headers['shopify-webhook-id']]);
  const { 'shopify-action': action, 'shopify-hmac-sha256': signature } = row.headers;
  assert.deepEqual([action, signature], ['update', undefined]);
  for (const wrong of [{ 'shopify-hmac-sha256': 'AAAA' }, { 'x-shopify-hmac-sha256': '' }])
    assert.equal((await post(token, body, { ...headers, ...wrong })).status, 401);
});

test('gitea: of a form, its payload is signed', async () => {
  const { token } = await addToken(database, 'gitea');
  const json = '{"ref":"refs/heads/é main","a":"b+c"}';
  const headers = {
    ...signedBy('gitea', json),
    ...{ 'content-type': FORM, 'x-gitea-event': 'push', 'x-gitea-delivery': randomUUID() },
  };
  const form = `payload=${encodeURIComponent(json).replaceAll('%20', '+')}`;
  assert.equal((await stored(await post(token, form, headers))).body, form);
  for (const body of [`${form}&a=1`, `a=1&${form}`, form.replace('main', 'other'), 'payload=', ''])
    assert.equal((await post(token, body, headers)).status, 401, body);
});
