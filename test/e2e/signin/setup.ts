/**
 * Setup of the sign-in tests: Gatehouse with its pages, a program behind a proxy with TLS, and a
 * browser.
 */
import assert from 'node:assert/strict';
import { afterEach } from 'node:test';
import { totpCode } from '../../../src/identity/factors/codes.ts';
import { secretOn } from '../../support/factors.ts';
import { PORTAL } from '../../support/portal.ts';
import { PASSWORD } from '../../support/users.ts';
import { startBrowser } from '../browser/browsers.ts';
import type { Browser } from '../browser/steps.ts';
import {
  createCertificate,
  deployed,
  type Member,
  type ProxyName,
  type ProxySetup,
  startProxy,
  startProxySetup,
} from '../nginx/setup.ts';

export const APP = 'https://app.example.org';
export const LOGIN = 'https://login.example.org';

export type SigninSetup = Awaited<ReturnType<typeof startSignin>>;

/** The session's cookie, as a client sends it that is no browser. */
export async function sessionCookie(browser: Browser, url: string): Promise<[string, string]> {
  const session = (await browser.cookies(url)).find(({ name }) => name === '__Secure-gatehouse');
  return ['Cookie', `__Secure-gatehouse=${session?.value ?? assert.fail('no session')}`];
}

const FILES = { nginx: 'app-with-signin.conf', caddy: 'app-with-signin.caddyfile' };

/**
 * Call at the top level of a test file. Everything stops after the file's tests.
 * @param configure the configuration of the proxy, by default for the program
 */
export async function startSignin(
  name: ProxyName,
  settings: Readonly<Record<string, string>> = {},
  configure = ({ port, upstream }: ProxySetup) =>
    deployed(`${name}/${FILES[name]}`, { 3000: port, 5000: upstream.port }),
) {
  const setup = await startProxySetup({ ...PORTAL, ...settings });
  const certificate = createCertificate();
  const port = await startProxy(name, configure(setup), certificate);
  const browser = await startBrowser([['*:443', `127.0.0.1:${port}`]], certificate.pin);
  afterEach(async () => {
    await browser.allowScripts(true);
    await browser.deleteCookies();
    await browser.open('about:blank');
    await browser.log();
  });
  const steps = pageSteps(browser, setup);
  return {
    ...setup,
    ...steps,
    ...appSteps(browser, setup, steps),
    browser,
    /** Of the proxy, which answers for every name. */
    port,
  };
}

function pageSteps(browser: Browser, { upstream }: ProxySetup) {
  /** The first step of the form. */
  const enterPassword = async (username: string, password = PASSWORD): Promise<void> => {
    await browser.untilVisible('password');
    await browser.fill('username', username);
    await browser.fill('password', password);
    await browser.clickOn('form[action="/login"] button[type=submit]');
  };
  const { untilAt, untilTitle } = browser;
  /** Waits for the program's page. @returns the headers that it received, by small names */
  const untilProgram = async (address: string): Promise<ReadonlyMap<string, string>> => {
    await untilAt(address);
    assert.equal(await browser.title(), 'Program');
    const { pathname, search } = new URL(address);
    const received = upstream.requests.findLast(({ path }) => path === pathname + search);
    return new Map(received?.headers.map(([name, value]) => [name.toLowerCase(), value]));
  };
  return {
    enterPassword,
    untilAt,
    untilProgram,
    untilTitle,
    /** Opens a page of the account, after a sign-in by password. */
    async openAccount({ username }: Member, path = ''): Promise<void> {
      await browser.deleteCookies();
      await browser.open(`${LOGIN}/login`);
      await enterPassword(username);
      await untilAt(`${LOGIN}/account`);
      if (path !== '') await browser.open(`${LOGIN}/account/${path}`);
    },
    /** Opens an address of the program, which leads to the sign-in, and back to the address. */
    async visitAs(username: string, address: string) {
      await browser.open(address);
      await enterPassword(username);
      return untilProgram(address);
    },
  };
}

/** Steps with an authenticator app. */
function appSteps(
  browser: Browser,
  { sql }: ProxySetup,
  { untilTitle, openAccount }: ReturnType<typeof pageSteps>,
) {
  /** @returns the current code of a key */
  async function codeOf(secret: Buffer): Promise<string> {
    // In place of waiting for the next step.
    await sql`update identity.totp set last_step = 0`;
    const [row] = await sql`select extract(epoch from now())::float8 as now`;
    return totpCode(secret, Math.floor(Number(row?.now) / 30));
  }

  /** Sets up an authenticator app on the page of second factors, which is open. @returns its key */
  async function setUpApp(): Promise<Buffer> {
    await browser.clickOn('form[action="/account/totp/start"] button');
    await browser.untilVisible('code');
    const key = await browser.run('return document.querySelector("figcaption code").textContent');
    const secret = secretOn(`<code data-copy>${key}</code>`);
    await browser.fill('code', await codeOf(secret));
    await browser.clickOn('form[action="/account/totp"] button');
    await untilTitle('Recovery codes');
    return secret;
  }

  return {
    codeOf,
    setUpApp,
    /** The second step of the form. */
    async passCode(secret: Buffer): Promise<void> {
      await untilTitle('Second factor');
      await browser.fill('code', await codeOf(secret));
      await browser.clickOn('form[action="/login/code"] button');
    },
    async addApp(member: Member): Promise<Buffer> {
      await openAccount(member, 'factors');
      const secret = await setUpApp();
      await browser.deleteCookies();
      return secret;
    },
  };
}
