import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { ask, type Gatehouse, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';

const EVENT = { event: 'page.updated', data: { page_id: 'p1' } };

// There is no database in this file.
const start = (
  owner: Parameters<typeof startGatehouse>[0],
  environment: Record<string, string | undefined>,
) => startGatehouse(owner, ['webhook'], undefined, { WEBHOOK_VARIANT: 'plain', ...environment });
const guarded = await start({ after }, { APP_NAME: 'letterbox' });
const open = await start({ after }, { WEBHOOK_TOKEN: undefined });

const post = (body: unknown, headers: Record<string, string> = {}, { url }: Gatehouse = guarded) =>
  ask('POST', `${url.webhook}/webhook`, { bearer: WEBHOOK_TOKEN, body, headers });
const events = (gatehouse: Gatehouse = guarded) =>
  gatehouse.log().filter((line) => line.message === 'event');

test('an event becomes one JSON line with its body, and the reply is 200 with its id', async () => {
  const requestId = randomUUID();
  const before = events().length;
  const { status, json } = await post({ ...EVENT, more: [1, null] }, { 'x-request-id': requestId });
  assert.equal(status, 200);
  assert.deepEqual(Object.keys(json), ['id', 'status']);
  assert.equal(json.status, 'accepted');
  const written = events();
  assert.equal(written.length, before + 1);
  const { time, ...line } = written.at(-1) ?? {};
  assert.equal(new Date(String(time)).toISOString(), time);
  assert.deepEqual(line, {
    app: 'letterbox',
    message: 'event',
    id: json.id,
    request_id: requestId,
    delivery_id: null,
    body: { ...EVENT, more: [1, null] },
  });
});

test('a body with several lines becomes one line', async () => {
  const before = guarded.stdout().length;
  const body = '{\n  "event": "x",\r\n\t"data": { "page_id": "a\\nb\u2028\u009b31m\u202e" }\n}\n';
  const { json } = await post(body);
  const lines = guarded
    .stdout()
    .slice(before)
    .split('\n')
    .filter((line) => line.includes(json.id));
  assert.equal(lines.length, 1);
  assert.deepEqual(JSON.parse(lines[0] ?? '').body, JSON.parse(body));
  assert.doesNotMatch(lines[0] ?? '', /[\p{Cc}\p{Cf}\p{Zl}]/u, 'nothing that a terminal obeys');
});

test('the line has the body unchanged, even numbers that a double cannot hold', async () => {
  const { json } = await post('{"event":"x","data":{"page_id":"p"},"order":12345678901234567890}');
  const line = guarded
    .stdout()
    .split('\n')
    .find((text) => text.includes(json.id));
  assert.match(line ?? '', /12345678901234567890[,}]/);
});

test('a delivery id is printed, and a repeated delivery is printed again', async () => {
  const key = randomUUID();
  const answers = [
    await post(EVENT, { 'webhook-id': key }),
    await post(EVENT, { 'idempotency-key': key }),
  ];
  assert.deepEqual(
    answers.map(({ json }) => json.status),
    ['accepted', 'accepted'],
  );
  assert.deepEqual(
    events()
      .filter((line) => line.delivery_id === key)
      .map(({ id }) => id),
    answers.map(({ json }) => json.id),
  );
});

const CREDENTIALS: ReadonlyArray<
  readonly [why: string, query: string, authorization: string | undefined, status: number]
> = [
  ['the token in the query', `?token=${WEBHOOK_TOKEN}`, undefined, 200],
  ['the token as bearer', '', `Bearer ${WEBHOOK_TOKEN}`, 200],
  ['no token', '', undefined, 401],
  ['an empty token', '?token=', undefined, 401],
  ['a wrong token', '?token=x', undefined, 401],
  ['the token twice', `?token=${WEBHOOK_TOKEN}&token=${WEBHOOK_TOKEN}`, undefined, 401],
  ['a wrong bearer, whatever the query says', `?token=${WEBHOOK_TOKEN}`, 'Bearer wrong', 401],
];
for (const [why, query, authorization, status] of CREDENTIALS) {
  test(`with WEBHOOK_TOKEN ${why} is answered ${status}; without it no token is required`, async () => {
    const headers: Record<string, string> = authorization === undefined ? {} : { authorization };
    const before = [events().length, events(open).length];
    const answers = [];
    for (const { url } of [guarded, open])
      answers.push(await ask('POST', `${url.webhook}/webhook${query}`, { body: EVENT, headers }));
    assert.deepEqual(
      answers.map((answer) => answer.status),
      [status, 200],
    );
    assert.deepEqual(
      [events().length, events(open).length],
      [(before[0] ?? 0) + (status === 200 ? 1 : 0), (before[1] ?? 0) + 1],
    );
    if (status === 401) assert.equal(answers[0]?.headers.get('www-authenticate'), 'Bearer');
  });
}

test('the start warns if no token is required', () => {
  const warnings = (gatehouse: Gatehouse) =>
    gatehouse
      .log()
      .filter((line) => line.level === 'warn' && line.message !== 'credential refused')
      .map((line) => String(line.message));
  assert.equal(warnings(open).length, 1);
  assert.match(warnings(open)[0] ?? '', /WEBHOOK_TOKEN is not set.*accepts events from anyone/);
  assert.deepEqual(warnings(guarded), []);
});

test('no event that is invalid is printed', async () => {
  const before = events().length;
  for (const [body, headers] of [
    [{ data: EVENT.data }, {}],
    [EVENT, { 'webhook-id': 'a b' }],
    [{ ...EVENT, more: 'x'.repeat(65_536) }, {}],
  ] as const)
    assert.ok([400, 413].includes((await post(body, headers)).status));
  assert.equal(events().length, before);
});

test('concurrent events become whole lines', async () => {
  const before = events(open).length;
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, n) =>
      post({ event: `e${n}`, data: { page_id: 'x'.repeat(20_000) } }, {}, open),
    ),
  );
  const written = new Set(
    events(open)
      .slice(before)
      .map(({ id }) => id),
  );
  assert.deepEqual(written, new Set(answers.map(({ json }) => json.id)));
});

test('the token is never logged, and neither is the body of an invalid event', async () => {
  await post({ event: 'marked-event', data: 'marked-data' });
  const written = guarded.stdout() + guarded.stderr();
  for (const mark of [WEBHOOK_TOKEN, 'token=', 'marked-']) assert.ok(!written.includes(mark), mark);
});
