import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { type BoundMetadata, createClientKey, createServerKey, isUnaltered, rowTagOf, seal, type Sealed, sealLocked, type ServerKey } from '../../src/crypto/box.ts';

const SERVER_SECRET = 'server-secret-for-tests-0123456789abcdef';
const serverKey = createServerKey(SERVER_SECRET);
const otherServerKey = createServerKey(`${SERVER_SECRET}!`);
const clientKey = createClientKey();
const conditions: BoundMetadata = { id: randomUUID(), expiresAt: 1_893_456_000_000, maxReads: 3 };
const text = Buffer.from('correct horse battery staple');

/** A whole row, as it lies in the database. */
interface Row {
  readonly serverKey: ServerKey;
  readonly conditions: BoundMetadata;
  readonly sealed: Sealed;
  readonly tag: Buffer | null;
}

function rowOf(sealed: Sealed, of: BoundMetadata = conditions): Row {
  return { serverKey, conditions: of, sealed, tag: rowTagOf(serverKey, of, sealed) };
}

const whole = (row: Row) => isUnaltered(row.serverKey, row.conditions, row.sealed, row.tag);
const row = rowOf(seal(serverKey, clientKey, conditions, text));
const { blob, commitment } = row.sealed;

function* everyBitFlipped(bytes: Buffer): Generator<[bit: number, flipped: Buffer]> {
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const flipped = Buffer.from(bytes);
    flipped[bit >> 3] = (bytes[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    yield [bit, flipped];
  }
}

test('a row is unaltered as it was written, whatever its limits, its length and its version', () => {
  const all: readonly BoundMetadata[] = [conditions, { ...conditions, expiresAt: null }, { ...conditions, maxReads: null }, { id: randomUUID(), expiresAt: null, maxReads: null }];
  for (const each of all) {
    for (const length of [0, 1, 252, 253, 32_768]) {
      assert.equal(whole(rowOf(seal(serverKey, clientKey, each, randomBytes(length)), each)), true);
      assert.equal(whole(rowOf(sealLocked(serverKey, clientKey, each, randomBytes(length), 'stretching', randomBytes(32)), each)), true);
    }
  }
});

test('a tag has 32 bytes, is the same every time, and needs no client key', () => {
  assert.equal(row.tag?.length, 32);
  assert.deepEqual(rowTagOf(serverKey, conditions, row.sealed), row.tag);
});

test('no bit of blob, commitment or tag may change', () => {
  for (const [bit, flipped] of everyBitFlipped(blob)) assert.equal(whole({ ...row, sealed: { blob: flipped, commitment } }), false, `bit ${bit} of the blob`);
  for (const [bit, flipped] of everyBitFlipped(commitment)) assert.equal(whole({ ...row, sealed: { blob, commitment: flipped } }), false, `bit ${bit} of the commitment`);
  for (const [bit, tag] of everyBitFlipped(row.tag ?? assert.fail())) assert.equal(whole({ ...row, tag }), false, `bit ${bit} of the tag`);
});

const other = rowOf(seal(serverKey, createClientKey(), conditions, text));
const elsewhere = { ...conditions, id: randomUUID() };
const theirs = rowOf(seal(serverKey, clientKey, elsewhere, text), elsewhere);

/** Each column edited, or taken from another row. */
const ALTERED: Readonly<Record<string, Row>> = {
  'the id of another row': { ...row, conditions: elsewhere },
  'an expiry one millisecond later': { ...row, conditions: { ...conditions, expiresAt: 1_893_456_000_001 } },
  'an expiry one millisecond earlier': { ...row, conditions: { ...conditions, expiresAt: 1_893_455_999_999 } },
  'an expiry of never': { ...row, conditions: { ...conditions, expiresAt: null } },
  'one read more': { ...row, conditions: { ...conditions, maxReads: 4 } },
  'any number of reads': { ...row, conditions: { ...conditions, maxReads: null } },
  'expiry and reads exchanged': { ...row, conditions: { ...conditions, expiresAt: 3, maxReads: 1_893_456_000 } },
  'the key id of another server secret': { ...row, serverKey: { ...serverKey, id: otherServerKey.id } },
  'the row key of another server secret': { ...row, serverKey: { ...serverKey, rowKey: otherServerKey.rowKey } },
  'another server secret': { ...row, serverKey: otherServerKey },
  'the blob of another row': { ...row, sealed: { ...row.sealed, blob: other.sealed.blob } },
  'the commitment of another row': { ...row, sealed: { ...row.sealed, commitment: other.sealed.commitment } },
  'blob and commitment of another row': { ...row, sealed: other.sealed },
  'the tag of another row': { ...row, tag: other.tag },
  'all of another row but the id': { ...theirs, conditions },
  'the id alone of another row': { ...row, conditions: theirs.conditions },
  'a tag that another server secret made': { ...row, tag: rowTagOf(otherServerKey, conditions, row.sealed) },
  'an empty tag': { ...row, tag: Buffer.alloc(0) },
  'half a tag': { ...row, tag: row.tag?.subarray(0, 16) ?? null },
  'a tag and more': { ...row, tag: Buffer.concat([row.tag ?? assert.fail(), Buffer.of(0)]) },
  'a tag of zeros': { ...row, tag: Buffer.alloc(32) },
  'an empty blob': { ...row, sealed: { commitment, blob: Buffer.alloc(0) } },
  'a blob cut by one byte': { ...row, sealed: { commitment, blob: blob.subarray(0, -1) } },
  'a blob with one byte more': { ...row, sealed: { commitment, blob: Buffer.concat([blob, Buffer.of(0)]) } },
};

for (const [name, altered] of Object.entries(ALTERED)) {
  test(`a row with ${name} is altered`, () => assert.equal(whole(altered), false));
}

test('bytes that were moved between commitment and blob alter a row, though what is hashed stays the same', () => {
  const all = Buffer.concat([commitment, blob]);
  for (let length = 0; length <= all.length; length += 1) {
    const moved = { commitment: all.subarray(0, length), blob: all.subarray(length) };
    assert.equal(whole({ ...row, sealed: moved }), length === 32, `a commitment of ${length} bytes`);
    // Nor does a tag that was made for it.
    if (length !== 32) assert.equal(whole({ ...row, sealed: moved, tag: rowTagOf(serverKey, conditions, moved) }), false);
  }
});

test('a row without a tag, which is older than tags, passes as it is; what is altered in it shows when it is opened', () => {
  assert.equal(whole({ ...row, tag: null }), true);
  assert.equal(whole({ ...row, tag: null, sealed: { commitment: other.sealed.commitment, blob } }), true);
});

for (const tag of [null, row.tag]) {
  test(`a commitment of another length is altered, with ${tag ? 'a' : 'no'} tag`, () => {
    for (const length of [0, 1, 31, 33, 64]) assert.equal(whole({ ...row, tag, sealed: { blob, commitment: Buffer.alloc(length) } }), false, `${length} bytes`);
  });

  test(`limits that no row is written with are altered ones and throw nothing, with ${tag ? 'a' : 'no'} tag`, () => {
    for (const expiresAt of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, -1, 0, 0.5, 2 ** 64]) {
      assert.equal(whole({ ...row, tag, conditions: { ...conditions, expiresAt } }), false, `an expiry of ${expiresAt}`);
    }
    for (const maxReads of [-1, 0, 0.5, 2 ** 32, Number.NaN]) {
      assert.equal(whole({ ...row, tag, conditions: { ...conditions, maxReads } }), false, `${maxReads} reads`);
    }
  });
}
