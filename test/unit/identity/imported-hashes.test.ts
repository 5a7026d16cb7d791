/** Password hashes of other programs: which are read, what is stored, and which password matches. */
import assert from 'node:assert/strict';
import { pbkdf2Sync, scryptSync } from 'node:crypto';
import { test } from 'node:test';
import { readForeignHash, verifyImported } from '../../../src/identity/imported-hashes.ts';

const PASSWORD = 'pässword';
const SALT = 'seasalt8';
const base64 = (bytes: Buffer | string) => Buffer.from(bytes).toString('base64');
const bare = (text: string) => text.replace(/=+$/, '');
const pbkdf2 = (bytes: number, algorithm: string) =>
  pbkdf2Sync(PASSWORD, SALT, 1_000, bytes, algorithm);
const scrypt = (bytes: number) => scryptSync(PASSWORD, SALT, bytes, { N: 1024, r: 8, p: 2 });

const salt = bare(base64(SALT));
/** By what wrote them. */
const READ: Readonly<Record<string, readonly [given: string, stored: string]>> = {
  'Django, PBKDF2 and SHA-256': [
    `pbkdf2_sha256$1000$${SALT}$${base64(pbkdf2(32, 'sha256'))}`,
    `imported$pbkdf2-sha256$i=1000$${salt}$${bare(base64(pbkdf2(32, 'sha256')))}`,
  ],
  'Django, PBKDF2 and SHA-1': [
    `pbkdf2_sha1$1000$${SALT}$${base64(pbkdf2(20, 'sha1'))}`,
    `imported$pbkdf2-sha1$i=1000$${salt}$${bare(base64(pbkdf2(20, 'sha1')))}`,
  ],
  'Django, scrypt': [
    `scrypt$1024$${SALT}$8$2$${base64(scrypt(64))}`,
    `imported$scrypt$ln=10,r=8,p=2$${salt}$${bare(base64(scrypt(64)))}`,
  ],
  'PHC, PBKDF2': [
    `$pbkdf2-sha512$i=1000,l=64$${salt}$${bare(base64(pbkdf2(64, 'sha512')))}`,
    `imported$pbkdf2-sha512$i=1000$${salt}$${bare(base64(pbkdf2(64, 'sha512')))}`,
  ],
  'passlib, PBKDF2': [
    `$pbkdf2$1000$${salt}$${bare(base64(pbkdf2(20, 'sha1'))).replaceAll('+', '.')}`,
    `imported$pbkdf2-sha1$i=1000$${salt}$${bare(base64(pbkdf2(20, 'sha1')))}`,
  ],
  'PHC, scrypt': [
    `$scrypt$ln=10,r=8,p=2$${salt}$${bare(base64(scrypt(32)))}`,
    `imported$scrypt$ln=10,r=8,p=2$${salt}$${bare(base64(scrypt(32)))}`,
  ],
};

for (const [what, [given, stored]] of Object.entries(READ)) {
  test(`${what}: only the password matches`, async () => {
    assert.equal(readForeignHash(given), stored);
    assert.equal(await verifyImported(PASSWORD, stored), true);
    for (const other of ['', 'password', `${PASSWORD}\0`, PASSWORD.normalize('NFD')])
      assert.equal(await verifyImported(other, stored), false, other);
  });
}

const HASH = base64(Buffer.alloc(32));
const REJECTED: Readonly<Record<string, RegExp>> = {
  '': /is not a hash/,
  '!unusable': /is not a hash/,
  md5$salt$0123456789abcdef: /is not a hash/,
  [`pbkdf2_md5$1000$salt$${HASH}`]: /is not a hash/,
  pbkdf2_sha256$1000$salt$: /is not a hash/,
  'pbkdf2_sha256$1000$salt$not base64!!': /is not a hash/,
  pbkdf2_sha256$1000$salt$AAAA: /malformed: its last part .* 16 to 64 bytes in Base64, but has 3;/,
  [`pbkdf2_sha256$1000$salt$${base64(Buffer.alloc(65))}`]: /16 to 64 bytes/,
  [`pbkdf2_sha256$0$salt$${HASH}`]: /1 to 2400000 iterations/,
  [`pbkdf2_sha256$2400001$salt$${HASH}`]: /1 to 2400000 iterations/,
  [`$pbkdf2-sha256$i=999999999$${salt}$${bare(HASH)}`]: /1 to 2400000 iterations/,
  [`pbkdf2_sha256$1000$${'s'.repeat(65)}$${HASH}`]: /salt/,
  [`scrypt$1000$salt$8$1$${HASH}`]: /scrypt/,
  [`scrypt$33554432$salt$8$1$${HASH}`]: /256 MiB/,
  [`$scrypt$ln=14,r=8,p=99$${salt}$${bare(HASH)}`]: /256 MiB/,
  [`$scrypt$ln=0,r=8,p=1$${salt}$${bare(HASH)}`]: /invalid/,
};

for (const [given, problem] of Object.entries(REJECTED)) {
  test(`"${given.slice(0, 40)}" is rejected: ${problem.source}`, () => {
    const read = readForeignHash(given);
    assert.ok(typeof read !== 'string');
    assert.match(read.problem, problem);
    assert.match(read.problem, /; correct it, or leave it out and use --invite$/);
    assert.equal(read.isKnown, false);
  });
}

for (const given of [
  '$2b$12$abc',
  '$2y$10$abc',
  'bcrypt_sha256$$2b$12$abc',
  'argon2$argon2id$v',
  '$argon2id$v=19$m=1',
]) {
  test(`${given}: needs a link`, () => {
    const read = readForeignHash(given);
    assert.ok(typeof read !== 'string');
    assert.equal(read.isKnown, true);
    assert.match(read.problem, /--invite/);
  });
}

test('a stored hash that was edited to cost more is not computed', async () => {
  for (const stored of [
    `imported$pbkdf2-sha256$i=2400001$${salt}$${bare(HASH)}`,
    `imported$scrypt$ln=25,r=8,p=1$${salt}$${bare(HASH)}`,
    'imported$',
  ])
    await assert.rejects(verifyImported(PASSWORD, stored), /malformed or costs too much/);
});
