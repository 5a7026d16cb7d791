import assert from 'node:assert/strict';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import {
  createClientKey,
  deriveKeys,
  deriveServerKey,
  paddedLength,
  type Sealed,
} from '../../../src/platform/crypto/seal.ts';
import { createServerKey, type ServerKey } from '../../../src/secrets/envelope.ts';
import { type Metadata, open, seal } from '../../support/envelope.ts';

const SERVER_SECRET = 'server-secret-for-tests-0123456789abcdef';
const serverKey = createServerKey(SERVER_SECRET);
const otherServerKey = createServerKey(`${SERVER_SECRET}!`);
const clientKey = createClientKey();
const otherClientKey = createClientKey();
const metadata: Metadata = { id: randomUUID(), expiresAt: 1_893_456_000_000, maxReads: 3 };
const text = Buffer.from('correct horse battery staple');
const sealed = seal(serverKey, clientKey, metadata, text);
/** Version, nonce, least padding, tag. */
const MIN_BLOB = 1 + 12 + 256 + 16;

interface Attempt {
  readonly serverKey: ServerKey;
  readonly clientKey: Buffer;
  readonly metadata: Metadata;
  readonly sealed: Sealed;
}

/** The right attempt but for what is changed. */
function attempt(change: Partial<Attempt>): Buffer | null {
  const it = { serverKey, clientKey, metadata, sealed, ...change };
  const opened = open(it.serverKey, it.clientKey, it.metadata, it.sealed);
  assert.ok(opened === null || Buffer.isBuffer(opened), 'it is not locked');
  return opened;
}

const withBlob = (blob: Buffer) => ({ sealed: { ...sealed, blob } });
const withCommitment = (commitment: Buffer) => ({ sealed: { ...sealed, commitment } });

function* everyBitFlipped(bytes: Buffer): Generator<[bit: number, flipped: Buffer]> {
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const flipped = Buffer.from(bytes);
    flipped[bit >> 3] = (bytes[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    yield [bit, flipped];
  }
}

test('what was sealed opens, byte for byte', () => {
  assert.deepEqual(attempt({}), text);
  for (const length of [0, 1, 251, 252, 253, 1_000, 32_768]) {
    const bytes = randomBytes(length);
    // Not deepEqual: to show how 32 KiB of random bytes differ takes minutes.
    assert.ok(
      attempt({ sealed: seal(serverKey, clientKey, metadata, bytes) })?.equals(bytes),
      `${length} bytes`,
    );
  }
});

test('trailing zeros are part of the text', () => {
  for (const length of [1, 4, 252, 253]) {
    const zeros = Buffer.alloc(length);
    assert.deepEqual(attempt({ sealed: seal(serverKey, clientKey, metadata, zeros) }), zeros);
  }
});

test('sealing changes neither the text nor the keys', () => {
  const inputs = () => [text, clientKey, serverKey.salt].map((bytes) => Buffer.from(bytes));
  const before = inputs();
  attempt({ sealed: seal(serverKey, clientKey, metadata, text) });
  assert.deepEqual(inputs(), before);
});

test('no bit of version, nonce, ciphertext or tag may change', () => {
  assert.equal(sealed.blob.length, MIN_BLOB);
  for (const [bit, blob] of everyBitFlipped(sealed.blob))
    assert.equal(attempt(withBlob(blob)), null, `bit ${bit}`);
});

test('no bit of the commitment may change', () => {
  assert.equal(sealed.commitment.length, 32);
  for (const [bit, commitment] of everyBitFlipped(sealed.commitment))
    assert.equal(attempt(withCommitment(commitment)), null, `bit ${bit}`);
});

test('no bit of the client key may change', () => {
  for (const [bit, key] of everyBitFlipped(clientKey))
    assert.equal(attempt({ clientKey: key }), null, `bit ${bit}`);
});

test('nothing may be missing, at either end', () => {
  for (let length = 0; length < sealed.blob.length; length += 1) {
    assert.equal(
      attempt(withBlob(sealed.blob.subarray(0, length))),
      null,
      `the first ${length} bytes`,
    );
    assert.equal(
      attempt(withBlob(sealed.blob.subarray(sealed.blob.length - length))),
      null,
      `the last ${length} bytes`,
    );
  }
});

test('nothing may be added, at either end or before the tag', () => {
  for (const length of [1, 4, 12, 16, 256]) {
    for (const extra of [Buffer.alloc(length), randomBytes(length)]) {
      assert.equal(attempt(withBlob(Buffer.concat([sealed.blob, extra]))), null);
      assert.equal(attempt(withBlob(Buffer.concat([extra, sealed.blob]))), null);
      assert.equal(
        attempt(
          withBlob(Buffer.concat([sealed.blob.subarray(0, -16), extra, sealed.blob.subarray(-16)])),
        ),
        null,
      );
    }
  }
});

test('a tag cut to fewer bytes is rejected: 4 could be guessed', () => {
  const long = seal(serverKey, clientKey, metadata, randomBytes(1_000));
  for (const { blob, commitment } of [sealed, long]) {
    for (const length of [0, 4, 8, 12, 13, 14, 15]) {
      assert.equal(
        attempt({ sealed: { blob: blob.subarray(0, blob.length - 16 + length), commitment } }),
        null,
        `${length} bytes`,
      );
    }
  }
});

test('another version is rejected', () => {
  for (let version = 0; version < 256; version += 1) {
    const blob = Buffer.concat([Buffer.of(version), sealed.blob.subarray(1)]);
    assert.equal(attempt(withBlob(blob)) !== null, version === 1, `version ${version}`);
  }
});

/** Each is an edited or swapped row, or a wrong key. */
const WRONG: Readonly<Record<string, Partial<Attempt>>> = {
  'the id of another record': { metadata: { ...metadata, id: randomUUID() } },
  'an expiry one millisecond later': { metadata: { ...metadata, expiresAt: 1_893_456_000_001 } },
  'an expiry one millisecond earlier': { metadata: { ...metadata, expiresAt: 1_893_455_999_999 } },
  'an expiry of never': { metadata: { ...metadata, expiresAt: null } },
  'one read more': { metadata: { ...metadata, maxReads: 4 } },
  'one read less': { metadata: { ...metadata, maxReads: 2 } },
  'any number of reads': { metadata: { ...metadata, maxReads: null } },
  'neither limit': { metadata: { ...metadata, expiresAt: null, maxReads: null } },
  'expiry and reads exchanged': {
    metadata: { ...metadata, expiresAt: 3, maxReads: 1_893_456_000 },
  },
  'another server key': { serverKey: otherServerKey },
  'the salt of another server key': { serverKey: { ...serverKey, salt: otherServerKey.salt } },
  'the id of another server key': { serverKey: { ...serverKey, id: otherServerKey.id } },
  'another client key': { clientKey: otherClientKey },
  'a client key of zeros': { clientKey: Buffer.alloc(32) },
  'the commitment of another client key': withCommitment(
    deriveKeys(serverKey, otherClientKey, metadata.id).commitment,
  ),
  'another client key and its commitment': {
    clientKey: otherClientKey,
    ...withCommitment(deriveKeys(serverKey, otherClientKey, metadata.id).commitment),
  },
  'the commitment of another record': withCommitment(
    deriveKeys(serverKey, clientKey, randomUUID()).commitment,
  ),
  'an empty commitment': withCommitment(Buffer.alloc(0)),
  'half a commitment': withCommitment(sealed.commitment.subarray(0, 16)),
  'a commitment and more': withCommitment(Buffer.concat([sealed.commitment, sealed.commitment])),
  'a blob of zeros': withBlob(Buffer.alloc(MIN_BLOB)),
  'an empty blob': withBlob(Buffer.alloc(0)),
};

for (const [name, change] of Object.entries(WRONG)) {
  test(`nothing opens with ${name}`, () => assert.equal(attempt(change), null));
}

test('limits added to a record without limits open nothing', () => {
  const unlimited = { ...metadata, expiresAt: null, maxReads: null };
  const box = seal(serverKey, clientKey, unlimited, text);
  assert.deepEqual(attempt({ metadata: unlimited, sealed: box }), text);
  for (const limits of [
    { expiresAt: 1_893_456_000_000 },
    { maxReads: 1 },
    { expiresAt: 1, maxReads: 1 },
  ]) {
    assert.equal(attempt({ metadata: { ...unlimited, ...limits }, sealed: box }), null);
  }
});

test('a client key of another length throws', () => {
  for (const length of [0, 16, 31, 33, 64]) {
    assert.throws(() => seal(serverKey, Buffer.alloc(length), metadata, text), RangeError);
    assert.throws(
      () => deriveKeys(serverKey, Buffer.alloc(length), metadata.id).commitment,
      RangeError,
    );
  }
});

test('two boxes of one text have nothing in common', () => {
  const boxes = Array.from({ length: 100 }, () => seal(serverKey, clientKey, metadata, text).blob);
  for (const part of [[1, 13], [13, 29], [-32, -16], [-16]] as const) {
    assert.equal(
      new Set(boxes.map((blob) => blob.subarray(...part).toString('hex'))).size,
      100,
      `bytes ${part}`,
    );
  }
});

test('every text of 1 to 252 bytes is stored at one length', () => {
  const lengths = Array.from(
    { length: 252 },
    (_, index) => seal(serverKey, clientKey, metadata, Buffer.alloc(index + 1)).blob.length,
  );
  assert.deepEqual([...new Set(lengths)], [MIN_BLOB]);
  assert.ok(seal(serverKey, clientKey, metadata, Buffer.alloc(253)).blob.length > MIN_BLOB);
});

test('padding is monotonic, adds at most 12 % above the floor, and leaves few lengths', () => {
  const lengths = new Set<number>();
  for (let length = 0, before = 0; length <= 70_000; length += 1) {
    const padded = paddedLength(length);
    assert.ok(padded >= length && padded >= before, `${length} → ${padded}`);
    assert.ok(length <= 256 ? padded === 256 : padded <= length * 1.12, `${length} → ${padded}`);
    before = padded;
    lengths.add(padded);
  }
  assert.ok(lengths.size < 150, `${lengths.size} lengths`);
});

test('a key id is stable, unique, and no hash or part of secret or salt', () => {
  assert.deepEqual(createServerKey(SERVER_SECRET), serverKey);
  assert.match(serverKey.id, /^[0-9a-f]{16}$/);
  assert.equal(serverKey.salt.length, 32);
  const ids = ['', 'a', 'A', 'a ', SERVER_SECRET, `${SERVER_SECRET}!`, SERVER_SECRET.slice(1)].map(
    (secret) => createServerKey(secret).id,
  );
  assert.equal(new Set(ids).size, ids.length);
  const tells = [
    Buffer.from(SERVER_SECRET),
    serverKey.salt,
    ...['md5', 'sha1', 'sha256', 'sha512'].map((name) =>
      createHash(name).update(SERVER_SECRET).digest(),
    ),
  ];
  for (const bytes of tells) assert.ok(!bytes.toString('hex').includes(serverKey.id));
});

test('one secret has different keys under different labels', () => {
  const secret = 'one secret with two uses, 0123456789';
  const keys = [
    createServerKey(secret),
    deriveServerKey(secret, 'a/'),
    deriveServerKey(secret, 'b/'),
  ];
  const values = keys.flatMap(({ id, salt }) => [id, String(salt)]);
  assert.equal(new Set(values).size, 6);
});

test('a client key is 256 fresh bits', () => {
  const keys = Array.from({ length: 1_000 }, createClientKey);
  assert.ok(keys.every((key) => key.length === 32));
  assert.equal(new Set(keys.map((key) => key.toString('hex'))).size, keys.length);
});

test('a commitment is the same every time and another for every key and record', () => {
  assert.deepEqual(deriveKeys(serverKey, clientKey, metadata.id).commitment, sealed.commitment);
  const others = [
    deriveKeys(otherServerKey, clientKey, metadata.id).commitment,
    deriveKeys(serverKey, otherClientKey, metadata.id).commitment,
    deriveKeys(serverKey, clientKey, randomUUID()).commitment,
  ];
  for (const other of others) assert.notDeepEqual(other, sealed.commitment);
  assert.ok(!sealed.blob.includes(sealed.commitment.subarray(0, 8)));
});
