/**
 * Envelopes and row tags: only all of it, unaltered, opens what is sealed with a key, and with a
 * passphrase as well. What keys and tags are made of, so also what they are bound to, and that
 * texts of any length come back: `test/unit/vectors/envelope.test.ts`.
 */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { createClientKey, deriveKeys } from '../../../src/platform/crypto/seal.ts';
import { createKdfParams } from '../../../src/platform/crypto/scrypt.ts';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { everyBitFlipped } from '../../support/bits.ts';
import {
  isUnaltered,
  type Metadata,
  open,
  rowTagOf,
  seal,
  sealWithPassphrase,
} from '../../support/envelope.ts';
import { plainOpenLocked, plainPad, plainSeal } from '../vectors/plain-envelope.ts';

const SERVER_SECRET = 'server-secret-for-tests-0123456789abcdef';
const serverKey = createServerKey(SERVER_SECRET);
const otherServerKey = createServerKey(`${SERVER_SECRET}!`);
const clientKey = createClientKey();
const otherClientKey = createClientKey();
const metadata: Metadata = { id: randomUUID(), expiresAt: 1_893_456_000_000, maxReads: 3 };
const text = Buffer.from('correct horse battery staple');
const kdfParams = createKdfParams({ logN: 15, r: 8, p: 3 });
const stretched = randomBytes(32);

type Opened = ReturnType<typeof open>;
const sealPlain = (bytes: Buffer, of = metadata, key = clientKey) =>
  seal(serverKey, key, of, bytes);
const sealLocked = (bytes: Buffer, of = metadata, key = clientKey) =>
  sealWithPassphrase(serverKey, key, of, bytes, kdfParams, stretched);
/** What it holds, with the right passphrase if it needs one. */
const read = (opened: Opened) =>
  opened === null || Buffer.isBuffer(opened) ? opened : opened.open(stretched);

const right = { serverKey, clientKey, metadata };
const withSealed = (sealed: ReturnType<typeof sealPlain>) => ({ ...right, sealed });
type Attempt = ReturnType<typeof withSealed>;
const attempt = (it: Attempt) => open(it.serverKey, it.clientKey, it.metadata, it.sealed);

const commitmentOf = (key = clientKey, id = metadata.id) =>
  deriveKeys(serverKey, key, id).commitment;
const concat = (...parts: readonly Buffer[]) => Buffer.concat(parts);

const wrongOf = (it: Attempt): Readonly<Record<string, Attempt>> => {
  const { blob, commitment } = it.sealed;
  const changed = (change: object) => ({ ...it, sealed: { ...it.sealed, ...change } });
  const theirs = commitmentOf(otherClientKey);
  return {
    'another server key': { ...it, serverKey: otherServerKey },
    'another client key': { ...it, clientKey: otherClientKey },
    'the commitment of another client key': changed({ commitment: theirs }),
    'an empty commitment': changed({ commitment: Buffer.alloc(0) }),
    'half a commitment': changed({ commitment: commitment.subarray(0, 16) }),
    'a commitment and more': changed({ commitment: concat(commitment, commitment) }),
    'a blob of zeros': changed({ blob: Buffer.alloc(blob.length) }),
  };
};

const SUBJECTS = [
  { name: 'a text', version: 1, sealIt: sealPlain },
  { name: 'a locked text', version: 2, sealIt: sealLocked },
].map((subject) => {
  const it = withSealed(subject.sealIt(text));
  const { blob, commitment } = it.sealed;
  const withBlob = (changed: Buffer) => attempt({ ...it, sealed: { ...it.sealed, blob: changed } });
  return { ...subject, it, blob, commitment, withBlob };
});

for (const { name, version, sealIt, it, blob, commitment, withBlob } of SUBJECTS) {
  test(`${name} opens, and sealing and opening change neither the text nor the keys`, () => {
    const inputs = () =>
      [text, clientKey, stretched, serverKey.salt].map((one) => Buffer.from(one));
    const before = inputs();
    assert.deepEqual(read(attempt(withSealed(sealIt(text)))), text);
    assert.deepEqual(inputs(), before);
  });

  test(`${name}: no bit of blob, commitment or client key may change`, () => {
    for (const [bit, flipped] of everyBitFlipped(blob))
      assert.equal(withBlob(flipped), null, `bit ${bit} of the blob`);
    for (const [bit, flipped] of everyBitFlipped(commitment)) {
      const sealed = { ...it.sealed, commitment: flipped };
      assert.equal(attempt({ ...it, sealed }), null, `bit ${bit} of the commitment`);
    }
    for (const [bit, flipped] of everyBitFlipped(clientKey))
      assert.equal(attempt({ ...it, clientKey: flipped }), null, `bit ${bit} of the client key`);
  });

  test(`${name}: nothing may be missing or added, at either end or before the tag`, () => {
    // Also a tag of 4 bytes, which could be guessed.
    for (let length = 0; length < blob.length; length += 1) {
      assert.equal(withBlob(blob.subarray(0, length)), null, `the first ${length} bytes`);
      assert.equal(withBlob(blob.subarray(blob.length - length)), null, `the last ${length} bytes`);
    }
    for (const extra of [1, 4, 16, 256].map((length) => randomBytes(length))) {
      const beforeTag = concat(blob.subarray(0, -16), extra, blob.subarray(-16));
      for (const longer of [concat(blob, extra), concat(extra, blob), beforeTag])
        assert.equal(withBlob(longer), null, `${extra.length} bytes more`);
    }
  });

  test(`${name}: another version, key or commitment opens nothing`, () => {
    for (let other = 0; other < 256; other += 1)
      assert.equal(
        withBlob(concat(Buffer.of(other), blob.subarray(1))) !== null,
        other === version,
      );
    for (const [what, wrong] of Object.entries(wrongOf(it)))
      assert.equal(attempt(wrong), null, what);
  });

  test(`${name}: a client key of another length, or no reads at all, throws`, () => {
    for (const length of [0, 31, 33, 64])
      assert.throws(() => sealIt(text, metadata, Buffer.alloc(length)), RangeError);
    assert.throws(() => sealIt(text, { ...metadata, maxReads: 0 }), RangeError);
  });

  test(`${name}: two envelopes of one text have nothing in common but the commitment`, () => {
    const envelopes = Array.from({ length: 100 }, () => sealIt(text));
    for (const part of [[1, 13], [13, 29], [-32, -16], [-16]] as const) {
      const parts = envelopes.map((one) => one.blob.subarray(...part).toString('hex'));
      assert.equal(new Set(parts).size, 100, `bytes ${part}`);
    }
    for (const one of envelopes) assert.deepEqual(one.commitment, commitmentOf());
  });

  const isWhole = (row: Attempt, tag: Buffer | null) =>
    isUnaltered(row.serverKey, row.metadata, row.sealed, tag);
  const tag = rowTagOf(serverKey, metadata, it.sealed);

  test(`the row of ${name}: no bit of blob, commitment or tag may change`, () => {
    assert.deepEqual([isWhole(it, tag), tag.length], [true, 32]);
    for (const [bit, flipped] of everyBitFlipped(blob))
      assert.ok(!isWhole({ ...it, sealed: { ...it.sealed, blob: flipped } }, tag), `blob, ${bit}`);
    for (const [bit, flipped] of everyBitFlipped(commitment))
      assert.ok(!isWhole({ ...it, sealed: { ...it.sealed, commitment: flipped } }, tag), `${bit}`);
    for (const [bit, flipped] of everyBitFlipped(tag))
      assert.ok(!isWhole(it, flipped), `tag, ${bit}`);
  });

  test(`the row of ${name} is altered by any other tag, or border of its columns`, () => {
    const theirs = rowTagOf(otherServerKey, metadata, it.sealed);
    const zeros = Buffer.alloc(32);
    for (const other of [null, theirs, zeros, tag.subarray(0, 16), concat(tag, Buffer.of(0))])
      assert.equal(isWhole(it, other), false);
    // Bytes moved between commitment and blob, even with a tag that was made for it.
    const all = concat(commitment, blob);
    for (let length = 0; length <= all.length; length += 1) {
      const sealed = {
        ...it.sealed,
        commitment: all.subarray(0, length),
        blob: all.subarray(length),
      };
      for (const one of [tag, rowTagOf(serverKey, metadata, sealed)])
        assert.equal(isWhole({ ...it, sealed }, one), length === 32, `${length} bytes`);
    }
  });

  test(`the row of ${name}: limits that no row is written with are altered and do not throw`, () => {
    for (const expiresAt of [Number.NaN, Infinity, -1, 0, 0.5, 2 ** 64])
      assert.ok(!isWhole({ ...it, metadata: { ...metadata, expiresAt } }, tag), `${expiresAt}`);
    for (const maxReads of [Number.NaN, -1, 0, 0.5, 2 ** 32])
      assert.ok(!isWhole({ ...it, metadata: { ...metadata, maxReads } }, tag), `${maxReads} reads`);
  });
}

const locked = sealLocked(text);
/** What lies behind the client key, by the second implementation. */
const terms = { serverSecret: SERVER_SECRET, clientKey, ...metadata };
const inside = plainOpenLocked(terms, locked);
const lockedOf = (opened: Opened) => {
  assert.ok(opened !== null && !Buffer.isBuffer(opened), 'it is locked');
  return opened;
};

test('the key alone gives the KDF parameters, and nothing that is stored shows more', () => {
  assert.equal(lockedOf(attempt(withSealed(locked))).kdfParams, kdfParams);
  assert.ok(!concat(inside.blob, inside.commitment).includes(text.subarray(0, 8)));
  const secret = [kdfParams, 'scrypt', stretched.subarray(0, 8), inside.blob.subarray(0, 12)];
  for (const part of [...secret, inside.commitment, text.subarray(0, 8)])
    assert.ok(!concat(locked.blob, locked.commitment).includes(part));
});

test('a passphrase key that differs in one bit opens nothing', () => {
  const { open: unlock } = lockedOf(attempt(withSealed(locked)));
  for (const [bit, wrong] of everyBitFlipped(stretched))
    assert.equal(unlock(wrong), null, `${bit}`);
  for (const wrong of [Buffer.alloc(32), stretched.subarray(1), Buffer.alloc(0), clientKey])
    assert.equal(unlock(wrong), null);
});

test('no bit of the inner envelope may change, and it does not open with the client key', () => {
  const tried = ({ commitment, blob } = inside) => {
    const content = concat(Buffer.of(kdfParams.length), Buffer.from(kdfParams), commitment, blob);
    const outer = plainSeal(terms, randomBytes(12), plainPad(content), '02');
    return read(open(serverKey, clientKey, metadata, outer));
  };
  assert.deepEqual(tried(), text);
  for (const [bit, blob] of everyBitFlipped(inside.blob))
    assert.equal(tried({ ...inside, blob }), null, `bit ${bit} of the blob`);
  for (const [bit, commitment] of everyBitFlipped(inside.commitment))
    assert.equal(tried({ ...inside, commitment }), null, `bit ${bit} of the commitment`);
  for (const commitment of [inside.commitment, locked.commitment])
    assert.equal(open(serverKey, clientKey, metadata, { ...inside, commitment }), null);
});

test('a text that looks like a locked envelope is a text, and so it is inside a lock', () => {
  const { commitment, blob } = sealPlain(text, metadata, otherClientKey);
  const content = concat(Buffer.of(kdfParams.length), Buffer.from(kdfParams), commitment, blob);
  for (const looks of [content, locked.blob, concat(Buffer.of(2), content)]) {
    assert.deepEqual(attempt(withSealed(sealPlain(looks))), looks);
    assert.deepEqual(read(attempt(withSealed(sealLocked(looks)))), looks);
  }
});

test('KDF parameters are authenticated, and the longest come back', () => {
  for (const cost of [
    { logN: 1, r: 1, p: 1 },
    { logN: 13, r: 10, p: 99 },
  ]) {
    const params = createKdfParams(cost);
    const key = randomBytes(32);
    const other = sealWithPassphrase(serverKey, clientKey, metadata, text, params, key);
    const opened = lockedOf(attempt(withSealed(other)));
    assert.equal(opened.kdfParams, params);
    assert.deepEqual([opened.open(stretched), opened.open(key)], [null, text]);
  }
});

test('client keys are fresh', () => {
  const fresh = Array.from({ length: 1_000 }, createClientKey);
  assert.ok(fresh.every((key) => key.length === 32));
  assert.equal(new Set(fresh.map(String)).size, 1_000);
});
