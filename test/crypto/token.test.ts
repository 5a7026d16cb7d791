import assert from 'node:assert/strict';
import { test } from 'node:test';
import { digest, randomToken, sameDigest } from '../../src/crypto/token.ts';

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
    digest('abc').toString('hex'),
    'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
  );
  assert.deepEqual(digest('\u00fc'), digest(Buffer.from('c3bc', 'hex').toString('utf8')));
  assert.notDeepEqual(digest('\u00fc'), digest('u\u0308'));
});

test('digests are the same only bit for bit', () => {
  const right = digest('a token');
  assert.equal(sameDigest(right, digest('a token')), true);
  for (let bit = 0; bit < right.length * 8; bit += 1) {
    const wrong = Buffer.from(right);
    wrong[bit >> 3] = (right[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    assert.equal(sameDigest(right, wrong), false);
  }
});

test('digests of different lengths differ and do not throw', () => {
  const right = digest('a token');
  for (const other of [
    Buffer.alloc(0),
    right.subarray(0, 31),
    Buffer.concat([right, Buffer.alloc(1)]),
  ]) {
    assert.equal(sameDigest(right, other), false);
    assert.equal(sameDigest(other, right), false);
  }
});
