/**
 * The key agreement of requests: frozen vectors, and the pages' own code against a second
 * implementation on node:crypto.
 */
import assert from 'node:assert/strict';
import { createECDH, randomBytes, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import * as envelopes from '../../../src/secrets/pages/envelope.js';
import * as pages from '../../../src/secrets/pages/request-keys.js';
import { hex, readVectors } from './data.ts';
import { plainKey, plainKeys, plainOpen } from './plain-browser-envelope.ts';
import { plainAgreement, plainDigest, plainPoint } from './plain-request-keys.ts';

type Vector = Readonly<
  Record<'id' | 'kind' | 'title' | 'private_key' | 'public_key' | 'digest', string> &
    Record<'answer_private_key' | 'answer_key' | 'service_key' | 'key' | 'envelope', string>
> & { readonly content: string };
const vectors = readVectors<Vector>('request-v1.jsonl');
type Request = Readonly<{ kind: string; title: string; public_key: string; digest: string }>;

/** The keys of an answer, as the link to keep opens it; null if the request was altered. */
async function openKeys(id: string, asked: Request, answer_key: string, key: string) {
  const own = await pages.checkKept({ receipt: '', digest: asked.digest, key }, asked);
  return own && pages.openAnswerKeys(id, own, { public_key: asked.public_key, answer_key });
}

test('frozen requests are those of both implementations', async () => {
  assert.equal(vectors.length, 2);
  for (const { id, kind, title, public_key, answer_key, digest, ...vector } of vectors) {
    const secret = hex(vector.private_key);
    const ofAnswer = hex(vector.answer_private_key);
    assert.deepEqual([secret, ofAnswer].map(plainPoint), [public_key, answer_key]);
    assert.equal(plainDigest(kind, title, public_key), digest);
    assert.equal(await pages.digestOf({ kind, title, public_key }), digest);
    for (const agreed of [
      plainAgreement(id, secret, answer_key, public_key, answer_key),
      plainAgreement(id, ofAnswer, public_key, public_key, answer_key),
      await openKeys(id, { kind, title, public_key, digest }, answer_key, plainKey(secret)),
    ])
      assert.deepEqual(agreed, { serviceKey: vector.service_key, key: vector.key });
    const opened = plainOpen(plainKeys(vector.key, '').content, vector.envelope);
    assert.equal(opened.bytes.toString('utf8'), vector.content);
  }
});

test('both parties agree on the keys, and so does node:crypto', async () => {
  for (let round = 0; round < 5; round += 1) {
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
function badPoints(): readonly string[] {
  const pair = createECDH('prime256v1');
  const point = pair.generateKeys();
  const offCurve = Buffer.from(point);
  offCurve.writeUInt8(point.readUInt8(64) ^ 1, 64);
  const hybrid = Buffer.from(point);
  hybrid.writeUInt8(6 + (point.readUInt8(64) & 1), 0);
  const bytes = [
    // At infinity, zero, and above the prime.
    ...[Buffer.of(0), Buffer.of(4, ...Buffer.alloc(64)), Buffer.of(4, ...Buffer.alloc(64, 0xff))],
    ...[offCurve, pair.getPublicKey(null, 'compressed'), hybrid, Buffer.alloc(0)],
    ...[point.subarray(0, 64), Buffer.concat([point, Buffer.of(0)])],
  ];
  // 87 characters have two bits more than 65 bytes: the same point with one of them set.
  const canonical = point.toString('base64url');
  const last = String.fromCharCode(canonical.charCodeAt(86) + 1);
  const texts = bytes.map((one) => one.toString('base64url'));
  return [...texts, '!'.repeat(87), canonical.slice(0, 86) + last];
}

test('a public key that is no point of the curve, or in another form, is refused', async () => {
  const id = randomUUID();
  const { key, request } = await pages.createRequest('text', 'x');
  const answer = (await pages.createAnswerKeys(id, request.public_key)) ?? assert.fail();
  assert.ok(await openKeys(id, request, answer.public_key, key));
  for (const point of badPoints()) {
    assert.equal(await pages.createAnswerKeys(id, point), null, point);
    assert.equal(await openKeys(id, request, point, key), null, point);
    const changed = { ...request, public_key: point };
    const digest = await pages.digestOf(changed);
    assert.equal(await openKeys(id, { ...changed, digest }, answer.public_key, key), null, point);
  }
});

test('each party accepts only the key, the title and the kind of its link', async () => {
  const other = await pages.createRequest('text', 'Password');
  const title = `${other.request.public_key}/x`;
  const { key, request } = await pages.createRequest('text', title);
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
    { title: `${title}y` },
    { public_key: other.request.public_key },
    { ...other.request },
    // The same text is digested.
    { kind: `text/${public_key}`, public_key: other.request.public_key, title: 'x' },
  ])
    assert.deepEqual(await isAccepted(changed), [false, false], JSON.stringify(changed));
  assert.deepEqual(await isAccepted({}), [true, true]);
  // The private key of another request.
  assert.equal(await pages.checkKept({ receipt: '', digest, key: other.key }, request), null);
});

test('links are whole or not accepted, wherever they were cut, and of version 1', async () => {
  const { key, request } = await pages.createRequest('text', 'x');
  const { digest } = request;
  const receipt = randomBytes(32).toString('base64url');
  const links = pages.linksOf('https://example.org', { id: randomUUID(), receipt }, digest, key);
  const sent = links?.send.split('#')[1] ?? '';
  const kept = links?.keep.split('#')[1] ?? '';
  assert.equal(pages.digestIn(sent), digest);
  assert.deepEqual(await pages.keptIn(kept), { receipt, digest, key });
  const wrongOf = (link: string) => [
    ...Array.from(link, (_, length) => link.slice(0, length)),
    ...[`2${link.slice(1)}`, `${link}A`],
  ];
  for (const wrong of [...wrongOf(kept), `1.${receipt}.${key}`])
    assert.equal(await pages.keptIn(wrong), null, wrong);
  for (const wrong of [...wrongOf(sent), digest]) assert.equal(pages.digestIn(wrong), null, wrong);
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
