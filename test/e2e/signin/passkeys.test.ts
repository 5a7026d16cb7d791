/** Passkeys on the sign-in pages, with virtual authenticators, behind a real nginx. */
import assert from 'node:assert/strict';
import { testsExcept } from '../browser/browsers.ts';
import {
  ADDRESS,
  PASSKEY,
  passkeySteps,
  PROBLEM,
  SECURITY_KEY,
  WITHOUT_AUTOFILL,
  WITHOUT_PASSKEYS,
} from './passkeys.ts';
import { APP, LOGIN, startSignin } from './setup.ts';

const test = testsExcept([[/./, WITHOUT_PASSKEYS]]);
const setup = await startSignin('nginx');
const { browser } = setup;
const { methodsAt, withAuthenticator, withScript, untilProblem, openFactors, addPasskey } =
  passkeySteps(setup);

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

/** What password managers return in place of the browser's own objects. */
const FORMS: Readonly<Record<string, string>> = {
  'plain objects': `
    return { id: credential.id, rawId: credential.rawId, type: credential.type, response: {
      ...parts, getPublicKey: () => null, getTransports: () => ['internal'] } };`,
  'objects without methods': `
    return { id: credential.id, type: credential.type, response: parts };`,
  'objects whose methods are inherited (Illegal invocation)': `
    const { prototype } = credential.response.constructor;
    const inherited = Object.setPrototypeOf({}, prototype);
    for (const name in parts) Object.defineProperty(inherited, name, { value: parts[name] });
    const made = Object.setPrototypeOf({}, PublicKeyCredential.prototype);
    const { id, rawId, type } = credential;
    for (const [name, value] of Object.entries({ id, rawId, type, response: inherited }))
      Object.defineProperty(made, name, { value });
    return made;`,
  'a response whose getPublicKey is missing': `
    Object.defineProperty(credential.response, 'getPublicKey', { value: undefined });
    return credential;`,
  'bytes in views': `
    for (const name in parts) parts[name] = parts[name] && new Uint8Array(parts[name]);
    return { id: credential.id, response: parts };`,
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
  test(`a password manager that returns ${what} adds a passkey and signs in`, async () => {
    await withAuthenticator(true, () =>
      withScript(`${WITHOUT_AUTOFILL}${replacing(form)}`, async () => {
        await addPasskey(await setup.addMember());
        await browser.open(ADDRESS);
        await browser.clickOn(PASSKEY);
        assert.equal(await methodsAt(ADDRESS), 'passkey');
      }),
    );
  });
}

const failing = (what: string) =>
  `for (const name of ['create', 'get']) navigator.credentials[name] = async () => { ${what} };`;
const dom = (name: string) => failing(`throw new DOMException('no', '${name}');`);
const FAILURES: Readonly<Record<string, readonly [script: string, words: string]>> = {
  'a canceled request': [dom('NotAllowedError'), 'canceled or timed out'],
  'an aborted request': [dom('AbortError'), 'canceled or timed out'],
  'a device that is known': [dom('InvalidStateError'), 'was added before'],
  'an address without passkeys': [dom('SecurityError'), 'do not work at the address of this page'],
  'no kind of passkey in common': [dom('NotSupportedError'), 'does not support the passkeys'],
  'a failure of the browser': [dom('UnknownError'), 'manager failed (UnknownError)'],
  'an error of an extension': [failing("throw new Error('x');"), 'manager failed (Error)'],
  'what is no error': [failing("throw 'x';"), 'manager failed (unknown)'],
  'no passkey at all': [failing('return null;'), 'did not return all of the passkey'],
  'no response': [failing("return { id: 'AAAA' };"), 'did not return all of the passkey'],
  'an empty key': [
    failing(`return { id: 'AAAA', response: { clientDataJSON: new ArrayBuffer(0),
      attestationObject: new ArrayBuffer(0) } };`),
    'did not return all of the passkey',
  ],
  'a service that cannot be reached': [
    "fetch = async () => { throw new TypeError('Failed to fetch'); };",
    'The service did not answer.',
  ],
  'a page of the proxy in place of the options': [
    "fetch = async () => new Response('<html>', { status: 502 });",
    'The service did not answer.',
  ],
  'an error of the service': [
    `fetch = async () => new Response(JSON.stringify({ error: { message: 'Too busy.' } }),
      { status: 503 });`,
    'Too busy.',
  ],
};
test('each failure of a passkey has a sentence beside the button', async () => {
  const member = await setup.addMember();
  await openFactors(member);
  for (const [what, [script, words]] of Object.entries(FAILURES)) {
    await withScript(`${WITHOUT_AUTOFILL}${script}`, async () => {
      await browser.open(`${LOGIN}/account/factors`);
      await browser.fill('name', what);
      await browser.clickOn(PASSKEY);
      await untilProblem(words);
      assert.equal(await browser.title(), 'Second factors', what);
    });
  }
});

test('a passkey that is chosen from the list after its challenge has ended signs in', async () => {
  await withAuthenticator(true, async () => {
    await withScript(WITHOUT_AUTOFILL, async () => addPasskey(await setup.addMember()));
    // The first request is answered when five minutes have passed, by the clock of the page.
    const late = `
      const now = Date.now;
      const get = navigator.credentials.get.bind(navigator.credentials);
      window.asked = [];
      navigator.credentials.get = async (options) => {
        sessionStorage.asked = (sessionStorage.asked ?? '') + options.mediation + ' ';
        const credential = await get({ publicKey: options.publicKey });
        if (options.mediation === 'conditional') Date.now = () => now() + 310_000;
        return credential;
      };`;
    await withScript(late, async () => {
      await browser.open(ADDRESS);
      assert.equal(await methodsAt(ADDRESS), 'passkey');
      await browser.open(`${LOGIN}/account`);
      assert.equal(await browser.run('return sessionStorage.asked'), 'conditional optional ');
    });
  });
});

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
  await browser.deleteCookies();
  await withScript(script, async () => {
    await browser.open(`${LOGIN}/login`);
    await browser.until('window.asked.length === 1 && "minutesLater" in window');
    await browser.run('window.minutesLater()');
    await browser.until('window.asked.length === 2');
    const asked: ReadonlyArray<readonly [string, boolean, string]> = await browser.run(
      'return window.asked.map(([mode, { aborted }, challenge]) => [mode, aborted, challenge])',
    );
    const first = asked[0];
    const second = asked[1];
    assert.deepEqual(first?.slice(0, 2), ['conditional', true]);
    assert.deepEqual(second?.slice(0, 2), ['conditional', false]);
    assert.notEqual(first?.[2], second?.[2]);
    assert.equal(await browser.run(`return document.querySelector('${PROBLEM}')`), null);
    // A request by the button is not replaced.
    await browser.clickOn(PASSKEY);
    await browser.until('window.asked.length === 3');
    await browser.run('window.minutesLater()');
    assert.equal(await browser.run('return window.asked[2][1].aborted'), false);
  });
});
