/** What the service decodes itself of a new passkey: CBOR and COSE. */
import assert from 'node:assert/strict';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import test from 'node:test';
import { decodeCbor } from '../../../../src/identity/factors/cbor.ts';
import {
  authenticatorDataIn,
  Rejection,
  verifyRegistration,
} from '../../../../src/identity/factors/webauthn.ts';
import { createKey, createPasskey, orRejection } from '../../../support/authenticator.ts';
import { attestationObjectOf, coseOf, encodeCbor, type Encoded } from '../../../support/cbor.ts';
import { seeded } from '../../../support/random.ts';

const map = (...members: Array<readonly [Encoded, Encoded]>) => new Map(members);

test('CBOR is decoded: numbers, texts, bytes, lists and maps in one another', () => {
  // RFC 8949, appendix A.
  for (const [hex, value] of [
    ['00', 0],
    ['17', 23],
    ['1818', 24],
    ['190100', 256],
    ['1a000f4240', 1_000_000],
    ['1affffffff', 4_294_967_295],
    ['20', -1],
    ['390100', -257],
    ['40', Buffer.of()],
    ['4401020304', Buffer.of(1, 2, 3, 4)],
    ['60', ''],
    ['62c3bc', 'ü'],
    ['83010203', [1, 2, 3]],
    ['8301820203820405', [1, [2, 3], [4, 5]]],
    [
      'a201020304',
      new Map([
        [1, 2],
        [3, 4],
      ]),
    ],
    [
      'a26161016162820203',
      new Map<string, unknown>([
        ['a', 1],
        ['b', [2, 3]],
      ]),
    ],
    ['f4', false],
    ['f5', true],
    ['f6', null],
  ] as const)
    assert.deepEqual(decodeCbor(Buffer.from(hex, 'hex')), value, hex);
});

test('other CBOR is refused: cut short, endless, too deep, floats, tags, a member twice', () => {
  const deep = Buffer.concat([Buffer.alloc(5, 0x81), Buffer.of(0)]);
  for (const hex of ['', '18', '1901', '44010203', '8201', 'a101', '9f01ff', '5f4100ff', 'f97e00'])
    assert.throws(() => decodeCbor(Buffer.from(hex, 'hex')), RangeError, hex);
  for (const hex of ['c11a514b67b0', '1b000000e8d4a51000', '9affffffff', 'a201020103', 'f7'])
    assert.throws(() => decodeCbor(Buffer.from(hex, 'hex')), RangeError, hex);
  assert.throws(() => decodeCbor(deep), RangeError);
});

const challenge = randomBytes(52);
const site = { challenge, origin: 'https://login.example.org', host: 'login.example.org' };
const ceremony = { ...site, needsVerification: true };
const verify = orRejection(verifyRegistration);
const dataOf = orRejection(authenticatorDataIn);

test('an attestation object of every format has the data, and nothing else is read', () => {
  const { data } = createPasskey().register(site);
  const certificate = randomBytes(700);
  for (const [format, statement] of [
    ['none', map()],
    ['packed', map(['alg', -7], ['sig', randomBytes(71)], ['x5c', [certificate, certificate]])],
    ['fido-u2f', map(['x5c', [certificate]], ['sig', randomBytes(70)])],
    ['android-safetynet', map(['ver', '214815028'], ['response', randomBytes(4_000)])],
    [
      'tpm',
      map(['ver', '2.0'], ['alg', -65_535], ['x5c', [certificate]], ['pubArea', certificate]),
    ],
    ['compound', [map(['fmt', 'packed'], ['attStmt', map(['alg', -7])])]],
  ] as const)
    assert.deepEqual(dataOf(attestationObjectOf(data, format, statement)), data, format);
  for (const wrong of [Buffer.of(), Buffer.of(0xa0), encodeCbor('authData'), randomBytes(300)]) {
    const result = dataOf(wrong);
    assert.ok(result instanceof Rejection);
    assert.equal(result.message, 'malformed');
  }
});

test('each offered kind of key is read as the authenticator wrote it', () => {
  for (const kind of ['ES256', 'EdDSA', 'RS256'] as const) {
    const { clientData, data, spki } = createPasskey(createKey(kind)).register(site);
    const registered = verify(clientData, data, ceremony);
    assert.ok(!(registered instanceof Rejection), kind);
    assert.deepEqual(registered.spki, spki, kind);
  }
});

test('a key of another kind, or with other members, is refused', () => {
  const spki = (namedCurve: string) =>
    generateKeyPairSync('ec', { namedCurve }).publicKey.export({ format: 'der', type: 'spki' });
  const { spki: ec } = createKey('ES256');
  const { spki: rsa } = createKey('RS256');
  const { spki: ed } = createKey('EdDSA');
  const keys = [
    coseOf(spki('P-384')),
    coseOf(rsa, -37),
    coseOf(rsa, -65_535),
    coseOf(ec, -8),
    coseOf(ed, -7),
    coseOf(ed, -19),
    coseOf(ec).subarray(0, -1),
    encodeCbor(map([1, 2], [3, -7], [-1, 1], [-2, randomBytes(32)], [-3, randomBytes(32)])),
    encodeCbor(map([1, 1], [3, -8], [-1, 6], [-2, Buffer.alloc(32)])),
    encodeCbor(map([1, 2], [3, -7], [-1, 1], [-2, 'text'], [-3, 1])),
    encodeCbor(map([1, 3], [3, -257])),
    encodeCbor([1, 2, 3]),
    Buffer.alloc(77),
    Buffer.of(),
  ];
  for (const [at, cose] of keys.entries()) {
    const { clientData, data } = createPasskey(createKey('ES256')).register(site, ec, cose);
    const result = verify(clientData, data, ceremony);
    assert.ok(result instanceof Rejection, String(at));
    assert.equal(result.message, 'unsupported_key', String(at));
  }
});

test('what follows the key, such as extensions, is ignored', () => {
  const { spki } = createKey('ES256');
  const more = encodeCbor(map(['credProtect', 2]));
  const cose = Buffer.concat([coseOf(spki), more]);
  const { clientData, data } = createPasskey().register({ ...site, flags: 0x85 }, spki, cose);
  assert.ok(!(verify(clientData, data, ceremony) instanceof Rejection));
});

test('random and changed bytes are never more than a rejection', () => {
  const random = seeded(20_261_129);
  const { clientData, data } = createPasskey(createKey('RS256')).register(site);
  const object = attestationObjectOf(data, 'packed', map(['alg', -7], ['sig', randomBytes(70)]));
  for (let round = 0; round < 2_000; round += 1) {
    const changed = Buffer.from(object);
    for (let times = 0; times < 3; times += 1)
      changed.writeUInt8(random(256), random(changed.length));
    const found = dataOf(changed.subarray(0, random(2) === 0 ? changed.length : random(600)));
    if (Buffer.isBuffer(found)) verify(clientData, found, ceremony);
  }
});
