/** Requests for a secret: asking, answering once, reading, withdrawing, and what stays secret. */
import assert from 'node:assert/strict';
import { createECDH, randomBytes, randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { deriveKeys, open, seal } from '../../../src/secrets/pages/envelope.js';
import {
  checkKept,
  createAnswerKeys,
  createRequest,
  openAnswerKeys,
} from '../../../src/secrets/pages/request-keys.js';
import { expireRequest } from '../../support/altered-requests.ts';
import { openConnections } from '../../support/connections.ts';
import { type Answer, ask, AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { connectTo, headOf } from '../../support/socket.ts';
import { createSecretToken } from '../../support/tokens.ts';

const gatehouse = await launch(['secrets'], {
  SHARE_PAGES: 'on',
  LOG_LEVEL: 'debug',
  TRUSTED_PROXIES: '127.0.0.1',
});
const { sql, databaseUrl } = gatehouse;
const base = gatehouse.url.secrets;
const database = openConnections({ after }, databaseUrl, 'secrets');
const TEXT = { kind: 'text' } as const;

const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
  ask('POST', `${base}${path}`, { body, headers });
const asSender = (method: string, path: string, body?: unknown) =>
  ask(method, `${base}${path}`, { bearer: AUTH_TOKEN, body });

interface Asked {
  readonly id: string;
  readonly receipt: string;
  readonly key: string;
  readonly digest: string;
  readonly publicKey: string;
}

async function request(limits: object = {}, title = 'Password of the shop'): Promise<Asked> {
  const { key, request: made } = await createRequest('text', title);
  const { status, json, text } = await asSender('POST', '/api/store/request', {
    ...made,
    ...limits,
  });
  assert.equal(status, 201, text);
  const { id, receipt } = json;
  return { id, receipt, key, digest: made.digest, publicKey: made.public_key };
}

async function answerBody({ id, publicKey }: Asked, text: string) {
  const keys = (await createAnswerKeys(id, publicKey)) ?? assert.fail();
  const { envelope } = await seal(
    { about: TEXT, bytes: new TextEncoder().encode(text) },
    '',
    keys.key,
  );
  return { public_key: keys.public_key, secret: keys.serviceKey, password: envelope };
}

const postAnswer = ({ id, digest }: Asked, body: unknown, headers = {}) =>
  post(`/answer/${id}`, body, { 'x-link-key': digest, ...headers });

async function answer(asked: Asked, text: string): Promise<Answer> {
  return postAnswer(asked, await answerBody(asked, text));
}

const stateOf = async ({ id, receipt }: Asked) =>
  (await post(`/request/${id}`, { key: receipt })).json;

/** As the link to keep opens it. */
async function openKeys(asked: Asked, state: Answer['json']) {
  const own = (await checkKept(asked, state)) ?? assert.fail('the request was altered');
  return (await openAnswerKeys(asked.id, own, state)) ?? assert.fail();
}

async function readAnswer(asked: Asked): Promise<string> {
  const keys = await openKeys(asked, await stateOf(asked));
  const { status, json, text } = await post(`/s/${asked.id}`, { secret: keys.serviceKey });
  assert.equal(status, 200, text);
  const { content } = (await deriveKeys(keys.key, '')) ?? assert.fail();
  const opened = (await open(json.password, content)) ?? assert.fail();
  return new TextDecoder().decode(opened.bytes);
}

const rows = async (id: string) => {
  const [found] = await sql`
    select (select count(*)::int from secrets.secrets where id = ${id}) as secrets,
      (select ending from secrets.requests where id = ${id}) as ending`;
  return { ...found };
};

test('an answer is an ordinary secret: read once, with a receipt and an expiry', async () => {
  const asked = await request({ expires_in: 3_600 });
  const open = await stateOf(asked);
  assert.deepEqual(
    { ...open, expires_at: null },
    {
      status: 'open',
      kind: 'text',
      title: 'Password of the shop',
      asker: null,
      public_key: asked.publicKey,
      answer_key: null,
      max_bytes: 1_637_376,
      expires_at: null,
    },
  );
  assert.deepEqual((await post(`/request/${asked.id}`, { key: asked.digest })).json, open);
  const receipt = async () => (await asSender('GET', `/api/store/${asked.id}`)).json;
  assert.equal((await receipt()).status, 'requested');
  assert.equal((await answer(asked, 'hunter2')).status, 201);
  assert.equal((await stateOf(asked)).status, 'answered');
  const { status, max_reads, expires_at } = await receipt();
  assert.deepEqual([status, max_reads], ['stored', 1]);
  const seconds = (new Date(expires_at).getTime() - Date.now()) / 1_000;
  assert.ok(seconds > 3_000 && seconds <= 3_600, 'kept for as long as the request was open');
  assert.equal(await readAnswer(asked), 'hunter2');
  assert.equal((await receipt()).status, 'read');
  const byKey = await post(`/r/${asked.id}`, { key: asked.receipt });
  assert.deepEqual([byKey.json.status, byKey.json.reads], ['read', 1]);
});

test('16 answers at once: one is stored, and the others are told so', async () => {
  for (let round = 0; round < 3; round += 1) {
    const asked = await request();
    const bodies = await Promise.all(
      Array.from({ length: 16 }, (_, at) => answerBody(asked, `answer ${at}`)),
    );
    const answers = await Promise.all(bodies.map((body) => postAnswer(asked, body)));
    const won = answers.findIndex(({ status }) => status === 201);
    const codes = answers.map(({ json }) => json.error?.code ?? 'stored').sort();
    assert.deepEqual(codes, [...Array.from({ length: 15 }, () => 'conflict'), 'stored']);
    assert.match(
      answers.find(({ status }) => status === 409)?.json.error.message,
      /^This request takes no answer any more: it has one, was withdrawn or has expired\.$/,
    );
    assert.equal(await readAnswer(asked), `answer ${won}`);
  }
});

test('a withdrawal and 8 answers at once: one of them wins', async () => {
  const asked = await request();
  const bodies = await Promise.all(
    Array.from({ length: 8 }, (_, at) => answerBody(asked, `answer ${at}`)),
  );
  await Promise.all([
    ...bodies.map((body) => postAnswer(asked, body)),
    post(`/s/${asked.id}/delete`, { key: asked.receipt }),
  ]);
  const { secrets, ending } = await rows(asked.id);
  assert.equal(secrets, ending === 'answered' ? 1 : 0);
});

test('a sender withdraws its own requests only, an operator all', async () => {
  const tokenOf = async (role: 'sender' | 'operator') =>
    (await createSecretToken(database, { name: role, role })).token;
  const owner = await tokenOf('sender');
  const makeRequest = async (): Promise<string> => {
    const { request: body } = await createRequest('text', 'Password of the shop');
    return (await ask('POST', `${base}/api/store/request`, { bearer: owner, body })).json.id;
  };
  const withdraw = (id: string, bearer: string) =>
    ask('DELETE', `${base}/api/store/${id}`, { bearer });
  const id = await makeRequest();
  assert.equal((await withdraw(id, await tokenOf('sender'))).json.error.code, 'not_found');
  assert.equal((await withdraw(id, owner)).json.status, 'withdrawn');
  const other = await makeRequest();
  assert.equal((await withdraw(other, await tokenOf('operator'))).json.status, 'withdrawn');
});

test('nothing is stored for an unknown, withdrawn, expired or answered request', async () => {
  const unknown = { ...(await request()), id: randomUUID() };
  assert.equal((await answer(unknown, 'x')).json.error.code, 'not_found');
  assert.deepEqual(await rows(unknown.id), { secrets: 0, ending: null });

  const withdrawn = await request();
  const done = await asSender('DELETE', `/api/store/${withdrawn.id}`);
  assert.deepEqual([done.status, done.json.status], [200, 'withdrawn']);
  assert.equal((await answer(withdrawn, 'x')).status, 409);
  assert.deepEqual(await rows(withdrawn.id), { secrets: 0, ending: 'withdrawn' });
  assert.equal((await asSender('GET', `/api/store/${withdrawn.id}`)).json.status, 'withdrawn');

  const expired = await request();
  await expireRequest(sql, expired.id);
  assert.equal((await answer(expired, 'x')).status, 409);
  await asSender('DELETE', `/api/store/${expired.id}`);
  assert.deepEqual(await rows(expired.id), { secrets: 0, ending: null });
  assert.equal((await stateOf(expired)).status, 'expired');

  const answered = await request();
  assert.equal((await answer(answered, 'first')).status, 201);
  assert.equal((await answer(answered, 'second')).status, 409);
  assert.equal(await readAnswer(answered), 'first');
});

test('a wrong key shows and stores nothing, and wrong ones are limited by network', async () => {
  const asked = await request();
  const headers = { 'x-forwarded-for': '203.0.113.7' };
  const key = randomBytes(32).toString('base64url');
  const body = await answerBody(asked, 'x');
  const codes = new Set<string>();
  for (let at = 0; at < 31; at += 1) {
    codes.add((await post(`/request/${asked.id}`, { key }, headers)).json.error.code);
    codes.add((await postAnswer({ ...asked, digest: key }, body, headers)).json.error.code);
  }
  assert.deepEqual([...codes], ['not_found', 'too_many_requests']);
  const right = await post(`/request/${asked.id}`, { key: asked.digest }, headers);
  assert.equal(right.status, 200, 'the right link always passes');
  assert.deepEqual(await rows(asked.id), { secrets: 0, ending: null });
});

/** The reply to the head of a large answer, whose body does not come. */
async function replyToHead(id: string, key: string | null, from: string) {
  const client = await connectTo(base);
  client.send(
    headOf([
      `POST /answer/${id} HTTP/1.1`,
      'Host: a',
      'Content-Type: application/json',
      'Content-Length: 1600000',
      'Expect: 100-continue',
      `X-Forwarded-For: ${from}`,
      ...(key === null ? [] : [`X-Link-Key: ${key}`]),
    ]),
  );
  const { status, json } = await client.answer();
  client.leave();
  return json?.error?.code ?? status;
}

test('the key of an answer is checked before a byte of its body is read', async () => {
  const asked = await request();
  const wrong = randomBytes(32).toString('base64url');
  const { id, digest } = asked;
  assert.equal(await replyToHead(id, digest, '203.0.113.20'), 100);
  assert.equal(await replyToHead(id, null, '203.0.113.20'), 'invalid_header');
  assert.equal(await replyToHead(id, 'x', '203.0.113.20'), 'invalid_header');
  assert.equal(await replyToHead(id, `${digest}, ${digest}`, '203.0.113.20'), 'invalid_header');
  assert.equal(await replyToHead('x', digest, '203.0.113.20'), 'invalid_path');
  assert.equal(await replyToHead(id, wrong, '203.0.113.20'), 'not_found');
  assert.equal(await replyToHead(randomUUID(), digest, '203.0.113.20'), 'not_found');
  for (let at = 2; at < 60; at += 1) await replyToHead(randomUUID(), wrong, '203.0.113.20');
  assert.equal(await replyToHead(id, wrong, '203.0.113.20'), 'too_many_requests');
  assert.equal(await replyToHead(id, digest, '203.0.113.20'), 100, 'the right key passes');
  await answer(asked, 'x');
  assert.equal(await replyToHead(id, digest, '203.0.113.20'), 'conflict');
});

test('an answer that was begun counts, whether or not its body arrives', async () => {
  const { id, digest } = await request();
  for (let at = 0; at < 30; at += 1)
    assert.equal(await replyToHead(id, digest, '203.0.113.21'), 100);
  assert.equal(await replyToHead(id, digest, '203.0.113.21'), 'too_many_requests');
  assert.equal(await replyToHead(id, digest, '203.0.113.22'), 100);
});

test('answers to one request from one network are limited', async () => {
  const asked = await request();
  const headers = { 'x-forwarded-for': '203.0.113.8' };
  await sql`alter table secrets.secrets add constraint fails check (max_reads <> 1) not valid`;
  const body = await answerBody(asked, 'x');
  const statuses = [];
  for (let at = 0; at < 31; at += 1) statuses.push((await postAnswer(asked, body, headers)).status);
  await sql`alter table secrets.secrets drop constraint fails`;
  assert.deepEqual(statuses.slice(-2), [503, 429]);
  assert.deepEqual(await rows(asked.id), { secrets: 0, ending: null }, 'nothing is half done');
  assert.equal((await answer(asked, 'from elsewhere')).status, 201);
});

test('malformed keys and points are refused with the member, and nothing is stored', async () => {
  const asked = await request();
  const body = await answerBody(asked, 'x');
  const point = createECDH('prime256v1').generateKeys();
  const offCurve = Buffer.from(point);
  offCurve.writeUInt8(point.readUInt8(64) ^ 1, 64);
  const points = [offCurve, Buffer.of(0), point.subarray(0, 64), Buffer.alloc(65, 4)];
  for (const bad of points) {
    const public_key = bad.toString('base64url');
    const answered = await postAnswer(asked, { ...body, public_key });
    const made = (await createRequest('text', 'x')).request;
    const wanted = await asSender('POST', '/api/store/request', { ...made, public_key });
    for (const { status, json } of [answered, wanted])
      assert.deepEqual(
        [status, json.error.fields],
        [
          400,
          [
            {
              path: '/public_key',
              message: 'must be a point of P-256, uncompressed: 65 bytes, in Base64url',
            },
          ],
        ],
      );
  }
  assert.equal((await postAnswer(asked, { ...body, secret: 'x' })).status, 400);
  const large = await postAnswer(asked, { ...body, password: 'x'.repeat(1_700_000) });
  assert.equal(large.json.error.code, 'body_too_large');
  const form = await ask('POST', `${base}/answer/${asked.id}`, {
    body: JSON.stringify(body),
    headers: { 'content-type': 'text/plain', 'x-link-key': asked.digest },
  });
  assert.equal(form.status, 415);
  assert.deepEqual(await rows(asked.id), { secrets: 0, ending: null });
  assert.equal((await answer(asked, 'x')).status, 201);
});

test('a title is one line without control characters', async () => {
  for (const character of [
    ...'\0\t\n\v\f\r\u001b\u007f\u0085\u009b\u2028\u2029',
    ...'\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069',
  ]) {
    const { request: made } = await createRequest('text', `Password${character}of the shop`);
    const { status, json } = await asSender('POST', '/api/store/request', made);
    assert.deepEqual(
      [status, json.error?.fields],
      [400, [{ path: '/title', message: 'must be one line without control characters' }]],
      JSON.stringify(character),
    );
  }
  for (const title of ['Пароль', 'كلمة \u200fالسر', '👩‍👩‍👧', 'a\u00a0b'])
    assert.equal((await request({}, title)).digest.length, 43);
});

test('loading a page or the state uses nothing up', async () => {
  const asked = await request();
  await answer(asked, 'still there');
  const whole = async () => [
    await sql`select r::text from secrets.requests r where id = ${asked.id}`,
    await sql`select s::text from secrets.secrets s where id = ${asked.id}`,
  ];
  const before = await whole();
  for (const path of [`/request/${asked.id}`, `/answer/${asked.id}`, '/request'])
    assert.equal((await ask('GET', `${base}${path}?${asked.digest}`)).status, 200);
  await stateOf(asked);
  assert.deepEqual(await whole(), before);
});

test('an altered answer does not open, says so, and no read is used', async () => {
  const asked = await request();
  await answer(asked, 'x');
  const other = (await createAnswerKeys(asked.id, asked.publicKey)) ?? assert.fail();
  const state = await stateOf(asked);
  const swapped = await openKeys(asked, { ...state, answer_key: other.public_key });
  const wrong = await post(`/s/${asked.id}/status`, { secret: swapped.serviceKey });
  assert.equal(wrong.json.error.code, 'not_found');
  await sql`update secrets.secrets set blob = set_byte(blob, 20, get_byte(blob, 20) # 1)
    where id = ${asked.id}`;
  const keys = await openKeys(asked, state);
  const read = await post(`/s/${asked.id}`, { secret: keys.serviceKey });
  assert.deepEqual([read.status, read.json.error.code], [500, 'secret_damaged']);
  assert.match(read.json.error.message, /No read was used/);
});

test('neither text nor private key is in a request, a row or a log line', async () => {
  const text = `plaintext ${randomBytes(16).toString('hex')}`;
  const sent: string[] = [];
  const { key, request: made } = await createRequest('text', 'Password of the shop');
  sent.push(JSON.stringify(made));
  const { json } = await asSender('POST', '/api/store/request', made);
  const asked = { ...json, key, digest: made.digest, publicKey: made.public_key };
  const body = await answerBody(asked, text);
  sent.push(JSON.stringify(body));
  assert.equal((await postAnswer(asked, body)).status, 201);
  const tables = [
    await sql`select r::text as row from secrets.requests r where id = ${asked.id}`,
    await sql`select s::text as row from secrets.secrets s where id = ${asked.id}`,
  ];
  assert.equal(await readAnswer(asked), text);
  const stored = JSON.stringify(tables);
  const written = gatehouse.stdout() + gatehouse.stderr();
  const secret = Buffer.from(key, 'base64url').subarray(0, 32);
  const forms = (bytes: Buffer) => [
    bytes.toString('utf8'),
    bytes.toString('hex'),
    bytes.toString('base64').replace(/=*$/, '').slice(0, -1),
    bytes.toString('base64url').slice(0, -1),
  ];
  for (const hidden of [...forms(Buffer.from(text)), ...forms(secret), key]) {
    for (const [name, place] of [
      ['requests', sent.join()],
      ['rows', stored],
      ['log', written],
    ] as const)
      assert.ok(!place.includes(hidden), `${name} contain ${hidden}`);
  }
  for (const credential of [asked.receipt, asked.digest, body.secret])
    assert.ok(!written.includes(credential), 'the log contains a key of a link');
  assert.ok(!stored.includes(asked.receipt) && !stored.includes(body.secret));
  assert.ok(stored.includes(asked.digest), 'the search finds what is stored');
});
