/** Making a link for a text or a file, on the share page in a real Chromium. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { AUTH_TOKEN } from '../../support/gatehouse.ts';
import { until } from '../../support/until.ts';
import { plainKeys, plainOpen } from '../../unit/vectors/plain-browser-envelope.ts';
import { INSECURE_HOST, startBrowser } from './browsers.ts';
import {
  checkAfterEach,
  createLink,
  enterToken,
  focused,
  holdFetch,
  idOf,
  noteKeys,
  openLink,
  openPage,
  reveal,
  startService,
  untilEnded,
  untilFieldProblem,
  untilProblem,
} from './setup.ts';
import { KEYS } from './webdriver.ts';

const service = await startService();
const restricted = await startService({ SECRET_TTL_MAX: '120', SECRET_READS_MAX: '1' });
const open = await startService({ SHARE_ANYONE: 'on', SITE_NAME: 'Example & Sons' });
const browser = await startBrowser();
checkAfterEach(browser, service, restricted, open);

// Chromium runs as another user if this process is root.
const files = mkdtempSync(join(tmpdir(), 'gatehouse-files-'));
chmodSync(files, 0o777);
after(() => rmSync(files, { recursive: true }));

test('a first-time user makes a link and copies it in three actions: text, button, button', async () => {
  await browser.open(open.url);
  await browser.grantPermission('clipboard-read');
  await browser.grantPermission('clipboard-write');
  await openPage(browser, `${open.url}/`);
  await browser.until('document.getElementById("token-part").hidden');
  browser.takeActions();
  await browser.fill('secret', 'confidential');
  await browser.click('submit');
  await browser.untilVisible('made');
  await browser.click('copy');
  assert.equal(browser.takeActions(), 3);
  await browser.until('document.getElementById("copy").innerText === "Copied"');
  assert.equal(
    await browser.runAsync('return navigator.clipboard.readText()'),
    await browser.value('link'),
  );
  const link = await browser.value('link');
  noteKeys(open, link, await browser.value('receipt'));
  assert.equal(await reveal(browser, link), 'confidential');
});

test('the service never sees the text, and node:crypto opens what it stores', async () => {
  const link = await createLink(browser, service, 'marked-text-of-mine', 'marked-passphrase');
  const [, key = '', envelopeKey = ''] = new URL(link).hash.split('.');
  assert.doesNotMatch(
    `${service.output()}${JSON.stringify(await service.row(idOf(link)))}`,
    /marked-/,
  );
  const { content, proof } = plainKeys(envelopeKey, 'marked-passphrase');
  const opened = plainOpen(content, await service.decrypt(idOf(link), key, proof));
  assert.deepEqual(
    [opened.about, opened.bytes.toString()],
    [{ kind: 'text' }, 'marked-text-of-mine'],
  );
});

test('without end-to-end encryption the API returns the text as it is', async () => {
  await openPage(browser, `${service.url}/`);
  await enterToken(browser, AUTH_TOKEN);
  await browser.fill('secret', 'for a program');
  await browser.click('end-to-end');
  await browser.click('submit');
  await browser.untilVisible('made');
  const link = await browser.value('link');
  noteKeys(service, link);
  assert.match(link, /#[A-Za-z0-9_-]{43}$/);
  assert.equal(await service.decrypt(idOf(link), new URL(link).hash.slice(1)), 'for a program');
});

test('a file keeps its bytes and its name, and is saved, never shown', async () => {
  const bytes = randomBytes(20_000);
  const path = join(files, 'words & <b>.svg');
  writeFileSync(path, bytes);
  await openPage(browser, `${service.url}/`);
  await enterToken(browser, AUTH_TOKEN);
  await browser.click('kind-file');
  assert.equal(await browser.isVisible('secret'), false);
  assert.equal(await browser.isEnabled('end-to-end'), false);
  await browser.attach('file', path);
  await browser.click('submit');
  await browser.untilVisible('made');
  const link = await browser.value('link');
  noteKeys(service, link);
  const downloads = join(files, 'downloads');
  mkdirSync(downloads);
  chmodSync(downloads, 0o777); // Chromium runs as another user.
  await browser.saveTo(downloads);
  await openLink(browser, link);
  await browser.click('submit');
  await browser.untilVisible('revealed');
  assert.equal(await browser.text('revealed-heading'), 'The file');
  assert.equal(await browser.text('file-name'), 'words & b.svg');
  assert.equal(await browser.isVisible('text'), false);
  assert.equal(await browser.isVisible('copy'), false);
  await browser.click('save');
  const saved = () => readdirSync(downloads).filter((name) => name.endsWith('.svg'));
  // The browser may still be writing it.
  const isWhole = () => readFileSync(join(downloads, saved()[0] ?? '')).equals(bytes);
  await until(() => saved().length === 1 && isWhole(), 'the saved file with its bytes');
});

test('a file of 1 MiB is shared by drag and drop', async () => {
  await openPage(browser, `${service.url}/`);
  await enterToken(browser, AUTH_TOKEN);
  await browser.until(
    '/At most about 1 MiB/.test(document.getElementById("file-hint").textContent)',
  );
  const drop = (...sizes: readonly number[]) =>
    browser.run(`
      const data = new DataTransfer();
      for (const size of ${JSON.stringify(sizes)})
        data.items.add(new File([new Uint8Array(size).fill(7)], 'dropped.bin'));
      const at = document.getElementById('secret');
      const options = { dataTransfer: data, bubbles: true, cancelable: true };
      return [new DragEvent('dragover', options), new DragEvent('drop', options)]
        .map((event) => at.dispatchEvent(event));`);
  assert.deepEqual(await drop(1, 1), [false, false], 'the browser does not open it');
  await untilProblem(browser, /^Drop one file only\.$/);
  await drop(1_048_576);
  assert.equal(await browser.isVisible('file'), true);
  await browser.click('submit');
  await browser.untilVisible('made');
  const link = await browser.value('link');
  noteKeys(service, link);
  await openLink(browser, link);
  await browser.click('submit');
  await browser.untilVisible('revealed');
  assert.equal(await browser.text('file-name'), 'dropped.bin');
});

test('a file over the limit is named at the field, with the limit, before anything is sent', async () => {
  const path = join(files, 'large.bin');
  writeFileSync(path, Buffer.alloc(1_300_000));
  await openPage(browser, `${service.url}/`);
  await enterToken(browser, AUTH_TOKEN);
  await browser.fill('passphrase', 'is not lost');
  await browser.click('kind-file');
  await browser.click('submit');
  await untilFieldProblem(browser, 'file', /^Choose a file\.$/);
  await browser.attach('file', path);
  const requests = () =>
    service.log().filter(({ route }) => route === 'POST /api/store/encrypt').length;
  const before = requests();
  await browser.click('submit');
  await untilFieldProblem(browser, 'file', /^1\.2 MiB is too much: the limit is about 1 MiB\.$/);
  assert.equal(requests(), before);
  assert.equal(await browser.value('passphrase'), 'is not lost');
});

test('the page shows the passphrase that was sent, not what was typed afterwards', async () => {
  await openPage(browser, `${service.url}/`);
  await enterToken(browser, AUTH_TOKEN);
  await browser.fill('secret', 'locked away');
  await browser.fill('passphrase', 'sent to the service');
  await holdFetch(browser);
  await browser.click('submit');
  await browser.until('held.length === 1');
  await browser.fill('passphrase', 'typed afterwards');
  await browser.fill('max-reads', '3');
  await browser.run('held[0]()');
  await browser.untilVisible('made');
  noteKeys(service, await browser.value('link'), await browser.value('receipt'));
  assert.equal(await browser.value('made-passphrase'), 'sent to the service');
  assert.equal(await browser.text('how-often'), 'once');
});

test('generated passwords and passphrases are long, and different each time', async () => {
  await openPage(browser, `${service.url}/`);
  const seen = new Set<string>();
  for (let i = 0; i < 3; i += 1) {
    await browser.click('generate');
    await browser.click('suggest');
    seen.add(await browser.value('secret')).add(await browser.value('passphrase'));
  }
  assert.equal(seen.size, 6);
  assert.match(await browser.value('secret'), /^[A-Za-z2-9]{24}$/);
  assert.match(await browser.value('passphrase'), /^([a-z2-9]{4}-){4}[a-z2-9]{4}$/);
});

test('a wrong access token is said at its field, and nothing typed is lost', async () => {
  await openPage(browser, `${service.url}/`);
  await browser.fill('secret', 'typed before');
  await browser.click('submit');
  await untilFieldProblem(browser, 'token', /^Enter your access token\.$/);
  await browser.fill('token', 'wrong');
  await browser.press(KEYS.Tab);
  const invalid = /^This access token is not valid\. Check it, or ask for a valid one\.$/;
  await untilFieldProblem(browser, 'token', invalid);
  assert.equal(await focused(browser), 'kind-text', 'the user may be typing');
  await browser.click('submit');
  await browser.until('document.activeElement.id === "token"');
  await untilFieldProblem(browser, 'token', invalid);
  assert.equal(await browser.value('secret'), 'typed before');
  await browser.fill('token', AUTH_TOKEN);
  await browser.press(KEYS.Tab);
  await browser.until('document.getElementById("token-error").hidden');
});

test('the form offers only what the operator allows, and says it at the field', async () => {
  await openPage(browser, `${restricted.url}/`);
  await enterToken(browser, AUTH_TOKEN);
  await browser.until('document.getElementById("max-reads").max === "1"');
  await browser.fill('secret', 'confidential');
  const choices = await browser.run(`
    const all = [...document.getElementById("expires-in").options];
    return all.filter(({ disabled }) => !disabled).map(({ text }) => text);`);
  assert.deepEqual(choices, ['120 seconds']);
  await browser.fill('max-reads', '2');
  await browser.click('submit');
  await untilFieldProblem(browser, 'max-reads', /^Enter a number from 1 to 1\.$/);
  await browser.fill('max-reads', '1');
  await browser.fill('passphrase', 'abc');
  await browser.click('submit');
  await untilFieldProblem(browser, 'passphrase', /^Enter at least 4 characters, or none\.$/);
  await browser.fill('passphrase', '');
  await browser.click('submit');
  await browser.untilVisible('made');
  noteKeys(restricted, await browser.value('link'), await browser.value('receipt'));
});

test('without a connection the form keeps what was typed, and a link is not lost', async () => {
  const { link } = await service.store('interrupted');
  await openPage(browser, `${service.url}/`);
  await enterToken(browser, AUTH_TOKEN);
  await browser.fill('secret', 'typed offline');
  await browser.setOffline(true);
  await browser.click('submit');
  await untilProblem(browser, /^The service did not answer\. Check the connection and try again\./);
  assert.equal(await browser.value('secret'), 'typed offline');
  await browser.setOffline(false);
  await openLink(browser, link);
  await browser.setOffline(true);
  await browser.click('submit');
  await untilProblem(
    browser,
    /^The service did not answer\..* If a view was under way, it may have been used up\.$/,
  );
  await browser.setOffline(false);
  await browser.click('submit');
  await browser.untilVisible('revealed');
});

test('a user with a token makes a link in three actions: token, text, button', async () => {
  await openPage(browser, `${service.url}/`);
  browser.takeActions();
  await browser.fill('token', AUTH_TOKEN);
  await browser.fill('secret', 'confidential');
  await browser.click('submit');
  await browser.untilVisible('made');
  assert.equal(browser.takeActions(), 3);
  noteKeys(service, await browser.value('link'), await browser.value('receipt'));
});

test('a text over the limit is said at the field, before anything is sent', async () => {
  await openPage(browser, `${service.url}/`);
  await enterToken(browser, AUTH_TOKEN);
  await browser.run('document.getElementById("secret").value = "x".repeat(1_300_000)');
  const requests = () =>
    service.log().filter(({ route }) => route === 'POST /api/store/encrypt').length;
  const before = requests();
  await browser.click('submit');
  await untilFieldProblem(browser, 'secret', /^1\.2 MiB is too much: the limit is about 1 MiB\.$/);
  assert.deepEqual([requests(), (await browser.value('secret')).length], [before, 1_300_000]);
});

test('a token that was revoked meanwhile is said at its field, and nothing typed is lost', async () => {
  const token = await service.addToken();
  await openPage(browser, `${service.url}/`);
  await enterToken(browser, token.text);
  await browser.fill('secret', 'typed before');
  await token.revoke();
  await browser.click('submit');
  await untilFieldProblem(browser, 'token', /^This access token is not valid\./);
  assert.deepEqual(
    [await browser.value('secret'), await browser.value('token')],
    ['typed before', token.text],
  );
});

test('the receiver sees who runs the site', async () => {
  const { link } = await open.store('confidential');
  await openLink(browser, link);
  assert.match(
    await browser.run('return document.querySelector("header").innerText'),
    /^Example & Sons$/,
  );
  assert.match(await browser.text('reveal'), /Someone sent you this through Example & Sons\./);
});

test('without HTTPS the pages say what that means, and offer no file', async () => {
  const insecure = service.url.replace('localhost', INSECURE_HOST);
  await openPage(browser, `${insecure}/`);
  assert.match(
    await browser.text('insecure'),
    /^This page was opened without HTTPS\..* Open this page with HTTPS/,
  );
  assert.deepEqual(
    await Promise.all(['kind-file', 'end-to-end'].map((id) => browser.isEnabled(id))),
    [false, false],
  );
  const link = await createLink(browser, service, 'end to end');
  await openPage(browser, link.replace('localhost', INSECURE_HOST));
  await untilEnded(browser, /^This link needs HTTPS$/);
  assert.equal(await service.reads(idOf(link)), 0);
  // Chromium itself says that it ignores a header there.
  await browser.log();
});
