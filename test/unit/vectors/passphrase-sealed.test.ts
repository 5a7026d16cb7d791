import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { createKdfParams, stretch } from '../../../src/platform/crypto/scrypt.ts';
import { isUnaltered, open, rowTagOf, seal, sealWithPassphrase } from '../../support/envelope.ts';
import {
  plainLockedTerms,
  plainOpenLocked,
  plainPad,
  plainRowTag,
  plainSeal,
  plainSealLocked,
  plainStretch,
  plainUnlock,
  type PlainSealed,
  type Terms,
} from './plain-envelope.ts';

const SERVER_SECRET = 'a server secret with an ü, for tests';
const ID = '0190c0de-1234-4abc-8def-0123456789ab';
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
/** Around every change in the padding, and the longest that the service takes. */
const LENGTHS = [1, 15, 16, 17, 251, 252, 253, 268, 269, 507, 508, 509, 1020, 1021, 4096, 32_768];
const ALL = CONDITIONS.flatMap((metadata) => LENGTHS.map((length) => ({ metadata, length })));

const termsOf = (metadata: { expiresAt: number | null; maxReads: number | null }): Terms => {
  return { serverSecret: SERVER_SECRET, clientKey: randomBytes(32), id: ID, ...metadata };
};
const nonces = () => [randomBytes(12), randomBytes(12)] as const;
const lock = (terms: Terms, text: Buffer, clientKey = terms.clientKey) =>
  sealWithPassphrase(SERVER_KEY, clientKey, terms, text, STRETCHING, STRETCHED);
const openLocked = (terms: Terms, sealed: PlainSealed) => {
  const opened = open(SERVER_KEY, terms.clientKey, terms, sealed);
  assert.ok(opened !== null && !Buffer.isBuffer(opened), 'it is locked');
  return opened;
};

test('the second implementation stretches a passphrase to the same key', async () => {
  assert.deepEqual(plainStretch(PASSPHRASE, STRETCHING), STRETCHED);
  for (const cost of [
    { logN: 1, r: 1, p: 1 },
    { logN: 10, r: 2, p: 16 },
    { logN: 15, r: 8, p: 3 },
  ]) {
    const stretching = createKdfParams(cost);
    assert.deepEqual(
      plainStretch('pa\u0308sswo\u0308rd', stretching),
      await stretch('pässwörd', stretching),
      stretching,
    );
  }
});

test('the second implementation opens what the box locks', () => {
  for (const { metadata, length } of ALL) {
    const terms = termsOf(metadata);
    const text = randomBytes(length);
    const locked = plainOpenLocked(terms, lock(terms, text));
    assert.equal(locked.stretching, STRETCHING);
    assert.ok(plainUnlock(terms, locked, PASSPHRASE).equals(text), `${length} bytes`);
  }
});

test('the box opens what the second implementation locks', () => {
  for (const { metadata, length } of ALL) {
    const terms = termsOf(metadata);
    const text = randomBytes(length);
    const sealed = plainSealLocked(terms, nonces(), text, STRETCHING, STRETCHED);
    const opened = openLocked(terms, sealed);
    assert.equal(opened.kdfParams, STRETCHING);
    assert.ok(opened.open(STRETCHED)?.equals(text), `${length} bytes`);
    assert.equal(opened.open(plainStretch('another', STRETCHING)), null);
  }
});

test('the second implementation tags a row alike, of either version', () => {
  for (const { metadata, length } of ALL) {
    const terms = termsOf(metadata);
    const plain = seal(SERVER_KEY, terms.clientKey, terms, randomBytes(length));
    const locked = lock(terms, randomBytes(length));
    for (const sealed of [plain, locked]) {
      assert.deepEqual(
        plainRowTag(terms, sealed),
        rowTagOf(SERVER_KEY, terms, sealed),
        `${length} bytes`,
      );
      assert.ok(isUnaltered(SERVER_KEY, terms, sealed, plainRowTag(terms, sealed)));
    }
  }
});

// Sealed with the right keys, so that every tag is right: the box's own checks are all that is
// left.
const terms = termsOf({ expiresAt: null, maxReads: null });
const sealedAs2 = (content: Buffer) => plainSeal(terms, randomBytes(12), plainPad(content), '02');
const head = Buffer.concat([Buffer.of(STRETCHING.length), Buffer.from(STRETCHING)]);
const inside = plainSeal(
  plainLockedTerms(terms, STRETCHED),
  randomBytes(12),
  plainPad(Buffer.from('text')),
);

/** What no honest box of version 2 holds. None of it may open, and none of it may throw. */
const DISHONEST: Readonly<Record<string, Buffer>> = {
  'nothing at all': Buffer.alloc(0),
  'a length alone': Buffer.of(48),
  'a length beyond the end': Buffer.concat([Buffer.of(255), Buffer.from(STRETCHING)]),
  'no stretching': Buffer.concat([Buffer.of(0), inside.commitment, inside.blob]),
  'no envelope inside': head,
  'half a commitment inside': Buffer.concat([head, inside.commitment.subarray(0, 16)]),
  'a commitment inside and nothing else': Buffer.concat([head, inside.commitment]),
  'another version inside': Buffer.concat([
    head,
    inside.commitment,
    Buffer.of(2),
    inside.blob.subarray(1),
  ]),
  'an envelope inside that is cut': Buffer.concat([
    head,
    inside.commitment,
    inside.blob.subarray(0, -1),
  ]),
};

test('the table below is about what it names: an honest content opens', () => {
  const honest = sealedAs2(Buffer.concat([head, inside.commitment, inside.blob]));
  assert.equal(openLocked(terms, honest).open(STRETCHED)?.toString(), 'text');
});

for (const [name, content] of Object.entries(DISHONEST)) {
  test(`a box of version 2 that was sealed with ${name} opens nothing`, () => {
    const opened = open(SERVER_KEY, terms.clientKey, terms, sealedAs2(content));
    assert.ok(!Buffer.isBuffer(opened), 'it is no text');
    if (opened && opened.kdfParams === STRETCHING) assert.equal(opened.open(STRETCHED), null);
  });
}

test('locks do not nest: an envelope of version 2 inside one is no text', () => {
  const { clientKey } = plainLockedTerms(terms, STRETCHED);
  const nested = lock(terms, Buffer.from('text'), clientKey);
  const sealed = sealedAs2(Buffer.concat([head, nested.commitment, nested.blob]));
  assert.equal(openLocked(terms, sealed).open(STRETCHED), null);
});
