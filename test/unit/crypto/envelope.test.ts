/** What is sealed with a key, and with a passphrase as well: only all of it, unaltered, opens it. */
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
import { createKdfParams } from '../../../src/platform/crypto/scrypt.ts';
import { createServerKey, type ServerKey } from '../../../src/secrets/envelope.ts';
import { everyBitFlipped } from '../../support/bits.ts';
import { type Metadata, open, seal, sealWithPassphrase } from '../../support/envelope.ts';

const SERVER_SECRET = 'server-secret-for-tests-0123456789abcdef';
const serverKey = createServerKey(SERVER_SECRET);
const otherServerKey = createServerKey(`${SERVER_SECRET}!`);
const clientKey = createClientKey();
const otherClientKey = createClientKey();
const metadata: Metadata = { id: randomUUID(), expiresAt: 1_893_456_000_000, maxReads: 3 };
const text = Buffer.from('correct horse battery staple');
const kdfParams = createKdfParams({ logN: 15, r: 8, p: 3 });
const stretched = randomBytes(32);
/** Version, nonce, least padding, tag. */
const MIN_BLOB = 1 + 12 + 256 + 16;

type Opened = ReturnType<typeof open>;
const sealPlain = (bytes: Buffer, of = metadata, key = clientKey) =>
  seal(serverKey, key, of, bytes);
const sealLocked = (bytes: Buffer, of = metadata, key = clientKey) =>
  sealWithPassphrase(serverKey, key, of, bytes, kdfParams, stretched);

/** What only a passphrase has: passphrase-sealed.test.ts. */
const KINDS = [
  {
    name: 'a text',
    version: 1,
    sealIt: sealPlain,
    read: (opened: Opened) => (Buffer.isBuffer(opened) ? opened : null),
  },
  {
    name: 'a locked text',
    version: 2,
    sealIt: sealLocked,
    read: (opened: Opened) =>
      opened === null || Buffer.isBuffer(opened) ? null : opened.open(stretched),
  },
];

interface Attempt {
  readonly serverKey: ServerKey;
  readonly clientKey: Buffer;
  readonly metadata: Metadata;
  readonly sealed: Sealed;
}

const commitmentOf = (key = clientKey, id = metadata.id) =>
  deriveKeys(serverKey, key, id).commitment;
const limitedTo = (limits: Partial<Metadata>) => ({ metadata: { ...metadata, ...limits } });

/** Each is an edited or swapped row, or a wrong key. A passphrase is right each time. */
const wrongOf = (sealed: Sealed): Readonly<Record<string, Partial<Attempt>>> => {
  const withCommitment = (commitment: Buffer) => ({ sealed: { ...sealed, commitment } });
  const withBlob = (blob: Buffer) => ({ sealed: { ...sealed, blob } });
  return {
    'the id of another record': limitedTo({ id: randomUUID() }),
    'an expiry one millisecond later': limitedTo({ expiresAt: 1_893_456_000_001 }),
    'an expiry one millisecond earlier': limitedTo({ expiresAt: 1_893_455_999_999 }),
    'an expiry of never': limitedTo({ expiresAt: null }),
    'one read more': limitedTo({ maxReads: 4 }),
    'one read less': limitedTo({ maxReads: 2 }),
    'any number of reads': limitedTo({ maxReads: null }),
    'neither limit': limitedTo({ expiresAt: null, maxReads: null }),
    'expiry and reads exchanged': limitedTo({ expiresAt: 3, maxReads: 1_893_456_000 }),
    'another server key': { serverKey: otherServerKey },
    'the salt of another server key': { serverKey: { ...serverKey, salt: otherServerKey.salt } },
    'the id of another server key': { serverKey: { ...serverKey, id: otherServerKey.id } },
    'another client key': { clientKey: otherClientKey },
    'a client key of zeros': { clientKey: Buffer.alloc(32) },
    'the commitment of another client key': withCommitment(commitmentOf(otherClientKey)),
    'another client key and its commitment': {
      clientKey: otherClientKey,
      ...withCommitment(commitmentOf(otherClientKey)),
    },
    'the commitment of another record': withCommitment(commitmentOf(clientKey, randomUUID())),
    'an empty commitment': withCommitment(Buffer.alloc(0)),
    'half a commitment': withCommitment(sealed.commitment.subarray(0, 16)),
    'a commitment and more': withCommitment(Buffer.concat([sealed.commitment, sealed.commitment])),
    'a blob of zeros': withBlob(Buffer.alloc(MIN_BLOB)),
    'an empty blob': withBlob(Buffer.alloc(0)),
    'its version alone': withBlob(sealed.blob.subarray(0, 1)),
  };
};

for (const { name, version, sealIt, read } of KINDS) {
  const sealed = sealIt(text);
  /** The right attempt but for what is changed. */
  const attempt = (change: Partial<Attempt>): Opened => {
    const it = { serverKey, clientKey, metadata, sealed, ...change };
    return open(it.serverKey, it.clientKey, it.metadata, it.sealed);
  };
  const withBlob = (blob: Buffer) => attempt({ sealed: { ...sealed, blob } });

  test(`${name} opens byte for byte, whatever its length`, () => {
    assert.deepEqual(read(attempt({})), text);
    // Around every change in the padding of each envelope, and the longest the service takes.
    for (const length of [0, 1, 15, 16, 251, 252, 253, 268, 269, 508, 509, 1_021, 32_767, 32_768]) {
      // Zeros at the end are part of a text.
      for (const bytes of [randomBytes(length), Buffer.alloc(length)]) {
        // Not deepEqual: to show how 32 KiB of random bytes differ takes minutes.
        const opened = read(attempt({ sealed: sealIt(bytes) }));
        assert.ok(opened?.equals(bytes), `${length} bytes`);
      }
    }
  });

  test(`${name}: sealing and opening changes neither the text nor the keys`, () => {
    const inputs = () =>
      [text, clientKey, stretched, serverKey.salt].map((one) => Buffer.from(one));
    const before = inputs();
    read(attempt({ sealed: sealIt(text) }));
    assert.deepEqual(inputs(), before);
  });

  test(`${name}: no bit of blob, commitment or client key may change`, () => {
    assert.equal(sealed.commitment.length, 32);
    for (const [bit, blob] of everyBitFlipped(sealed.blob))
      assert.equal(withBlob(blob), null, `bit ${bit} of the blob`);
    for (const [bit, commitment] of everyBitFlipped(sealed.commitment))
      assert.equal(attempt({ sealed: { ...sealed, commitment } }), null, `commitment, ${bit}`);
    for (const [bit, key] of everyBitFlipped(clientKey))
      assert.equal(attempt({ clientKey: key }), null, `bit ${bit} of the client key`);
  });

  test(`${name}: nothing may be missing or added, at either end or before the tag`, () => {
    const { blob } = sealed;
    for (let length = 0; length < blob.length; length += 1) {
      assert.equal(withBlob(blob.subarray(0, length)), null, `the first ${length} bytes`);
      assert.equal(withBlob(blob.subarray(blob.length - length)), null, `the last ${length} bytes`);
    }
    for (const length of [1, 4, 12, 16, 256]) {
      for (const extra of [Buffer.alloc(length), randomBytes(length)]) {
        const beforeTag = [blob.subarray(0, -16), extra, blob.subarray(-16)];
        for (const parts of [[blob, extra], [extra, blob], beforeTag])
          assert.equal(withBlob(Buffer.concat(parts)), null, `${length} bytes more`);
      }
    }
  });

  test(`${name}: another version is rejected`, () => {
    for (let other = 0; other < 256; other += 1) {
      const blob = Buffer.concat([Buffer.of(other), sealed.blob.subarray(1)]);
      assert.equal(withBlob(blob) !== null, other === version, `version ${other}`);
    }
  });

  for (const [what, change] of Object.entries(wrongOf(sealed))) {
    test(`${name}: nothing opens with ${what}`, () => assert.equal(attempt(change), null));
  }

  test(`${name}: limits added to a record without limits open nothing`, () => {
    const unlimited = { ...metadata, expiresAt: null, maxReads: null };
    const box = sealIt(text, unlimited);
    assert.deepEqual(read(attempt({ metadata: unlimited, sealed: box })), text);
    for (const limits of [
      { expiresAt: 1_893_456_000_000 },
      { maxReads: 1 },
      { expiresAt: 1, maxReads: 1 },
    ])
      assert.equal(attempt({ metadata: { ...unlimited, ...limits }, sealed: box }), null);
  });

  test(`${name}: a client key of another length, or no reads at all, throws`, () => {
    for (const length of [0, 16, 31, 33, 64])
      assert.throws(() => sealIt(text, metadata, Buffer.alloc(length)), RangeError);
    assert.throws(() => sealIt(text, { ...metadata, maxReads: 0 }), RangeError);
  });

  test(`${name}: two boxes of one text have nothing in common but the commitment`, () => {
    const boxes = Array.from({ length: 100 }, () => sealIt(text));
    for (const part of [[1, 13], [13, 29], [-32, -16], [-16]] as const) {
      const parts = boxes.map(({ blob }) => blob.subarray(...part).toString('hex'));
      assert.equal(new Set(parts).size, 100, `bytes ${part}`);
    }
    for (const { commitment } of boxes) assert.deepEqual(commitment, commitmentOf());
  });

  test(`${name} of 1 to 252 bytes is stored at one length`, () => {
    const lengths = Array.from(
      { length: 252 },
      (_, index) => sealIt(Buffer.alloc(index + 1)).blob.length,
    );
    assert.deepEqual([...new Set(lengths)], [sealed.blob.length]);
    assert.ok(sealIt(Buffer.alloc(600)).blob.length > sealed.blob.length);
  });
}

test('a blob has version, nonce, padding and tag', () => {
  assert.equal(sealPlain(text).blob.length, MIN_BLOB);
  assert.ok(sealPlain(Buffer.alloc(253)).blob.length > MIN_BLOB);
});

test('a tag cut to fewer bytes is rejected: 4 could be guessed', () => {
  for (const { blob, commitment } of [sealPlain(text), sealPlain(randomBytes(1_000))]) {
    for (const length of [0, 4, 8, 12, 13, 14, 15]) {
      const cut = { blob: blob.subarray(0, blob.length - 16 + length), commitment };
      assert.equal(open(serverKey, clientKey, metadata, cut), null, `${length} bytes`);
    }
  }
});

test('keys of a client key of another length cannot be derived', () => {
  for (const length of [0, 16, 31, 33, 64])
    assert.throws(() => commitmentOf(Buffer.alloc(length)), RangeError);
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

test('a commitment is another one for every key and record, and is not in the blob', () => {
  const { blob, commitment } = sealPlain(text);
  const others = [
    deriveKeys(otherServerKey, clientKey, metadata.id).commitment,
    commitmentOf(otherClientKey),
    commitmentOf(clientKey, randomUUID()),
  ];
  for (const other of others) assert.notDeepEqual(other, commitment);
  assert.ok(!blob.includes(commitment.subarray(0, 8)));
});
