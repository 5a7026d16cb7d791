import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { createClientKey, type Sealed } from '../../../src/platform/crypto/seal.ts';
import { createServerKey, type ServerKey } from '../../../src/secrets/envelope.ts';
import { everyBitFlipped } from '../../support/bits.ts';
import {
  isUnaltered,
  type Metadata,
  rowTagOf,
  seal,
  sealWithPassphrase,
} from '../../support/envelope.ts';

const SERVER_SECRET = 'server-secret-for-tests-0123456789abcdef';
const serverKey = createServerKey(SERVER_SECRET);
const otherServerKey = createServerKey(`${SERVER_SECRET}!`);
const clientKey = createClientKey();
const metadata: Metadata = { id: randomUUID(), expiresAt: 1_893_456_000_000, maxReads: 3 };
const text = Buffer.from('correct horse battery staple');

/** A whole row, as it lies in the database. */
interface Row {
  readonly serverKey: ServerKey;
  readonly metadata: Metadata;
  readonly sealed: Sealed;
  readonly tag: Buffer | null;
}

function rowOf(sealed: Sealed, of: Metadata = metadata): Row {
  return { serverKey, metadata: of, sealed, tag: rowTagOf(serverKey, of, sealed) };
}

const whole = (row: Row) => isUnaltered(row.serverKey, row.metadata, row.sealed, row.tag);
const row = rowOf(seal(serverKey, clientKey, metadata, text));
const { blob, commitment } = row.sealed;

test('a row is unaltered as written, with any limits, length and version', () => {
  const all: readonly Metadata[] = [
    metadata,
    { ...metadata, expiresAt: null },
    { ...metadata, maxReads: null },
    { id: randomUUID(), expiresAt: null, maxReads: null },
  ];
  for (const each of all) {
    for (const length of [0, 1, 252, 253, 32_768]) {
      assert.equal(whole(rowOf(seal(serverKey, clientKey, each, randomBytes(length)), each)), true);
      const lock = ['$scrypt$', randomBytes(32)] as const;
      const locked = sealWithPassphrase(serverKey, clientKey, each, randomBytes(length), ...lock);
      assert.equal(whole(rowOf(locked, each)), true);
    }
  }
});

test('a tag has 32 bytes, is the same every time, and needs no client key', () => {
  assert.equal(row.tag?.length, 32);
  assert.deepEqual(rowTagOf(serverKey, metadata, row.sealed), row.tag);
});

test('no bit of blob, commitment or tag may change', () => {
  for (const [bit, flipped] of everyBitFlipped(blob))
    assert.equal(
      whole({ ...row, sealed: { blob: flipped, commitment } }),
      false,
      `bit ${bit} of the blob`,
    );
  for (const [bit, flipped] of everyBitFlipped(commitment))
    assert.equal(
      whole({ ...row, sealed: { blob, commitment: flipped } }),
      false,
      `bit ${bit} of the commitment`,
    );
  for (const [bit, tag] of everyBitFlipped(row.tag ?? assert.fail()))
    assert.equal(whole({ ...row, tag }), false, `bit ${bit} of the tag`);
});

const other = rowOf(seal(serverKey, createClientKey(), metadata, text));
const elsewhere = { ...metadata, id: randomUUID() };
const theirs = rowOf(seal(serverKey, clientKey, elsewhere, text), elsewhere);

const limitedTo = (limits: Partial<Metadata>): Row => ({
  ...row,
  metadata: { ...metadata, ...limits },
});

/** Each column edited, or taken from another row. */
const ALTERED: Readonly<Record<string, Row>> = {
  'the id of another row': { ...row, metadata: elsewhere },
  'an expiry one millisecond later': limitedTo({ expiresAt: 1_893_456_000_001 }),
  'an expiry one millisecond earlier': limitedTo({ expiresAt: 1_893_455_999_999 }),
  'an expiry of never': limitedTo({ expiresAt: null }),
  'one read more': limitedTo({ maxReads: 4 }),
  'any number of reads': limitedTo({ maxReads: null }),
  'expiry and reads exchanged': limitedTo({ expiresAt: 3, maxReads: 1_893_456_000 }),
  'the key id of another server secret': {
    ...row,
    serverKey: { ...serverKey, id: otherServerKey.id },
  },
  'the row key of another server secret': {
    ...row,
    serverKey: { ...serverKey, rowKey: otherServerKey.rowKey },
  },
  'another server secret': { ...row, serverKey: otherServerKey },
  'the blob of another row': { ...row, sealed: { ...row.sealed, blob: other.sealed.blob } },
  'the commitment of another row': {
    ...row,
    sealed: { ...row.sealed, commitment: other.sealed.commitment },
  },
  'blob and commitment of another row': { ...row, sealed: other.sealed },
  'the tag of another row': { ...row, tag: other.tag },
  'all of another row but the id': { ...theirs, metadata },
  'the id alone of another row': { ...row, metadata: theirs.metadata },
  'a tag that another server secret made': {
    ...row,
    tag: rowTagOf(otherServerKey, metadata, row.sealed),
  },
  'an empty tag': { ...row, tag: Buffer.alloc(0) },
  'half a tag': { ...row, tag: row.tag?.subarray(0, 16) ?? null },
  'a tag and more': { ...row, tag: Buffer.concat([row.tag ?? assert.fail(), Buffer.of(0)]) },
  'a tag of zeros': { ...row, tag: Buffer.alloc(32) },
  'an empty blob': { ...row, sealed: { commitment, blob: Buffer.alloc(0) } },
  'a blob cut by one byte': { ...row, sealed: { commitment, blob: blob.subarray(0, -1) } },
  'a blob with one byte more': {
    ...row,
    sealed: { commitment, blob: Buffer.concat([blob, Buffer.of(0)]) },
  },
};

for (const [name, altered] of Object.entries(ALTERED)) {
  test(`a row with ${name} is altered`, () => assert.equal(whole(altered), false));
}

test('bytes moved between commitment and blob are noticed', () => {
  const all = Buffer.concat([commitment, blob]);
  for (let length = 0; length <= all.length; length += 1) {
    const moved = { commitment: all.subarray(0, length), blob: all.subarray(length) };
    assert.equal(
      whole({ ...row, sealed: moved }),
      length === 32,
      `a commitment of ${length} bytes`,
    );
    // Nor does a tag that was made for it.
    if (length !== 32)
      assert.equal(
        whole({ ...row, sealed: moved, tag: rowTagOf(serverKey, metadata, moved) }),
        false,
      );
  }
});

test('a row without a tag is altered', () => assert.equal(whole({ ...row, tag: null }), false));

test('a commitment of another length is altered', () => {
  for (const length of [0, 1, 31, 33, 64]) {
    const sealed = { blob, commitment: Buffer.alloc(length) };
    assert.equal(
      whole({ ...row, sealed, tag: rowTagOf(serverKey, metadata, sealed) }),
      false,
      `${length} bytes`,
    );
  }
});

test('limits that no row is written with are altered and do not throw', () => {
  for (const expiresAt of [
    Number.NaN,
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
    -1,
    0,
    0.5,
    2 ** 64,
  ]) {
    assert.equal(whole(limitedTo({ expiresAt })), false, `an expiry of ${expiresAt}`);
  }
  for (const maxReads of [-1, 0, 0.5, 2 ** 32, Number.NaN]) {
    assert.equal(whole(limitedTo({ maxReads })), false, `${maxReads} reads`);
  }
});
