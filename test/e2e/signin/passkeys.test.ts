/** Passkeys and security keys on the sign-in pages, with virtual authenticators. */
import assert from 'node:assert/strict';
import { test as defineTest } from 'node:test';
import { IS_FIREFOX } from '../browser/browsers.ts';
import type { Authenticator } from '../browser/webdriver.ts';
import type { Member } from '../nginx/setup.ts';
import { APP, LOGIN, startSignin } from './setup.ts';

const reason = 'Firefox offers no passkeys with a certificate that it does not trust';
function test(name: string, check: () => Promise<void>): void {
  void defineTest(name, { skip: IS_FIREFOX && reason }, check);
}
const setup = await startSignin('nginx');
const { browser } = setup;

const ADDRESS = `${APP}/a?b=c`;
const PASSKEY = '#passkey button';
const SECURITY_KEY = '#second-step';
/** Otherwise the virtual authenticator answers as soon as the page is loaded. */
const WITHOUT_AUTOFILL = 'PublicKeyCredential.isConditionalMediationAvailable = async () => false;';

/** A part of the device that stores passkeys, verifies its user, and answers at once. */
const OF_DEVICE = {
  protocol: 'ctap2',
  transport: 'internal',
  hasResidentKey: true,
  hasUserVerification: true,
  isUserVerified: true,
};
const STORES_NOTHING = { hasResidentKey: false };
const WITHOUT_PIN = { hasUserVerification: false, isUserVerified: false };

/** Runs a test with an authenticator of its own, without autofill unless it says so. */
async function withAuthenticator(
  kind: Authenticator,
  run: () => Promise<void>,
  script = WITHOUT_AUTOFILL,
): Promise<void> {
  const id = await browser.addAuthenticator({ ...OF_DEVICE, ...kind });
  try {
    await withScript(script, run);
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

async function openFactors(member: Member): Promise<void> {
  await setup.openAccount(member, 'factors');
  await browser.fill('name', 'This laptop');
}

/** With a button of the page of second factors, which is open. */
async function addWith(button: string): Promise<void> {
  await browser.clickOn(button);
  await setup.untilTitle('Recovery codes');
  await browser.open(`${LOGIN}/account/factors`);
  assert.match(await browser.run('return document.querySelector("ul").innerText'), /This laptop/);
  await browser.deleteCookies();
}

/** @returns a member with a passkey */
async function addPasskey(): Promise<Member> {
  const member = await setup.addMember();
  await openFactors(member);
  await addWith(PASSKEY);
  return member;
}

const methodsAt = async (address = ADDRESS) =>
  (await setup.untilProgram(address)).get('x-auth-methods');

async function signInAlone(): Promise<void> {
  await browser.open(ADDRESS);
  await browser.clickOn(PASSKEY);
}

/** The password first, and then the authenticator. */
async function assertSecondStep({ username }: Member): Promise<void> {
  await browser.deleteCookies();
  await browser.open(ADDRESS);
  await setup.enterPassword(username);
  await setup.untilTitle('Second factor');
  await browser.clickOn(PASSKEY);
  assert.equal(await methodsAt(), 'password, passkey');
}

/** Waits until the page says beside the button why nothing came of it. */
const untilProblem = (words: string) =>
  browser.until(
    `document.querySelector('#passkey [role="alert"]')?.textContent.includes('${words}') === true`,
  );

/** Signs in alone, and after the password. */
const PASSKEYS: Readonly<Record<string, Authenticator>> = {
  'CTAP 2.0 by internal': {},
  'CTAP 2.1 by usb with largeBlob': {
    protocol: 'ctap2_1',
    transport: 'usb',
    extensions: ['largeBlob'],
  },
  'CTAP 2.1, synchronized': {
    protocol: 'ctap2_1',
    transport: 'hybrid',
    defaultBackupEligibility: true,
    defaultBackupState: true,
  },
};
for (const [name, kind] of Object.entries(PASSKEYS)) {
  test(`${name} is a passkey, and a second step`, () =>
    withAuthenticator(kind, async () => {
      const member = await addPasskey();
      await signInAlone();
      assert.equal(await methodsAt(), 'passkey');
      await assertSecondStep(member);
    }));
}

/** Only a second step after the password. */
const SECURITY_KEYS: Readonly<Record<string, Authenticator>> = {
  'U2F by usb': { ...STORES_NOTHING, ...WITHOUT_PIN, protocol: 'ctap1/u2f', transport: 'usb' },
  'CTAP 2.0 that stores nothing': { ...STORES_NOTHING, transport: 'usb' },
  'CTAP 2.1 without a PIN': { ...WITHOUT_PIN, protocol: 'ctap2_1', transport: 'nfc' },
};
for (const [name, kind] of Object.entries(SECURITY_KEYS)) {
  test(`${name} is a second step, and the page says why it is no passkey`, () =>
    withAuthenticator(kind, async () => {
      const member = await setup.addMember();
      await openFactors(member);
      await browser.clickOn(PASSKEY);
      await untilProblem('No passkey was added.');
      await addWith(SECURITY_KEY);
      await signInAlone();
      await untilProblem('No passkey was used.');
      await assertSecondStep(member);
    }));
}

test('a passkey signs in by autofill, without the button, and counts as a second factor', () =>
  withAuthenticator(
    {},
    async () => {
      await addPasskey();
      await browser.open(ADDRESS);
      assert.equal(await methodsAt(), 'passkey');
      await browser.open(`${APP}/payroll`);
      assert.equal(await methodsAt(`${APP}/payroll`), 'passkey');
    },
    '',
  ));

test('the same authenticator is not registered twice', () =>
  withAuthenticator({}, async () => {
    const { id } = await addPasskey();
    await browser.open(`${LOGIN}/login`);
    await browser.clickOn(PASSKEY);
    await setup.untilAt(`${LOGIN}/account`);
    await browser.open(`${LOGIN}/account/factors`);
    for (const button of [PASSKEY, SECURITY_KEY]) {
      await browser.fill('name', 'The same again');
      await browser.clickOn(button);
      await untilProblem('was added before');
    }
    assert.equal((await setup.sql`select from identity.passkeys where user_id = ${id}`).length, 1);
  }));

/** What password managers return in place of the browser's own objects. */
const FORMS: Readonly<Record<string, string>> = {
  'objects whose methods are inherited (Illegal invocation)': `
    const { prototype } = credential.response.constructor;
    const inherited = Object.setPrototypeOf({}, prototype);
    for (const name in parts) Object.defineProperty(inherited, name, { value: parts[name] });
    const made = Object.setPrototypeOf({}, PublicKeyCredential.prototype);
    const { id, rawId, type } = credential;
    for (const [name, value] of Object.entries({ id, rawId, type, response: inherited }))
      Object.defineProperty(made, name, { value });
    return made;`,
  'bytes in views, without methods': `
    for (const name in parts) parts[name] = parts[name] && new Uint8Array(parts[name]);
    return { rawId: credential.rawId, response: parts };`,
};
const replacing = (form: string) => `
  for (const name of ['create', 'get']) {
    const own = navigator.credentials[name].bind(navigator.credentials);
    navigator.credentials[name] = async (options) => {
      const credential = await own(options);
      const { response } = credential;
      const parts = {};
      for (const part of ['clientDataJSON', 'attestationObject', 'authenticatorData', 'signature',
        'userHandle']) if (part in response) parts[part] = response[part];
      if (parts.authenticatorData && parts.attestationObject) delete parts.authenticatorData;
      ${form}
    };
  }`;
for (const [what, form] of Object.entries(FORMS)) {
  const register = async () => {
    await addPasskey();
    await signInAlone();
    assert.equal(await methodsAt(), 'passkey');
  };
  test(`a password manager that returns ${what} adds a passkey and signs in`, () =>
    withAuthenticator({}, register, `${WITHOUT_AUTOFILL}${replacing(form)}`));
}

const failing = (what: string) =>
  `for (const name of ['create', 'get']) navigator.credentials[name] = async () => { ${what} };`;
const dom = (name: string) => failing(`throw new DOMException('no', '${name}');`);
const answering = (reply: string) => `fetch = async () => { ${reply} };`;
const FAILURES: ReadonlyArray<readonly [script: string, words: string]> = [
  [dom('NotAllowedError'), 'canceled or timed out'],
  [dom('InvalidStateError'), 'was added before'],
  [dom('SecurityError'), 'do not work at the address of this page'],
  [dom('NotSupportedError'), 'does not support the passkeys'],
  [dom('UnknownError'), 'manager failed (UnknownError)'],
  [failing("throw 'x';"), 'manager failed (unknown)'],
  [failing('return null;'), 'did not return all of the passkey'],
  [
    failing(`return { id: 'AAAA', response: { clientDataJSON: new ArrayBuffer(0),
      attestationObject: new ArrayBuffer(0) } };`),
    'did not return all of the passkey',
  ],
  [answering("throw new TypeError('Failed to fetch')"), 'The service did not answer.'],
  [answering("return new Response('<html>', { status: 502 })"), 'The service did not answer.'],
  [
    answering(`return new Response('{ "error": { "message": "Too busy." } }', { status: 503 })`),
    'Too busy.',
  ],
];
test('each failure of a passkey has a sentence beside the button', async () => {
  await openFactors(await setup.addMember());
  for (const [script, words] of FAILURES) {
    await withScript(`${WITHOUT_AUTOFILL}${script}`, async () => {
      await browser.open(`${LOGIN}/account/factors`);
      await browser.fill('name', 'a name');
      await browser.clickOn(PASSKEY);
      await untilProblem(words);
      assert.equal(await browser.title(), 'Second factors');
    });
  }
});

test('a passkey that is chosen from the list after its challenge has ended signs in', () =>
  withAuthenticator(
    {},
    async () => {
      await withScript(WITHOUT_AUTOFILL, async () => {
        await addPasskey();
      });
      await browser.open(ADDRESS);
      assert.equal(await methodsAt(), 'passkey');
      await browser.open(`${LOGIN}/account`);
      assert.equal(await browser.run('return sessionStorage.asked'), 'conditional optional ');
    },
    // The first request is answered when five minutes have passed, by the clock of the page.
    `const now = Date.now;
    const get = navigator.credentials.get.bind(navigator.credentials);
    navigator.credentials.get = async (options) => {
      sessionStorage.asked = (sessionStorage.asked ?? '') + options.mediation + ' ';
      const credential = await get({ publicKey: options.publicKey });
      if (options.mediation === 'conditional') Date.now = () => now() + 310_000;
      return credential;
    };`,
  ));

test('a page that stays open asks for a new challenge before the old one ends', async () => {
  const script = `
    window.asked = [];
    navigator.credentials.get = ({ mediation, signal, publicKey }) => {
      window.asked.push([mediation, signal, String(new Uint8Array(publicKey.challenge))]);
      return new Promise((_, reject) => signal.addEventListener('abort', () =>
        reject(signal.reason)));
    };
    window.setInterval = (work, ms) => { if (ms < 300_000) window.minutesLater = work; };
    PublicKeyCredential.isConditionalMediationAvailable = async () => true;`;
  await withScript(script, async () => {
    await browser.open(`${LOGIN}/login`);
    await browser.until('window.asked.length === 1 && "minutesLater" in window');
    await browser.run('window.minutesLater()');
    await browser.until('window.asked.length === 2');
    const [first, second] = await browser.run(
      'return window.asked.map(([mode, { aborted }, challenge]) => [mode, aborted, challenge])',
    );
    assert.deepEqual(first.slice(0, 2), ['conditional', true]);
    assert.deepEqual(second.slice(0, 2), ['conditional', false]);
    assert.notEqual(first[2], second[2]);
    assert.equal(await browser.run('return document.querySelector(".problem")'), null);
    // A request by the button is not replaced.
    await browser.clickOn(PASSKEY);
    await browser.until('window.asked.length === 3');
    await browser.run('window.minutesLater()');
    assert.equal(await browser.run('return window.asked[2][1].aborted'), false);
  });
});
