/**
 * The key agreement of requests: frozen vectors, and the pages' own code against a second
 * implementation on node:crypto.
 */
import assert from 'node:assert/strict';
import { createECDH, randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import * as envelopes from '../../../src/secrets/pages/envelope.js';
import * as pages from '../../../src/secrets/pages/request-keys.js';
import { plainKey, plainKeys, plainOpen } from './plain-browser-envelope.ts';
import { plainAgreement, plainDigest, plainPoint } from './plain-request-keys.ts';

interface Vector {
  readonly id: string;
  readonly kind: string;
  readonly title: string;
  readonly private_key: string;
  readonly public_key: string;
  readonly digest: string;
  readonly answer_private_key: string;
  readonly answer_key: string;
  readonly service_key: string;
  readonly key: string;
  readonly envelope: string;
  readonly content: string;
}
const vectors: Vector[] = JSON.parse(
  readFileSync(new URL('request-v1.json', import.meta.url), 'utf8'),
);
type Request = Readonly<{ kind: string; title: string; public_key: string; digest: string }>;

/** The keys of an answer, as the link to keep opens it; null if the request was altered. */
async function openKeys(id: string, asked: Request, answer_key: string, key: string) {
  const own = await pages.checkKept({ receipt: '', digest: asked.digest, key }, asked);
  return own && pages.openAnswerKeys(id, own, { public_key: asked.public_key, answer_key });
}

const hex = (text: string) => Buffer.from(text, 'hex');

for (const { id, kind, title, public_key, answer_key, ...vector } of vectors) {
  test(`frozen request: "${title}", ${kind}`, async () => {
    const secret = hex(vector.private_key);
    assert.equal(plainPoint(secret), public_key);
    assert.equal(plainPoint(hex(vector.answer_private_key)), answer_key);
    assert.equal(plainDigest(kind, title, public_key), vector.digest);
    assert.equal(await pages.digestOf({ kind, title, public_key }), vector.digest);
    const expected = { serviceKey: vector.service_key, key: vector.key };
    const ofAnswer = hex(vector.answer_private_key);
    for (const agreed of [
      plainAgreement(id, secret, answer_key, public_key, answer_key),
      plainAgreement(id, ofAnswer, public_key, public_key, answer_key),
      await openKeys(
        id,
        { kind, title, public_key, digest: vector.digest },
        answer_key,
        plainKey(secret),
      ),
    ])
      assert.deepEqual(agreed, expected);
    const opened = plainOpen(plainKeys(vector.key, '').content, vector.envelope);
    assert.equal(opened.bytes.toString('utf8'), vector.content);
  });
}

test('both parties agree on the keys, and so does node:crypto', async () => {
  for (let round = 0; round < 20; round += 1) {
    const id = randomUUID();
    const { key, request } = await pages.createRequest('text', 'ä "title"');
    assert.equal(plainDigest('text', 'ä "title"', request.public_key), request.digest);
    const answer = (await pages.createAnswerKeys(id, request.public_key)) ?? assert.fail();
    const { public_key: answer_key, ...keys } = answer;
    const opened = await openKeys(id, request, answer_key, key);
    assert.deepEqual(opened, keys);
    const secret = Buffer.from(key, 'base64url').subarray(0, 32);
    assert.equal(plainPoint(secret), request.public_key);
    const plain = plainAgreement(id, secret, answer_key, request.public_key, answer_key);
    assert.deepEqual(plain, keys);
    assert.ok(await envelopes.parseKey(keys.key), 'a key of an ordinary link');
  }
});

/** Encodings that are no point of the curve, or not its only accepted form. */
function badPoints(): Record<string, string> {
  const pair = createECDH('prime256v1');
  const point = pair.generateKeys();
  const offCurve = Buffer.from(point);
  offCurve.writeUInt8(point.readUInt8(64) ^ 1, 64);
  const hybrid = Buffer.from(point);
  hybrid.writeUInt8(6 + (point.readUInt8(64) & 1), 0);
  const bytes = {
    'off the curve': offCurve,
    'the point at infinity': Buffer.of(0),
    'zero coordinates': Buffer.concat([Buffer.of(4), Buffer.alloc(64)]),
    'a coordinate above the prime': Buffer.concat([Buffer.of(4), Buffer.alloc(64, 0xff)]),
    compressed: pair.getPublicKey(null, 'compressed'),
    hybrid,
    'one byte short': point.subarray(0, 64),
    'one byte long': Buffer.concat([point, Buffer.of(0)]),
    empty: Buffer.alloc(0),
  };
  const texts = Object.entries(bytes).map(([name, value]) => [name, value.toString('base64url')]);
  // 87 characters have two bits more than 65 bytes: the same point with one of them set.
  const canonical = point.toString('base64url');
  const last = String.fromCharCode(canonical.charCodeAt(86) + 1);
  return {
    ...Object.fromEntries(texts),
    'not Base64url': `${'!'.repeat(87)}`,
    'not canonical Base64url': canonical.slice(0, 86) + last,
  };
}

for (const [name, point] of Object.entries(badPoints())) {
  test(`a public key is refused: ${name}`, async () => {
    const id = randomUUID();
    assert.equal(await pages.createAnswerKeys(id, point), null);
    const { key, request } = await pages.createRequest('text', 'x');
    const answer = (await pages.createAnswerKeys(id, request.public_key)) ?? assert.fail();
    assert.equal(await openKeys(id, request, point, key), null);
    const changed = { ...request, public_key: point };
    const digest = await pages.digestOf(changed);
    assert.equal(await openKeys(id, { ...changed, digest }, answer.public_key, key), null);
    assert.ok(await openKeys(id, request, answer.public_key, key));
  });
}

test('another id or key of the answer gives other keys', async () => {
  const id = randomUUID();
  const { key, request } = await pages.createRequest('file', 'x');
  const { public_key } = request;
  const answer = (await pages.createAnswerKeys(id, public_key)) ?? assert.fail();
  const other = (await pages.createAnswerKeys(id, public_key)) ?? assert.fail();
  for (const wrong of [
    await openKeys(randomUUID(), request, answer.public_key, key),
    await openKeys(id, request, other.public_key, key),
  ])
    assert.notEqual(wrong?.serviceKey, answer.serviceKey);
  const right = await openKeys(id, request, answer.public_key, key);
  assert.equal(right?.serviceKey, answer.serviceKey);
});

test('each party accepts only the key, the title and the kind of its link', async () => {
  const { key, request } = await pages.createRequest('text', 'Password/x');
  const other = await pages.createRequest('text', 'Password');
  const { public_key, digest } = request;
  const isAccepted = async (asked: object) => {
    const described = { ...request, ...asked };
    return [
      (await pages.checkRequest(randomUUID(), digest, described)) !== null,
      (await pages.checkKept({ receipt: '', digest, key }, described)) !== null,
    ];
  };
  for (const changed of [
    { kind: 'file' },
    { title: 'password/x' },
    { public_key: other.request.public_key },
    { ...other.request },
    // The same text is digested.
    { kind: `text/${public_key}`, public_key: 'Password', title: 'x' },
  ])
    assert.deepEqual(await isAccepted(changed), [false, false], JSON.stringify(changed));
  assert.deepEqual(await isAccepted({}), [true, true]);
});

test('a link to keep whose private key is that of another request is refused', async () => {
  const { request } = await pages.createRequest('text', 'x');
  const { key } = await pages.createRequest('text', 'x');
  assert.equal(await pages.checkKept({ receipt: '', digest: request.digest, key }, request), null);
});

test('links are whole or not accepted, wherever they were cut, and of version 1', async () => {
  const { key, request } = await pages.createRequest('text', 'x');
  const receipt = randomBytes(32).toString('base64url');
  const id = randomUUID();
  const { digest } = request;
  const { send, keep } =
    pages.linksOf('https://example.org', { id, receipt }, digest, key) ?? assert.fail();
  const sent = send.split('#')[1] ?? '';
  assert.equal(pages.digestIn(sent), digest);
  const kept = keep.split('#')[1] ?? '';
  assert.deepEqual(await pages.keptIn(kept), { receipt, digest, key });
  for (let length = 0; length < kept.length; length += 1)
    assert.equal(await pages.keptIn(kept.slice(0, length)), null);
  for (const wrong of [`2${kept.slice(1)}`, `${kept}A`, `1.${receipt}.${key}`])
    assert.equal(await pages.keptIn(wrong), null);
  for (let length = 0; length < sent.length; length += 1)
    assert.equal(pages.digestIn(sent.slice(0, length)), null);
  for (const wrong of [`2${sent.slice(1)}`, `${sent}A`, digest])
    assert.equal(pages.digestIn(wrong), null);
});

test('links are made only of an id and a key, so that a service cannot add another link', async () => {
  const { key, request } = await pages.createRequest('text', 'x');
  const receipt = randomBytes(32).toString('base64url');
  const id = randomUUID();
  const other = `${id}#1.${receipt}`;
  for (const made of [
    { id: `${other}\nhttps://example.org/answer/${id}`, receipt },
    { id: other, receipt },
    { id: '../s/x', receipt },
    { id, receipt: `${receipt}\n${other}` },
    { id, receipt: receipt.slice(1) },
  ])
    assert.equal(pages.linksOf('https://example.org', made, request.digest, key), null);
});
