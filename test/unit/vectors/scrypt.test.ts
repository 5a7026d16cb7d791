import assert from 'node:assert/strict';
import { randomBytes, scryptSync } from 'node:crypto';
import { test } from 'node:test';
import { hashPassword, verifyPassword } from '../../../src/identity/passwords.ts';
import { isAffordable, type ScryptCost } from '../../../src/platform/crypto/scrypt.ts';

/**
 * scrypt by an independent call: parameters written out, more memory allowed than any of them
 * needs.
 */
function independent(
  password: string,
  salt: string | Buffer,
  { logN, r, p }: ScryptCost,
  length: number,
): Buffer {
  return scryptSync(password, salt, length, { N: 2 ** logN, r, p, maxmem: 512 * 1024 * 1024 });
}

/**
 * RFC 7914, section 12. Its last case (N = 2^20, r = 8) is left out: it needs 1 GiB, which we
 * refuse to spend.
 */
const CASES = [
  {
    password: '',
    salt: '',
    cost: { logN: 4, r: 1, p: 1 },
    output:
      '77d6576238657b203b19ca42c18a0497f16b4844e3074ae8dfdffa3fede21442fcd0069ded0948f8326a753a0fc81f17e8d3e0fb2e0d3628cf35e20c38d18906',
  },
  {
    password: 'password',
    salt: 'NaCl',
    cost: { logN: 10, r: 8, p: 16 },
    output:
      'fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b3731622eaf30d92e22a3886ff109279d9830dac727afb94a83ee6d8360cbdfa2cc0640',
  },
  {
    password: 'pleaseletmein',
    salt: 'SodiumChloride',
    cost: { logN: 14, r: 8, p: 1 },
    output:
      '7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887',
  },
];

for (const { password, salt, cost, output } of CASES) {
  test(`scrypt gives what RFC 7914 says for the password "${password}"`, () => {
    assert.equal(independent(password, salt, cost, 64).toString('hex'), output);
    // A stored hash keeps 32 bytes: the same function's first half.
    assert.equal(independent(password, salt, cost, 32).toString('hex'), output.slice(0, 64));
    assert.ok(isAffordable(cost));
  });
}

// The salts of the RFC are shorter than the 16 bytes of a stored hash, so its cases end here and
// our strings begin.
const phc = ({ logN, r, p }: ScryptCost, salt: Buffer, hash: Buffer) => {
  const text = (bytes: Buffer) => bytes.toString('base64').replaceAll('=', '');
  return `$scrypt$ln=${logN},r=${r},p=${p}$${text(salt)}$${text(hash)}`;
};

for (const { password, cost } of CASES) {
  test(`a stored hash holds scrypt of the password and nothing else: "${password}"`, async () => {
    const salt = randomBytes(16);
    assert.equal(
      await verifyPassword(password, phc(cost, salt, independent(password, salt, cost, 32))),
      true,
    );

    const stored = await hashPassword(password, cost);
    const ownSalt = Buffer.from(stored.split('$')[3] ?? '', 'base64');
    assert.equal(ownSalt.length, 16);
    assert.equal(stored, phc(cost, ownSalt, independent(password, ownSalt, cost, 32)));
  });
}
