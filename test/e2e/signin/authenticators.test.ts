/** Passkeys of every kind that the virtual authenticators of browsers can be. */
import assert from 'node:assert/strict';
import { testsExcept } from '../browser/browsers.ts';
import type { Authenticator } from '../browser/webdriver.ts';
import { ADDRESS, passkeySteps, WITHOUT_AUTOFILL } from './passkeys.ts';
import { startSignin } from './setup.ts';

const test = testsExcept([
  [/ is a passkey|counter/, 'Marionette runs no script before those of a page'],
]);
const setup = await startSignin('nginx');
const { browser } = setup;
const { addPasskey, methodsAt, signInAfterPassword, signInAlone, ...steps } = passkeySteps(setup);
const { withAuthenticator, withScript } = steps;

type Kind = Partial<Authenticator>;
const STORES = { hasResidentKey: true };
const VERIFIES = { hasUserVerification: true, isUserVerified: true };
const CTAP2_0 = { protocol: 'ctap2', ...STORES, ...VERIFIES } as const;
const CTAP2_1 = { protocol: 'ctap2_1', ...STORES, ...VERIFIES } as const;
const BACKED_UP = { transport: 'hybrid', defaultBackupEligibility: true } as const;

/** Signs in alone, and after the password. */
const PASSKEYS: Readonly<Record<string, Kind>> = {
  'CTAP 2.0 by internal': { ...CTAP2_0, transport: 'internal' },
  'CTAP 2.0 by nfc': { ...CTAP2_0, transport: 'nfc' },
  'CTAP 2.0 by hybrid': { ...CTAP2_0, transport: 'hybrid' },
  'CTAP 2.1 by usb with largeBlob': { ...CTAP2_1, transport: 'usb', extensions: ['largeBlob'] },
  'CTAP 2.1 by ble with prf': { ...CTAP2_1, transport: 'ble', extensions: ['prf'] },
  'CTAP 2.1 by internal with credBlob and minPinLength': {
    ...CTAP2_1,
    transport: 'internal',
    extensions: ['credBlob', 'minPinLength'],
  },
  'CTAP 2.1, synchronized': { ...CTAP2_1, ...BACKED_UP, defaultBackupState: true },
  'CTAP 2.1, to be synchronized': { ...CTAP2_1, ...BACKED_UP, defaultBackupState: false },
};

for (const [name, kind] of Object.entries(PASSKEYS)) {
  test(`${name} is a passkey, and a second step`, () =>
    withAuthenticator(
      true,
      () =>
        withScript(WITHOUT_AUTOFILL, async () => {
          const member = await setup.addMember();
          await addPasskey(member);
          await signInAlone();
          assert.equal(await methodsAt(ADDRESS), 'passkey');
          await signInAfterPassword(member.username);
        }),
      kind,
    ));
}

test('a counter may jump to its end, and shows a copy if it goes back', () =>
  withAuthenticator(true, (authenticatorId) =>
    withScript(WITHOUT_AUTOFILL, async () => {
      const member = await setup.addMember();
      await addPasskey(member);
      const setCounter = async (signCount: number) => {
        const { credentials } = await browser.devtools('WebAuthn.getCredentials', {
          authenticatorId,
        });
        const [credential] = credentials;
        const { credentialId } = credential;
        await browser.devtools('WebAuthn.removeCredential', { authenticatorId, credentialId });
        const changed = { ...credential, signCount };
        await browser.devtools('WebAuthn.addCredential', { authenticatorId, credential: changed });
      };
      // Each of two uses adds one: past 31 bits, and up to the last number of 32 bits.
      for (const counter of [1_000, 2_147_483_646, 4_294_967_293]) {
        await setCounter(counter);
        await signInAlone();
        assert.equal(await methodsAt(ADDRESS), 'passkey', String(counter));
        await signInAfterPassword(member.username);
      }
      await setCounter(5);
      await signInAlone();
      await setup.untilTitle('Sign in: try again');
      assert.match(await browser.text('problem'), /passkey/i);
    }),
  ));
