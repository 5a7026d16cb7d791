/**
 * Password hashes of other programs: which are read, what is stored, and which password matches.
 */
import assert from 'node:assert/strict';
import { pbkdf2Sync, scryptSync } from 'node:crypto';
import { test } from 'node:test';
import { readForeignHash, verifyImported } from '../../../src/identity/imported-hashes.ts';
import { wordsOf } from '../../support/words.ts';

const PASSWORD = 'pässword';
const SALT = 'seasalt8';
const base64 = (bytes: Buffer | string) => Buffer.from(bytes).toString('base64');
const bare = (text: string) => text.replace(/=+$/, '');
const pbkdf2 = (bytes: number, algorithm: string) =>
  base64(pbkdf2Sync(PASSWORD, SALT, 1_000, bytes, algorithm));
const scrypt = (bytes: number) =>
  base64(scryptSync(PASSWORD, SALT, bytes, { N: 1024, r: 8, p: 2 }));

const salt = bare(base64(SALT));
const sha1 = pbkdf2(20, 'sha1');
const sha256 = pbkdf2(32, 'sha256');
const sha512 = bare(pbkdf2(64, 'sha512'));
/** What Django, passlib and others wrote, and what is stored. */
const READ: Readonly<Record<string, string>> = {
  [`pbkdf2_sha256$1000$${SALT}$${sha256}`]: `pbkdf2-sha256$i=1000$${salt}$${bare(sha256)}`,
  [`pbkdf2_sha1$1000$${SALT}$${sha1}`]: `pbkdf2-sha1$i=1000$${salt}$${bare(sha1)}`,
  [`$pbkdf2$1000$${salt}$${bare(sha1).replaceAll('+', '.')}`]: `pbkdf2-sha1$i=1000$${salt}$${bare(sha1)}`,
  [`$pbkdf2-sha512$i=1000,l=64$${salt}$${sha512}`]: `pbkdf2-sha512$i=1000$${salt}$${sha512}`,
  [`scrypt$1024$${SALT}$8$2$${scrypt(64)}`]: `scrypt$ln=10,r=8,p=2$${salt}$${bare(scrypt(64))}`,
  [`$scrypt$ln=10,r=8,p=2$${salt}$${bare(scrypt(32))}`]: `scrypt$ln=10,r=8,p=2$${salt}$${bare(scrypt(32))}`,
};

test('of each foreign hash, only the password matches', async () => {
  for (const [given, stored] of Object.entries(READ)) {
    assert.equal(readForeignHash(given), `imported$${stored}`);
    assert.equal(await verifyImported(PASSWORD, `imported$${stored}`), true, given);
    for (const other of ['', 'password', `${PASSWORD}\0`, PASSWORD.normalize('NFD')])
      assert.equal(await verifyImported(other, `imported$${stored}`), false, given);
  }
});

const HASH = base64(Buffer.alloc(32));
const REJECTED: Readonly<Record<string, RegExp>> = {
  '': /is not a hash/,
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

test('another text is rejected with its fault, and a hash of another kind needs a link', () => {
  for (const [given, expected] of Object.entries(REJECTED)) {
    const { problem, isKnown } = Object(readForeignHash(given));
    assert.match(problem, expected, given);
    assert.match(problem, /; correct it, or leave it out and use --invite$/);
    assert.equal(isKnown, false);
  }
  for (const given of wordsOf(
    '$2b$12$abc bcrypt_sha256$$2b$12$abc argon2$argon2id$v $argon2id$v=1',
  )) {
    const { problem, isKnown } = Object(readForeignHash(given));
    assert.match(problem, /--invite/);
    assert.equal(isKnown, true, given);
  }
});

test('a stored hash that was edited to cost more is not computed', async () => {
  for (const stored of [
    `imported$pbkdf2-sha256$i=2400001$${salt}$${bare(HASH)}`,
    `imported$scrypt$ln=25,r=8,p=1$${salt}$${bare(HASH)}`,
    'imported$',
  ])
    await assert.rejects(verifyImported(PASSWORD, stored), /malformed or costs too much/);
});
