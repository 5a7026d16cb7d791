import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { createClientKey, deriveKeys, type Sealed } from '../../../src/platform/crypto/seal.ts';
import { createServerKey, type LockedText, type ServerKey } from '../../../src/secrets/envelope.ts';
import { createKdfParams } from '../../../src/platform/crypto/scrypt.ts';
import {
  type Metadata,
  open as openFirst,
  seal,
  sealWithPassphrase,
} from '../../support/envelope.ts';
import {
  plainOpenLocked,
  plainPad,
  plainSeal,
  type PlainSealed,
} from '../vectors/plain-envelope.ts';

const SERVER_SECRET = 'server-secret-for-tests-0123456789abcdef';
const serverKey = createServerKey(SERVER_SECRET);
const otherServerKey = createServerKey(`${SERVER_SECRET}!`);
const clientKey = createClientKey();
const otherClientKey = createClientKey();
const metadata: Metadata = { id: randomUUID(), expiresAt: 1_893_456_000_000, maxReads: 3 };
const text = Buffer.from('correct horse battery staple');
/**
 * The box takes whatever comes out of the stretching: what scrypt has to do with it is in
 * stretch.test.ts.
 */
const stretching = createKdfParams({ logN: 15, r: 8, p: 3 });
const stretched = randomBytes(32);
const sealed = sealWithPassphrase(serverKey, clientKey, metadata, text, stretching, stretched);

interface Attempt {
  readonly serverKey: ServerKey;
  readonly clientKey: Buffer;
  readonly metadata: Metadata;
  readonly sealed: Sealed;
}

/** The first half of opening, with the right things but for what is changed. */
const attempt = (change: Partial<Attempt> = {}) => {
  const it = { serverKey, clientKey, metadata, sealed, ...change };
  return openFirst(it.serverKey, it.clientKey, it.metadata, it.sealed);
};

function lockedOf(outcome: Buffer | LockedText | null): LockedText {
  assert.ok(outcome !== null && !Buffer.isBuffer(outcome), 'it is locked');
  return outcome;
}

/** The whole of opening. */
const open = (box: Sealed, passphrase: Buffer) =>
  lockedOf(attempt({ sealed: box })).open(passphrase);

/** What lies behind the client key, by the second implementation. */
const terms = { serverSecret: SERVER_SECRET, clientKey, ...metadata };
const insideOf = (box: Sealed) => plainOpenLocked(terms, box);
const inside = insideOf(sealed);
const lockAround = ({ commitment, blob }: PlainSealed) => {
  const head = [Buffer.of(stretching.length), Buffer.from(stretching)];
  const content = Buffer.concat([...head, commitment, blob]);
  return plainSeal(terms, randomBytes(12), plainPad(content), '02');
};

const withBlob = (blob: Buffer) => ({ sealed: { ...sealed, blob } });
const withCommitment = (commitment: Buffer) => ({ sealed: { ...sealed, commitment } });

function* everyBitFlipped(bytes: Buffer): Generator<[bit: number, flipped: Buffer]> {
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const flipped = Buffer.from(bytes);
    flipped[bit >> 3] = (bytes[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    yield [bit, flipped];
  }
}

test('a sealed text of any length opens with its passphrase', () => {
  // Around every change in the padding of the envelope inside and of the one around it, and the
  // longest the service takes.
  const lengths = [
    0, 1, 15, 16, 251, 252, 253, 268, 269, 507, 508, 509, 1_000, 1_020, 1_021, 4_096, 32_767,
    32_768,
  ];
  for (const length of lengths) {
    const bytes = randomBytes(length);
    const box = sealWithPassphrase(serverKey, clientKey, metadata, bytes, stretching, stretched);
    // Not deepEqual: to show how 32 KiB of random bytes differ takes minutes.
    assert.ok(open(box, stretched)?.equals(bytes), `${length} bytes`);
  }
});

test('the key alone gives the KDF parameters and nothing of the text', () => {
  assert.equal(lockedOf(attempt()).kdfParams, stretching);
  const all = [inside.blob, inside.commitment, sealed.blob, sealed.commitment];
  assert.ok(!Buffer.concat(all).includes(text.subarray(0, 8)));
});

test('only version and length of a stored box show that there is a passphrase', () => {
  for (const part of [
    stretching,
    'scrypt',
    stretching.slice(-8),
    stretched.subarray(0, 8),
    inside.blob.subarray(0, 12),
    inside.commitment,
  ]) {
    assert.ok(!Buffer.concat([sealed.blob, sealed.commitment]).includes(part));
  }
  // The same key and record have the same commitment, locked or not.
  assert.deepEqual(sealed.commitment, deriveKeys(serverKey, clientKey, metadata.id).commitment);
});

test('a passphrase key that differs in one bit opens nothing', () => {
  for (const [bit, wrong] of everyBitFlipped(stretched))
    assert.equal(open(sealed, wrong), null, `bit ${bit}`);
  for (const wrong of [
    Buffer.alloc(32),
    randomBytes(32),
    stretched.subarray(1),
    Buffer.alloc(0),
    clientKey,
  ])
    assert.equal(open(sealed, wrong), null);
});

/** Each is an edited or swapped row, or a wrong key. The passphrase is right each time. */
const WRONG: Readonly<Record<string, Partial<Attempt>>> = {
  'the id of another record': { metadata: { ...metadata, id: randomUUID() } },
  'an expiry one millisecond later': { metadata: { ...metadata, expiresAt: 1_893_456_000_001 } },
  'an expiry of never': { metadata: { ...metadata, expiresAt: null } },
  'one read more': { metadata: { ...metadata, maxReads: 4 } },
  'any number of reads': { metadata: { ...metadata, maxReads: null } },
  'another server key': { serverKey: otherServerKey },
  'the salt of another server key': { serverKey: { ...serverKey, salt: otherServerKey.salt } },
  'the id of another server key': { serverKey: { ...serverKey, id: otherServerKey.id } },
  'another client key': { clientKey: otherClientKey },
  'a client key of zeros': { clientKey: Buffer.alloc(32) },
};

for (const [name, change] of Object.entries(WRONG)) {
  test(`nothing is left to unlock with ${name}`, () => {
    assert.equal(attempt(change), null);
  });
}

for (const [name, change] of Object.entries<Partial<Attempt>>({
  'another client key and its commitment': {
    clientKey: otherClientKey,
    ...withCommitment(deriveKeys(serverKey, otherClientKey, metadata.id).commitment),
  },
  'the commitment of another client key': withCommitment(
    deriveKeys(serverKey, otherClientKey, metadata.id).commitment,
  ),
  'the commitment of the envelope inside': withCommitment(inside.commitment),
  'an empty commitment': withCommitment(Buffer.alloc(0)),
  'an empty blob': withBlob(Buffer.alloc(0)),
  'its version alone': withBlob(Buffer.of(2)),
})) {
  test(`nothing opens with ${name}`, () => assert.equal(attempt(change), null));
}

test('no bit of blob or commitment may change', () => {
  for (const [bit, blob] of everyBitFlipped(sealed.blob))
    assert.equal(attempt(withBlob(blob)), null, `bit ${bit} of the blob`);
  for (const [bit, commitment] of everyBitFlipped(sealed.commitment))
    assert.equal(attempt(withCommitment(commitment)), null, `bit ${bit} of the commitment`);
});

test('nothing may be missing or added, at either end', () => {
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
  for (const length of [1, 16, 256]) {
    assert.equal(attempt(withBlob(Buffer.concat([sealed.blob, randomBytes(length)]))), null);
    assert.equal(attempt(withBlob(Buffer.concat([randomBytes(length), sealed.blob]))), null);
  }
});

test('no bit of the inner envelope may change', () => {
  const tried = (change: Partial<PlainSealed>) =>
    open(lockAround({ ...inside, ...change }), stretched);
  assert.deepEqual(tried({}), text);
  for (const [bit, blob] of everyBitFlipped(inside.blob))
    assert.equal(tried({ blob }), null, `bit ${bit} of the blob`);
  for (const [bit, commitment] of everyBitFlipped(inside.commitment))
    assert.equal(tried({ commitment }), null, `bit ${bit} of the commitment`);
});

test('the version is authenticated: a box with another version byte opens nothing', () => {
  const plain = seal(serverKey, clientKey, metadata, text);
  assert.equal(plain.blob[0], 1);
  assert.equal(sealed.blob[0], 2);
  const as = (version: number, { blob, commitment }: Sealed) =>
    attempt({
      sealed: { commitment, blob: Buffer.concat([Buffer.of(version), blob.subarray(1)]) },
    });
  for (let version = 0; version < 256; version += 1) {
    assert.equal(as(version, plain) !== null, version === 1, `a plain box as version ${version}`);
    assert.equal(as(version, sealed) !== null, version === 2, `a locked box as version ${version}`);
  }
});

test('the inner envelope does not open with the client key alone', () => {
  const { blob, commitment } = inside;
  assert.equal(blob[0], 1);
  assert.equal(attempt({ sealed: { blob, commitment } }), null);
  assert.equal(attempt({ sealed: { blob, commitment: sealed.commitment } }), null);
});

test('a text that looks like a locked envelope is a text', () => {
  const { commitment, blob } = seal(serverKey, otherClientKey, metadata, text);
  const content = Buffer.concat([
    Buffer.of(stretching.length),
    Buffer.from(stretching),
    commitment,
    blob,
  ]);
  for (const looks of [content, sealed.blob, Buffer.concat([Buffer.of(2), content])]) {
    const opened = attempt({ sealed: seal(serverKey, clientKey, metadata, looks) });
    assert.ok(Buffer.isBuffer(opened) && opened.equals(looks));
    // And so it does inside a lock.
    assert.ok(
      open(
        sealWithPassphrase(serverKey, clientKey, metadata, looks, stretching, stretched),
        stretched,
      )?.equals(looks),
    );
  }
});

test('the KDF parameters are authenticated: two locks on one text keep their own', () => {
  const otherStretching = createKdfParams({ logN: 1, r: 1, p: 1 });
  const otherStretched = randomBytes(32);
  const other = sealWithPassphrase(
    serverKey,
    clientKey,
    metadata,
    text,
    otherStretching,
    otherStretched,
  );
  assert.equal(lockedOf(attempt({ sealed: other })).kdfParams, otherStretching);
  assert.equal(open(other, stretched), null);
  assert.equal(open(sealed, otherStretched), null);
  assert.deepEqual(open(other, otherStretched), text);
});

test('KDF parameters of the greatest length round-trip', () => {
  for (const cost of [
    { logN: 1, r: 1, p: 1 },
    { logN: 15, r: 8, p: 3 },
    { logN: 13, r: 10, p: 99 },
    { logN: 18, r: 8, p: 4 },
  ]) {
    const long = createKdfParams(cost);
    assert.equal(
      lockedOf(
        attempt({
          sealed: sealWithPassphrase(serverKey, clientKey, metadata, text, long, stretched),
        }),
      ).kdfParams,
      long,
    );
  }
});

test('two locked boxes of one text under one key have nothing in common but the commitment', () => {
  const boxes = Array.from({ length: 100 }, () =>
    sealWithPassphrase(serverKey, clientKey, metadata, text, stretching, stretched),
  );
  for (const part of [[1, 13], [13, 29], [-32, -16], [-16]] as const) {
    assert.equal(
      new Set(boxes.map(({ blob }) => blob.subarray(...part).toString('hex'))).size,
      100,
      `bytes ${part}`,
    );
  }
  const within = boxes.map((box) => insideOf(box).blob.subarray(1, 29).toString('hex'));
  assert.equal(new Set(within).size, 100, 'nor has what is inside');
});

test('ordinary passwords are stored at one length, locked too', () => {
  const lengths = Array.from(
    { length: 252 },
    (_, index) =>
      sealWithPassphrase(
        serverKey,
        clientKey,
        metadata,
        Buffer.alloc(index + 1),
        stretching,
        stretched,
      ).blob.length,
  );
  assert.deepEqual([...new Set(lengths)], [sealed.blob.length]);
});

test('locking changes neither the text nor the keys', () => {
  const before = [text, clientKey, stretched, serverKey.salt].map((bytes) => Buffer.from(bytes));
  open(sealWithPassphrase(serverKey, clientKey, metadata, text, stretching, stretched), stretched);
  assert.deepEqual([text, clientKey, stretched, serverKey.salt], before);
});

test('invalid client keys and limits throw', () => {
  for (const length of [0, 16, 31, 33, 64]) {
    assert.throws(
      () =>
        sealWithPassphrase(serverKey, Buffer.alloc(length), metadata, text, stretching, stretched),
      RangeError,
      `${length} bytes`,
    );
  }
  assert.throws(
    () =>
      sealWithPassphrase(
        serverKey,
        clientKey,
        { ...metadata, maxReads: 0 },
        text,
        stretching,
        stretched,
      ),
    RangeError,
  );
});
