import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { paddedLength } from '../../../src/platform/crypto/seal.ts';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { open, seal } from '../../support/envelope.ts';
import {
  plainOpen,
  plainPad,
  plainPadme,
  plainSeal,
  plainServerKey,
  type Terms,
} from './plain-envelope.ts';

const SERVER_SECRET = 'a server secret with an ü, for tests';
const ID = '0190c0de-1234-4abc-8def-0123456789ab';
const SERVER_KEY = createServerKey(SERVER_SECRET);

const CONDITIONS = [
  { expiresAt: null, maxReads: null },
  { expiresAt: 1_893_456_000_123, maxReads: null },
  { expiresAt: null, maxReads: 1 },
  { expiresAt: 1_893_456_000_123, maxReads: 2 ** 31 - 1 },
];
/** Around every change in the padding, and the longest that the service takes. */
const LENGTHS = [
  1, 2, 15, 16, 17, 251, 252, 253, 268, 269, 507, 508, 509, 1020, 1021, 4096, 32_768,
];

const termsOf = (metadata: { expiresAt: number | null; maxReads: number | null }): Terms => {
  return { serverSecret: SERVER_SECRET, clientKey: randomBytes(32), id: ID, ...metadata };
};

test('the second implementation derives the same server key', () => {
  for (const secret of [SERVER_SECRET, 'x', 'long '.repeat(100)])
    assert.deepEqual(createServerKey(secret), plainServerKey(secret));
});

test('the second implementation opens what the box seals', () => {
  for (const metadata of CONDITIONS) {
    const terms = termsOf(metadata);
    for (const length of LENGTHS) {
      const text = randomBytes(length);
      assert.ok(
        plainOpen(terms, seal(SERVER_KEY, terms.clientKey, terms, text)).equals(text),
        `${length} bytes`,
      );
    }
  }
});

test('the box opens what the second implementation seals', () => {
  for (const metadata of CONDITIONS) {
    const terms = termsOf(metadata);
    for (const length of LENGTHS) {
      const text = randomBytes(length);
      const sealed = plainSeal(terms, randomBytes(12), plainPad(text));
      assert.deepEqual(open(SERVER_KEY, terms.clientKey, terms, sealed), text, `${length} bytes`);
    }
  }
});

test('lengths are padded as the authors of Padmé say', () => {
  for (let length = 257; length <= 70_000; length += 1)
    assert.equal(paddedLength(length), plainPadme(length));
});

// Sealed with the right keys, so that the tag is right: the box's own checks are all that is left.
const padTo = (size: number, claimed: number) => {
  const padded = Buffer.alloc(size);
  padded.writeUInt32BE(claimed, 0);
  return padded;
};
const DISHONEST: ReadonlyArray<[string, Buffer, boolean]> = [
  ['a length of all there is', padTo(256, 252), true],
  ['a length one beyond the end', padTo(256, 253), false],
  ['the greatest length', padTo(256, 0xffff_ffff), false],
  ['less padding than the least', padTo(255, 5), false],
  ['no padding at all', padTo(8, 4), false],
  ['nothing at all', Buffer.alloc(0), false],
];

for (const [name, padded, opens] of DISHONEST) {
  test(`a box that was sealed with ${name} ${opens ? 'opens' : 'opens nothing'}`, () => {
    const terms = termsOf({ expiresAt: null, maxReads: null });
    const sealed = plainSeal(terms, randomBytes(12), padded);
    assert.equal(open(SERVER_KEY, terms.clientKey, terms, sealed) !== null, opens);
  });
}
