/** What a row holds for a key, and in which order it is reported. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { createClientKey } from '../../../src/platform/crypto/seal.ts';
import { sha256 } from '../../../src/platform/crypto/token.ts';
import { capabilityOf, createServerKey, sealText } from '../../../src/secrets/envelope.ts';
import { judge } from '../../../src/secrets/read-secret.ts';
import { judgeRequest, requestTagOf } from '../../../src/secrets/request-tag.ts';

const current = createServerKey('a current server secret, for tests');
const previous = createServerKey('a previous server secret, for tests');
const missing = createServerKey('a server secret that is not configured');
const KEYS = [current, previous];

const clientKey = createClientKey();
const terms = { id: randomUUID(), expires_at: new Date(1_893_456_000_000), max_reads: 3 };
const text = Buffer.from('a text');
const rowOf = (serverKey = current, expired = false) => ({
  ...terms,
  ...sealText(serverKey, clientKey, terms, text, null),
  expired,
});
const kindOf = (row: Parameters<typeof judge>[0], key = clientKey) => judge(row, KEYS, key).kind;

test('secret: the text, under any configured server secret', () => {
  for (const serverKey of KEYS) {
    const judged = judge(rowOf(serverKey), KEYS, clientKey);
    assert.ok(judged.kind === 'text' && judged.text.equals(text));
  }
});

test('secret: locked until the stretched passphrase is there', () => {
  const stretched = createClientKey();
  const lock = { kdfParams: '$scrypt$', stretched };
  const row = { ...terms, ...sealText(current, clientKey, terms, text, lock), expired: false };
  const judged = judge(row, KEYS, clientKey);
  assert.ok(judged.kind === 'locked' && judged.kdfParams === '$scrypt$');
  assert.deepEqual(judged.open(stretched), text);
  assert.equal(judged.open(createClientKey()), null);
});

test('secret: an altered row, then the end, then a wrong key is reported', () => {
  for (const change of [{ max_reads: 4 }, { expires_at: null }, { tag: null }, { expired: true }]) {
    const row = { ...rowOf(), ...change, blob: Buffer.alloc(300) };
    for (const key of [clientKey, createClientKey()]) assert.equal(kindOf(row, key), 'altered');
  }
  // The right key shows that the key id was edited.
  for (const key_id of [missing.id, previous.id])
    assert.equal(kindOf({ ...rowOf(), key_id }), 'altered');
  assert.equal(kindOf(rowOf(missing)), 'key unknown');
  for (const row of [rowOf(missing, true), rowOf(current, true)]) {
    for (const key of [clientKey, createClientKey()]) assert.equal(kindOf(row, key), 'ended');
  }
  assert.equal(kindOf(rowOf(), createClientKey()), 'wrong key');
});

const REQUEST_ID = randomUUID();
function requestOf(serverKey = current) {
  const request = {
    id: REQUEST_ID,
    creator: null,
    asker: null,
    kind: 'text',
    title: 'a title',
    public_key: 'public key',
    digest: 'digest',
    key_digest: sha256(capabilityOf(serverKey, 'receipt', REQUEST_ID)),
    max_reads: 1,
    seconds: 60,
    answer_key: null,
    expires_at: terms.expires_at,
    key_id: serverKey.id,
    status: 'open',
    expired: false,
  };
  return { ...request, tag: requestTagOf(serverKey, request) };
}
const receiptOf = (serverKey = current) => capabilityOf(serverKey, 'receipt', REQUEST_ID);

test('request: both keys are right, and no other', () => {
  for (const key of ['digest', receiptOf()])
    assert.equal(judgeRequest(requestOf(), KEYS, key), 'right');
  for (const key of ['', 'x', receiptOf(missing), String(requestOf().key_digest)])
    assert.equal(judgeRequest(requestOf(), KEYS, key), 'wrong key');
});

test('request: an altered row is reported to its keys alone, before its expiry', () => {
  for (const change of [{ title: 'x' }, { tag: null }, { key_digest: Buffer.alloc(32) }]) {
    const altered = { ...requestOf(), ...change, expired: true };
    for (const key of ['digest', receiptOf()])
      assert.equal(judgeRequest(altered, KEYS, key), 'altered');
    assert.equal(judgeRequest(altered, KEYS, 'x'), 'wrong key');
  }
  const edited = { ...requestOf(), key_id: missing.id };
  assert.equal(judgeRequest(edited, KEYS, 'digest'), 'altered');
  const withdrawn = { ...requestOf(), tag: null, status: 'withdrawn' };
  assert.equal(judgeRequest(withdrawn, KEYS, 'digest'), 'right');
});

test('request: without its server secret it is unknown to its keys, or has ended', () => {
  const keyless = requestOf(missing);
  for (const key of ['digest', receiptOf(missing)]) {
    assert.equal(judgeRequest(keyless, KEYS, key), 'key unknown');
    assert.equal(judgeRequest({ ...keyless, expired: true }, KEYS, key), 'ended');
  }
  assert.equal(judgeRequest(keyless, KEYS, 'x'), 'wrong key');
});
