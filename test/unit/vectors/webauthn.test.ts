/** The test vectors of WebAuthn Level 3, section 16. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import {
  type Ceremony,
  Rejection,
  verifyRegistration as registration,
  verifySignIn as assertion,
} from '../../../src/identity/factors/webauthn.ts';
import { orRejection } from '../../support/authenticator.ts';

const verifyRegistration = orRejection(registration);
const verifySignIn = orRejection(assertion);

type Case = readonly [
  name: string,
  rejected: string | null,
  challenge: string,
  clientData: string,
  authData: string,
  spki: string,
  getChallenge?: string,
  getClientData?: string,
  data?: string,
  signature?: string,
];

const file = readFileSync(new URL('webauthn-l3.json', import.meta.url), 'utf8');
const { cases }: { cases: readonly Case[] } = JSON.parse(file);
const bytes = (hex: string) => Buffer.from(hex, 'hex');
const ceremony = (challenge: string): Ceremony => ({
  challenge: bytes(challenge),
  origin: 'https://example.org',
  host: 'example.org',
  needsVerification: false,
});

test('the file is complete', () => {
  assert.deepEqual(
    [cases.length, cases.filter(([, rejected]) => rejected === null).length],
    [15, 10],
  );
});

for (const [name, rejected, challenge, clientData, authData, spki, ...signIn] of cases) {
  test(`${name}: ${rejected ?? 'accepted'}`, () => {
    const made = [Buffer.from(clientData), bytes(authData)] as const;
    const registered = verifyRegistration(...made, ceremony(challenge));
    if (registered instanceof Rejection) return assert.equal(registered.message, rejected);
    assert.equal(rejected, null, 'it was accepted');
    const [, attested] = made;
    const idStart = 37 + 16 + 2;
    const idEnd = idStart + attested.readUInt16BE(idStart - 2);
    assert.deepEqual(registered.id, attested.subarray(idStart, idEnd));
    assert.deepEqual(registered.spki, bytes(spki));
    const [getChallenge = '', getClientData = '', data = '', signature = ''] = signIn;
    const parts = [Buffer.from(getClientData), bytes(data), bytes(signature)] as const;
    const sign = (given: readonly Buffer[]) => {
      const [client = parts[0], auth = parts[1], sig = parts[2]] = given;
      return verifySignIn(client, auth, sig, registered.spki, ceremony(getChallenge));
    };
    const proof = sign(parts);
    assert.ok(!(proof instanceof Rejection), proof instanceof Rejection ? proof.message : '');
    assert.equal(proof.isBackupEligible, registered.isBackupEligible);
    for (const at of parts.keys()) {
      const changed = parts.map((part) => Buffer.from(part));
      const target = changed[at] ?? assert.fail();
      target.writeUInt8(target.readUInt8(target.length - 1) ^ 1, target.length - 1);
      assert.ok(sign(changed) instanceof Rejection);
    }
  });
}
