/**
 * Setup of the sign-in tests: Gatehouse with its pages, a program behind a proxy with TLS, and a
 * Chromium.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { join } from 'node:path';
import { after, afterEach } from 'node:test';
import type { Sql } from 'postgres';
import { totpCode } from '../../../src/identity/factors/codes.ts';
import { ask, logIn } from '../../support/gatehouse.ts';
import { PORTAL } from '../../support/portal.ts';
import { startBrowser } from '../browser/browsers.ts';
import type { Browser } from '../browser/webdriver.ts';
import {
  completeNginx,
  documented,
  type HeaderFields,
  nginxCommand,
  pairs,
  type ProxySetup,
  type ReceivedRequest,
  startProxySetup,
  type Upstream,
} from '../nginx/setup.ts';
import { type Certificate, createCertificate } from '../nginx/tls.ts';
import { findProgram, start } from '../programs.ts';
import { listenOn } from '../../support/ports.ts';

export const APP = 'https://app.example.org';
export const LOGIN = 'https://login.example.org';
/** A page of another site, which nothing guards. */
export const EVIL = 'https://evil.example.net';
export const PASSWORD = 'a passphrase for people';

export type ProxyName = 'nginx' | 'caddy';

export interface Member {
  readonly id: string;
  readonly username: string;
}

export interface SigninSetup extends ProxySetup {
  readonly browser: Browser;
  /** Of the proxy, which answers for every name. */
  readonly port: number;
  /** A user who has chosen their password themselves. */
  addMember(more?: Readonly<Record<string, unknown>>): Promise<Member>;
  /**
   * Makes a user with an invitation link on the users page, and signs the administrator out of the
   * browser.
   * @returns the link
   */
  invite(administrator: Member, username: string, groups?: string): Promise<string>;
  /** The first step of the form. */
  enterPassword(username: string, password?: string): Promise<void>;
  /** @returns the current code of a key */
  codeOf(secret: Buffer): Promise<string>;
  /** The second step of the form, with the current code of a key. */
  passCode(secret: Buffer): Promise<void>;
  /** Sets up an authenticator app on the page of second factors, which is open. @returns its key */
  setUpApp(): Promise<Buffer>;
  /** Signs in if needed, and sets up an authenticator app. */
  addApp(member: Member): Promise<Buffer>;
  /**
   * Waits until the program's page is shown at this address.
   * @returns the request as the program received it
   */
  untilProgram(address: string): Promise<ReceivedRequest>;
  /** Opens an address of the program, which leads to the sign-in, and back to the address. */
  visitAs(username: string, address: string): Promise<ReceivedRequest>;
  untilTitle(title: string): Promise<void>;
}

/** Like a browser that opens a page, but with any headers. */
export const NAVIGATION: HeaderFields = [
  ['Accept', 'text/html,*/*'],
  ['Sec-Fetch-Mode', 'navigate'],
  ['Sec-Fetch-Dest', 'document'],
];

/**
 * A program with pages, an image, an event stream and a WebSocket. It knows nothing of Gatehouse.
 */
async function startProgram(): Promise<Upstream> {
  const requests: ReceivedRequest[] = [];
  const note = ({ method = '', url: path = '', rawHeaders }: IncomingMessage) =>
    requests.push({ method, path, headers: pairs(rawHeaders), body: '' });
  const server = createServer((incoming, response) => {
    note(incoming);
    const path = incoming.url ?? '';
    incoming.resume();
    if (path.startsWith('/events')) {
      response.writeHead(200, { 'Content-Type': 'text/event-stream', 'X-Accel-Buffering': 'no' });
      response.write('data: one\n\n');
    } else if (path.startsWith('/worker.js')) {
      response.writeHead(200, { 'Content-Type': 'text/javascript' });
      response.end(`
        addEventListener('activate', (event) => event.waitUntil(clients.claim()));
        addEventListener('fetch', (event) => event.respondWith(fetch(event.request)));`);
    } else if (path.startsWith('/image')) {
      response.writeHead(200, { 'Content-Type': 'image/svg+xml' });
      response.end('<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"/>');
    } else {
      response.writeHead(200, {
        'Content-Type': 'text/html',
        'Set-Cookie': 'theme=dark; Path=/; Secure',
      });
      response.end(
        '<!doctype html><html lang="en"><link rel="icon" href="data:,"><title>Program</title><h1>Program</h1>',
      );
    }
  });
  server.on('upgrade', (incoming, socket) => {
    note(incoming);
    const accept = createHash('sha1')
      .update(`${incoming.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
      .digest('base64');
    socket.write(
      'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
        `Sec-WebSocket-Accept: ${accept}\r\n\r\n`,
    );
    socket.on('error', () => {});
  });
  return { port: await listenOn({ after }, server), requests };
}

/** A part of the document that configures both proxies. */
export interface DocumentedSites {
  readonly part: string;
  readonly hosts: readonly string[];
  /** Where the services and programs of the configuration listen in the test. */
  readonly addresses: Readonly<Record<string, string>>;
}

const PROXIES: Readonly<
  Record<
    ProxyName,
    (directory: string, port: number, sites: DocumentedSites) => [string, ...string[]]
  >
> = {
  nginx(directory, port, { part, addresses }) {
    const file = join(directory, 'nginx.conf');
    const configuration = documented(
      'nginx',
      {
        ...addresses,
        'listen 443 ssl;': `listen 127.0.0.1:${port} ssl;`,
        '/etc/ssl/example.org.pem': join(directory, 'certificate.pem'),
        '/etc/ssl/example.org.key': join(directory, 'key.pem'),
      },
      part,
    );
    writeFileSync(file, completeNginx(configuration));
    return nginxCommand(directory, file);
  },
  caddy(directory, port, { part, hosts, addresses }) {
    const file = join(directory, 'Caddyfile');
    const own = `tls ${join(directory, 'certificate.pem')} ${join(directory, 'key.pem')}`;
    const blocks = hosts.map((host) => [
      `${host}.example.org {`,
      `${host}.example.org {\n\t${own}`,
    ]);
    const configuration = documented(
      'caddy',
      { ...addresses, ...Object.fromEntries(blocks) },
      part,
    );
    const options = `{\n\tadmin off\n\tauto_https disable_redirects\n\thttps_port ${port}\n\tdefault_bind 127.0.0.1\n}\n\n`;
    writeFileSync(file, options + configuration);
    return [findProgram('caddy') ?? 'caddy', 'run', '--config', file, '--adapter', 'caddyfile'];
  },
};

async function startProxy(
  name: ProxyName,
  sites: DocumentedSites,
  { certificate, key }: Certificate,
): Promise<number> {
  const { port } = await start(
    { after },
    {
      name,
      unprivileged: true,
      prepare(directory, free) {
        writeFileSync(join(directory, 'certificate.pem'), certificate);
        writeFileSync(join(directory, 'key.pem'), key);
        return { command: PROXIES[name](directory, free, sites) };
      },
    },
  );
  return port;
}

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

function fromBase32(text: string): Buffer {
  const bits = [...text]
    .map((letter) => ALPHABET.indexOf(letter).toString(2).padStart(5, '0'))
    .join('');
  return Buffer.from((bits.match(/.{8}/g) ?? []).map((byte) => Number.parseInt(byte, 2)));
}

/** The session's cookie, as a client sends it that is no browser. */
export async function sessionCookie(browser: Browser, url: string): Promise<[string, string]> {
  const cookies = await browser.cookies(url);
  const session = cookies.find(({ name }) => name === '__Secure-gatehouse');
  assert.ok(session);
  return ['Cookie', `__Secure-gatehouse=${session.value}`];
}

/** Call at the top level of a test file. Everything stops after the file's tests. */
export async function startSignin(
  name: ProxyName,
  environment: Readonly<Record<string, string>> = {},
  sites?: DocumentedSites,
): Promise<SigninSetup> {
  const setup = await startProxySetup(
    { ...PORTAL, PASSWORD_SCRYPT: 'ln=4,r=8,p=1', ...environment },
    startProgram,
  );
  const certificate = createCertificate();
  const identity = { '127.0.0.1:3000': `127.0.0.1:${setup.gatehouse.port}` };
  const program = { '127.0.0.1:5000': `127.0.0.1:${setup.upstream.port}` };
  const chosen = sites ?? { part: 'Sign-in pages', hosts: ['app', 'login'], addresses: program };
  const port = await startProxy(
    name,
    { ...chosen, addresses: { ...identity, ...chosen.addresses } },
    certificate,
  );
  const other = await startOtherSite(certificate);
  const browser = await startBrowser(
    [
      ['evil.example.net:443', `127.0.0.1:${other}`],
      ['*:443', `127.0.0.1:${port}`],
    ],
    certificate.pin,
  );
  afterEach(async () => {
    await browser.deleteCookies();
    await browser.open('about:blank');
    await browser.log();
  });
  return {
    ...setup,
    browser,
    port,
    addMember: memberFactory(setup),
    invite: (administrator, username, groups) => invite(browser, administrator, username, groups),
    ...pageSteps(browser, setup.upstream),
    ...appSteps(browser, setup.sql),
  };
}

/** @returns a function that creates users who have chosen their password themselves */
function memberFactory({ url, admin, addUser }: ProxySetup): SigninSetup['addMember'] {
  let members = 0;
  return async (more = {}) => {
    members += 1;
    const username = `member-${members}`;
    const { id } = await addUser(username, `${username}@example.org`);
    const token = await logIn(url, username, 'a passphrase for tests');
    const body = { current_password: 'a passphrase for tests', new_password: PASSWORD };
    const changed = await ask('POST', `${url}/api/auth/password`, { bearer: token, body });
    assert.equal(changed.status, 200);
    if (Object.keys(more).length > 0) {
      const patched = await ask('PATCH', `${url}/api/user/${id}`, { bearer: admin, body: more });
      assert.equal(patched.status, 200);
    }
    return { id, username };
  };
}

async function invite(
  browser: Browser,
  administrator: Member,
  username: string,
  groups = '',
): Promise<string> {
  await browser.deleteCookies();
  await browser.open(`${LOGIN}/login`);
  await enterPassword(browser, administrator.username);
  await browser.until('location.pathname === "/account"');
  await browser.open(`${LOGIN}/account/users`);
  await browser.clickOn('details:has(form[method="post"]) > summary');
  await browser.fill('username', username);
  await browser.fill('email', `${username}@example.org`);
  await browser.fill('groups', groups);
  await browser.clickOn('form[method="post"][action="/account/users"] button[type=submit]');
  await untilTitle(browser, 'The user is invited');
  const link = await browser.run('return document.querySelector("pre").textContent.trim()');
  await browser.deleteCookies();
  await browser.open('about:blank');
  return String(link);
}

type PageSteps = Pick<SigninSetup, 'enterPassword' | 'untilProgram' | 'untilTitle' | 'visitAs'>;

function pageSteps(browser: Browser, upstream: Upstream): PageSteps {
  const enter: PageSteps['enterPassword'] = (username, password) =>
    enterPassword(browser, username, password);
  const untilProgram: PageSteps['untilProgram'] = async (address) => {
    await browser.until(
      `location.href === ${JSON.stringify(address)} && document.title === "Program"`,
    );
    const { pathname, search } = new URL(address);
    const received = upstream.requests.findLast(({ path }) => path === pathname + search);
    assert.ok(received);
    return received;
  };
  return {
    enterPassword: enter,
    untilProgram,
    async visitAs(username, address) {
      await browser.open(address);
      await enter(username);
      return untilProgram(address);
    },
    untilTitle: (title) => untilTitle(browser, title),
  };
}

async function enterPassword(
  browser: Browser,
  username: string,
  password = PASSWORD,
): Promise<void> {
  await browser.untilVisible('password');
  await browser.fill('username', username);
  await browser.fill('password', password);
  await browser.clickOn('form[action="/login"] button[type=submit]');
}

const untilTitle = (browser: Browser, title: string) =>
  browser.until(`document.title.startsWith(${JSON.stringify(`${title} ·`)})`);

/** Steps with an authenticator app. */
type AppSteps = Pick<SigninSetup, 'codeOf' | 'passCode' | 'addApp' | 'setUpApp'>;

function appSteps(browser: Browser, sql: Sql): AppSteps {
  async function codeOf(secret: Buffer): Promise<string> {
    // In place of waiting for the next step.
    await sql`update identity.totp set last_step = 0`;
    const [row] = await sql`select extract(epoch from now())::float8 as now`;
    return totpCode(secret, Math.floor(Number(row?.now) / 30));
  }

  async function passCode(secret: Buffer): Promise<void> {
    await untilTitle(browser, 'Second factor');
    await browser.fill('code', await codeOf(secret));
    await browser.clickOn('form[action="/login/code"] button');
  }

  async function setUpApp(): Promise<Buffer> {
    await browser.clickOn('form[action="/account/totp/start"] button');
    await browser.untilVisible('code');
    const key = await browser.run('return document.querySelector("figcaption code").textContent');
    const secret = fromBase32(String(key).replaceAll(' ', ''));
    await browser.fill('code', await codeOf(secret));
    await browser.clickOn('form[action="/account/totp"] button');
    await untilTitle(browser, 'Recovery codes');
    return secret;
  }

  async function addApp({ username }: Member): Promise<Buffer> {
    await browser.open(`${LOGIN}/account/factors`);
    if ((await browser.title()) === 'Sign in') await enterPassword(browser, username);
    await browser.until(
      'location.pathname === "/account" || location.pathname === "/account/factors"',
    );
    await browser.open(`${LOGIN}/account/factors`);
    return setUpApp();
  }

  return { codeOf, passCode, setUpApp, addApp };
}

/** The pages of another site. */
async function startOtherSite(certificate: Certificate): Promise<number> {
  const server = createTlsServer(
    { cert: certificate.certificate, key: certificate.key },
    (_request, response) => {
      response.setHeader('Content-Type', 'text/html; charset=utf-8');
      response.end(
        '<!doctype html><html lang="en"><link rel="icon" href="data:,"><title>Other site</title>',
      );
    },
  );
  return listenOn({ after }, server);
}
