/**
 * What version 1 has written must always open, because databases contain it. `frozen-v1.json` was
 * made once, by the first release, and is never made again. If a test here fails, the code is wrong
 * and not the file; a new format gets a version and a file of its own, and keeps passing this one.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { deriveKeys } from '../../../src/platform/crypto/seal.ts';
import { createServerKey } from '../../../src/secrets/envelope.ts';
import { needsRehash, verifyPassword } from '../../../src/identity/passwords.ts';
import { open } from '../../support/envelope.ts';
import { plainOpen } from './plain-envelope.ts';

interface FrozenBox {
  readonly serverSecret: string;
  readonly keyId: string;
  readonly clientKey: string;
  readonly id: string;
  readonly expiresAt: number | null;
  readonly maxReads: number | null;
  readonly text: string;
  readonly commitment: string;
  readonly blob: string;
}

interface FrozenHash {
  readonly password: string;
  readonly stored: string;
}

const frozen: { boxes: FrozenBox[]; hashes: FrozenHash[] } = JSON.parse(
  readFileSync(new URL('frozen-v1.json', import.meta.url), 'utf8'),
);

test('the frozen file is complete', () => {
  assert.equal(frozen.boxes.length, 6);
  assert.equal(frozen.hashes.length, 5);
});

frozen.boxes.forEach((box, index) => {
  test(`frozen box ${index + 1} of version 1 opens`, () => {
    const serverKey = createServerKey(box.serverSecret);
    const clientKey = Buffer.from(box.clientKey, 'base64url');
    const sealed = {
      blob: Buffer.from(box.blob, 'base64url'),
      commitment: Buffer.from(box.commitment, 'base64url'),
    };
    assert.equal(serverKey.id, box.keyId);
    assert.deepEqual(deriveKeys(serverKey, clientKey, box.id).commitment, sealed.commitment);
    assert.equal(String(open(serverKey, clientKey, box, sealed)), box.text);
    assert.equal(plainOpen({ ...box, clientKey }, sealed).toString('utf8'), box.text);
  });
});

frozen.hashes.forEach(({ password, stored }, index) => {
  test(`frozen password hash ${index + 1} of version 1 verifies: ${stored.split('$')[2]}`, async () => {
    assert.equal(await verifyPassword(password, stored), true);
    assert.equal(await verifyPassword(`${password}!`, stored), false);
    const [, logN, r, p] = /ln=(\d+),r=(\d+),p=(\d+)/.exec(stored)?.map(Number) ?? [];
    assert.equal(needsRehash(stored, { logN: logN ?? 0, r: r ?? 0, p: p ?? 0 }), false);
  });
});
