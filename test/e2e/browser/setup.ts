/**
 * Setup of the browser tests: the compiled secrets service with its share pages.
 */
import assert from 'node:assert/strict';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach } from 'node:test';
import type { Sql } from 'postgres';
import { tagAnew } from '../../support/altered-requests.ts';
import { createDatabase } from '../../support/database.ts';
import { keepExpired } from '../../support/expired.ts';
import { ask, AUTH_TOKEN, variables } from '../../support/gatehouse.ts';
import { root, startProgram } from '../../support/process.ts';
import { type Browser, KEYS } from './webdriver.ts';

export interface StoredSecret {
  readonly id: string;
  readonly key: string;
  readonly link: string;
}

export interface SecretsService {
  /** `http://localhost:…`, which browsers treat as a secure context without HTTPS. */
  readonly url: string;
  /**
   * Every key of every secret that a test has stored: that of the service, and that of end-to-end
   * encryption.
   */
  readonly keys: Set<string>;
  /** Standard output and standard error so far. */
  output(): string;
  log(): Array<Record<string, unknown>>;
  /** Stores a secret through the API. */
  store(
    password: string,
    options?: { max_reads?: number; passphrase?: string },
  ): Promise<StoredSecret>;
  storeExpired(): Promise<StoredSecret>;
  remove(id: string): Promise<void>;
  /** A sender's token of its own. */
  addToken(): Promise<{ readonly text: string; revoke(): Promise<unknown> }>;
  /** Opens a secret through the API. */
  decrypt(id: string, key: string, passphrase?: string): Promise<string>;
  /** The whole database row as text. */
  row(id: string): Promise<unknown>;
  reads(id: string): Promise<unknown>;
  /** Alters the request of a link, as a service can: its tag is right. */
  alterRequest(link: string, change: Readonly<Record<string, string>>): Promise<void>;
}

/** Call at the top level of a test file. The service stops after the file's tests. */
export async function startService(
  environment: Readonly<Record<string, string>> = {},
): Promise<SecretsService> {
  const { url: databaseUrl, sql } = await createDatabase();
  const settings = { ...variables(databaseUrl), SHARE_PAGES: 'on', ...environment };
  const program = startProgram({ after }, root, ['serve', 'secrets'], settings);
  await program.ready('secrets');
  const apiUrl = await program.url('secrets');
  const url = `http://localhost:${new URL(apiUrl).port}`;
  const keys = new Set<string>();
  const stored = (id: string, key: string): StoredSecret => {
    keys.add(key);
    return { id, key, link: `${url}/s/${id}#${key}` };
  };
  return {
    url,
    keys,
    output: () => program.stdout() + program.stderr(),
    log: program.log,
    async store(password, options = {}) {
      const body = { password, ...options };
      const { status, json, text } = await ask('POST', `${apiUrl}/api/store/encrypt`, {
        bearer: AUTH_TOKEN,
        body,
      });
      assert.equal(status, 201, text);
      return stored(json.id, json.secret);
    },
    async storeExpired() {
      const { id, secret } = await keepExpired(sql);
      return stored(id, secret);
    },
    async remove(id) {
      assert.equal(
        (await ask('DELETE', `${apiUrl}/api/store/${id}`, { bearer: AUTH_TOKEN })).status,
        200,
      );
    },
    addToken: () => addSenderToken(sql),
    async decrypt(id, secret, passphrase) {
      const body = { secret, ...(passphrase === undefined ? {} : { passphrase }) };
      const answer = await ask('POST', `${apiUrl}/api/store/decrypt?id=${id}`, {
        bearer: AUTH_TOKEN,
        body,
      });
      assert.equal(answer.status, 200, answer.text);
      return answer.json.password;
    },
    reads: async (id) =>
      (await sql`select reads::int as reads from secrets.secrets where id = ${id}`)[0]?.reads,
    async alterRequest(link, change) {
      const id = idOf(link);
      await sql`update secrets.requests set ${sql(change)} where id = ${id}`;
      await tagAnew(sql, id);
    },
    row: async (id) =>
      (await sql`select s::text as row from secrets.secrets s where id = ${id}`)[0]?.row,
  };
}

export const idOf = (link: string): string => new URL(link).pathname.split('/').at(-1) ?? '';

async function addSenderToken(sql: Sql) {
  const id = randomUUID();
  const text = `share:${randomBytes(32).toString('base64url')}`;
  const digest = createHash('sha256').update(text).digest();
  await sql`
    insert into secrets.tokens (id, name, role, digest)
    values (${id}, 'a sender', 'sender', ${digest})`;
  return {
    text,
    revoke: async () => sql`update secrets.tokens set revoked_at = now() where id = ${id}`,
  };
}

/**
 * Loads a page. Starts from a blank one: an address that differs only in its fragment would not be
 * loaded again.
 */
export async function openPage(browser: Browser, address: string): Promise<void> {
  await browser.open('about:blank');
  await browser.open(address);
}

/** Stores a secret with the form. @returns its link */
export async function createLink(
  browser: Browser,
  service: SecretsService,
  password: string,
  passphrase = '',
): Promise<string> {
  await openPage(browser, `${service.url}/`);
  await enterToken(browser, AUTH_TOKEN);
  await browser.fill('secret', password);
  await browser.fill('passphrase', passphrase);
  await browser.click('submit');
  await browser.untilVisible('made');
  const link = await browser.value('link');
  noteKeys(service, link);
  return link;
}

/** Remembers the keys of a link, which must not be logged, and that of its receipt. */
export function noteKeys(service: SecretsService, ...links: readonly string[]): void {
  for (const link of links)
    for (const [key] of new URL(link).hash.matchAll(/[\w-]{43,}/g)) service.keys.add(key);
}

/** @returns the text as the page shows it */
export async function reveal(browser: Browser, link: string): Promise<string> {
  await openLink(browser, link);
  await browser.click('submit');
  await browser.untilVisible('revealed');
  return browser.value('text');
}

/** Loads a link that can be opened, and waits until the page knows so. */
export async function openLink(browser: Browser, link: string): Promise<void> {
  await openPage(browser, link);
  await browser.untilVisible('submit');
}

/** Waits until the page says in its heading that nothing can be opened, and offers nothing. */
export async function untilEnded(browser: Browser, heading: RegExp): Promise<void> {
  await browser.until(`${heading}.test(document.getElementById('ended-heading').innerText)`);
  const controls: string[] = await browser.run(`
    const all = [...document.querySelectorAll('button, input, textarea, select')];
    return all.filter((one) => one.checkVisibility()).map(({ id }) => id);`);
  assert.deepEqual(controls, [], 'nothing is offered');
  assert.match(await browser.title(), heading);
}

/** Empties the page's error message, so that a test can wait for the same text again. */
export async function clearProblem(browser: Browser): Promise<void> {
  await browser.run('document.getElementById("problem").textContent = ""');
}

/**
 * Waits until the page shows a matching error message: at a control, or at the button that caused
 * it.
 */
export async function untilProblem(browser: Browser, pattern: RegExp): Promise<void> {
  await browser.until(`[...document.querySelectorAll('#problem, .error')]
    .some((one) => one.checkVisibility() && ${pattern}.test(one.innerText))`);
}

/** Waits until the field has an error message of its own, which screen readers announce with it. */
export async function untilFieldProblem(
  browser: Browser,
  id: string,
  pattern: RegExp,
): Promise<void> {
  await browser.until(`${pattern}.test(document.getElementById('${id}-error')?.innerText ?? '')`);
  const [invalid, described] = await browser.run(`
    const field = document.getElementById('${id}');
    return [field.getAttribute('aria-invalid'), field.getAttribute('aria-describedby')];`);
  assert.deepEqual([invalid, described.split(' ')[0]], ['true', `${id}-error`]);
}

/** The second time: the first one is sent without a token. */
export const OPTIONS_LOADED =
  'performance.getEntriesByName(location.origin + "/api/store/options").length > 1';

/** Enters the access token and waits until the page has loaded the operator's limits. */
export async function enterToken(browser: Browser, token: string): Promise<void> {
  await browser.fill('token', token);
  await browser.press(KEYS.Tab);
  await browser.until(OPTIONS_LOADED);
}

/** The id of the focused element. */
export const focused = (browser: Browser): Promise<string> =>
  browser.run(
    'return document.activeElement === document.body ? "body" : document.activeElement.id',
  );

/** What Chromium says of a request without a network. Only `setOffline` takes it away. */
const OFFLINE = 'net::ERR_INTERNET_DISCONNECTED';

/** Console messages except for expected 4xx replies: policy violations and script errors remain. */
export async function browserErrors(browser: Browser): Promise<string[]> {
  const path =
    /\/((s|r|request|answer)\/[0-9a-f-]{36}(\/\w+)?|api\/store\/(encrypt|request|options)|events\S*)/
      .source;
  const expected = new RegExp(
    `${path} - Failed to load resource: the server responded with a status of 4\\d\\d `,
  );
  const entries = await browser.log();
  const isExpected = (message: string) => expected.test(message) || message.includes(OFFLINE);
  // Firefox warns if a page is left while a module of it is still being loaded.
  const isLeft = (message: string) => message.includes('Loading failed for the module');
  const errors = entries.filter(
    ({ source, message }) => !isLeft(message) && (source !== 'network' || !isExpected(message)),
  );
  return errors.map(({ level, message }) => `${level} ${message}`);
}

/** Everything the page has stored in the browser, in any kind of storage. */
const storedData = (browser: Browser): Promise<unknown[]> =>
  browser.runAsync(`
    const databases = await indexedDB.databases();
    const workers = await navigator.serviceWorker?.getRegistrations() ?? [];
    const stores = 'caches' in globalThis ? await caches.keys() : [];
    const cookies = document.cookie ? [document.cookie] : [];
    const entries = [...Object.entries(localStorage), ...Object.entries(sessionStorage)];
    return [...entries, ...cookies, ...databases, ...workers, ...stores];
  `);

/**
 * Call at the top level of a test file: checks after each test that nothing was reported, stored or
 * logged.
 */
export function checkAfterEach(browser: Browser, ...services: readonly SecretsService[]): void {
  afterEach(async () => {
    await browser.setOffline(false);
    assert.deepEqual(await browserErrors(browser), [], 'the browser reports an error');
    assert.deepEqual(await storedData(browser), [], 'the page has stored data in the browser');
    for (const { keys, output } of services) {
      for (const key of keys) assert.ok(!output().includes(key), 'the service has logged a key');
    }
  });
}

let screenshots = process.env.SCREENSHOTS;

/** Saves a screenshot for a person to look at. */
export async function saveScreenshot(browser: Browser, name: string): Promise<void> {
  if (!screenshots) {
    screenshots = mkdtempSync(join(tmpdir(), 'gatehouse-pages-'));
    process.stdout.write(`screenshots: ${screenshots}\n`);
  }
  mkdirSync(screenshots, { recursive: true });
  writeFileSync(join(screenshots, `${name}.png`), await browser.screenshot());
}

/**
 * Requests of the page wait in `held` until a test sends them.
 * @param end how the addresses of these requests end; by default, all are held
 */
export const holdFetch = (browser: Browser, end = ''): Promise<unknown> =>
  browser.run(`
    const send = fetch;
    window.held = [];
    window.answers = 0;
    window.fetch = async (...request) => {
      if (!String(request[0]).endsWith('${end}')) return send(...request);
      await new Promise((resolve) => held.push(resolve));
      const answer = await send(...request);
      const read = answer.json.bind(answer);
      // In a task of its own: by then, the page has used the answer.
      answer.json = () => read().finally(() => setTimeout(() => { window.answers += 1; }));
      return answer;
    };`);
