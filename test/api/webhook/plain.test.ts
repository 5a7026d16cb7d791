/** The plain variant, which prints events. There is no database in this file. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';

const EVENT = { event: 'page.updated', data: { page_id: 'p1' } };

async function start(settings: Record<string, string | undefined>) {
  const plain = { WEBHOOK_VARIANT: 'plain', ...settings };
  const { url, log, stdout, stderr } = await startGatehouse(
    { after },
    ['webhook'],
    undefined,
    plain,
  );
  return {
    log,
    written: () => stdout() + stderr(),
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
const guarded = await start({ APP_NAME: 'letterbox' });
const open = await start({ WEBHOOK_TOKEN: undefined });
const post = (body: unknown, headers: Record<string, string> = {}) =>
  guarded.send(body, { authorization: `Bearer ${WEBHOOK_TOKEN}`, ...headers });

test('an event becomes one JSON line with its body, and the reply is 200 with its id', async () => {
  const request_id = randomUUID();
  const body = { ...EVENT, more: [1, null] };
  const { status, json } = await post(body, { 'x-request-id': request_id });
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
  const line = guarded.line((await post(body)).json.id);
  assert.deepEqual(JSON.parse(line).body, JSON.parse(body));
  assert.doesNotMatch(line, /[\p{Cc}\p{Cf}\p{Zl}]/u);
  assert.match(line, /"order":12345678901234567890 \}/, 'a number that a double cannot hold');
});

test('a delivery id is printed, and a repeated delivery is printed again', async () => {
  const key = randomUUID();
  const answers = [
    await post(EVENT, { 'webhook-id': key }),
    await post(EVENT, { 'idempotency-key': key }),
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
    assert.equal((await post(EVENT, headers)).json.status, 'accepted');
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
    assert.equal((await post(body, headers)).status, status);
  assert.equal(guarded.events().length, before);
  for (const mark of [WEBHOOK_TOKEN, 'token=', 'marked-'])
    assert.ok(!guarded.written().includes(mark), mark);
});
