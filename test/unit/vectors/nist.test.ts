/** Published vectors: NIST CAVP for AES-256-GCM, with forged tags, and RFC 4231 for HMAC-SHA256. */
import assert from 'node:assert/strict';
import { createCipheriv, createDecipheriv, createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

type Case = readonly [
  key: string,
  nonce: string,
  ciphertext: string,
  associated: string,
  tag: string,
  text: string | null,
];

const file = readFileSync(new URL('nist-gcm.json', import.meta.url), 'utf8');
const { cases }: { cases: readonly Case[] } = JSON.parse(file);
const bytes = (hex: string) => Buffer.from(hex, 'hex');
/** As the box uses it. */
const OPTIONS = { authTagLength: 16 };

test('AES-256-GCM: every valid case of NIST CAVP encrypts and decrypts', () => {
  const valid = cases.filter(([, , , , , text]) => text !== null);
  assert.equal(valid.length, 50);
  for (const [key, nonce, ciphertext, associated, tag, text] of valid) {
    const cipher = createCipheriv('aes-256-gcm', bytes(key), bytes(nonce), OPTIONS).setAAD(
      bytes(associated),
    );
    assert.equal(
      Buffer.concat([cipher.update(bytes(text ?? '')), cipher.final()]).toString('hex'),
      ciphertext,
    );
    assert.equal(cipher.getAuthTag().toString('hex'), tag);
    assert.equal(decrypt([key, nonce, ciphertext, associated, tag, text]), text);
  }
});

test('AES-256-GCM: every invalid case of NIST CAVP is rejected', () => {
  const invalid = cases.filter(([, , , , , text]) => text === null);
  assert.equal(invalid.length, 50);
  for (const one of invalid) assert.throws(() => decrypt(one), /unable to authenticate data/);
});

// Left to itself, Node takes the first 4, 8 or 12 bytes of a tag for a tag: 4 are guessed in 2^32
// attempts.
test('AES-256-GCM: with the length fixed, Node rejects the first bytes of a right tag', () => {
  const [key, nonce, , , tag] = cases.find(([, , , , , text]) => text !== null) ?? assert.fail();
  for (const length of [4, 8, 12, 13, 14, 15]) {
    const decipher = createDecipheriv('aes-256-gcm', bytes(key), bytes(nonce), OPTIONS);
    assert.throws(() => decipher.setAuthTag(bytes(tag).subarray(0, length)), {
      code: 'ERR_CRYPTO_INVALID_AUTH_TAG',
    });
  }
});

function decrypt([key, nonce, ciphertext, associated, tag]: Case): string {
  const decipher = createDecipheriv('aes-256-gcm', bytes(key), bytes(nonce), OPTIONS).setAAD(
    bytes(associated),
  );
  decipher.setAuthTag(bytes(tag));
  return Buffer.concat([decipher.update(bytes(ciphertext)), decipher.final()]).toString('hex');
}

const LONG_TEXT =
  'This is a test using a larger than block-size key and a larger than block-size data. ' +
  'The key needs to be hashed before being used by the HMAC algorithm.';
const RFC_4231: ReadonlyArray<readonly [key: Buffer, text: string | Buffer, hmac: string]> = [
  [
    Buffer.alloc(20, 0x0b),
    'Hi There',
    'b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7',
  ],
  [
    Buffer.from('Jefe'),
    'what do ya want for nothing?',
    '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843',
  ],
  [
    Buffer.alloc(20, 0xaa),
    Buffer.alloc(50, 0xdd),
    '773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe',
  ],
  [
    Buffer.from(Array.from({ length: 25 }, (_, index) => index + 1)),
    Buffer.alloc(50, 0xcd),
    '82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b',
  ],
  [
    Buffer.alloc(131, 0xaa),
    'Test Using Larger Than Block-Size Key - Hash Key First',
    '60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54',
  ],
  [
    Buffer.alloc(131, 0xaa),
    LONG_TEXT,
    '9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2',
  ],
];

RFC_4231.forEach(([key, text, hmac], index) => {
  test(`HMAC-SHA256: vector ${index + 1} of RFC 4231`, () => {
    assert.equal(createHmac('sha256', key).update(text).digest('hex'), hmac);
  });
});
