import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import test from 'node:test';
import { sha256 } from '../../../../src/platform/crypto/token.ts';
import { createChallenge, challengeError } from '../../../../src/identity/factors/passkeys.ts';
import {
  base32,
  createRecoveryCodes,
  findTotpStep,
  recoveryDigest,
  totpCode,
  totpUri,
} from '../../../../src/identity/factors/codes.ts';

const { qrPicture } = await import(
  new URL('../../../../src/platform/http/site/pages/qr.js', import.meta.url).href
);

test('TOTP: the vectors of RFC 6238 for SHA-1, of which an app shows six digits', () => {
  const secret = Buffer.from('12345678901234567890');
  for (const [seconds, code] of [
    [59, '94287082'],
    [1_111_111_109, '07081804'],
    [1_111_111_111, '14050471'],
    [1_234_567_890, '89005924'],
    [2_000_000_000, '69279037'],
    [20_000_000_000, '65353130'],
  ] as const) {
    assert.equal(totpCode(secret, Math.floor(seconds / 30)), code.slice(2));
    assert.equal(findTotpStep(secret, code.slice(2), seconds), Math.floor(seconds / 30));
  }
});

test('TOTP: one step before and after is accepted, and nothing else', () => {
  const secret = randomBytes(20);
  const now = 1_800_000_015;
  const step = Math.floor(now / 30);
  for (const offset of [-1, 0, 1])
    assert.equal(findTotpStep(secret, totpCode(secret, step + offset), now), step + offset);
  const late = [-2, 2].map((offset) => totpCode(secret, step + offset));
  for (const code of [...late, '', '12345', '1234567', `${totpCode(secret, step)} `, '١٢٣٤٥٦'])
    assert.equal(findTotpStep(secret, code, now), null, code);
});

test('Base32: the vectors of RFC 4648, without padding', () => {
  const encoded = ['', 'MY', 'MZXQ', 'MZXW6', 'MZXW6YQ', 'MZXW6YTB', 'MZXW6YTBOI'];
  for (const [length, text] of encoded.entries())
    assert.equal(base32(Buffer.from('foobar'.slice(0, length))), text);
});

test('the otpauth address has no colon inside its parts and no padding, and fits a QR code', () => {
  const secret = Buffer.from('12345678901234567890');
  const written =
    'otpauth://totp/login.example.org:a%20b%20c%40d?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=login.example.org';
  assert.equal(totpUri(secret, 'login.example.org', 'a:b c@d'), written);
  const long = totpUri(secret, '會'.repeat(300), 'a'.repeat(64));
  assert.match(long, /^otpauth:\/\/totp\/(%E6%9C%83){10}:a/);
  assert.notEqual(qrPicture(long), null);
});

test('recovery codes: ten different ones of 120 bits, read leniently', () => {
  const codes = createRecoveryCodes();
  assert.equal(new Set(codes).size, 10);
  for (const code of codes) {
    assert.match(code, /^([0-9A-HJKMNP-TV-Z]{4}-){5}[0-9A-HJKMNP-TV-Z]{4}$/);
    const plain = code.replaceAll('-', '');
    for (const spelling of [
      ...[code, plain, code.toLowerCase(), ` ${code}\n`, code.replaceAll('-', '\u2011\u200b')],
      code.replaceAll('0', 'O').replaceAll('1', 'l'),
    ])
      assert.deepEqual(recoveryDigest(spelling), sha256(plain), spelling);
    const others = [
      '',
      plain.slice(1),
      `${plain}0`,
      plain.replace(/./, 'U'),
      plain.replace(/./, 'é'),
    ];
    for (const other of others) assert.equal(recoveryDigest(other), null, other);
  }
});

test('a challenge holds for its purpose, browser and secret, for five minutes', () => {
  const now = 1_800_000_000.7;
  const scope = { secret: randomBytes(32), purpose: 'sign in', binding: 'cookie' } as const;
  const challenge = createChallenge(scope, now);
  assert.notDeepEqual(createChallenge(scope, now), challenge);
  const errors = [0, 299, 301].map((later) => challengeError(challenge, scope, now + later));
  assert.deepEqual(errors, ['', '', 'late_challenge']);
  for (const change of [
    { purpose: 'second factor' },
    { binding: 'other' },
    { secret: randomBytes(32) },
  ] as const)
    assert.equal(challengeError(challenge, { ...scope, ...change }, now), 'other_challenge');
  for (let at = 0; at < challenge.length; at += 1) {
    const changed = Buffer.from(challenge);
    changed.writeUInt8(changed.readUInt8(at) ^ 1, at);
    for (const other of [changed, challenge.subarray(0, at)])
      assert.equal(challengeError(other, scope, now), 'other_challenge', String(at));
  }
});
