/** The page at `/` of each service in a real Chromium: with its pages and without them. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { startGatehouse } from '../../support/gatehouse.ts';
import { PORTAL } from '../../support/portal.ts';
import { startBrowser } from './browsers.ts';
import {
  checkAppearance,
  enlargeText,
  openState,
  overflowing,
  setViewport,
} from './accessibility.ts';
import { checkAfterEach, focused, openPage } from './setup.ts';
import { KEYS } from './webdriver.ts';

const { url: databaseUrl } = await createDatabase();
const SITE = { SITE_NAME: 'Example Ltd', SITE_FOOTER: 'Imprint: https://example.org/imprint' };
const plain = await startGatehouse({ after }, ['identity', 'secrets', 'webhook'], databaseUrl);
const pages = await startGatehouse({ after }, ['identity', 'webhook'], databaseUrl, {
  ...PORTAL,
  ...SITE,
  INBOX_PAGE: 'on',
});
const browser = await startBrowser();
checkAfterEach(browser);

const API = '/openapi';
const CASES = [
  ['identity', plain.url.identity, 'Gatehouse identity', [API]],
  ['secrets', plain.url.secrets, 'Gatehouse secrets', [API]],
  ['webhook', plain.url.webhook, 'Gatehouse webhook', [API]],
  ['identity-pages', pages.url.identity, 'Gatehouse identity', ['/login', API]],
  ['webhook-pages', pages.url.webhook, 'Gatehouse webhook', ['/inbox', API]],
] as const;

for (const [name, url, title, paths] of CASES) {
  test(`landing page ${name}: its links, axe, contrast, target size and reflow`, async () => {
    await openState(browser, [name, () => openPage(browser, `${url}/`), {}]);
    assert.equal(await browser.title(), title);
    const linked: string[] = await browser.run(
      'return [...document.querySelectorAll("main a")].map((link) => link.getAttribute("href"))',
    );
    assert.deepEqual(linked, paths);
    await checkAppearance(browser, `landing-${name}`);
    await enlargeText(browser);
    assert.deepEqual(
      await overflowing(browser),
      [],
      'nothing overflows on a phone at twice the text size',
    );
    await setViewport(browser, 'desktop');
  });
}

test('a link of the landing page is reached by keyboard, and opens its page', async () => {
  await openPage(browser, `${pages.url.webhook}/`);
  await browser.press(KEYS.Tab, KEYS.Tab);
  assert.equal(await focused(browser), '');
  await browser.press(KEYS.Enter);
  await browser.untilVisible('signin');
  assert.equal(new URL(await browser.address()).pathname, '/inbox');
});
