import assert from 'node:assert/strict';
import { generateKeyPairSync, randomBytes, randomInt } from 'node:crypto';
import test from 'node:test';
import {
  type Ceremony,
  type PublicKey,
  readCbor,
  Rejection,
  verifyRegistration as registration,
  verifySignIn as assertion,
} from '../../../../src/identity/factors/webauthn.ts';
import {
  type Circumstances,
  createKey,
  createPasskey,
  encodeCbor,
  orRejection,
} from '../../../support/authenticator.ts';
import { seeded } from '../../../support/random.ts';

const verifyRegistration = orRejection(registration);
const verifySignIn = orRejection(assertion);

const challenge = randomBytes(52);
const site = { challenge, origin: 'https://login.example.org', host: 'login.example.org' };
const ceremony: Ceremony = { ...site, needsVerification: true };

function registered(passkey = createPasskey(), around: Partial<Circumstances> = {}) {
  const { clientData, attestation } = passkey.register({ ...site, ...around });
  return verifyRegistration(clientData, attestation, ceremony);
}
function keyOf(passkey: ReturnType<typeof createPasskey>): PublicKey {
  const result = registered(passkey);
  if (result instanceof Rejection) assert.fail(result.message);
  return result.key;
}
function signedIn(
  passkey: ReturnType<typeof createPasskey>,
  key: PublicKey,
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
    assert.deepEqual(signedIn(passkey, result.key, { counter: 2 ** 32 - 1 }), {
      counter: 2 ** 32 - 1,
      isBackupEligible: false,
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
        result.key,
        ceremony,
      );
      assert.ok(verdict instanceof Rejection);
    }
    assertRejected(
      signedIn(createPasskey(createKey(kind), passkey.id), result.key),
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
  const { attestation, clientData } = createPasskey().register({
    ...site,
    client: { future: { a: 1 } },
  });
  const withBom = Buffer.concat([Buffer.from('\ufeff'), clientData]);
  for (const data of [clientData, withBom])
    assert.ok(!(verifyRegistration(data, attestation, ceremony) instanceof Rejection));
  for (const data of ['', 'null', '[]', '"x"', '{', `${clientData}x`]) {
    assertRejected(verifyRegistration(Buffer.from(data), attestation, ceremony), 'malformed');
  }
  assertRejected(
    verifyRegistration(
      Buffer.concat([clientData, Buffer.alloc(4_096, ' ')]),
      attestation,
      ceremony,
    ),
    'malformed',
  );
});

type CoseValue = number | Buffer;
const cose = (...entries: Array<[number, CoseValue]>) =>
  encodeCbor(new Map<number, CoseValue>(entries));
const bytesOf = (hex: string) => Buffer.from(hex, 'hex').reverse();

test('keys that were not offered, are weak or are malformed are rejected', () => {
  const rsa = (bits: number, publicExponent = 65_537) => {
    const jwk = generateKeyPairSync('rsa', {
      modulusLength: bits,
      publicExponent,
    }).publicKey.export({ format: 'jwk' });
    return { n: Buffer.from(jwk.n ?? '', 'base64url'), e: Buffer.from(jwk.e ?? '', 'base64url') };
  };
  const good = rsa(2_048);
  const small = rsa(1_024);
  const three = rsa(2_048, 3);
  const off = randomBytes(32);
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
    ...smallOrder.map((y) => cose([1, 1], [3, -8], [-1, 6], [-2, bytesOf(y)])),
    cose([1, 1], [3, -8], [-1, 7], [-2, off]), // Ed448
    cose([1, 1], [3, -8], [-1, 6], [-2, randomBytes(31)]),
    cose([1, 2], [3, -7], [-1, 1], [-2, off], [-3, off]), // not on the curve
    cose([1, 2], [3, -35], [-1, 2], [-2, randomBytes(48)], [-3, randomBytes(48)]), // ES384
    cose([1, 2], [3, -8], [-1, 1], [-2, off], [-3, off]), // the algorithm of another kind of key
    cose([1, 3], [3, -257], [-1, good.n], [-2, Buffer.of(1)]),
    cose([1, 3], [3, -257], [-1, good.n], [-2, Buffer.of(0, 0, 1)]),
    cose([1, 3], [3, -257], [-1, three.n], [-2, three.e]),
    cose([1, 3], [3, -257], [-1, small.n], [-2, small.e]),
    cose([1, 3], [3, -257], [-1, Buffer.alloc(1_024, 0xff)], [-2, good.e]),
    cose([1, 3], [3, -65535], [-1, good.n], [-2, good.e]), // RS1
    cose([3, -7]),
    cose([1, 2]),
    encodeCbor(new Map()),
  ];
  for (const key of keys) {
    const { clientData, attestation } = createPasskey().register(site, key);
    assertRejected(verifyRegistration(clientData, attestation, ceremony), 'unsupported_key');
  }
  const fine = createPasskey().register(site, cose([1, 3], [3, -257], [-1, good.n], [-2, good.e]));
  assert.ok(
    !(verifyRegistration(fine.clientData, fine.attestation, ceremony) instanceof Rejection),
  );
});

test('an id of 1,023 bytes is accepted; none, a longer one, or bytes left over are not', () => {
  const key = createKey('EdDSA');
  assert.ok(!(registered(createPasskey(key, randomBytes(1_023))) instanceof Rejection));
  for (const length of [0, 1_024])
    assertRejected(registered(createPasskey(key, randomBytes(length))), 'malformed');
  const { clientData, attestation } = createPasskey(key).register(
    site,
    Buffer.concat([key.cose, Buffer.of(0)]),
  );
  assertRejected(verifyRegistration(clientData, attestation, ceremony), 'malformed');
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
  const { clientData, attestation } = passkey.register(site);
  const { data, signature, clientData: getData } = passkey.signIn(site);
  const key = keyOf(passkey);
  let accepted = 0;
  for (let i = 0; i < 10_000; i += 1) {
    verifyRegistration(clientData, mutated(attestation, random), ceremony);
    const auth = i % 2 === 0 ? mutated(data, random) : data;
    const sig = i % 2 === 0 ? signature : mutated(signature, random);
    const result = verifySignIn(getData, auth, sig, key, ceremony);
    const isUnchanged = auth.equals(data) && sig.equals(signature);
    if (!(result instanceof Rejection) && !isUnchanged) accepted += 1;
  }
  assert.equal(accepted, 0);
});

const GOOD_CBOR: Array<[string, unknown]> = [
  ['00', 0],
  ['17', 23],
  ['1818', 24],
  ['190100', 256],
  ['1a00010000', 65_536],
  ['1affffffff', 2 ** 32 - 1],
  ['20', -1],
  ['390100', -257],
  ['40', Buffer.alloc(0)],
  ['4101', Buffer.of(1)],
  ['60', ''],
  ['63e282ac', '€'],
  ['80', []],
  ['820102', [1, 2]],
  ['a0', new Map()],
  ['a10102', new Map([[1, 2]])],
  ['f4', false],
  ['f5', true],
  ['8181818100', [[[[0]]]]],
];

const BAD_CBOR = [
  '',
  '18',
  '1817',
  '1900ff',
  '1a0000ffff',
  '1b0000000000000001',
  '1c',
  '1f',
  '38',
  '41',
  '4201',
  '5a7fffffff',
  '5f',
  '61ff',
  '62c328',
  '81',
  '9affffffff',
  '9f',
  'a1',
  'a101',
  'a1f401',
  'a201020103',
  'baffffffff',
  'bf',
  'c0',
  'd8',
  'e0',
  'f6',
  'f7',
  'f818',
  'f90000',
  'fa00000000',
  'ff',
  '818181818100',
  'a14000',
];

test('CBOR: the subset is read, and all else is rejected', () => {
  const read = (hex: string, start?: number) => readCbor(Buffer.from(hex, 'hex'), start);
  for (const [hex, value] of GOOD_CBOR) assert.deepEqual(read(hex).value, value, hex);
  for (const hex of BAD_CBOR) assert.throws(() => read(hex), Rejection, hex);
  assert.equal(read('ff0102', 1).end, 2);
});

test('CBOR: a length that the input cannot have allocates nothing', () => {
  const heads = ['9a01ffffff', 'ba01ffffff', '5a01ffffff', '7a01ffffff'];
  const before = process.memoryUsage();
  for (const hex of heads)
    assert.throws(() => readCbor(Buffer.from(`${hex}00`, 'hex')), Rejection, hex);
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  const allocated = heapUsed - before.heapUsed + arrayBuffers - before.arrayBuffers;
  assert.ok(allocated < 16 * 2 ** 20, `${allocated} bytes`);
});
