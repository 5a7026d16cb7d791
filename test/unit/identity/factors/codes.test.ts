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
  for (const offset of [-3, -2, 2, 3])
    assert.equal(findTotpStep(secret, totpCode(secret, step + offset), now), null);
  for (const code of ['', '12345', '1234567', 'abcdef', `${totpCode(secret, step)} `, '١٢٣٤٥٦'])
    assert.equal(findTotpStep(secret, code, now), null);
});

test('Base32: the vectors of RFC 4648, without padding', () => {
  for (const [text, encoded] of [
    ['', ''],
    ['f', 'MY'],
    ['fo', 'MZXQ'],
    ['foo', 'MZXW6'],
    ['foob', 'MZXW6YQ'],
    ['fooba', 'MZXW6YTB'],
    ['foobar', 'MZXW6YTBOI'],
  ] as const)
    assert.equal(base32(Buffer.from(text)), encoded);
});

test('the otpauth address has no colon inside its parts, and no padding', () => {
  const uri = totpUri(Buffer.from('12345678901234567890'), 'login.example.org', 'a:b c@d');
  assert.equal(
    uri,
    'otpauth://totp/login.example.org:a%20b%20c%40d?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=login.example.org',
  );
});

test('the otpauth address of a site with a long name fits a QR code', () => {
  const uri = totpUri(Buffer.alloc(20), '會'.repeat(300), 'a'.repeat(64));
  assert.match(uri, /^otpauth:\/\/totp\/(%E6%9C%83){10}:a/);
  assert.notEqual(qrPicture(uri), null);
});

test('recovery codes: ten different ones of 120 bits, read leniently', () => {
  const codes = createRecoveryCodes();
  assert.equal(new Set(codes).size, 10);
  for (const code of codes) {
    assert.match(code, /^([0-9A-HJKMNP-TV-Z]{4}-){5}[0-9A-HJKMNP-TV-Z]{4}$/);
    const plain = code.replaceAll('-', '');
    const spellings = [
      code,
      plain,
      code.toLowerCase(),
      code.replaceAll('-', ' '),
      ` ${code}\n`,
      code.replaceAll('-', '–'),
      code.replaceAll('-', '\u2011\u200b'),
      code.replaceAll('0', 'O').replaceAll('1', 'l'),
    ];
    for (const spelling of spellings) assert.deepEqual(recoveryDigest(spelling), sha256(plain));
    for (const wrong of [
      '',
      plain.slice(1),
      `${plain}0`,
      plain.replace(/./, 'U'),
      plain.replace(/./, 'é'),
    ])
      assert.equal(recoveryDigest(wrong), null);
  }
});

test('a challenge holds for its purpose, browser and secret, for five minutes', () => {
  const now = 1_800_000_000.7;
  const scope = { secret: randomBytes(32), purpose: 'sign in', binding: 'cookie' } as const;
  const challenge = createChallenge(scope, now);
  assert.equal(challengeError(challenge, scope, now), '');
  assert.equal(challengeError(challenge, scope, now + 299), '');
  assert.equal(challengeError(challenge, scope, now + 301), 'late_challenge');
  const others = [
    { ...scope, purpose: 'second factor' },
    { ...scope, binding: 'other' },
    { ...scope, secret: randomBytes(32) },
  ] as const;
  for (const other of others)
    assert.equal(challengeError(challenge, other, now), 'other_challenge');
  assert.notDeepEqual(createChallenge(scope, now), challenge);
  for (let at = 0; at < challenge.length; at += 1) {
    const changed = Buffer.from(challenge);
    changed.writeUInt8(changed.readUInt8(at) ^ 1, at);
    assert.equal(challengeError(changed, scope, now), 'other_challenge', String(at));
    assert.equal(challengeError(challenge.subarray(0, at), scope, now), 'other_challenge');
  }
});
