/** Passkeys on the sign-in pages, with Chromium's virtual authenticator, behind a real nginx. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Authenticator } from '../browser/webdriver.ts';
import { APP, LOGIN, type Member, startSignin } from './setup.ts';

const setup = await startSignin('nginx');
const { browser } = setup;
const ADDRESS = `${APP}/a?b=c`;
const methodsAt = async (address: string) =>
  (await setup.untilProgram(address)).headers.find(([name]) => name === 'X-Auth-Methods')?.[1];

/** Runs a test with an authenticator of its own. */
async function withAuthenticator(
  verifiesUser: boolean,
  run: () => Promise<void>,
  more: Partial<Authenticator> = {},
): Promise<void> {
  const id = await browser.addAuthenticator(verifiesUser, more);
  try {
    await run();
  } finally {
    await browser.removeAuthenticator(id);
  }
}

/** Runs a script in every page before the page's own. */
async function withScript(source: string, run: () => Promise<void>): Promise<void> {
  const { identifier } = await browser.devtools('Page.addScriptToEvaluateOnNewDocument', {
    source,
  });
  try {
    await run();
  } finally {
    await browser.devtools('Page.removeScriptToEvaluateOnNewDocument', { identifier });
  }
}
/** Otherwise the virtual authenticator answers as soon as the page is loaded. */
const WITHOUT_AUTOFILL = 'PublicKeyCredential.isConditionalMediationAvailable = async () => false;';

const PASSKEY = '#passkey button';
const SECURITY_KEY = '#second-step';
const PROBLEM = '#passkey [role="alert"]';
/** Waits until the page says beside the button why nothing came of it. */
const untilProblem = (words: string) =>
  browser.until(
    `document.querySelector('${PROBLEM}')?.textContent.includes(${JSON.stringify(words)}) === true`,
  );

/** Opens the page of second factors of a member who signs in by password. */
async function openFactors({ username }: Member): Promise<void> {
  await browser.open(`${LOGIN}/login`);
  await setup.enterPassword(username);
  await browser.until('location.pathname === "/account"');
  await browser.open(`${LOGIN}/account/factors`);
  await browser.fill('name', 'This laptop');
}

async function addPasskey(member: Member, button = PASSKEY): Promise<void> {
  await openFactors(member);
  await addWith(button);
}

/** Adds a passkey or security key with a button of the page of second factors, which is open. */
async function addWith(button: string): Promise<void> {
  await browser.clickOn(button);
  await setup.untilTitle('Recovery codes');
  assert.equal(
    await browser.run(
      'return document.querySelector("pre").textContent.trim().split("\\n").length',
    ),
    10,
  );
  await browser.open(`${LOGIN}/account/factors`);
  assert.match(await browser.run('return document.querySelector("ul").innerText'), /This laptop/);
  await browser.deleteCookies();
}

test('a passkey added by button signs in by button alone, and leads back to the address', async () => {
  await withAuthenticator(true, () =>
    withScript(WITHOUT_AUTOFILL, async () => {
      await addPasskey(await setup.addMember());
      await browser.open(ADDRESS);
      await setup.untilTitle('Sign in');
      await browser.clickOn('#passkey button');
      assert.equal(await methodsAt(ADDRESS), 'passkey');
      await browser.open(`${APP}/payroll`);
      assert.equal(await methodsAt(`${APP}/payroll`), 'passkey', 'it counts as a second factor');
    }),
  );
});

test('a passkey signs in by autofill, without the button', async () => {
  await withAuthenticator(true, async () => {
    await addPasskey(await setup.addMember());
    await browser.open(ADDRESS);
    assert.equal(await methodsAt(ADDRESS), 'passkey');
  });
});

// The refusal by Gatehouse itself needs a forged reply: test/api/identity/signin/factors.test.ts.
test('a passkey that does not verify its user is rejected alone and accepted after the password', async () => {
  await withAuthenticator(false, async () => {
    const member = await setup.addMember();
    await addPasskey(member, SECURITY_KEY);
    await browser.open(ADDRESS);
    await browser.clickOn('#passkey button');
    await untilProblem('No passkey was used.');
    assert.equal(await browser.title(), 'Sign in');
    await setup.enterPassword(member.username);
    await setup.untilTitle('Second factor');
    await browser.clickOn('#passkey button');
    assert.equal(await methodsAt(ADDRESS), 'password, passkey');
  });
});

test('a passkey that was removed is rejected with a message', async () => {
  await withAuthenticator(true, () =>
    withScript(WITHOUT_AUTOFILL, async () => {
      await addPasskey(await setup.addMember());
      await setup.sql`delete from identity.passkeys`;
      await browser.open(ADDRESS);
      await browser.clickOn('#passkey button');
      await setup.untilTitle('Sign in: try again');
      assert.notEqual(await browser.text('problem'), '');
    }),
  );
});

test('the same authenticator is not registered twice', async () => {
  await withAuthenticator(true, () =>
    withScript(WITHOUT_AUTOFILL, async () => {
      const member = await setup.addMember();
      await addPasskey(member);
      await browser.open(`${LOGIN}/login`);
      await browser.clickOn('#passkey button');
      await browser.until('location.pathname === "/account"');
      await browser.open(`${LOGIN}/account/factors`);
      for (const button of [PASSKEY, SECURITY_KEY]) {
        await browser.fill('name', 'The same again');
        await browser.clickOn(button);
        await untilProblem('was added before');
      }
      const [row] =
        await setup.sql`select count(*)::int as n from identity.passkeys where user_id = ${member.id}`;
      assert.equal(row?.n, 1);
    }),
  );
});

const SECURITY_KEYS: Readonly<Record<string, Partial<Authenticator>>> = {
  'a U2F key': { protocol: 'ctap1/u2f', hasResidentKey: false, hasUserVerification: false },
  'a key that checks a PIN and stores no passkeys': {
    hasResidentKey: false,
    hasUserVerification: true,
    isUserVerified: true,
  },
  'a key that stores passkeys and checks no PIN': { hasUserVerification: false },
};

for (const [name, kind] of Object.entries(SECURITY_KEYS)) {
  test(`${name} is no passkey, and is a second step after the password`, async () => {
    await withAuthenticator(
      false,
      async () => {
        const member = await setup.addMember();
        await openFactors(member);
        await browser.clickOn(PASSKEY);
        await untilProblem('No passkey was added.');
        await addWith(SECURITY_KEY);
        await browser.open(ADDRESS);
        await browser.clickOn(PASSKEY);
        await untilProblem('No passkey was used.');
        await setup.enterPassword(member.username);
        await setup.untilTitle('Second factor');
        await browser.clickOn(PASSKEY);
        assert.equal(await methodsAt(ADDRESS), 'password, passkey');
      },
      { transport: 'usb', ...kind },
    );
  });
}

test('a key that checks a PIN and stores passkeys signs in alone and after the password', async () => {
  await withAuthenticator(
    true,
    () =>
      withScript(WITHOUT_AUTOFILL, async () => {
        const member = await setup.addMember();
        await addPasskey(member);
        await browser.open(ADDRESS);
        await browser.clickOn(PASSKEY);
        assert.equal(await methodsAt(ADDRESS), 'passkey');
        await browser.deleteCookies();
        await browser.open(ADDRESS);
        await setup.enterPassword(member.username);
        await setup.untilTitle('Second factor');
        await browser.clickOn(PASSKEY);
        assert.equal(await methodsAt(ADDRESS), 'password, passkey');
      }),
    { transport: 'usb', protocol: 'ctap2_1' },
  );
});

test('a key whose PIN is not accepted adds nothing, and the page says so', async () => {
  await withAuthenticator(
    true,
    async () => {
      const member = await setup.addMember();
      await openFactors(member);
      await browser.clickOn(PASSKEY);
      await untilProblem('No passkey was added.');
      await browser.clickOn(SECURITY_KEY);
      await untilProblem('No security key was added.');
      assert.equal(await browser.title(), 'Second factors');
    },
    { transport: 'usb', isUserVerified: false },
  );
});
