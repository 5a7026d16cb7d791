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
      await pages.openAnswerKeys(id, { public_key, answer_key }, plainKey(secret)),
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
    const opened = await pages.openAnswerKeys(id, { ...request, answer_key }, key);
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
  return { ...Object.fromEntries(texts), 'not Base64url': `${'!'.repeat(87)}` };
}

for (const [name, point] of Object.entries(badPoints())) {
  test(`a public key is refused: ${name}`, async () => {
    const id = randomUUID();
    assert.equal(await pages.createAnswerKeys(id, point), null);
    const { key, request } = await pages.createRequest('text', 'x');
    const { public_key } = request;
    const answer = (await pages.createAnswerKeys(id, public_key)) ?? assert.fail();
    const as = (changed: object) => ({ public_key, answer_key: answer.public_key, ...changed });
    assert.equal(await pages.openAnswerKeys(id, as({ answer_key: point }), key), null);
    assert.equal(await pages.openAnswerKeys(id, as({ public_key: point }), key), null);
    assert.ok(await pages.openAnswerKeys(id, as({}), key));
  });
}

test('another id, key of the answer or key of the request gives other keys or none', async () => {
  const id = randomUUID();
  const { key, request } = await pages.createRequest('file', 'x');
  const { public_key } = request;
  const answer = (await pages.createAnswerKeys(id, public_key)) ?? assert.fail();
  const other = (await pages.createAnswerKeys(id, public_key)) ?? assert.fail();
  const open = (at: string, answer_key: string, requestKey: string) =>
    pages.openAnswerKeys(at, { public_key: requestKey, answer_key }, key);
  for (const wrong of [
    await open(randomUUID(), answer.public_key, public_key),
    await open(id, other.public_key, public_key),
    await open(id, answer.public_key, other.public_key),
  ])
    assert.notEqual(wrong?.serviceKey, answer.serviceKey);
  assert.equal((await open(id, answer.public_key, public_key))?.serviceKey, answer.serviceKey);
});

test('the digest covers the key, the title and the kind', async () => {
  const { request } = await pages.createRequest('text', 'Password');
  const other = await pages.createRequest('text', 'Password');
  for (const changed of [
    { ...request, kind: 'file' },
    { ...request, title: 'password' },
    { ...request, public_key: other.request.public_key },
  ])
    assert.notEqual(await pages.digestOf(changed), request.digest);
  assert.equal(await pages.digestOf(request), request.digest);
});

test('links are whole or not accepted, wherever they were cut, and of version 1', async () => {
  const { key, request } = await pages.createRequest('text', 'x');
  const receipt = randomBytes(32).toString('base64url');
  const id = randomUUID();
  const { send, keep } = pages.linksOf('https://example.org', id, request.digest, receipt, key);
  const sent = send.split('#')[1] ?? '';
  assert.equal(pages.digestIn(sent), request.digest);
  assert.deepEqual(envelopes.splitKeys(keep.split('#')[1] ?? ''), { serviceKey: receipt, key });
  for (let length = 0; length < sent.length; length += 1)
    assert.equal(pages.digestIn(sent.slice(0, length)), null);
  for (const wrong of [`2${sent.slice(1)}`, `${sent}A`, request.digest])
    assert.equal(pages.digestIn(wrong), null);
});
