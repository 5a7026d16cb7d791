/**
 * What a target gets, and what its reply means; which names are selected, and when an event is
 * tried again.
 */
import assert from 'node:assert/strict';
import { createHmac, randomBytes } from 'node:crypto';
import { after } from 'node:test';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { readCustomSource } from '../../../src/commands/custom-source.ts';
import { isSelected } from '../../../src/webhook/event-names.ts';
import { createForwardTarget, forwardHeaders } from '../../../src/webhook/targets/forward.ts';
import { delayOf } from '../../../src/webhook/worker.ts';
import { untilSql } from '../../support/connections.ts';
import { ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { startRecorder } from '../../support/recorder.ts';
import { test } from '../../support/until.ts';
import { launchWebhook, macOf } from '../../support/webhook.ts';
import { wordsOf } from '../../support/words.ts';
import { leasedEvent, stateOf, untilStatus } from '../../support/webhook-store.ts';

const recorder = await startRecorder({ after });
const SECRET = `whsec_${randomBytes(32).toString('base64')}`;
const url = `${recorder.url}/hook?a=b`;
const { base, sql, customToken, stored } = await launchWebhook({
  WEBHOOK_FORWARD_URL: url,
  WEBHOOK_FORWARD_SECRET: SECRET,
  WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
  WEBHOOK_RETRY_SCHEDULE: '1ms,2ms',
});
const target = createForwardTarget({ url: new URL(url), secret: null, allowPrivate: true }, 10);
after(() => target.close());
const deliver = (more: Parameters<typeof leasedEvent>[0] = {}) =>
  target.deliver(leasedEvent(more), new AbortController().signal);

async function post(body: unknown = { event: 'e', data: { page_id: 'p1' } }, headers = {}) {
  const answer = await ask('POST', base, { bearer: WEBHOOK_TOKEN, body, headers });
  assert.equal(answer.status, 200, answer.text);
  return String(answer.json.id);
}
const gotOf = (id: string) =>
  recorder.received.filter(({ headers }) => headers['webhook-id'] === id);

test('an event is POSTed byte for byte, with its headers and a Standard Webhooks signature', async () => {
  recorder.answer((response) => response.end('thanks'));
  const raw =
    '\r\n{ "event" :"seite.geändert\\n",\t"data": {"page_id":"\\u0041é\u2028", "n": 1234567890.000 } }\n';
  const id = await post(raw, {
    'content-type': 'application/json; charset=utf-8',
    cookie: 'session=secret',
  });
  await untilStatus(sql, id, 'done');
  assert.deepEqual(await stateOf(sql, id), { status: 'done', attempts: 1, errors: [] });
  const [got, ...more] = gotOf(id);
  assert.ok(got);
  assert.deepEqual([got.method, got.target, got.body, more], ['POST', '/hook?a=b', raw, []]);
  const {
    'webhook-timestamp': time,
    'webhook-signature': signature,
    host: _host,
    connection: _connection,
    'x-request-id': _requestId,
    ...headers
  } = got.headers;
  assert.deepEqual(
    headers,
    {
      'content-type': 'application/json; charset=utf-8',
      'content-length': String(Buffer.byteLength(raw)),
      'user-agent': 'tests',
      'webhook-id': id,
      'gatehouse-event': encodeURIComponent('seite.geändert\n'),
      'gatehouse-attempt': '1',
    },
    'no credential of the sender is forwarded',
  );
  assert.ok(Math.abs(Number(time) - Date.now() / 1000) < 300);
  // As specified: an HMAC of `id.timestamp.body` with the bytes of the secret.
  const key = Buffer.from(SECRET.slice('whsec_'.length), 'base64');
  const mac = createHmac('sha256', key)
    .update(`${id}.${String(time)}.${raw}`)
    .digest('base64');
  assert.equal(signature, `v1,${mac}`);
});

test('without a secret nothing is signed; an empty body and a cut name are sent', async () => {
  recorder.answer((response) => response.end());
  const send = async (more: Parameters<typeof leasedEvent>[0]) => {
    assert.equal((await deliver(more)).error, null);
    const { headers = {}, body } = recorder.received.at(-1) ?? {};
    return [body, headers['webhook-signature'], String(headers['gatehouse-event'])];
  };
  assert.deepEqual(await send({ body: Buffer.alloc(0), event: 'e' }), ['', undefined, 'e']);
  // At most 1,024 encoded bytes, between characters.
  const [, , long] = await send({ event: `${'x'.repeat(1_019)}漢字` });
  assert.equal(long, 'x'.repeat(1_019));
  const [, , wide = ''] = await send({ event: '漢'.repeat(1_000) });
  assert.equal(decodeURIComponent(String(wide)), '漢'.repeat(113));
});

test('2xx is success; redirects, which are not followed, 4xx and 5xx are failures', async () => {
  recorder.answer((response, { headers }) =>
    response.writeHead(Number(headers['gatehouse-event']), { location: '/elsewhere' }).end(),
  );
  const before = recorder.received.length;
  const notes = new Map([
    [304, '; it must answer with 2xx'],
    [413, '; the event is too large for it'],
    ...[300, 301, 303, 308, 399].map((status) => [status, '; redirects are not followed'] as const),
  ]);
  for (const status of [200, 204, 299, ...notes.keys(), 400, 404, 429, 500, 503, 599]) {
    const { error, answer_status } = await deliver({ event: String(status) });
    const expected = `the target answered ${status}${notes.get(status) ?? ''}`;
    assert.deepEqual([error, answer_status], [status < 300 ? null : expected, status]);
  }
  const targets = recorder.received.slice(before).map((one) => one.target);
  assert.deepEqual([...new Set(targets)], ['/hook?a=b']);
});

const ENCODINGS: Readonly<Record<string, (text: string) => Buffer>> = {
  gzip: gzipSync,
  'X-GZIP': gzipSync,
  deflate: deflateSync,
  br: brotliCompressSync,
};

test('of an encoded answer, the text is kept', async () => {
  // Of the second, the first bytes must do.
  const texts = ['x'.repeat(300_000), `Zoë ${randomBytes(60_000).toString('base64')}`];
  const answerTo = async (coding: string, body: Buffer | string) => {
    recorder.answer((response) =>
      response.writeHead(422, { 'content-encoding': coding }).end(body),
    );
    return (await deliver()).answer ?? '';
  };
  for (const [coding, encode] of Object.entries(ENCODINGS)) {
    for (const text of texts) {
      const answer = await answerTo(coding, encode(text));
      assert.ok(text.startsWith(answer) && answer.length > 500, `${coding}: ${answer}`);
    }
    const unread = `The answer is in the encoding ${coding}, which cannot be read.`;
    assert.equal(await answerTo(coding, 'not so encoded'), unread);
    assert.equal(await answerTo(coding, ''), '');
  }
});

test('Retry-After counts as seconds and as a date; a past or invalid one is ignored', async () => {
  const secondsOf = async (retryAfter: string) => {
    recorder.answer((response) => response.writeHead(503, { 'retry-after': retryAfter }).end());
    return (await deliver()).retryAfter;
  };
  for (const [text, seconds] of [
    ['120', 120],
    ['00000000000000000099999', 99_999],
    ['9'.repeat(400), Infinity],
  ] as const)
    assert.equal(await secondsOf(text), seconds);
  for (const text of ['0', '-5', 'soon', '1e3', 'Wed, 21 Oct 2015 07:28:00 GMT', ''])
    assert.equal(await secondsOf(text), null, text);
  const date = Math.ceil(Date.now() / 1000) * 1000 + 300_000;
  const begun = Date.now();
  const seconds = Number(await secondsOf(new Date(date).toUTCString()));
  assert.ok(seconds <= (date - begun) / 1_000 && seconds >= (date - Date.now()) / 1_000);
});

test('an event that fails is retried under the same id, at the time that its target asks for', async () => {
  recorder.answer((response) => response.writeHead(500).end());
  const dead = await post();
  await untilStatus(sql, dead, 'dead');
  const attempts = gotOf(dead).map(({ headers }) => headers['gatehouse-attempt']);
  assert.deepEqual(attempts, ['1', '2', '3']);
  recorder.answer((response) => response.writeHead(503, { 'retry-after': '120' }).end());
  const id = await post();
  const rows = () => sql`
    select extract(epoch from due_at - failed_at)::float8 as seconds
    from webhook.work join webhook.failures using (event_id)
    where event_id = ${id} and lease is null`;
  await untilSql(async () => (await rows()).length === 1, 'the event was given back');
  assert.deepEqual([...(await rows())], [{ seconds: 120 }]);
});

// --- Headers that are not passed on

/** Headers of a sender that could change what a target, or a proxy before it, understands. */
const OF_MESSAGE = wordsOf(`
  Host Connection Keep-Alive Transfer-Encoding TE Trailer Upgrade Expect Content-Length
  Content_Length Content-Encoding Proxy-Connection Proxy-Authorization Cookie
`);
const TRUSTED = wordsOf(`
  Authorization Forwarded Via X-Forwarded-For X_Forwarded_For X-Forwarded-Host X-Real-IP
  X-Auth-Username x.auth.groups X-Original-URL True-Client-IP
`);

test('a custom source cannot take its values from such a header', () => {
  const read = (options: Readonly<Record<string, string>>) => {
    const given = { 'signature-header': 'X-Sig', 'event-name': '/type', ...options };
    const text = (name: string) => new Map(Object.entries(given)).get(name);
    const others = { positionals: [], first: '', flag: () => false };
    return readCustomSource({ ...others, text }, 'custom');
  };
  assert.ok(read({ 'signature-header': 'Authorization' }));
  for (const header of [...OF_MESSAGE, ...TRUSTED]) {
    const named: Array<Readonly<Record<string, string>>> = [
      { 'event-name': header },
      { 'delivery-id': header },
      { 'delivery-id': header, 'signed-text': '{id}{body}' },
    ];
    if (OF_MESSAGE.includes(header)) {
      named.push({ 'signature-header': header });
      named.push({ time: header, 'signed-text': '{timestamp}{body}' });
    }
    for (const options of named)
      assert.throws(() => read(options), new RegExp(`cannot be ${header.toLowerCase()}`));
  }
});

test('such a header is not forwarded, whatever is stored with an event', () => {
  const body = Buffer.from('{"type":"a"}');
  for (const header of [...OF_MESSAGE, ...TRUSTED]) {
    for (const name of [header, header.toLowerCase(), header.toUpperCase()]) {
      const headers = { 'content-type': 'application/json', 'x-kind': 'kept', [name]: 'chunked' };
      const sent = Object.entries(forwardHeaders(leasedEvent({ headers, body }), null));
      const values = new Map(sent.map(([key, value]) => [key.toLowerCase(), value]));
      assert.ok(![...values.values()].includes('chunked'), name);
      const kept = [values.get('x-kind'), values.get('content-length')];
      assert.deepEqual(kept, ['kept', String(body.length)]);
    }
  }
});

test('such a header is not stored either, even if a token keeps the signature', async () => {
  const token = await customToken({
    scheme: { header: 'authorization', prefix: 'hmac ' },
    event: ['/type', 'x-forwarded-host'],
    deliveryId: ['cookie'],
  });
  await sql`update webhook.tokens set keep_signature = true`;
  const body = '{"type":"a"}';
  const headers = {
    authorization: `hmac ${macOf(body)}`,
    'x-forwarded-host': 'evil.example',
    cookie: 'session=x',
    'user-agent': 'sender',
  };
  const answer = await ask('POST', `${base}?token=${token}`, { body, headers });
  const kept = Object.keys((await stored(answer.json.id)).headers);
  assert.deepEqual(kept.toSorted(), ['content-type', 'user-agent', 'x-request-id']);
});

// --- Names that are selected, and pauses

test('only * is special in a pattern, which matches whole names, and no pattern selects all', () => {
  const SPECIAL = ['(a|b)', '[ab]', 'a+', 'a?', '^a$', '\\d', 'a{2}', 'a/b-c', 'page.updated'];
  for (const name of SPECIAL) assert.equal(isSelected(SPECIAL, name), true, name);
  for (const name of ['a', 'b', 'aa', '5', '', 'pageXupdated', 'PAGE.UPDATED'])
    assert.equal(isSelected(SPECIAL, name), false, name);
  for (const name of ['', 'anything', 'a\nb'])
    assert.deepEqual([isSelected([], name), isSelected(['*'], name)], [true, true], name);
});

/** Every text of these letters, up to a length. */
const textsOf = (letters: string, most: number): string[] => {
  const rests = most === 0 ? [] : textsOf(letters, most - 1);
  return ['', ...[...letters].flatMap((letter) => rests.map((rest) => letter + rest))];
};

test('short patterns select the same names as a regular expression', () => {
  const names = textsOf('ab', 5);
  for (const pattern of textsOf('ab*', 5)) {
    const expected = new RegExp(`^${pattern.replaceAll('*', '.*')}$`);
    for (const name of names)
      assert.equal(isSelected([pattern], name), expected.test(name), `"${pattern}" and "${name}"`);
  }
});

test('no event name makes a pattern with many stars slow', () => {
  // A regular expression would take hours.
  assert.equal(isSelected([`${'*a'.repeat(30)}*b`], 'a'.repeat(1_024)), false);
});

test('a delay is within 20 % of its pause, at least Retry-After, which counts up to a day', () => {
  for (const [pauseMs, retryAfter, random, delayMs] of [
    [1_000, null, 0, 800],
    [1_000, null, 0.5, 1_000],
    [1_000, null, 1, 1_200],
    [0, null, 1, 0],
    [30_000, 120, 1, 120_000],
    [1_000_000, 10, 0, 800_000],
    [30_000, 200_000, 0, 86_400_000],
    [604_800_000, 200_000, 0.5, 604_800_000],
  ] as const)
    assert.equal(Math.round(delayOf(pauseMs, retryAfter, random)), delayMs);
  const drawn = Array.from({ length: 1_000 }, () => delayOf(10, null));
  const [least, most] = drawn.sort((one, other) => one - other).filter((_, n) => n % 999 === 0);
  assert.ok(least && most && least >= 8 && least < 8.5 && most > 11.5 && most <= 12);
});
