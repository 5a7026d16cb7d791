/** Passkeys and security keys of every kind that the virtual authenticators of browsers can be. */
import assert from 'node:assert/strict';
import { testsExcept } from '../browser/browsers.ts';
import type { Authenticator } from '../browser/webdriver.ts';
import { ADDRESS, PASSKEY, passkeySteps, SECURITY_KEY, WITHOUT_AUTOFILL } from './passkeys.ts';
import { startSignin } from './setup.ts';

const test = testsExcept([
  [/ is a passkey|counter/, 'Marionette runs no script before those of a page'],
]);
const setup = await startSignin('nginx');
const { browser } = setup;
const { addWith, methodsAt, openFactors, untilProblem, withAuthenticator, withScript } =
  passkeySteps(setup);

type Kind = Partial<Authenticator>;
const STORES = { hasResidentKey: true };
const VERIFIES = { hasUserVerification: true, isUserVerified: true };
const U2F = { protocol: 'ctap1/u2f', hasResidentKey: false, hasUserVerification: false } as const;
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

/** Only a second step after the password. */
const SECURITY_KEYS: Readonly<Record<string, Kind>> = {
  'U2F by usb': { ...U2F, transport: 'usb' },
  'U2F by nfc': { ...U2F, transport: 'nfc' },
  'U2F by ble': { ...U2F, transport: 'ble' },
  'CTAP 2.0 that stores nothing': { ...VERIFIES, hasResidentKey: false, transport: 'usb' },
  'CTAP 2.0 without a PIN': { ...STORES, hasUserVerification: false, transport: 'ble' },
  'CTAP 2.1 that stores nothing': { ...CTAP2_1, hasResidentKey: false, transport: 'usb' },
  'CTAP 2.1 without a PIN': {
    ...CTAP2_1,
    hasUserVerification: false,
    isUserVerified: false,
    transport: 'nfc',
  },
};

/** Nothing can be added. */
const UNUSABLE: Readonly<Record<string, Kind>> = {
  'CTAP 2.0 whose PIN is wrong': { transport: 'usb', isUserVerified: false },
  'CTAP 2.1 whose fingerprint is wrong': { ...CTAP2_1, isUserVerified: false },
};

/** The password first, and then the authenticator. */
async function signInAfterPassword(username: string): Promise<void> {
  await browser.deleteCookies();
  await browser.open(ADDRESS);
  await setup.enterPassword(username);
  await setup.untilTitle('Second factor');
  await browser.clickOn(PASSKEY);
  assert.equal(await methodsAt(ADDRESS), 'password, passkey');
}

async function signInAlone(): Promise<void> {
  await browser.deleteCookies();
  await browser.open(ADDRESS);
  await browser.clickOn(PASSKEY);
}

for (const [name, kind] of Object.entries(PASSKEYS)) {
  test(`${name} is a passkey, and a second step`, () =>
    withAuthenticator(
      true,
      () =>
        withScript(WITHOUT_AUTOFILL, async () => {
          const member = await setup.addMember();
          await openFactors(member);
          await addWith(PASSKEY);
          await signInAlone();
          assert.equal(await methodsAt(ADDRESS), 'passkey');
          await signInAfterPassword(member.username);
        }),
      kind,
    ));
}

for (const [name, kind] of Object.entries(SECURITY_KEYS)) {
  test(`${name} is a second step, and the page says why it is no passkey`, () =>
    withAuthenticator(
      false,
      async () => {
        const member = await setup.addMember();
        await openFactors(member);
        await browser.clickOn(PASSKEY);
        await untilProblem('No passkey was added.');
        await addWith(SECURITY_KEY);
        await signInAlone();
        await untilProblem('No passkey was used.');
        await signInAfterPassword(member.username);
      },
      kind,
    ));
}

for (const [name, kind] of Object.entries(UNUSABLE)) {
  test(`${name} adds nothing, and the page says so`, () =>
    withAuthenticator(
      true,
      async () => {
        await openFactors(await setup.addMember());
        await browser.clickOn(PASSKEY);
        await untilProblem('No passkey was added.');
        await browser.clickOn(SECURITY_KEY);
        await untilProblem('No security key was added.');
        assert.equal(await browser.title(), 'Second factors');
      },
      kind,
    ));
}

test('a counter may jump to its end, and shows a copy if it goes back', () =>
  withAuthenticator(true, (authenticatorId) =>
    withScript(WITHOUT_AUTOFILL, async () => {
      const member = await setup.addMember();
      await openFactors(member);
      await addWith(PASSKEY);
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
      // Each use adds one.
      for (const counter of [1_000, 2_147_483_646, 2_147_483_647, 4_294_967_293]) {
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
