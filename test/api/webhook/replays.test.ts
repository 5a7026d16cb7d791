/** A recorded request, sent again with changes that its signature does not cover. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, test } from 'node:test';
import { type Answer, ask, launch } from '../../support/gatehouse.ts';
import {
  addToken,
  now,
  openWebhook,
  SAMPLES,
  signedBy,
  type SignedSource,
  WEBHOOK_SECRET,
} from '../../support/senders.ts';
import { connectTo } from '../../support/socket.ts';
import { createToken } from '../../support/tokens.ts';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { createSigningKey } from '../../../src/webhook/service.ts';
import type { CustomSource } from '../../../src/webhook/sources.ts';

type Headers = Readonly<Record<string, string>>;

const gatehouse = await launch(['webhook'], { WEBHOOK_SECRET });
const { sql, databaseUrl } = gatehouse;
const base = `${gatehouse.url.webhook}/webhook`;
const database = openWebhook({ after }, databaseUrl);
const countEvents = async () => (await sql`select from webhook.events`).length;

const renamed = (headers: Headers) =>
  Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.replace('webhook-', 'svix-'), value]),
  );

/** A signed request of a source, and how to send it with other headers. */
async function record(source: SignedSource) {
  const sample = SAMPLES[source]();
  const body = JSON.stringify(sample.body);
  const { token } = await addToken(database, source);
  const signed = signedBy(source, body, { id: sample.deliveryId });
  const post = (headers: Headers) =>
    ask('POST', base, { bearer: token, body, headers: { ...sample.headers, ...headers } });
  return { body, token, sample, signed, post };
}

const isRepetition = (answer: Answer, id: string) =>
  answer.json.status === 'duplicate' && answer.json.id === id;

test('a request of GitLab is not accepted again under the names of Svix', async () => {
  const { signed, post } = await record('gitlab');
  const accepted = await post(signed);
  assert.equal(accepted.json.status, 'accepted');
  for (const name of ['Push Hook', 'Tag Push Hook']) {
    const headers = { ...renamed(signed), 'x-gitlab-event': name };
    const answer = await post(headers);
    assert.equal(answer.status, 401, answer.text);
  }
  assert.ok(isRepetition(await post({ ...renamed(signed), ...signed }), accepted.json.id));
});

test('the delivery id is the signed one, whatever other headers say', async () => {
  for (const source of ['gitlab', 'standard'] as const) {
    const { signed, post } = await record(source);
    const own = source === 'standard' ? renamed(signed) : signed;
    const accepted = await post(own);
    assert.equal(accepted.json.status, 'accepted');
    const before = await countEvents();
    for (const name of ['webhook-id', 'svix-id', 'idempotency-key']) {
      const answer = await post({ ...own, [name]: 'another' });
      const isRefused = answer.status === 401 || isRepetition(answer, accepted.json.id);
      assert.ok(isRefused, `${source}, ${name}: ${answer.text}`);
    }
    assert.equal(await countEvents(), before);
  }
});

test('a custom source reads no headers but those that were described', async () => {
  const secret = 'the secret of a custom sender';
  const custom: CustomSource = {
    scheme: {
      header: 'webhook-signature',
      text: '{timestamp}.{id}.{body}',
      time: 'webhook-timestamp',
      id: 'webhook-id',
    },
    event: ['/type'],
    deliveryId: ['webhook-id'],
    time: undefined,
  };
  const sealed = sealSecret(createSigningKey(WEBHOOK_SECRET), secret);
  const given = { name: 'custom', role: 'sender', source: 'custom', custom } as const;
  const { token } = await createToken(database, given, sealed);
  const body = '{"type":"a"}';
  const at = String(now());
  const text = `${at}.one.${body}`;
  const headers = {
    'webhook-id': 'one',
    'webhook-timestamp': at,
    'webhook-signature': createHmac('sha256', secret).update(text).digest('hex'),
  };
  const accepted = await ask('POST', base, { bearer: token, body, headers });
  assert.equal(accepted.json.status, 'accepted', accepted.text);
  const again = await ask('POST', base, { bearer: token, body, headers: renamed(headers) });
  assert.equal(again.status, 401, again.text);
});

test('with a signed header twice, a recorded request is refused or a duplicate', async () => {
  const { body, token, sample, signed, post } = await record('gitlab');
  const { id } = (await post(signed)).json;
  const before = await countEvents();
  for (const name of Object.keys(signed)) {
    for (const other of [signed[name], 'another']) {
      const headers = Object.entries({ ...sample.headers, ...signed, [`${name} `]: other ?? '' });
      const client = await connectTo(gatehouse.url.webhook ?? '');
      client.send(
        'POST /webhook HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n',
        `Authorization: Bearer ${token}\r\nContent-Length: ${body.length}\r\n`,
        headers.map(([key, value]) => `${key.trim()}: ${value}\r\n`).join(''),
        `\r\n${body}`,
      );
      const { status, json } = await client.answer();
      // The header with the signature may list several.
      const isDuplicate = name === 'webhook-signature' && json.id === id;
      assert.ok(status === 401 || isDuplicate, `${name}: ${other}`);
      client.leave();
    }
  }
  assert.equal(await countEvents(), before);
});

test('discord: a recorded request is no second event, and another event is one', async () => {
  const { signed, post, token, sample } = await record('discord');
  const before = await countEvents();
  for (const headers of [signed, signed, { ...signed, 'x-request-id': 'another' }])
    assert.equal((await post(headers)).status, 204);
  assert.equal(await countEvents(), before + 1);
  const later = { ...Object(sample.body.event), timestamp: '2024-10-18T18:41:21.109605' };
  for (const event of [later, { type: 'UNTIMED' }, { type: 'UNTIMED' }]) {
    const body = JSON.stringify({ ...sample.body, event });
    const headers = signedBy('discord', body);
    assert.equal((await ask('POST', base, { bearer: token, body, headers })).status, 204);
  }
  assert.equal(await countEvents(), before + 4, 'without a time, equal bodies are two events');
});

test('linear: a recorded request is no second event under another id or name', async () => {
  const { body, token, signed, post } = await record('linear');
  const before = await countEvents();
  // At once, so that only the database can tell.
  const names = ['linear-delivery', 'linear-event', 'x-request-id'];
  const altered = names.flatMap((name) => [{ [name]: 'one' }, { [name]: 'two' }]);
  const answers = await Promise.all(altered.map((headers) => post({ ...headers, ...signed })));
  const first = answers.find(({ json }) => json.status === 'accepted');
  assert.ok(first);
  for (const answer of answers)
    assert.ok(answer === first || isRepetition(answer, first.json.id), answer.text);
  const unnamed = await ask('POST', base, { bearer: token, body, headers: signed });
  assert.ok(isRepetition(unnamed, first.json.id), unnamed.text);
  assert.equal(await countEvents(), before + 1);
  const [row] = await sql`select event from webhook.events where id = ${first.json.id}`;
  assert.equal(row?.event, 'Issue', 'as the body says');
  const later = body.replace(/\d+(?=})/, (time) => String(Number(time) + 1));
  const another = signedBy('linear', later);
  const answer = await ask('POST', base, { bearer: token, body: later, headers: another });
  assert.equal(answer.json.status, 'accepted', answer.text);
});

/** JSON that is no time, although some of it would become one as a text. */
const NOT_TIMES = [
  '{"toString":1}',
  '{"toString":null,"valueOf":null}',
  `{"toJSON":"${now()}"}`,
  `[${now()}]`,
  `[[["${now()}"]]]`,
  `${'['.repeat(20_000)}${']'.repeat(20_000)}`,
  'true',
  'null',
  '1e999',
];

test('a signed time in the body that is neither a number nor a text is a wrong time', async () => {
  const secret = 'the secret of a custom sender';
  const custom: CustomSource = {
    scheme: { header: 'x-signature' },
    event: ['/type'],
    deliveryId: [],
    time: '/created',
  };
  const given = { name: 'timed', role: 'sender', source: 'custom', custom } as const;
  const sealed = sealSecret(createSigningKey(WEBHOOK_SECRET), secret);
  const { token } = await createToken(database, given, sealed);
  const linear = await record('linear');
  for (const time of NOT_TIMES) {
    const timed = `{"type":"a","created":${time}}`;
    const signature = createHmac('sha256', secret).update(timed).digest('hex');
    const headers = { 'x-signature': signature };
    const answer = await ask('POST', base, { bearer: token, body: timed, headers });
    assert.equal(answer.status, 401, `${time.slice(0, 40)}: ${answer.text}`);
    const body = `{"action":"x","webhookTimestamp":${time}}`;
    const signed = signedBy('linear', body);
    const other = await ask('POST', base, {
      bearer: linear.token,
      body,
      headers: { ...linear.sample.headers, ...signed },
    });
    assert.equal(other.status, 401, `${time.slice(0, 40)}: ${other.text}`);
  }
});

test('names, ids and pages that are neither numbers nor texts are refused without an error', async () => {
  for (const value of NOT_TIMES) {
    for (const member of ['type', 'id', 'data', 'data":{"page_id']) {
      const sample = await record('stripe');
      const close = member.includes('{') ? '}' : '';
      const body = `{"type":"a","${member}":${value}${close}}`;
      const signed = signedBy('stripe', body);
      const answer = await ask('POST', base, { bearer: sample.token, body, headers: signed });
      assert.ok([200, 400].includes(answer.status), `${member}: ${answer.text}`);
    }
  }
});
