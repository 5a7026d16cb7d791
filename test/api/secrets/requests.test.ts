/** Requests for a secret: asking, answering once, reading, withdrawing, and what stays secret. */
import assert from 'node:assert/strict';
import { createECDH, randomBytes, randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { deriveKeys, open } from '../../../src/secrets/pages/envelope.js';
import {
  checkKept,
  createRequest,
  openAnswerKeys,
} from '../../../src/secrets/pages/request-keys.js';
import { openConnections } from '../../support/connections.ts';
import { type Answer, ask, AUTH_TOKEN, launch, startGatehouse } from '../../support/gatehouse.ts';
import { type Asked, expireRequest, requestsClient, TITLE } from '../../support/secret-requests.ts';
import { wrongKey } from '../../support/secrets.ts';
import { exchange } from '../../support/socket.ts';
import { createSecretToken } from '../../support/tokens.ts';

const settings = { SHARE_PAGES: 'on', LOG_LEVEL: 'debug', TRUSTED_PROXIES: '127.0.0.1' };
const { sql, databaseUrl, secrets: base, ...gatehouse } = await launch(['secrets'], settings);
const { post, request, answerBody, postAnswer, answer } = requestsClient(base);

const asSender = (method: string, path: string, body?: unknown, bearer = AUTH_TOKEN) =>
  ask(method, base + path, { bearer, body });
const outcomeOf = ({ status, json }: Answer) =>
  json.error === undefined ? status : `${status} ${json.error.code}`;

const stateOf = async ({ id, receipt }: Asked) =>
  (await post(`/request/${id}`, { key: receipt })).json;
const statusOf = async ({ id }: Asked) => (await asSender('GET', `/api/store/${id}`)).json.status;

/** As the link to keep opens it. */
async function openKeys(asked: Asked, state: Answer['json']) {
  const own = (await checkKept(asked, state)) ?? assert.fail('the request was altered');
  return (await openAnswerKeys(asked.id, own, state)) ?? assert.fail();
}

async function readAnswer(asked: Asked): Promise<string> {
  const keys = await openKeys(asked, await stateOf(asked));
  const { json } = await post(`/s/${asked.id}`, { secret: keys.serviceKey });
  const { content } = (await deriveKeys(keys.key, '')) ?? assert.fail();
  const opened = (await open(json.password, content)) ?? assert.fail();
  return new TextDecoder().decode(opened.bytes);
}

/** How many secrets there are of a request, and how it has ended. */
async function stored({ id }: Asked) {
  const [found] = await sql`
    select (select count(*)::int from secrets.secrets where id = ${id}) as secrets,
      (select ending from secrets.requests where id = ${id}) as ending`;
  return [found?.secrets, found?.ending];
}

test('an answer is an ordinary secret: read once, with a receipt and an expiry', async () => {
  const asked = await request({ expires_in: 3_600 });
  const state = await stateOf(asked);
  const { public_key } = asked.body;
  const open = { status: 'open', kind: 'text', title: TITLE, asker: null, answer_key: null };
  const { max_bytes, expires_at, ...said } = state;
  assert.deepEqual([said, max_bytes], [{ ...open, public_key }, 1_637_376]);
  assert.ok(Date.parse(expires_at) > Date.now());
  assert.deepEqual((await post(`/request/${asked.id}`, { key: asked.digest })).json, state);
  assert.equal(await statusOf(asked), 'requested');
  assert.equal((await answer(asked, 'hunter2')).status, 201);
  assert.equal((await stateOf(asked)).status, 'answered');
  const { json } = await asSender('GET', `/api/store/${asked.id}`);
  assert.deepEqual([json.status, json.max_reads], ['stored', 1]);
  const [row] = await sql`select extract(epoch from expires_at - created_at)::float8 as seconds
    from secrets.secrets where id = ${asked.id}`;
  assert.ok(row?.seconds > 3_000 && row?.seconds <= 3_600, 'as long as the request was open');
  assert.equal(await readAnswer(asked), 'hunter2');
  const byKey = (await post(`/r/${asked.id}`, { key: asked.receipt })).json;
  assert.deepEqual([await statusOf(asked), byKey.status, byKey.reads], ['read', 'read', 1]);
});

test('an answer is read as often as its request allows', async () => {
  const asked = await request({ max_reads: 2 });
  await answer(asked, 'twice');
  for (const status of ['stored', 'read']) {
    assert.equal(await readAnswer(asked), 'twice');
    assert.equal(await statusOf(asked), status);
  }
});

test('if secrets never expire by default, a request is open as long as one may be', async (t) => {
  const limits = { SHARE_PAGES: 'on', SECRET_TTL: '0' };
  const { url } = await startGatehouse(t, ['secrets'], databaseUrl, limits);
  const { id } = await requestsClient(url.secrets).request();
  const [row] = await sql`select seconds from secrets.requests where id = ${id}`;
  assert.equal(row?.seconds, 30 * 86_400);
});

const manyBodies = (asked: Asked, count: number) =>
  Promise.all(Array.from({ length: count }, (_, at) => answerBody(asked, `answer ${at}`)));

test('16 answers at once: one is stored, and the others are told so', async () => {
  const asked = await request();
  const bodies = await manyBodies(asked, 16);
  const answers = await Promise.all(bodies.map((body) => postAnswer(asked, body)));
  const outcomes = answers.map(outcomeOf);
  assert.deepEqual(outcomes.toSorted(), [201, ...Array<string>(15).fill('409 conflict')]);
  const lost = answers.find(({ status }) => status === 409);
  assert.match(lost?.json.error.message, /^This request takes no answer any more/);
  assert.equal(await readAnswer(asked), `answer ${outcomes.indexOf(201)}`);
});

test('a withdrawal and 8 answers at once: one of them wins', async () => {
  const asked = await request();
  const bodies = await manyBodies(asked, 8);
  await Promise.all([
    ...bodies.map((body) => postAnswer(asked, body)),
    post(`/s/${asked.id}/delete`, { key: asked.receipt }),
  ]);
  const [secrets, ending] = await stored(asked);
  assert.equal(secrets, ending === 'answered' ? 1 : 0);
});

test('a sender withdraws its own requests and deletes their answers, an operator all', async () => {
  const database = openConnections({ after }, databaseUrl, 'secrets');
  const tokenOf = async (role: 'sender' | 'operator') =>
    (await createSecretToken(database, { name: role, role })).token;
  const owner = await tokenOf('sender');
  const outcomes = [];
  for (const token of [await tokenOf('sender'), owner, await tokenOf('operator')]) {
    for (const isAnswered of [false, true]) {
      const { key, request: body } = await createRequest('text', TITLE);
      const { id, receipt } = (await asSender('POST', '/api/store/request', body, owner)).json;
      if (isAnswered) await answer({ id, receipt, key, digest: body.digest, body });
      const { json } = await asSender('DELETE', `/api/store/${id}`, undefined, token);
      outcomes.push(json.status ?? json.error.code);
    }
  }
  const own = ['withdrawn', 'deleted'];
  assert.deepEqual(outcomes, ['not_found', 'not_found', ...own, ...own]);
});

test('nothing is stored for an unknown, withdrawn, expired or answered request', async () => {
  const withdraw = ({ id }: Asked) => asSender('DELETE', `/api/store/${id}`);
  for (const [end, outcome, ending, status, secrets] of [
    [async () => {}, '404 not_found', null, undefined, 0],
    [withdraw, '409 conflict', 'withdrawn', 'withdrawn', 0],
    [(one: Asked) => expireRequest(sql, one.id), '409 conflict', null, 'expired', 0],
    [(one: Asked) => answer(one, 'first'), '409 conflict', 'answered', 'answered', 1],
  ] as const) {
    const made = await request();
    const asked = status === undefined ? { ...made, id: randomUUID() } : made;
    await end(asked);
    assert.equal(outcomeOf(await answer(asked, 'second')), outcome);
    assert.deepEqual(await stored(asked), [secrets, ending]);
    assert.equal((await stateOf(asked)).status, status);
    if (status === 'expired') {
      assert.equal(await statusOf(asked), status);
      await withdraw(asked);
    }
    if (status === 'answered') assert.equal(await readAnswer(asked), 'first');
    else assert.deepEqual(await stored(asked), [0, ending]);
  }
});

/** The reply to the head of a large answer, whose body does not come. */
async function replyToHead(id: string, key: string | null, from: string) {
  const head = [`POST /answer/${id} HTTP/1.1`, 'Host: a', 'Content-Type: application/json'];
  const body = ['Content-Length: 1600000', 'Expect: 100-continue', `X-Forwarded-For: ${from}`];
  const keys = key === null ? [] : [`X-Link-Key: ${key}`];
  const { status, json } = await exchange(base, [...head, ...body, ...keys]);
  return json?.error?.code ?? status;
}

test('the key of an answer is checked before a byte of its body is read; wrong ones are limited', async () => {
  const asked = await request();
  const { id, digest } = asked;
  const from = '203.0.113.20';
  const wrong = wrongKey();
  const shown = async (key: string) =>
    outcomeOf(await post(`/request/${id}`, { key }, { 'x-forwarded-for': from }));
  for (const [about, key, outcome] of [
    [id, digest, 100],
    [id, null, 'invalid_header'],
    [id, 'x', 'invalid_header'],
    [id, `${digest}, ${digest}`, 'invalid_header'],
    ['x', digest, 'invalid_path'],
    [id, wrong, 'not_found'],
    [randomUUID(), digest, 'not_found'],
  ] as const)
    assert.equal(await replyToHead(about, key, from), outcome);
  for (let at = 2; at < 60; at += 1) assert.equal(await shown(wrong), '404 not_found');
  assert.equal(await replyToHead(id, wrong, from), 'too_many_requests');
  assert.equal(await replyToHead(id, digest, from), 100, 'the right key passes');
  assert.deepEqual([await shown(wrong), await shown(digest)], ['429 too_many_requests', 200]);
  await answer(asked);
  assert.equal(await replyToHead(id, digest, from), 'conflict');
});

test('an answer that was begun counts, whether or not its body arrives', async () => {
  const { id, digest } = await request();
  for (let at = 0; at < 30; at += 1)
    assert.equal(await replyToHead(id, digest, '203.0.113.21'), 100);
  assert.equal(await replyToHead(id, digest, '203.0.113.21'), 'too_many_requests');
  assert.equal(await replyToHead(id, digest, '203.0.113.22'), 100);
  const other = await request();
  assert.equal(await replyToHead(other.id, other.digest, '203.0.113.21'), 100);
});

test('an answer that cannot be stored leaves its request open', async () => {
  const asked = await request();
  await sql`alter table secrets.secrets add constraint fails check (max_reads <> 1) not valid`;
  assert.equal((await answer(asked)).status, 503);
  await sql`alter table secrets.secrets drop constraint fails`;
  assert.deepEqual(await stored(asked), [0, null], 'nothing is half done');
  assert.equal((await answer(asked)).status, 201);
});

test('malformed points and titles are refused with the member, and nothing is stored', async () => {
  const asked = await request();
  const body = await answerBody(asked, 'x');
  const point = createECDH('prime256v1').generateKeys();
  const offCurve = Buffer.from(point);
  offCurve.writeUInt8(point.readUInt8(64) ^ 1, 64);
  const askFor = (change: object) =>
    asSender('POST', '/api/store/request', { ...asked.body, ...change });
  for (const bad of [offCurve, Buffer.of(0), point.subarray(0, 64), Buffer.alloc(65, 4)]) {
    const wrong = { public_key: bad.toString('base64url') };
    for (const { status, json } of [
      await postAnswer(asked, { ...body, ...wrong }),
      await askFor(wrong),
    ]) {
      assert.deepEqual([status, json.error.fields[0].path], [400, '/public_key']);
      assert.match(json.error.fields[0].message, /^must be a point of P-256, uncompressed/);
    }
  }
  for (const [title, message] of [
    ['Password\u202eof the shop', 'must be one line without control characters'],
    [' \u00a0\u200b', 'must have a visible character'],
  ] as const) {
    const { status, json } = await askFor({ title });
    assert.deepEqual([status, json.error.fields], [400, [{ path: '/title', message }]]);
  }
  assert.deepEqual(await stored(asked), [0, null]);
  assert.equal((await answer(asked)).status, 201);
});

test('neither text nor private key is in a request, a row or a log line', async () => {
  const text = `plaintext ${randomBytes(16).toString('hex')}`;
  const asked = await request();
  const body = await answerBody(asked, text);
  assert.equal((await postAnswer(asked, body)).status, 201);
  const rows = await sql`select r::text as text from secrets.requests r where id = ${asked.id}
    union all select s::text from secrets.secrets s where id = ${asked.id}`;
  assert.equal(await readAnswer(asked), text);
  const places = {
    requests: JSON.stringify([asked.body, body]),
    rows: rows.map((row) => row.text).join(),
    log: gatehouse.stdout() + gatehouse.stderr(),
  };
  // Base64 may go on where the bytes end.
  const forms = (bytes: Buffer) =>
    (['utf8', 'hex', 'base64', 'base64url'] as const).map((encoding) =>
      bytes.toString(encoding).replace(/=*$/, '').slice(0, -1),
    );
  const secret = Buffer.from(asked.key, 'base64url').subarray(0, 32);
  for (const hidden of [...forms(Buffer.from(text)), ...forms(secret), asked.key]) {
    for (const [name, place] of Object.entries(places))
      assert.ok(!place.includes(hidden), `${name} contain ${hidden}`);
  }
  for (const credential of [asked.receipt, asked.digest, body.secret])
    assert.ok(!places.log.includes(credential), 'the log contains a key of a link');
  assert.ok(!places.rows.includes(asked.receipt) && !places.rows.includes(body.secret));
  assert.ok(places.rows.includes(asked.digest), 'the search finds what is stored');
});
