/**
 * Published vectors of what the formats are made of: AES-256-GCM of NIST CAVP (gcmDecrypt256.rsp,
 * of which one valid and one invalid case of each length are in `nist-gcm.jsonl`), HMAC of RFC
 * 4231, HKDF of RFC 5869 and scrypt of RFC 7914.
 */
import assert from 'node:assert/strict';
import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';
import { scryptSync } from 'node:crypto';
import { test } from 'node:test';
import { hashPassword, verifyPassword } from '../../../src/identity/passwords.ts';
import { hex, readVectors } from './data.ts';
import { plainHkdf } from './plain-envelope.ts';

/** In hexadecimal. */
type Case = readonly [
  ...[key: string, nonce: string, ciphertext: string, associated: string, tag: string],
  text: string | null,
];

/** As the envelope uses it. */
const TAG = { authTagLength: 16 };

test('AES-256-GCM: NIST CAVP, with forged tags, and tags cut short', () => {
  const cases = readVectors<Case>('nist-gcm.jsonl');
  for (const [key, nonce, ciphertext, associated, tag, text] of cases) {
    const decipher = createDecipheriv('aes-256-gcm', hex(key), hex(nonce), TAG);
    // Left to itself, Node takes the first 4, 8 or 12 bytes of a tag for a tag.
    for (const length of [4, 8, 12, 15])
      assert.throws(() => decipher.setAuthTag(hex(tag).subarray(0, length)), {
        code: 'ERR_CRYPTO_INVALID_AUTH_TAG',
      });
    decipher.setAAD(hex(associated)).setAuthTag(hex(tag));
    const decrypted = decipher.update(hex(ciphertext)).toString('hex');
    if (text === null) {
      assert.throws(() => decipher.final(), /unable to authenticate data/);
      continue;
    }
    assert.equal(decrypted + decipher.final('hex'), text);
    const cipher = createCipheriv('aes-256-gcm', hex(key), hex(nonce), TAG).setAAD(hex(associated));
    assert.equal(cipher.update(text, 'hex', 'hex') + cipher.final('hex'), ciphertext);
    assert.equal(cipher.getAuthTag().toString('hex'), tag);
  }
  assert.deepEqual(
    [cases.length, cases.filter(([, , , , , text]) => text !== null).length],
    [18, 9],
  );
});

const repeated = (byte: string, count: number) => byte.repeat(count);
const text = (ascii: string) => Buffer.from(ascii).toString('hex');
/** The bytes from one value to another. */
const range = (from: number, to: number) =>
  Buffer.from(Array.from({ length: to - from + 1 }, (_, index) => from + index)).toString('hex');

test('HMAC-SHA256: RFC 4231', () => {
  for (const [key, data, hmac] of [
    [
      repeated('0b', 20),
      text('Hi There'),
      'b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7',
    ],
    [
      text('Jefe'),
      text('what do ya want for nothing?'),
      '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843',
    ],
    [
      range(1, 25),
      repeated('cd', 50),
      '82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b',
    ],
    [
      repeated('aa', 131),
      text('Test Using Larger Than Block-Size Key - Hash Key First'),
      '60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54',
    ],
  ] as const)
    assert.equal(createHmac('sha256', hex(key)).update(hex(data)).digest('hex'), hmac);
});

test('HKDF-SHA256: RFC 5869, appendix A, also by hand', () => {
  for (const [input, salt, info, output] of [
    [
      ...[repeated('0b', 22), '000102030405060708090a0b0c', 'f0f1f2f3f4f5f6f7f8f9'],
      '3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865',
    ],
    [
      ...[range(0x00, 0x4f), range(0x60, 0xaf), range(0xb0, 0xff)],
      'b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87',
    ],
    [
      ...[repeated('0b', 22), '', ''],
      '8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8',
    ],
  ]) {
    const given = [input, salt, info].map((part = '') => hex(part));
    const [key = Buffer.of(), salted = Buffer.of(), named = Buffer.of()] = given;
    const length = (output ?? '').length / 2;
    assert.equal(
      Buffer.from(hkdfSync('sha256', key, salted, named, length)).toString('hex'),
      output,
    );
    assert.equal(plainHkdf(key, salted, named, length).toString('hex'), output);
  }
});

/** scrypt by an independent call, with more memory allowed than any of these needs. */
const scrypt = (password: string, salt: string | Buffer, ln: number, r: number, p: number) =>
  scryptSync(password, salt, 64, { N: 2 ** ln, r, p, maxmem: 512 * 1024 * 1024 });

test('scrypt: RFC 7914, section 12, and stored hashes hold its first 32 bytes', async () => {
  // The last case of the RFC needs 1 GiB, which we refuse to spend.
  for (const [password, rfcSalt, logN, r, p, output] of [
    [
      '',
      '',
      4,
      1,
      1,
      '77d6576238657b203b19ca42c18a0497f16b4844e3074ae8dfdffa3fede21442fcd0069ded0948f8326a753a0fc81f17e8d3e0fb2e0d3628cf35e20c38d18906',
    ],
    [
      'password',
      'NaCl',
      10,
      8,
      16,
      'fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b3731622eaf30d92e22a3886ff109279d9830dac727afb94a83ee6d8360cbdfa2cc0640',
    ],
    [
      'pleaseletmein',
      'SodiumChloride',
      14,
      8,
      1,
      '7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887',
    ],
  ] as const) {
    assert.equal(scrypt(password, rfcSalt, logN, r, p).toString('hex'), output);
    // The salts of the RFC are shorter than ours, so its cases end here.
    const phc = (salt: Buffer) => {
      const hash = scrypt(password, salt, logN, r, p).subarray(0, 32);
      const encode = (part: Buffer) => part.toString('base64').replace(/=+$/, '');
      return `$scrypt$ln=${logN},r=${r},p=${p}$${encode(salt)}$${encode(hash)}`;
    };
    assert.equal(await verifyPassword(password, phc(randomBytes(16))), true);
    const stored = await hashPassword(password, { logN, r, p });
    const salt = Buffer.from(stored.split('$')[3] ?? '', 'base64');
    assert.deepEqual([stored, salt.length], [phc(salt), 16]);
  }
});
