/** Setup of the browser tests: the secrets service with its share pages. */
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach } from 'node:test';
import { AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';
import type { Browser } from './steps.ts';
import { KEYS } from './webdriver.ts';

export type SecretsService = Awaited<ReturnType<typeof startService>>;

/** Call at the top level of a test file. The service stops after the file's tests. */
export async function startService(settings: Readonly<Record<string, string>> = {}) {
  const service = await launch(['secrets'], { SHARE_PAGES: 'on', ...settings });
  // Browsers treat `localhost` as a secure context without HTTPS.
  const url = service.secrets.replace('127.0.0.1', 'localhost');
  const client = secretsClient(service.secrets);
  return {
    url,
    sql: service.sql,
    /** Standard output and standard error so far. */
    output: () => service.stdout() + service.stderr(),
    /** Stores a secret through the API. */
    async store(...given: Parameters<typeof client.keep>) {
      const { id, secret } = await client.keep(...given);
      return { id, key: secret, link: `${url}/s/${id}#${secret}` };
    },
    /** Opens a secret through the API. */
    async decrypt(...given: Parameters<typeof client.decrypt>): Promise<string> {
      const { status, json, text } = await client.decrypt(...given);
      assert.equal(status, 200, text);
      return json.password;
    },
    /** The whole row in the database. */
    async row(id: string) {
      const [row] = await service.sql`
        select reads::int, s::text as text from secrets.secrets s where id = ${id}`;
      return row ?? assert.fail('no such secret');
    },
    /** How many requests came for a route so far. */
    requests: (path: string) => service.log().filter(({ route }) => route === path).length,
  };
}

export const idOf = (link: string): string => new URL(link).pathname.split('/').at(-1) ?? '';

/** Opens the form, with an access token and the limits that it leads to. */
export async function openForm(browser: Browser, url: string, token = AUTH_TOKEN): Promise<void> {
  await browser.load(url);
  await browser.fill('token', token);
  await browser.press(KEYS.Tab);
  // The first time, they are asked for without a token.
  await browser.until(
    'performance.getEntriesByName(location.origin + "/api/store/options").length > 1',
  );
}

/** Sends the form. @returns the link */
export async function submitForm(browser: Browser): Promise<string> {
  await browser.click('submit');
  await browser.untilVisible('made');
  return browser.value('link');
}

/** Stores a secret with the form. @returns its link */
export async function createLink(
  browser: Browser,
  { url }: SecretsService,
  password: string,
  passphrase = '',
): Promise<string> {
  await openForm(browser, `${url}/`);
  await browser.fill('secret', password);
  await browser.fill('passphrase', passphrase);
  return submitForm(browser);
}

/** Loads a link that can be opened, and waits until the page knows so. */
export async function openLink(browser: Browser, link: string): Promise<void> {
  await browser.load(link);
  await browser.untilVisible('submit');
}

/** @returns the text as the page shows it */
export async function reveal(browser: Browser, link?: string): Promise<string> {
  if (link !== undefined) await openLink(browser, link);
  await browser.click('submit');
  await browser.untilVisible('revealed');
  return browser.value('text');
}

/**
 * Call at the top level of a test file: checks after each test that the browser has reported
 * nothing, and that no service has logged a key.
 */
export function checkAfterEach(browser: Browser, ...services: readonly SecretsService[]): void {
  afterEach(async () => {
    await browser.setOffline(false);
    assert.deepEqual(await browser.errors(), []);
    for (const { output } of services) assert.doesNotMatch(output(), /[\w-]{43}/, 'a key');
  });
}

/** Saves a screenshot for a person to look at, if SCREENSHOTS says where. */
export async function saveScreenshot(browser: Browser, name: string): Promise<void> {
  const { SCREENSHOTS: directory } = process.env;
  if (!directory) return;
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, `${name}.png`), await browser.screenshot());
}
