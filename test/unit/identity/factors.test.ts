/** Passkeys, with the CBOR and keys that are read of them, and codes of apps and for recovery. */
import assert from 'node:assert/strict';
import { createPublicKey, generateKeyPairSync, randomBytes, randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { decodeCbor } from '../../../src/identity/factors/cbor.ts';
import {
  base32,
  createRecoveryCodes,
  findTotpStep,
  recoveryDigest,
  totpCode,
  totpUri,
} from '../../../src/identity/factors/codes.ts';
import { createChallenge, challengeError } from '../../../src/identity/factors/passkeys.ts';
import {
  authenticatorDataIn,
  type Ceremony,
  Rejection,
  verifyRegistration,
  verifySignIn,
} from '../../../src/identity/factors/webauthn.ts';
import { sha256 } from '../../../src/platform/crypto/token.ts';
import {
  attestationObjectOf,
  type Circumstances,
  coseOf,
  createKey,
  createPasskey,
  encodeCbor,
  type Encoded,
  orRejection,
} from '../../support/authenticator.ts';
import { seeded } from '../../support/random.ts';

const create = orRejection(verifyRegistration);
const get = orRejection(verifySignIn);
const dataIn = orRejection(authenticatorDataIn);

const challenge = randomBytes(52);
const site = { challenge, origin: 'https://login.example.org', host: 'login.example.org' };
const ceremony: Ceremony = { ...site, needsVerification: true };

type Passkey = ReturnType<typeof createPasskey>;
function registered(passkey = createPasskey(), around: Partial<Circumstances> = {}) {
  const { clientData, data } = passkey.register({ ...site, ...around });
  return create(clientData, data, ceremony);
}
function signedIn(
  passkey: Passkey,
  key: Buffer,
  around: Partial<Circumstances> = {},
  as = ceremony,
) {
  const { clientData, data, signature } = passkey.signIn({ ...site, ...around });
  return get(clientData, data, signature, key, as);
}
/** Why it was rejected, or null. */
const reasonOf = (result: unknown) => (result instanceof Rejection ? result.message : null);
/** With another byte of the last but one. */
function altered(bytes: Buffer): Buffer {
  const copy = Buffer.from(bytes);
  copy.writeUInt8(copy.readUInt8(copy.length - 2) ^ 1, copy.length - 2);
  return copy;
}

const { qrPicture } = await import(
  new URL('../../../src/platform/http/site/pages/qr.js', import.meta.url).href
);

for (const kind of ['ES256', 'EdDSA', 'RS256'] as const) {
  test(`${kind}: a passkey is registered and signs in, with its counter and flags`, () => {
    const key = createKey(kind);
    const { spki } = key;
    const passkey = createPasskey(key);
    assert.deepEqual(registered(passkey, { flags: 0x1d, counter: 7 }), {
      ...{ id: passkey.id, spki, counter: 7 },
      ...{ isBackupEligible: true, isUserVerified: true },
    });
    const counter = 2 ** 32 - 1;
    const proof = { counter, isBackupEligible: false, isUserVerified: true };
    assert.deepEqual(signedIn(passkey, spki, { counter }), proof);
    const { clientData, data, signature } = passkey.signIn(site);
    for (const verdict of [
      get(altered(clientData), data, signature, spki, ceremony),
      get(clientData, altered(data), signature, spki, ceremony),
      get(clientData, data, altered(signature), spki, ceremony),
      signedIn(createPasskey(createKey(kind), passkey.id), spki),
    ])
      assert.ok(verdict instanceof Rejection);
  });
}

const CASES: ReadonlyArray<readonly [string, Partial<Circumstances>]> = [
  ['wrong_type', { type: 'payment.get' }],
  ['wrong_challenge', { challenge: randomBytes(52) }],
  ['wrong_challenge', { client: { challenge: `${challenge.toString('base64url')}=` } }],
  ['wrong_challenge', { client: { challenge: undefined } }],
  ['wrong_origin', { origin: 'https://login.example.org.evil.example' }],
  ['wrong_origin', { origin: 'http://login.example.org' }],
  ['in_frame', { client: { crossOrigin: true } }],
  ['in_frame', { client: { crossOrigin: false, topOrigin: 'https://evil.example' } }],
  ['wrong_host', { host: 'example.org' }],
  ['user_absent', { flags: 4 }],
  ['user_not_verified', { flags: 1 }],
  ['inconsistent_backup', { flags: 0x15 }],
];
test('each check rejects for its own reason, at registration and at sign-in', () => {
  const key = createKey('ES256');
  const passkey = createPasskey(key);
  for (const [reason, around] of CASES) {
    assert.equal(reasonOf(registered(passkey, around)), reason);
    assert.equal(reasonOf(signedIn(passkey, key.spki, around)), reason);
  }
  assert.equal(reasonOf(registered(passkey, { type: 'webauthn.get' })), 'wrong_type');
  assert.equal(reasonOf(signedIn(passkey, key.spki, { type: 'webauthn.create' })), 'wrong_type');
  const unverified = { ...ceremony, needsVerification: false };
  assert.equal(reasonOf(signedIn(passkey, key.spki, { flags: 1 }, unverified)), null);
});

test('unknown members of the client data are ignored, and a BOM is allowed', () => {
  const client = { future: { a: 1 } };
  const { data, clientData } = createPasskey().register({ ...site, client });
  const reasonFor = (text: string | Buffer) => reasonOf(create(Buffer.from(text), data, ceremony));
  for (const text of [clientData, `\ufeff${clientData}`]) assert.equal(reasonFor(text), null);
  const long = `${clientData}${' '.repeat(4_096)}`;
  for (const text of ['', 'null', '[]', '"x"', '{', `${clientData}x`, long])
    assert.equal(reasonFor(text), 'malformed', text.slice(0, 9));
});

test('an id of 1,023 bytes is accepted; none, a longer one, or one cut short is not', () => {
  const key = createKey('EdDSA');
  for (const [length, reason] of [
    [1_023, null],
    [0, 'malformed'],
    [1_024, 'malformed'],
  ] as const)
    assert.equal(reasonOf(registered(createPasskey(key, randomBytes(length)))), reason);
  const { clientData, data } = createPasskey(key).register(site);
  const withoutCredential = Buffer.from(data);
  withoutCredential.writeUInt8(data.readUInt8(32) & ~0x40, 32);
  for (const cut of [withoutCredential, ...[37, 54, 55, 70].map((end) => data.subarray(0, end))])
    assert.equal(reasonOf(create(clientData, cut, ceremony)), 'malformed');
});

/** The factors do not matter here, and a search for primes takes seconds. */
function rsa(modulusLength: number, publicExponent = 65_537): Buffer {
  const modulus = randomBytes(modulusLength / 8);
  modulus.writeUInt8(0xc1, 0);
  modulus.writeUInt8(0x01, modulus.length - 1);
  const exponent = Buffer.alloc(4);
  exponent.writeUInt32BE(publicExponent);
  const parts = { n: modulus.toString('base64url'), e: exponent.toString('base64url') };
  const key = createPublicKey({ key: { kty: 'RSA', ...parts }, format: 'jwk' });
  return key.export({ type: 'spki', format: 'der' });
}
/** A map of CBOR. Names and values take turns. */
const mapOf = (...members: readonly Encoded[]): Map<Encoded, Encoded> =>
  new Map(members.flatMap((name, at) => (at % 2 === 0 ? [[name, members[at + 1] ?? 0]] : [])));
const cose = (...members: readonly Encoded[]) => encodeCbor(mapOf(...members));

const ZEROS = '00'.repeat(31);
const ONES = 'ff'.repeat(30);
/** The y coordinates of points of small order, in both of their forms; the highest byte first. */
const SMALL_ORDER = [
  ...[`${ZEROS}00`, `${ZEROS}01`, `80${ZEROS}`, `7f${ONES}ec`, `ff${ONES}ec`, `7f${ONES}ed`],
  ...[`7f${ONES}ee`, `ff${ONES}ed`, `ff${ONES}ee`],
  '05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826',
  '7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7',
  'fa03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7',
  '85fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826',
];

test('a key that is weak, malformed or of another kind is refused', () => {
  const good = rsa(2_048);
  const { spki: ec } = createKey('ES256');
  const { spki: ed } = createKey('EdDSA');
  const p384 = generateKeyPairSync('ec', { namedCurve: 'P-384' }).publicKey;
  // The exponent stands at the end.
  const withExponent1 = Buffer.concat([good.subarray(0, -3), Buffer.of(0, 0, 1)]);
  const refused = [
    ...SMALL_ORDER.map((y) => cose(1, 1, 3, -8, -1, 6, -2, Buffer.from(y, 'hex').reverse())),
    cose(1, 1, 3, -8, -1, 6, -2, randomBytes(31)),
    cose(1, 2, 3, -7, -1, 1, -2, randomBytes(32), -3, randomBytes(32)), // not on the curve
    cose(1, 2, 3, -7, -1, 1, -2, Buffer.alloc(32), -3, Buffer.alloc(32)),
    cose(1, 2, 3, -7, -1, 1, -2, 'text', -3, 1),
    cose(1, 3, 3, -257),
    ...[withExponent1, rsa(2_048, 3), rsa(1_024), rsa(4_608)].map((key) => coseOf(key)),
    coseOf(p384.export({ format: 'der', type: 'spki' })),
    ...[coseOf(good, -37), coseOf(good, -65_535), coseOf(ec, -8), coseOf(ed, -7), coseOf(ed, -19)],
    ...[coseOf(ec).subarray(0, -1), encodeCbor([1, 2, 3]), Buffer.alloc(77), Buffer.of()],
  ];
  for (const [at, key] of refused.entries()) {
    const { clientData, data } = createPasskey().register(site, ec, key);
    assert.equal(reasonOf(create(clientData, data, ceremony)), 'unsupported_key', `key ${at}`);
  }
  // What follows the key, such as extensions, is ignored.
  const followed = Buffer.concat([coseOf(good), cose('credProtect', 2)]);
  const { clientData, data } = createPasskey().register({ ...site, flags: 0x85 }, ec, followed);
  assert.deepEqual(Object(create(clientData, data, ceremony)).spki, good);
});

const hex = (text: string) => Buffer.from(text, 'hex');

test('CBOR is decoded: numbers, texts, bytes, lists and maps in one another (RFC 8949, A)', () => {
  for (const [encoded, value] of [
    ['00', 0],
    ['17', 23],
    ['1818', 24],
    ['190100', 256],
    ['1affffffff', 4_294_967_295],
    ['20', -1],
    ['390100', -257],
    ['40', Buffer.of()],
    ['4401020304', Buffer.of(1, 2, 3, 4)],
    ['62c3bc', 'ü'],
    ['8301820203820405', [1, [2, 3], [4, 5]]],
    ['a26161016162820203', mapOf('a', 1, 'b', [2, 3])],
    ['83f4f5f6', [false, true, null]],
    ['a101f6', new Map([[1, null]])],
  ] as const)
    assert.deepEqual(decodeCbor(hex(encoded)), value, encoded);
});

test('other CBOR is refused: cut short, endless, too deep, floats, tags, a member twice', () => {
  for (const refused of [
    ...['', '18', '1901', '44010203', '8201', 'a101', '9f01ff', '5f4100ff', 'f97e00', 'f7'],
    ...['c11a514b67b0', '1b000000e8d4a51000', '9affffffff', 'a201020103', '818181818100'],
  ])
    assert.throws(() => decodeCbor(hex(refused)), RangeError, refused);
});

test('an attestation object of any format has the data, and its statement is not read', () => {
  const { data } = createPasskey().register(site);
  for (const [format, statement] of [
    ['none', mapOf()],
    ['packed', mapOf('alg', -7, 'sig', randomBytes(71), 'x5c', [randomBytes(700)])],
    ['android-safetynet', mapOf('ver', '214815028', 'response', randomBytes(4_000))],
    ['compound', [mapOf('fmt', 'packed', 'attStmt', mapOf('alg', -7))]],
  ] as const)
    assert.deepEqual(dataIn(attestationObjectOf(data, format, statement)), data, format);
  for (const wrong of [Buffer.of(), Buffer.of(0xa0), encodeCbor('authData')])
    assert.equal(reasonOf(dataIn(wrong)), 'malformed');
});

const SEED = Number(process.env.FUZZ_SEED ?? randomInt(2 ** 31));

/** Cuts every third input, and replaces up to three bytes. */
function mutated(bytes: Buffer, random: (limit: number) => number): Buffer {
  const length = random(3) === 0 ? random(bytes.length + 1) : bytes.length;
  const copy = Buffer.from(bytes.subarray(0, length));
  for (let changes = 1 + random(3); changes > 0 && copy.length > 0; changes -= 1)
    copy.writeUInt8(random(256), random(copy.length));
  return copy;
}

/** The seed repeats the changes. The keys differ, but no key changes the layout of a response. */
test(`changed responses are never more than a rejection (FUZZ_SEED=${SEED})`, () => {
  const random = seeded(SEED);
  const key = createKey('EdDSA');
  const passkey = createPasskey(key);
  const created = passkey.register(site);
  const statement = mapOf('alg', -7, 'sig', randomBytes(70));
  const object = attestationObjectOf(created.data, 'packed', statement);
  const { data, signature, clientData } = passkey.signIn(site);
  for (let round = 0; round < 2_000; round += 1) {
    create(created.clientData, mutated(created.data, random), ceremony);
    dataIn(mutated(object, random));
    const auth = round % 2 === 0 ? mutated(data, random) : data;
    const sig = round % 2 === 0 ? signature : mutated(signature, random);
    const isUnchanged = auth.equals(data) && sig.equals(signature);
    const result = get(clientData, auth, sig, key.spki, ceremony);
    assert.ok(result instanceof Rejection || isUnchanged);
  }
});

const file = readFileSync(new URL('../vectors/webauthn-l3.json', import.meta.url), 'utf8');

test('the test vectors of WebAuthn Level 3, section 16', () => {
  const { cases }: { cases: ReadonlyArray<[string, string | null, ...string[]]> } =
    JSON.parse(file);
  assert.equal(cases.length, 15);
  const published = {
    origin: 'https://example.org',
    host: 'example.org',
    needsVerification: false,
  };
  const at = (challenged = '') => ({ ...published, challenge: hex(challenged) });
  for (const [name, rejected, challenged, client = '', data = '', spki = '', ...signIn] of cases) {
    const result = create(Buffer.from(client), hex(data), at(challenged));
    assert.equal(reasonOf(result), rejected, name);
    if (result instanceof Rejection) continue;
    const idEnd = 55 + hex(data).readUInt16BE(53);
    assert.deepEqual([result.id, result.spki], [hex(data).subarray(55, idEnd), hex(spki)], name);
    const [getChallenge, getClient = '', auth = '', signature = ''] = signIn;
    const verdict = (sig: Buffer) =>
      get(Buffer.from(getClient), hex(auth), sig, result.spki, at(getChallenge));
    assert.equal(Object(verdict(hex(signature))).isBackupEligible, result.isBackupEligible, name);
    assert.ok(verdict(altered(hex(signature))) instanceof Rejection, name);
  }
});

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
    const foreign = ['U', 'é'].map((letter) => plain.replace(/./, letter));
    for (const other of ['', plain.slice(1), `${plain}0`, ...foreign])
      assert.equal(recoveryDigest(other), null, other);
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
