/** What the browser visits: the secrets service as it is built, with its share pages; and the browser itself. */
import assert from 'node:assert/strict';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach } from 'node:test';
import { createDatabase } from '../../test/support/database.ts';
import { keepExpired } from '../../test/support/expired.ts';
import { ask, AUTH_TOKEN, variables } from '../../test/support/gatehouse.ts';
import { root, startProgram } from '../../test/support/process.ts';
import { findProgram, start } from '../programs.ts';
import { type Browser, driveBrowser, KEYS } from './webdriver.ts';

export interface Kept {
  readonly id: string;
  readonly key: string;
  readonly link: string;
}

export interface Service {
  /** `http://localhost:…`, which browsers trust as they trust HTTPS. */
  readonly url: string;
  /** Every key of its secrets that a test has seen. */
  readonly keys: Set<string>;
  /** Everything written so far. */
  written(): string;
  log(): Array<Record<string, unknown>>;
  /** Stores a secret past the pages. */
  keep(password: string, wishes?: { max_reads?: number; passphrase?: string }): Promise<Kept>;
  remove(id: string): Promise<void>;
  keepExpired(): Promise<Kept>;
  /** Its whole row as text. */
  row(id: string): Promise<unknown>;
  reads(id: string): Promise<unknown>;
}

/** At a test file's top level; ends with the file's tests. */
export async function startService(environment: Readonly<Record<string, string>> = {}): Promise<Service> {
  const { url: databaseUrl, sql } = await createDatabase();
  const program = startProgram({ after }, root, ['serve', 'secrets'], { ...variables(databaseUrl), SHARE_PAGES: 'on', ...environment });
  await program.ready('secrets');
  const own = await program.url('secrets');
  const url = `http://localhost:${new URL(own).port}`;
  const keys = new Set<string>();
  return {
    url,
    keys,
    written: () => program.stdout() + program.stderr(),
    log: program.log,
    async keep(password, wishes = {}) {
      const { status, json, text } = await ask('POST', `${own}/api/store/encrypt`, { bearer: AUTH_TOKEN, body: { password, ...wishes } });
      assert.equal(status, 201, text);
      keys.add(json.secret);
      return { id: json.id, key: json.secret, link: `${url}/s/${json.id}#${json.secret}` };
    },
    async remove(id) {
      assert.equal((await ask('DELETE', `${own}/api/store/${id}`, { bearer: AUTH_TOKEN })).status, 200);
    },
    async keepExpired() {
      const { id, secret } = await keepExpired(sql);
      keys.add(secret);
      return { id, key: secret, link: `${url}/s/${id}#${secret}` };
    },
    reads: async (id) => (await sql`select reads::int as reads from secrets.secrets where id = ${id}`)[0]?.reads,
    row: async (id) => (await sql`select s::text as row from secrets.secrets s where id = ${id}`)[0]?.row,
  };
}

/** A name that leads here but is not trusted as `localhost` is: as a service without HTTPS. */
export const PLAIN_HOST = 'gatehouse.test';

/** At a test file's top level. It has a profile of its own and ends with the file's tests. */
export async function startChromium(): Promise<Browser> {
  const env = { PATH: process.env.PATH ?? '', TZ: 'UTC' };
  // Not by chromedriver, which would leave it behind where it is itself stopped.
  const chromium = await start({ after }, {
    name: 'chromium',
    unprivileged: true,
    prepare: (directory, port) => ({
      command: [
        findProgram('chromium') ?? 'chromium', '--headless=new', `--remote-debugging-port=${port}`, `--user-data-dir=${join(directory, 'profile')}`,
        // It visits nothing but our own pages, and a container has neither a sandbox for it nor much shared memory.
        '--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-breakpad',
        `--host-resolver-rules=MAP ${PLAIN_HOST} 127.0.0.1`, '--lang=en-GB', 'about:blank',
      ],
      env: { ...env, TMPDIR: directory },
    }),
    isReady: async (port) => (await ask('GET', `http://127.0.0.1:${port}/json/version`)).status === 200,
  });
  const driver = await start({ after }, {
    name: 'chromedriver',
    unprivileged: true,
    prepare: (directory, port) => ({ command: [findProgram('chromedriver') ?? 'chromedriver', `--port=${port}`], env: { ...env, TMPDIR: directory } }),
    isReady: async (port) => (await ask('GET', `http://127.0.0.1:${port}/status`)).json?.value?.ready === true,
  });
  return driveBrowser(`http://127.0.0.1:${driver.port}`, `127.0.0.1:${chromium.port}`);
}

/** From nowhere, so that the page is loaded even where only what follows the `#` is different. */
export async function visit(browser: Browser, address: string): Promise<void> {
  await browser.open('about:blank');
  await browser.open(address);
}

/** Makes a secret on the page. @returns its link */
export async function make(browser: Browser, service: Service, password: string, passphrase = ''): Promise<string> {
  await visit(browser, `${service.url}/`);
  await enterToken(browser, AUTH_TOKEN);
  await browser.fill('secret', password);
  await browser.fill('passphrase', passphrase);
  await browser.click('submit');
  await browser.seen('made');
  const link = await browser.value('link');
  service.keys.add(new URL(link).hash.slice(1));
  return link;
}

/** @returns the text as the page shows it */
export async function reveal(browser: Browser, link: string): Promise<string> {
  await visit(browser, link);
  await browser.click('submit');
  await browser.seen('revealed');
  return browser.value('text');
}

/** Takes back what the page says is wrong, so that the same words can be waited for again. */
export async function hush(browser: Browser): Promise<void> {
  await browser.run('document.getElementById("problem").textContent = ""');
}

/** Waits until the page complains in these words. */
export async function complaint(browser: Browser, words: RegExp): Promise<void> {
  await browser.until(`${words}.test(document.getElementById('problem').innerText)`);
}

/** Enters the access token, and waits until the page has asked what is allowed. */
export async function enterToken(browser: Browser, token: string): Promise<void> {
  await browser.fill('token', token);
  await browser.press(KEYS.Tab);
  await browser.until('performance.getEntriesByName(location.origin + "/api/store/options").length > 0');
}

export const focused = (browser: Browser): Promise<string> => browser.run('return document.activeElement === document.body ? "body" : document.activeElement.id');

/** A complaint of the browser's that no refusal of ours explains: a violation of the policy, an error of a script. */
export async function troubles(browser: Browser): Promise<string[]> {
  const refusal = /\/(s\/[0-9a-f-]{36}|api\/store\/(encrypt|options)) - Failed to load resource: the server responded with a status of 4\d\d /;
  return (await browser.log()).filter(({ source, message }) => source !== 'network' || !refusal.test(message)).map(({ level, message }) => `${level} ${message}`);
}

/** What has been left in the browser for later, of all places that a page has. */
const leftovers = (browser: Browser): Promise<unknown[]> =>
  browser.runAsync(`
    const databases = await indexedDB.databases();
    const workers = await navigator.serviceWorker?.getRegistrations() ?? [];
    const stores = 'caches' in globalThis ? await caches.keys() : [];
    return [...Object.entries(localStorage), ...Object.entries(sessionStorage), ...(document.cookie ? [document.cookie] : []), ...databases, ...workers, ...stores];
  `);

/** At a test file's top level: looks behind every test. */
export function watch(browser: Browser, ...services: readonly Service[]): void {
  afterEach(async () => {
    assert.deepEqual(await troubles(browser), [], 'the browser complains of nothing');
    assert.deepEqual(await leftovers(browser), [], 'nothing is left in the browser');
    for (const { keys, written } of services) for (const key of keys) assert.ok(!written().includes(key), 'no key is written by the service');
  });
}

let place = process.env.SCREENSHOTS;

/** Keeps what the page looks like, to be judged by people. */
export async function takePicture(browser: Browser, name: string): Promise<void> {
  if (!place) {
    place = mkdtempSync(join(tmpdir(), 'gatehouse-pages-'));
    process.stdout.write(`pictures: ${place}\n`);
  }
  writeFileSync(join(place, `${name}.png`), await browser.picture());
}
