import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sha256, randomToken, equalDigests } from '../../../src/platform/crypto/token.ts';

test('a token is 256 random bits in Base64url', () => {
  const tokens = Array.from({ length: 1_000 }, randomToken);
  for (const token of tokens) {
    assert.match(token, /^[A-Za-z0-9_-]{43}$/);
    assert.equal(Buffer.from(token, 'base64url').length, 32);
  }
  assert.equal(new Set(tokens).size, tokens.length);
});

test('a digest is SHA-256 of the UTF-8 text', () => {
  // FIPS 180-2, appendix B.1.
  assert.equal(
    sha256('abc').toString('hex'),
    'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
  );
  assert.deepEqual(sha256('\u00fc'), sha256(Buffer.from('c3bc', 'hex').toString('utf8')));
  assert.notDeepEqual(sha256('\u00fc'), sha256('u\u0308'));
});

test('digests are the same only bit for bit', () => {
  const right = sha256('a token');
  assert.equal(equalDigests(right, sha256('a token')), true);
  for (let bit = 0; bit < right.length * 8; bit += 1) {
    const wrong = Buffer.from(right);
    wrong[bit >> 3] = (right[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    assert.equal(equalDigests(right, wrong), false);
  }
});

test('digests of different lengths differ and do not throw', () => {
  const right = sha256('a token');
  for (const other of [
    Buffer.alloc(0),
    right.subarray(0, 31),
    Buffer.concat([right, Buffer.alloc(1)]),
  ]) {
    assert.equal(equalDigests(right, other), false);
    assert.equal(equalDigests(other, right), false);
  }
});
