import assert from 'node:assert/strict';
import { createPublicKey, randomBytes, randomInt } from 'node:crypto';
import test from 'node:test';
import {
  type Ceremony,
  Rejection,
  verifyRegistration as registration,
  verifySignIn as assertion,
} from '../../../../src/identity/factors/webauthn.ts';
import {
  type Circumstances,
  createKey,
  createPasskey,
  orRejection,
} from '../../../support/authenticator.ts';
import { coseOf, encodeCbor, type Encoded } from '../../../support/cbor.ts';
import { seeded } from '../../../support/random.ts';

const verifyRegistration = orRejection(registration);
const verifySignIn = orRejection(assertion);

const challenge = randomBytes(52);
const site = { challenge, origin: 'https://login.example.org', host: 'login.example.org' };
const ceremony: Ceremony = { ...site, needsVerification: true };

function registered(passkey = createPasskey(), around: Partial<Circumstances> = {}) {
  const { clientData, data } = passkey.register({ ...site, ...around });
  return verifyRegistration(clientData, data, ceremony);
}
function keyOf(passkey: ReturnType<typeof createPasskey>): Buffer {
  const result = registered(passkey);
  if (result instanceof Rejection) assert.fail(result.message);
  return result.spki;
}
function signedIn(
  passkey: ReturnType<typeof createPasskey>,
  key: Buffer,
  around: Partial<Circumstances> = {},
  wanted = ceremony,
) {
  const { clientData, data, signature } = passkey.signIn({ ...site, ...around });
  return verifySignIn(clientData, data, signature, key, wanted);
}
const assertRejected = (result: unknown, reason: string) => {
  assert.ok(result instanceof Rejection, 'it was accepted');
  assert.equal(result.message, reason);
};

for (const kind of ['ES256', 'EdDSA', 'RS256'] as const) {
  test(`${kind}: a passkey is registered and signs in, with its counter and flags`, () => {
    const passkey = createPasskey(createKey(kind));
    const result = registered(passkey, { flags: 0x1d, counter: 7 });
    assert.ok(!(result instanceof Rejection));
    assert.deepEqual([result.id, result.counter, result.isBackupEligible], [passkey.id, 7, true]);
    assert.deepEqual(signedIn(passkey, result.spki, { counter: 2 ** 32 - 1 }), {
      counter: 2 ** 32 - 1,
      isBackupEligible: false,
      isUserVerified: true,
    });
    const { clientData, data, signature } = passkey.signIn(site);
    for (const changed of [clientData, data, signature]) {
      const bytes = Buffer.from(changed);
      bytes.writeUInt8(bytes.readUInt8(bytes.length - 2) ^ 1, bytes.length - 2);
      const given = (one: Buffer) => (one === changed ? bytes : one);
      const verdict = verifySignIn(
        given(clientData),
        given(data),
        given(signature),
        result.spki,
        ceremony,
      );
      assert.ok(verdict instanceof Rejection);
    }
    assertRejected(
      signedIn(createPasskey(createKey(kind), passkey.id), result.spki),
      'wrong_signature',
    );
  });
}

const CASES: ReadonlyArray<readonly [string, Partial<Circumstances>]> = [
  ['wrong_type', { type: 'payment.get' }],
  ['wrong_challenge', { challenge: randomBytes(52) }],
  ['wrong_challenge', { client: { challenge: `${challenge.toString('base64url')}=` } }],
  ['wrong_challenge', { client: { challenge: undefined } }],
  ['wrong_origin', { origin: 'https://login.example.org.evil.example' }],
  ['wrong_origin', { origin: 'https://app.example.org' }],
  ['wrong_origin', { origin: 'http://login.example.org' }],
  ['in_frame', { client: { crossOrigin: true } }],
  ['in_frame', { client: { crossOrigin: false, topOrigin: 'https://evil.example' } }],
  ['wrong_host', { host: 'example.org' }],
  ['user_absent', { flags: 4 }],
  ['user_not_verified', { flags: 1 }],
  ['inconsistent_backup', { flags: 0x15 }],
];
test('each check rejects for its own reason, at registration and at sign-in', () => {
  const passkey = createPasskey();
  const key = keyOf(passkey);
  for (const [reason, around] of CASES) {
    assertRejected(registered(passkey, around), reason);
    assertRejected(signedIn(passkey, key, around), reason);
  }
  assertRejected(registered(passkey, { type: 'webauthn.get' }), 'wrong_type');
  assertRejected(signedIn(passkey, key, { type: 'webauthn.create' }), 'wrong_type');
  assert.ok(
    !(
      signedIn(passkey, key, { flags: 1 }, { ...ceremony, needsVerification: false }) instanceof
      Rejection
    ),
  );
});

test('unknown members of the client data are ignored, and a BOM is allowed', () => {
  const { data, clientData } = createPasskey().register({
    ...site,
    client: { future: { a: 1 } },
  });
  const withBom = Buffer.concat([Buffer.from('\ufeff'), clientData]);
  const verified = (client: Buffer) => verifyRegistration(client, data, ceremony);
  for (const client of [clientData, withBom]) assert.ok(!(verified(client) instanceof Rejection));
  for (const client of ['', 'null', '[]', '"x"', '{', `${clientData}x`]) {
    assertRejected(verified(Buffer.from(client)), 'malformed');
  }
  const long = Buffer.concat([clientData, Buffer.alloc(4_096, ' ')]);
  assertRejected(verified(long), 'malformed');
});

/** The factors do not matter here, and a search for primes takes seconds. */
function rsa(modulusLength: number, publicExponent = 65_537) {
  const modulus = randomBytes(modulusLength / 8);
  modulus.writeUInt8(0xc1, 0);
  modulus.writeUInt8(0x01, modulus.length - 1);
  const exponent = Buffer.alloc(4);
  exponent.writeUInt32BE(publicExponent);
  const n = modulus.toString('base64url');
  const e = exponent.toString('base64url');
  const key = createPublicKey({ key: { kty: 'RSA', n, e }, format: 'jwk' });
  return key.export({ type: 'spki', format: 'der' });
}
const p256 = (x: Buffer, y: Buffer) =>
  encodeCbor(
    new Map<Encoded, Encoded>([
      [1, 2],
      [3, -7],
      [-1, 1],
      [-2, x],
      [-3, y],
    ]),
  );
/** @param hex of the point, the highest byte first */
const ed25519 = (hex: string) =>
  encodeCbor(
    new Map<Encoded, Encoded>([
      [1, 1],
      [3, -8],
      [-1, 6],
      [-2, Buffer.from(hex, 'hex').reverse()],
    ]),
  );

test('keys that are weak or malformed are rejected', () => {
  const good = rsa(2_048);
  const smallOrder = [
    '00'.repeat(32),
    `${'00'.repeat(31)}01`,
    `80${'00'.repeat(31)}`,
    `7f${'ff'.repeat(30)}ec`,
    `ff${'ff'.repeat(30)}ec`,
    `7f${'ff'.repeat(30)}ed`,
    `7f${'ff'.repeat(30)}ee`,
    `ff${'ff'.repeat(30)}ed`,
    `ff${'ff'.repeat(30)}ee`,
    '05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826',
    '7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7',
    'fa03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7',
    '85fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826',
  ];
  const keys = [
    ...smallOrder.map(ed25519),
    ed25519('00'.repeat(31)),
    p256(randomBytes(32), randomBytes(32)), // not on the curve
    p256(Buffer.alloc(32), Buffer.alloc(32)),
    p256(randomBytes(32), Buffer.alloc(0)),
    coseOf(withExponent(good, [0, 0, 1])),
    coseOf(rsa(2_048, 3)),
    coseOf(rsa(1_024)),
    coseOf(rsa(4_608)),
  ];
  for (const [at, cose] of keys.entries()) {
    const { clientData, data } = createPasskey().register(site, undefined, cose);
    const result = verifyRegistration(clientData, data, ceremony);
    assert.ok(result instanceof Rejection, `key ${at} was accepted`);
    assert.equal(result.message, 'unsupported_key');
  }
  const { clientData, data } = createPasskey().register(site, good);
  const result = verifyRegistration(clientData, data, ceremony);
  assert.ok(!(result instanceof Rejection));
  assert.deepEqual(result.spki, good);
});

/** The exponent stands at the end. */
const withExponent = (key: Buffer, exponent: readonly number[]) =>
  Buffer.concat([key.subarray(0, -exponent.length), Buffer.from(exponent)]);

test('an id of 1,023 bytes is accepted; none, a longer one, or one cut short is not', () => {
  const key = createKey('EdDSA');
  assert.ok(!(registered(createPasskey(key, randomBytes(1_023))) instanceof Rejection));
  for (const length of [0, 1_024])
    assertRejected(registered(createPasskey(key, randomBytes(length))), 'malformed');
  const { clientData, data } = createPasskey(key).register(site);
  for (const length of [37, 54, 55, 70]) {
    const cut = data.subarray(0, length);
    assertRejected(verifyRegistration(clientData, cut, ceremony), 'malformed');
  }
  const withoutCredential = Buffer.from(data);
  withoutCredential.writeUInt8(data.readUInt8(32) & ~0x40, 32);
  assertRejected(verifyRegistration(clientData, withoutCredential, ceremony), 'malformed');
});

const SEED = Number(process.env.FUZZ_SEED ?? randomInt(2 ** 31));

/** Cuts every third input, and replaces up to three bytes. */
function mutated(bytes: Buffer, random: (limit: number) => number): Buffer {
  const length = random(3) === 0 ? random(bytes.length + 1) : bytes.length;
  const copy = Buffer.from(bytes.subarray(0, length));
  for (let changes = 1 + random(3); changes > 0 && copy.length > 0; changes -= 1) {
    copy.writeUInt8(random(256), random(copy.length));
  }
  return copy;
}

/** The seed repeats the changes. The keys differ, but no key changes the layout of a response. */
test(`20,000 changed responses are rejected or read alike (FUZZ_SEED=${SEED})`, () => {
  const random = seeded(SEED);
  const passkey = createPasskey(createKey('EdDSA'));
  const created = passkey.register(site);
  const { data, signature, clientData: getData } = passkey.signIn(site);
  const key = keyOf(passkey);
  let accepted = 0;
  for (let i = 0; i < 10_000; i += 1) {
    const given = mutated(created.data, random);
    verifyRegistration(created.clientData, given, ceremony);
    const auth = i % 2 === 0 ? mutated(data, random) : data;
    const sig = i % 2 === 0 ? signature : mutated(signature, random);
    const result = verifySignIn(getData, auth, sig, key, ceremony);
    const isUnchanged = auth.equals(data) && sig.equals(signature);
    if (!(result instanceof Rejection) && !isUnchanged) accepted += 1;
  }
  assert.equal(accepted, 0);
});
