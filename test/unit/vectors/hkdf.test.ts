import assert from 'node:assert/strict';
import { hkdfSync } from 'node:crypto';
import { test } from 'node:test';
import { plainHkdf } from './plain-envelope.ts';

/** The bytes from one value to another, as the second case of the RFC uses them. */
const range = (from: number, to: number) =>
  Buffer.from(Array.from({ length: to - from + 1 }, (_, index) => from + index)).toString('hex');

/** RFC 5869, appendix A: the three cases with SHA-256. */
const CASES = [
  {
    name: 'A.1, a basic case',
    input: '0b'.repeat(22),
    salt: '000102030405060708090a0b0c',
    info: 'f0f1f2f3f4f5f6f7f8f9',
    output: '3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865',
  },
  {
    name: 'A.2, longer inputs and outputs',
    input: range(0x00, 0x4f),
    salt: range(0x60, 0xaf),
    info: range(0xb0, 0xff),
    output:
      'b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09' +
      'da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87',
  },
  {
    name: 'A.3, no salt and no info',
    input: '0b'.repeat(22),
    salt: '',
    info: '',
    output: '8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8',
  },
];

for (const { name, input, salt, info, output } of CASES) {
  const inputBytes = Buffer.from(input, 'hex');
  const saltBytes = Buffer.from(salt, 'hex');
  const infoBytes = Buffer.from(info, 'hex');

  test(`HKDF-SHA256 gives what RFC 5869 says: ${name}`, () => {
    const length = output.length / 2;
    assert.equal(
      Buffer.from(hkdfSync('sha256', inputBytes, saltBytes, infoBytes, length)).toString('hex'),
      output,
    );
    assert.equal(plainHkdf(inputBytes, saltBytes, infoBytes, length).toString('hex'), output);
  });
}
