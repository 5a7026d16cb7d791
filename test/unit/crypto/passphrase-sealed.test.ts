/** What a passphrase adds. What it has in common with other envelopes: envelope.test.ts. */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { createClientKey, deriveKeys, type Sealed } from '../../../src/platform/crypto/seal.ts';
import { createServerKey, type LockedText, type ServerKey } from '../../../src/secrets/envelope.ts';
import { createKdfParams } from '../../../src/platform/crypto/scrypt.ts';
import { everyBitFlipped } from '../../support/bits.ts';
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

test('no bit of the inner envelope may change', () => {
  const tried = (change: Partial<PlainSealed>) =>
    open(lockAround({ ...inside, ...change }), stretched);
  assert.deepEqual(tried({}), text);
  for (const [bit, blob] of everyBitFlipped(inside.blob))
    assert.equal(tried({ blob }), null, `bit ${bit} of the blob`);
  for (const [bit, commitment] of everyBitFlipped(inside.commitment))
    assert.equal(tried({ commitment }), null, `bit ${bit} of the commitment`);
});

test('the inner envelope does not open with the client key alone', () => {
  const { blob, commitment } = inside;
  assert.equal(blob[0], 1);
  assert.equal(attempt({ sealed: { blob, commitment } }), null);
  assert.equal(attempt({ sealed: { blob, commitment: sealed.commitment } }), null);
  assert.equal(attempt({ sealed: { ...sealed, commitment } }), null);
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

test('two locked boxes of one text have nothing in common inside', () => {
  const boxes = Array.from({ length: 100 }, () =>
    sealWithPassphrase(serverKey, clientKey, metadata, text, stretching, stretched),
  );
  const within = boxes.map((box) => insideOf(box).blob.subarray(1, 29).toString('hex'));
  assert.equal(new Set(within).size, 100);
});
