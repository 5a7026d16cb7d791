/** Envelopes and row tags against a second implementation, and envelopes that are dishonest. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { createKdfParams, stretch } from '../../../src/platform/crypto/scrypt.ts';
import { paddedLength } from '../../../src/platform/crypto/seal.ts';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { isUnaltered, open, rowTagOf, seal, sealWithPassphrase } from '../../support/envelope.ts';
import {
  plainLockedTerms,
  plainOpen,
  plainOpenLocked,
  plainPad,
  plainPadme,
  plainRowTag,
  plainSeal,
  plainServerKey,
  plainStretch,
  plainUnlock,
  type PlainSealed,
  type Terms,
} from './plain-envelope.ts';

const SERVER_SECRET = 'a server secret with an ü, for tests';
const SERVER_KEY = createServerKey(SERVER_SECRET);
const PASSPHRASE = 'ﬁve wörds nobody else knows';
const STRETCHING = createKdfParams({ logN: 4, r: 8, p: 2 });
const STRETCHED = await stretch(PASSPHRASE, STRETCHING);

const CONDITIONS = [
  { expiresAt: null, maxReads: null },
  { expiresAt: 1_893_456_000_123, maxReads: null },
  { expiresAt: null, maxReads: 1 },
  { expiresAt: 1_893_456_000_123, maxReads: 2 ** 31 - 1 },
];
const termsOf = (conditions: (typeof CONDITIONS)[number]): Terms => ({
  ...{ serverSecret: SERVER_SECRET, clientKey: randomBytes(32) },
  ...{ id: '0190c0de-1234-4abc-8def-0123456789ab', ...conditions },
});
/** Around every change in the padding, and the longest that the service takes. */
const LENGTHS = [0, 1, 15, 16, 17, 251, 252, 253, 268, 269, 507, 508, 509, 1020, 1021, 32_768];
/** Not random: zeros at the end are part of a text. */
const TEXTS = LENGTHS.flatMap((length) => [randomBytes(length), Buffer.alloc(length)]);
const CASES = CONDITIONS.flatMap((conditions) =>
  TEXTS.map((text) => ({ terms: termsOf(conditions), text })),
);

const openText = (terms: Terms, sealed: PlainSealed) => {
  const opened = open(SERVER_KEY, terms.clientKey, terms, sealed);
  assert.ok(opened === null || Buffer.isBuffer(opened));
  return opened;
};
const openLocked = (terms: Terms, sealed: PlainSealed) => {
  const opened = open(SERVER_KEY, terms.clientKey, terms, sealed);
  assert.ok(opened !== null && !Buffer.isBuffer(opened), 'it is locked');
  return opened;
};
const lock = (terms: Terms, text: Buffer, clientKey = terms.clientKey) =>
  sealWithPassphrase(SERVER_KEY, clientKey, terms, text, STRETCHING, STRETCHED);

/** The parts of an envelope of version 2, and one that holds such parts. */
const head = Buffer.concat([Buffer.of(STRETCHING.length), Buffer.from(STRETCHING)]);
const insideOf = (terms: Terms, text: Buffer) => {
  const locked = plainLockedTerms(terms, STRETCHED);
  const { commitment, blob } = plainSeal(locked, randomBytes(12), plainPad(text));
  return [commitment, blob];
};
const sealedAs2 = (terms: Terms, ...content: readonly Buffer[]) =>
  plainSeal(terms, randomBytes(12), plainPad(Buffer.concat(content)), '02');

test('both implementations derive the same keys and lengths', async () => {
  for (const secret of [SERVER_SECRET, 'x', 'long '.repeat(100)])
    assert.deepEqual(createServerKey(secret), plainServerKey(secret));
  for (let length = 0; length <= 70_000; length += 1)
    assert.equal(paddedLength(length), length <= 256 ? 256 : plainPadme(length));
  assert.deepEqual(plainStretch(PASSPHRASE, STRETCHING), STRETCHED);
  const costly = createKdfParams({ logN: 15, r: 8, p: 3 });
  assert.deepEqual(plainStretch('pa\u0308ss', costly), await stretch('päss', costly));
});

// Not deepEqual: to show how 32 KiB of random bytes differ takes minutes.
test('each implementation opens what the other seals and locks, and tags it alike', () => {
  for (const { terms, text } of CASES) {
    const sealed = seal(SERVER_KEY, terms.clientKey, terms, text);
    assert.ok(plainOpen(terms, sealed).equals(text));
    assert.ok(openText(terms, plainSeal(terms, randomBytes(12), plainPad(text)))?.equals(text));
    const locked = lock(terms, text);
    const outer = plainOpenLocked(terms, locked);
    assert.equal(outer.stretching, STRETCHING);
    assert.ok(plainOpen(plainLockedTerms(terms, STRETCHED), outer).equals(text));
    const opened = openLocked(terms, sealedAs2(terms, head, ...insideOf(terms, text)));
    assert.equal(opened.kdfParams, STRETCHING);
    assert.ok(opened.open(STRETCHED)?.equals(text));
    for (const one of [sealed, locked]) {
      assert.deepEqual(plainRowTag(terms, one), rowTagOf(SERVER_KEY, terms, one));
      assert.ok(isUnaltered(SERVER_KEY, terms, one, plainRowTag(terms, one)));
    }
  }
  const [{ terms, text } = assert.fail()] = CASES;
  assert.ok(plainUnlock(terms, plainOpenLocked(terms, lock(terms, text)), PASSPHRASE).equals(text));
});

// From here on, all is sealed with the right keys, so that every tag is right: the envelope's own
// checks are all that is left.
const terms = termsOf({ expiresAt: null, maxReads: null });
const padTo = (size: number, claimed: number) => {
  const padded = Buffer.alloc(size);
  padded.writeUInt32BE(claimed, 0);
  return padded;
};

test('what is not padded honestly opens nothing', () => {
  const opens = (padded: Buffer) =>
    openText(terms, plainSeal(terms, randomBytes(12), padded)) !== null;
  assert.ok(opens(padTo(256, 252)), 'a length of all there is');
  for (const [size, claimed] of [
    [256, 253],
    [256, 0xffff_ffff],
    [255, 5],
    [8, 4],
  ] as const)
    assert.ok(!opens(padTo(size, claimed)), `${claimed} of ${size}`);
  assert.ok(!opens(Buffer.alloc(0)));
});

const [commitment = assert.fail(), blob = assert.fail()] = insideOf(terms, Buffer.from('text'));
// Locks do not nest.
const nested = lock(terms, Buffer.from('text'), plainLockedTerms(terms, STRETCHED).clientKey);

/** What no honest envelope of version 2 holds. None of it may open, and none of it may throw. */
const DISHONEST: Readonly<Record<string, readonly Buffer[]>> = {
  'nothing at all': [],
  'a length alone': [Buffer.of(48)],
  'a length beyond the end': [Buffer.of(255), Buffer.from(STRETCHING)],
  'no KDF parameters': [Buffer.of(0), commitment, blob],
  'no envelope inside': [head],
  'half a commitment inside': [head, commitment.subarray(0, 16)],
  'a commitment inside and nothing else': [head, commitment],
  'another version inside': [head, commitment, Buffer.of(2), blob.subarray(1)],
  'an envelope inside that is cut': [head, commitment, blob.subarray(0, -1)],
  'a locked envelope inside': [head, nested.commitment, nested.blob],
};

test('what is not locked honestly opens nothing', () => {
  const honest = openLocked(terms, sealedAs2(terms, head, commitment, blob));
  assert.equal(String(honest.open(STRETCHED)), 'text');
  for (const [name, content] of Object.entries(DISHONEST)) {
    const opened = openLocked(terms, sealedAs2(terms, ...content));
    assert.ok(opened.kdfParams !== STRETCHING || opened.open(STRETCHED) === null, name);
  }
});
