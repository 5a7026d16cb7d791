/** Security keys of every kind that the virtual authenticators of browsers can be. */
import assert from 'node:assert/strict';
import { testsExcept } from '../browser/browsers.ts';
import type { Authenticator } from '../browser/webdriver.ts';
import { PASSKEY, passkeySteps, SECURITY_KEY } from './passkeys.ts';
import { startSignin } from './setup.ts';

const test = testsExcept([
  [/./, 'Firefox waits for a key that fits until the request ends, which takes four minutes'],
]);
const setup = await startSignin('nginx');
const { browser } = setup;
const { addWith, openFactors, signInAfterPassword, signInAlone, ...steps } = passkeySteps(setup);
const { untilProblem, withAuthenticator } = steps;

type Kind = Partial<Authenticator>;
const U2F = { protocol: 'ctap1/u2f', hasResidentKey: false, hasUserVerification: false } as const;
const STORES = { hasResidentKey: true };
const VERIFIES = { hasUserVerification: true, isUserVerified: true };
const CTAP2_1 = { protocol: 'ctap2_1', ...STORES, ...VERIFIES } as const;

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
