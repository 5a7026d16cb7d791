/** Steps with passkeys and security keys, on the pages and with virtual authenticators. */
import assert from 'node:assert/strict';
import type { Authenticator, Browser } from '../browser/webdriver.ts';
import { APP, LOGIN, type Member, type SigninSetup } from './setup.ts';

export const ADDRESS = `${APP}/a?b=c`;
/** Otherwise the virtual authenticator answers as soon as the page is loaded. */
export const WITHOUT_AUTOFILL =
  'PublicKeyCredential.isConditionalMediationAvailable = async () => false;';
/** Why Firefox runs no test of passkeys: it refuses them where a certificate is only accepted. */
export const WITHOUT_PASSKEYS =
  'Firefox offers no passkeys with a certificate that it does not trust';
export const PASSKEY = '#passkey button';
export const SECURITY_KEY = '#second-step';
export const PROBLEM = '#passkey [role="alert"]';

export function passkeySteps(setup: SigninSetup) {
  const { browser } = setup;

  /** Opens the page of second factors of a member who signs in by password. */
  async function openFactors({ username }: Member): Promise<void> {
    await browser.open(`${LOGIN}/login`);
    await setup.enterPassword(username);
    await browser.until('location.pathname === "/account"');
    await browser.open(`${LOGIN}/account/factors`);
    await browser.fill('name', 'This laptop');
  }

  /** With a button of the page of second factors, which is open. */
  async function addWith(button: string): Promise<void> {
    await browser.clickOn(button);
    await setup.untilTitle('Recovery codes');
    const codes: string = await browser.run('return document.querySelector("pre").textContent');
    assert.equal(codes.trim().split('\n').length, 10);
    await browser.open(`${LOGIN}/account/factors`);
    const listed = await browser.run('return document.querySelector("ul").innerText');
    assert.match(listed, /This laptop/);
    await browser.deleteCookies();
  }

  return {
    openFactors,
    addWith,
    ...signIns(setup),
    async addPasskey(member: Member, button = PASSKEY): Promise<void> {
      await openFactors(member);
      await addWith(button);
    },
    /** Waits until the page says beside the button why nothing came of it. */
    untilProblem: (words: string) =>
      browser.until(
        `document.querySelector('${PROBLEM}')?.textContent.includes(${JSON.stringify(words)}) === true`,
      ),
    methodsAt: (address: string) => methodsAt(setup, address),
    ...pageSetup(browser),
  };
}

const pageSetup = (browser: Browser) => ({
  /** Runs a test with an authenticator of its own. */
  async withAuthenticator(
    verifiesUser: boolean,
    run: (id: string) => Promise<void>,
    more: Partial<Authenticator> = {},
  ): Promise<void> {
    const id = await browser.addAuthenticator(verifiesUser, more);
    try {
      await run(id);
    } finally {
      await browser.removeAuthenticator(id);
    }
  },
  /** Runs a script in every page before the page's own. */
  async withScript(source: string, run: () => Promise<void>): Promise<void> {
    const added = await browser.devtools('Page.addScriptToEvaluateOnNewDocument', { source });
    try {
      await run();
    } finally {
      const { identifier } = added;
      await browser.devtools('Page.removeScriptToEvaluateOnNewDocument', { identifier });
    }
  },
});

const signIns = (setup: SigninSetup) => ({
  /** The password first, and then the authenticator. */
  async signInAfterPassword(username: string): Promise<void> {
    const { browser } = setup;
    await browser.deleteCookies();
    await browser.open(ADDRESS);
    await setup.enterPassword(username);
    await setup.untilTitle('Second factor');
    await browser.clickOn(PASSKEY);
    assert.equal(await methodsAt(setup, ADDRESS), 'password, passkey');
  },
  async signInAlone(): Promise<void> {
    const { browser } = setup;
    await browser.deleteCookies();
    await browser.open(ADDRESS);
    await browser.clickOn(PASSKEY);
  },
});

async function methodsAt(setup: SigninSetup, address: string) {
  const { headers } = await setup.untilProgram(address);
  return headers.find(([name]) => name === 'X-Auth-Methods')?.[1];
}
