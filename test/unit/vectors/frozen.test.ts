/**
 * What versions 1 and 2 have written must always open, and every row tag must always match, because
 * databases contain them. Both files were made once, when the version was introduced, and are never
 * made again. If a test here fails, the code is wrong and not the file; a new format gets a version
 * and a file of its own, and keeps passing these.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { needsRehash, verifyPassword } from '../../../src/identity/passwords.ts';
import { stretch } from '../../../src/platform/crypto/scrypt.ts';
import { deriveKeys } from '../../../src/platform/crypto/seal.ts';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { isUnaltered, type Metadata, open, rowTagOf } from '../../support/envelope.ts';
import { readVectors } from './data.ts';
import { plainOpen, plainOpenLocked, plainRowTag, plainUnlock } from './plain-envelope.ts';

type Texts = Readonly<
  Record<'serverSecret' | 'keyId' | 'clientKey' | 'text' | 'commitment' | 'blob', string>
>;
type Box = Metadata & Texts & Readonly<{ passphrase?: string | null; stretching?: string | null }>;
type Row = Box & Readonly<{ tag: string }>;
type Hash = Readonly<{ password: string; stored: string }>;

const first = readVectors<Box | Hash>('frozen-v1.jsonl');
const boxes = first.flatMap((one) => ('blob' in one ? [one] : []));
const hashes = first.flatMap((one) => ('stored' in one ? [one] : []));
const rows = readVectors<Row>('frozen-v2.jsonl');
const bytes = (text: string) => Buffer.from(text, 'base64url');
const partsOf = (box: Box) => {
  const serverKey = createServerKey(box.serverSecret);
  const clientKey = bytes(box.clientKey);
  const sealed = { blob: bytes(box.blob), commitment: bytes(box.commitment) };
  return { serverKey, clientKey, sealed, terms: { ...box, clientKey } };
};

test('the frozen files are complete', () => {
  assert.deepEqual([boxes.length, hashes.length], [6, 5]);
  const costs = rows.map(({ stretching }) => stretching?.split('$')[2] ?? 'none');
  const weak = Array.from({ length: 5 }, () => 'ln=4,r=8,p=1');
  assert.deepEqual(costs, [...weak, 'ln=15,r=8,p=3', 'none', 'none']);
});

test('each frozen box opens, with its passphrase if it has one, and no other', async () => {
  for (const box of [...boxes, ...rows]) {
    const { passphrase = null } = box;
    const { serverKey, clientKey, sealed, terms } = partsOf(box);
    assert.equal(serverKey.id, box.keyId);
    assert.deepEqual(deriveKeys(serverKey, clientKey, box.id).commitment, sealed.commitment);
    const opened = open(serverKey, clientKey, box, sealed);
    if (passphrase === null) {
      assert.equal(String(opened), box.text);
      assert.equal(String(plainOpen(terms, sealed)), box.text);
      continue;
    }
    assert.ok(opened && !Buffer.isBuffer(opened));
    assert.equal(opened.kdfParams, box.stretching);
    const read = async (typed: string) => opened.open(await stretch(typed, opened.kdfParams));
    assert.equal(String(await read(passphrase)), box.text);
    assert.equal(await read(`${passphrase}!`), null);
    const unlocked = plainUnlock(terms, plainOpenLocked(terms, sealed), passphrase);
    assert.equal(String(unlocked), box.text);
  }
});

test('each frozen row is unaltered by its tag, and altered by any other', () => {
  for (const row of rows) {
    const { serverKey, sealed, terms } = partsOf(row);
    assert.deepEqual(rowTagOf(serverKey, row, sealed), bytes(row.tag));
    assert.deepEqual(plainRowTag(terms, sealed), bytes(row.tag));
    for (const { tag } of rows)
      assert.equal(isUnaltered(serverKey, row, sealed, bytes(tag)), tag === row.tag);
  }
});

test('each frozen password hash verifies, and needs no other at its own cost', async () => {
  for (const { password, stored } of hashes) {
    assert.equal(await verifyPassword(password, stored), true, stored);
    assert.equal(await verifyPassword(`${password}!`, stored), false, stored);
    const [, logN = 0, r = 0, p = 0] = /ln=(\d+),r=(\d+),p=(\d+)/.exec(stored)?.map(Number) ?? [];
    assert.equal(needsRehash(stored, { logN, r, p }), false);
  }
});
