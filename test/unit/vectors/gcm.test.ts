import assert from 'node:assert/strict';
import { createCipheriv, createDecipheriv } from 'node:crypto';
import { test } from 'node:test';

const KEY = 'feffe9928665731c6d6a8f9467308308'.repeat(2);
const NONCE = 'cafebabefacedbaddecaf888';
const TEXT =
  'd9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72' +
  '1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255';
const CIPHERTEXT =
  '522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa' +
  '8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad';

/**
 * McGrew and Viega, "The Galois/Counter Mode of Operation", appendix B: the cases with a 256-bit
 * key and a 96-bit nonce.
 */
const CASES = [
  {
    name: '13',
    key: '00'.repeat(32),
    nonce: '00'.repeat(12),
    text: '',
    associated: '',
    ciphertext: '',
    tag: '530f8afbc74536b9a963b4f1c4cb738b',
  },
  {
    name: '14',
    key: '00'.repeat(32),
    nonce: '00'.repeat(12),
    text: '00'.repeat(16),
    associated: '',
    ciphertext: 'cea7403d4d606b6e074ec5d3baf39d18',
    tag: 'd0d1c8a799996bf0265b98b5d48ab919',
  },
  {
    name: '15',
    key: KEY,
    nonce: NONCE,
    text: TEXT,
    associated: '',
    ciphertext: CIPHERTEXT,
    tag: 'b094dac5d93471bdec1a502270e3cc6c',
  },
  {
    name: '16',
    key: KEY,
    nonce: NONCE,
    text: TEXT.slice(0, 120),
    associated: 'feedfacedeadbeeffeedfacedeadbeefabaddad2',
    ciphertext: CIPHERTEXT.slice(0, 120),
    tag: '76fc6ece0f4e1768cddf8853bb2d551b',
  },
];

const bytes = (hex: string) => Buffer.from(hex, 'hex');
/** As the box uses it. */
const OPTIONS = { authTagLength: 16 };

for (const { name, key, nonce, text, associated, ciphertext, tag } of CASES) {
  test(`AES-256-GCM, as the box uses it, gives what its authors published: case ${name}`, () => {
    const cipher = createCipheriv('aes-256-gcm', bytes(key), bytes(nonce), OPTIONS).setAAD(
      bytes(associated),
    );
    assert.equal(
      Buffer.concat([cipher.update(bytes(text)), cipher.final()]).toString('hex'),
      ciphertext,
    );
    assert.equal(cipher.getAuthTag().toString('hex'), tag);

    const decipher = createDecipheriv('aes-256-gcm', bytes(key), bytes(nonce), OPTIONS)
      .setAAD(bytes(associated))
      .setAuthTag(bytes(tag));
    assert.equal(
      Buffer.concat([decipher.update(bytes(ciphertext)), decipher.final()]).toString('hex'),
      text,
    );
  });
}

// Left to itself, Node takes the first 4, 8 or 12 bytes of a tag for a tag: 4 are guessed in 2^32
// attempts.
for (const length of [4, 8, 12, 13, 14, 15]) {
  test(`with the length fixed, Node rejects the first ${length} bytes of the right tag`, () => {
    const decipher = createDecipheriv('aes-256-gcm', bytes(KEY), bytes(NONCE), OPTIONS);
    assert.throws(
      () => decipher.setAuthTag(bytes('b094dac5d93471bdec1a502270e3cc6c').subarray(0, length)),
      { code: 'ERR_CRYPTO_INVALID_AUTH_TAG' },
    );
  });
}
