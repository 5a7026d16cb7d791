/** Starts the browser of a run: Chromium, or with BROWSER=firefox Firefox. */
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after } from 'node:test';
import { ask } from '../../support/gatehouse.ts';
import { listenOn } from '../../support/ports.ts';
import { wordsOf } from '../../support/words.ts';
import { findProgram, type Program, start } from '../programs.ts';
import { connectMarionette } from './marionette.ts';
import { type Browser, withSteps } from './steps.ts';
import { connectChromedriver, drive } from './webdriver.ts';

export const IS_FIREFOX = process.env.BROWSER === 'firefox';

/** Resolves to this machine, but is no secure context: it stands for a service without HTTPS. */
export const INSECURE_HOST = 'gatehouse.test';

/** Where names lead, with ports or without. The first that fits counts; `*` is any name. */
type Hosts = ReadonlyArray<readonly [from: string, to: string]>;

const ENVIRONMENT = { PATH: process.env.PATH ?? '', TZ: 'UTC', MOZ_CRASHREPORTER_DISABLE: '1' };

/**
 * Call at the top level of a test file. The browser has its own profile and stops after the file's
 * tests.
 * @param pin the digest of the key of a certificate that it accepts
 */
export async function startBrowser(
  hosts: Hosts = [[INSECURE_HOST, '127.0.0.1']],
  pin = '',
): Promise<Browser> {
  const to = await (IS_FIREFOX ? startFirefox(hosts) : startChromium(hosts, pin));
  const browser = withSteps(drive(to));
  await browser.setViewport(1_280, 900);
  return browser;
}

/**
 * Starts a program as an ordinary user, and waits until it answers.
 * @param words behind its name
 * @param path where it answers, if it speaks HTTP
 * @returns its port
 */
async function startProgram(
  name: string,
  words: (port: number, directory: string) => readonly string[],
  path?: string,
): Promise<number> {
  const answers = async (port: number) =>
    (await ask('GET', `http://127.0.0.1:${port}${path}`)).status === 200;
  const program: Program = {
    name,
    unprivileged: true,
    prepare: (directory, port) => ({
      command: [findProgram(name) ?? name, ...words(port, directory)],
      env: { ...ENVIRONMENT, TMPDIR: directory },
    }),
    ...(path === undefined ? {} : { isReady: answers }),
  };
  return (await start({ after }, program)).port;
}

/**
 * It loads only our own pages. Containers often lack sandbox support and have little shared memory.
 */
const FLAGS = wordsOf(`
  --headless=new --no-sandbox --disable-dev-shm-usage --disable-gpu --no-first-run
  --disable-background-networking --disable-breakpad --lang=en-GB
`);

async function startChromium(hosts: Hosts, pin: string) {
  // Started here and not by chromedriver, which leaves its browser running when it is stopped.
  const words = (port: number, directory: string) => [
    ...FLAGS,
    `--remote-debugging-port=${port}`,
    `--user-data-dir=${join(directory, 'profile')}`,
    `--host-resolver-rules=${hosts.map(([from, to]) => `MAP ${from} ${to}`).join()}`,
    `--ignore-certificate-errors-spki-list=${pin}`,
    'about:blank',
  ];
  const chromium = await startProgram('chromium', words, '/json/version');
  const driver = await startProgram('chromedriver', (port) => [`--port=${port}`], '/status');
  return connectChromedriver(`http://127.0.0.1:${driver}`, `127.0.0.1:${chromium}`);
}

const preferencesOf = (hosts: Hosts, proxy: number) => ({
  'network.proxy.type': 1,
  'network.proxy.ssl': '127.0.0.1',
  'network.proxy.ssl_port': proxy,
  'network.dns.localDomains': hosts
    .map(([from]) => from)
    .filter((from) => !from.includes(':'))
    .join(),
  'network.disable-localhost-when-offline': true,
  'dom.security.https_first': false,
  'ui.prefersReducedMotion': 1,
  'ui.useOverlayScrollbars': 1,
  // Reading the clipboard asks for no permission.
  'dom.events.testing.asyncClipboard': true,
  'browser.download.folderList': 2,
  'browser.startup.page': 0,
  'datareporting.policy.dataSubmissionEnabled': false,
  'app.update.enabled': false,
  // It looks for plugins a minute after its start, and reports in the console that it gets none.
  'media.gmp-manager.updateEnabled': false,
  'network.captive-portal-service.enabled': false,
  'network.connectivity-service.enabled': false,
  'intl.accept_languages': 'en-GB,en',
});

async function startFirefox(hosts: Hosts) {
  const preferences = preferencesOf(hosts, await startProxy(hosts));
  const port = await startProgram('firefox-esr', (port, directory) => {
    const lines = Object.entries({ ...preferences, 'marionette.port': port }).map(
      ([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});\n`,
    );
    writeFileSync(join(directory, 'user.js'), lines.join(''));
    // System access is for scripts in its own process, as those that read all cookies.
    const words = '--headless --marionette --remote-allow-system-access --no-remote --profile';
    return [...wordsOf(words), directory];
  });
  return connectMarionette(port);
}

/** Firefox cannot map a port of a name, so it asks this proxy for them. @returns its port */
async function startProxy(hosts: Hosts): Promise<number> {
  const server = createServer().on('connect', (request, client, head) => {
    const [, to] = hosts.find(([from]) => from === request.url || from === '*:443') ?? [];
    // Firefox itself asks Mozilla.
    if (to === undefined) {
      client.destroy();
      return;
    }
    const [host = '', port] = to.split(':');
    const upstream = connect({ host, port: Number(port) }, () => {
      client.write('HTTP/1.1 200 OK\r\n\r\n');
      upstream.write(head);
      upstream.pipe(client).pipe(upstream);
    });
    upstream.on('error', () => client.destroy());
    client.on('error', () => upstream.destroy());
  });
  return listenOn({ after }, server);
}
