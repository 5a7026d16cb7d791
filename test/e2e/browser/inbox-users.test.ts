/**
 * The inbox page for a user whom a proxy names: the browser sends the header that the proxy would
 * add.
 */
import { after } from 'node:test';
import { openInbox } from '../../support/inbox.ts';
import { startBrowser, testsExcept } from './browsers.ts';
import { checkAfterEach, openPage } from './setup.ts';

const inbox = await openInbox(
  { after },
  {
    INBOX_PAGE: 'on',
    TRUSTED_PROXIES: '127.0.0.1,::1',
    TRUSTED_USER_HEADER: 'X-Auth-Username',
    INBOX_USERS: 'alice',
  },
);
const url = inbox.url.replace('127.0.0.1', 'localhost');
await inbox.put({ event: 'for alice', status: 'dead' });
const test = testsExcept([[/./, 'Marionette adds no headers, which stand for the proxy here']]);
const browser = await startBrowser();
checkAfterEach(browser);

async function openAs(user: string): Promise<void> {
  await browser.devtools('Network.enable', {});
  await browser.devtools('Network.setExtraHTTPHeaders', { headers: { 'X-Auth-Username': user } });
  await openPage(browser, `${url}/inbox`);
}

test('a listed user needs no token, and another one sees the sign-in', async () => {
  await openAs('alice');
  await browser.until('document.getElementById("rows").innerText.includes("for alice")');
  await openAs('mallory');
  await browser.untilVisible('signin');
  await browser.until(
    'document.getElementById("visitor").innerText === "You are signed in as mallory, who may not use the inbox. INBOX_USERS lists who may."',
  );
});
