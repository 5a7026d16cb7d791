/**
 * What is locked with a passphrase (version 2) must always open, and every row tag must always
 * match, because databases contain them. `frozen-v2.json` was made once, when both were introduced,
 * and is never made again. If a test here fails, the code is wrong and not the file.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { deriveKeys } from '../../../src/platform/crypto/seal.ts';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { stretch } from '../../../src/platform/crypto/scrypt.ts';
import { isUnaltered, open, rowTagOf } from '../../support/envelope.ts';
import { plainOpen, plainOpenLocked, plainRowTag, plainUnlock } from './plain-envelope.ts';

interface FrozenRow {
  readonly version: 1 | 2;
  readonly serverSecret: string;
  readonly keyId: string;
  readonly clientKey: string;
  readonly passphrase: string | null;
  readonly stretching: string | null;
  readonly id: string;
  readonly expiresAt: number | null;
  readonly maxReads: number | null;
  readonly text: string;
  readonly commitment: string;
  readonly blob: string;
  readonly tag: string;
}

const frozen: { boxes: FrozenRow[] } = JSON.parse(
  readFileSync(new URL('frozen-v2.json', import.meta.url), 'utf8'),
);

test('the frozen file is complete', () => {
  assert.deepEqual(
    frozen.boxes.map(({ version }) => version),
    [2, 2, 2, 2, 2, 2, 1, 1],
  );
  const costs = frozen.boxes.map(({ stretching }) => stretching?.split('$')[2] ?? null);
  assert.deepEqual(costs, [
    'ln=4,r=8,p=1',
    'ln=4,r=8,p=1',
    'ln=4,r=8,p=1',
    'ln=4,r=8,p=1',
    'ln=4,r=8,p=1',
    'ln=15,r=8,p=3',
    null,
    null,
  ]);
});

const bytes = (text: string) => Buffer.from(text, 'base64url');

frozen.boxes.forEach((row, index) => {
  const { passphrase } = row;
  const serverKey = createServerKey(row.serverSecret);
  const clientKey = bytes(row.clientKey);
  const sealed = { blob: bytes(row.blob), commitment: bytes(row.commitment) };
  const terms = { ...row, clientKey };

  test(`frozen row ${index + 1} is unaltered by its tag, and altered by any other`, () => {
    assert.equal(serverKey.id, row.keyId);
    assert.deepEqual(rowTagOf(serverKey, row, sealed), bytes(row.tag));
    assert.equal(isUnaltered(serverKey, row, sealed, bytes(row.tag)), true);
    assert.deepEqual(plainRowTag(terms, sealed), bytes(row.tag));
    for (const other of frozen.boxes)
      assert.equal(isUnaltered(serverKey, row, sealed, bytes(other.tag)), other === row);
  });

  test(`frozen row ${index + 1}, of version ${row.version}, opens${passphrase === null ? '' : ' with its passphrase and no other'}`, async () => {
    assert.deepEqual(deriveKeys(serverKey, clientKey, row.id).commitment, sealed.commitment);
    const opened = open(serverKey, clientKey, row, sealed);
    if (passphrase === null) {
      assert.ok(Buffer.isBuffer(opened));
      assert.equal(opened.toString('utf8'), row.text);
      assert.equal(plainOpen(terms, sealed).toString('utf8'), row.text);
      return;
    }
    assert.ok(opened && !Buffer.isBuffer(opened));
    assert.equal(opened.kdfParams, row.stretching);
    const unlockedWith = async (typed: string) =>
      opened.open(await stretch(typed, opened.kdfParams));
    assert.equal((await unlockedWith(passphrase))?.toString('utf8'), row.text);
    assert.equal(await unlockedWith(`${passphrase}!`), null);
    assert.equal(
      plainUnlock(terms, plainOpenLocked(terms, sealed), passphrase).toString('utf8'),
      row.text,
    );
  });
});
