/** `order_by` of a token: which events are delivered one after the other. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { sha256 } from '../../../src/platform/crypto/token.ts';
import { changeSender } from '../../../src/webhook/store/tokens.ts';
import { ask, startGatehouse } from '../../support/gatehouse.ts';
import {
  addToken,
  SAMPLES,
  signedBy,
  type SignedSource,
  SIGNED_SOURCES,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { launchWebhook } from '../../support/webhook.ts';

// Events wait, because delivery is paused.
const target = {
  WEBHOOK_FORWARD_URL: 'http://127.0.0.1:9/',
  WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
};
const { sql, base, database, databaseUrl } = await launchWebhook(target);
const { url } = await startGatehouse({ after }, ['webhook'], databaseUrl, {
  ...target,
  WEBHOOK_SECRET,
  WEBHOOK_ORDER: 'page_id',
});
const ordering = `${url.webhook}/webhook`;
await sql`insert into webhook.pause (paused_by) values ('test')`;

type Headers = Readonly<Record<string, string>>;

/** @returns how events of a new token are sent, and its order is changed */
async function senderOf(source: SignedSource | 'generic') {
  const { id, token } = await addToken(database, source);
  return {
    id,
    orderBy: (order_by: string) => changeSender(database, id, { order_by }),
    send(body: unknown, headers: Headers = {}, to = base) {
      const text = typeof body === 'string' ? body : JSON.stringify(body);
      const signature = source === 'generic' ? {} : signedBy(source, text);
      return ask('POST', to, { bearer: token, body: text, headers: { ...headers, ...signature } });
    },
    /** @returns the key of an event, as the text that was hashed; null without an order */
    async keyOf(event: string, candidates: readonly string[]) {
      const [row] = await sql`select order_key from webhook.work where event_id = ${event}`;
      assert.ok(row, 'the event waits');
      const isKey = (text: string) =>
        sha256(`${id} ${text}`).toString('base64url') === row.order_key;
      return row.order_key === null ? null : (candidates.find(isKey) ?? assert.fail('another key'));
    },
  };
}

test('the value of a member or a header is the key: a text, or a number', async () => {
  const { orderBy, send, keyOf } = await senderOf('generic');
  const long = 'x'.repeat(20_000);
  const cases: ReadonlyArray<readonly [string, object, Headers, string | null]> = [
    ['/data/customer', { customer: 'c-1' }, {}, 'c-1'],
    ['/data/customer', { customer: 42 }, {}, '42'],
    ['/data/customer', { customer: 1.5 }, {}, '1.5'],
    ['/data/customer', { customer: '' }, {}, ''],
    ['/data/customer', { customer: long }, {}, long],
    ['/data/customer', { customer: null }, {}, null],
    ['/data/customer', { customer: { id: 1 } }, {}, null],
    ['/data/customer', {}, {}, null],
    ['/data/a~1b/0', { 'a/b': ['first'] }, {}, 'first'],
    ['x-tenant', { customer: 'c-1' }, { 'X-Tenant': 't' }, 't'],
    ['x-tenant', { customer: 'c-1' }, {}, null],
    ['default', {}, {}, 'p'],
    ['none', {}, {}, null],
  ];
  for (const [order_by, data, headers, expected] of cases) {
    await orderBy(order_by);
    for (const to of [base, ordering]) {
      const body = { event: 'e', data: { page_id: 'p', ...data } };
      const { json } = await send(body, headers, to);
      const key = await keyOf(json.id, ['c-1', '42', '1.5', '', long, 'first', 't', 'p']);
      assert.equal(key, expected, `${order_by} ${JSON.stringify(data).slice(0, 50)}`);
    }
  }
});

test('without an order of its own, a token has that of the process', async () => {
  const { send, keyOf } = await senderOf('generic');
  const body = { event: 'e', data: { page_id: 'p' } };
  assert.equal(await keyOf((await send(body)).json.id, []), null);
  assert.equal(await keyOf((await send(body, {}, ordering)).json.id, ['p']), 'p');
});

test('a key that is given twice, or cannot be stored, is refused with its place', async () => {
  const { orderBy, send } = await senderOf('stripe');
  await orderBy('/data/customer');
  for (const data of ['{"customer":"a","customer":"b"}', '{"customer":"\\ud800"}']) {
    const { status, json } = await send(`{"id":"e","type":"t","data":${data}}`);
    assert.deepEqual([status, json.error.fields[0].path], [400, '/data/customer']);
  }
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

for (const name of SIGNED_SOURCES.filter((one) => SUBJECTS[one])) {
  test(`${name}: by default, events about one thing are in order`, async () => {
    const { id, orderBy, send, keyOf } = await senderOf(name);
    await orderBy('default');
    const { body, headers } = SAMPLES[name]();
    const { status, text } = await send({ ...body, ...SUBJECTS[name] }, headers);
    assert.equal(status, 200, text);
    const [event] = await sql`select id from webhook.events where token_id = ${id}`;
    assert.equal(await keyOf(event?.id, ['7']), '7');
  });
}
