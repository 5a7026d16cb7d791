/** Making a link for a text or a file, on the share page in a real browser. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { runCommand } from '../../support/commands.ts';
import { AUTH_TOKEN } from '../../support/gatehouse.ts';
import { assertTabOrder, checkPage } from './accessibility.ts';
import { INSECURE_HOST, startBrowser } from './browsers.ts';
import {
  checkAfterEach,
  createLink,
  idOf,
  openForm,
  openLink,
  reveal,
  startService,
  submitForm,
} from './setup.ts';
import { createFolder } from './steps.ts';
import { KEYS } from './webdriver.ts';

const service = await startService();
const restricted = await startService({ SECRET_TTL_MAX: '120', SECRET_READS_MAX: '1' });
const open = await startService({
  SHARE_ANYONE: 'on',
  SITE_NAME: 'Example & Sons',
  SITE_FOOTER: 'Imprint: https://example.org/imprint',
});
const browser = await startBrowser();
await browser.open(open.url);
await browser.grantPermission('clipboard-read');
checkAfterEach(browser, service, restricted, open);
const files = createFolder();

const valuesOf = (...ids: string[]) => Promise.all(ids.map((id) => browser.value(id)));
const untilLimits = () =>
  browser.until('/At most about 1 MiB/.test(document.getElementById("file-hint").textContent)');
const stored = () => service.requests('POST /api/store/encrypt');

test('a first-time user makes a link, copies it, and its receiver sees who runs the site', async () => {
  await browser.load(`${open.url}/`);
  await browser.until('document.getElementById("token-part").hidden');
  await checkPage(browser, 'make');
  await browser.fill('secret', 'confidential');
  const link = await submitForm(browser);
  await browser.click('copy');
  await browser.untilText('copy', /^Copied$/);
  assert.equal(await browser.clipboard(), link);
  await openLink(browser, link);
  assert.match(await browser.text('reveal'), /Someone sent you this through Example & Sons\./);
  assert.equal(await reveal(browser), 'confidential');
});

test('the service never sees the text, and a command opens the link with the passphrase', async () => {
  await openForm(browser, `${service.url}/`);
  await assertTabOrder(browser);
  await browser.fill('secret', 'marked-text-of-mine');
  await browser.fill('passphrase', 'marked-passphrase');
  await browser.holdFetch();
  await browser.click('submit');
  await browser.until('held.length === 1');
  await browser.fill('passphrase', 'typed afterwards');
  await browser.fill('max-reads', '3');
  await browser.run('held[0]()');
  await browser.untilVisible('made');
  const [link = '', passphrase] = await valuesOf('link', 'made-passphrase');
  const shown = [passphrase, await browser.text('how-often'), await browser.focused()];
  assert.deepEqual(shown, ['marked-passphrase', 'once', 'made-heading']);
  const { text } = await service.row(idOf(link));
  assert.doesNotMatch(service.output() + text, /marked-/);
  const opened = await runCommand(['secret', 'get'], {}, `${link}\nmarked-passphrase`);
  assert.equal(opened.stdout, 'marked-text-of-mine\n', opened.stderr);

  await browser.run('document.getElementById("code").open = true');
  assert.equal(await browser.readQrCode('#qr'), link);
  await checkPage(browser, 'made');
  await assertTabOrder(browser);
  await browser.click('again');
  assert.equal(await browser.focused(), 'make-heading');
  assert.equal(await browser.value('token'), AUTH_TOKEN);
  const cleared = ['secret', 'passphrase', 'link', 'receipt', 'made-passphrase'];
  assert.equal((await valuesOf(...cleared)).join(''), '');
  assert.equal(await browser.run('return document.querySelectorAll("svg").length'), 0);
});

test('without end-to-end encryption the API returns the text as it is', async () => {
  await openForm(browser, `${service.url}/`);
  await browser.fill('secret', 'for a program');
  await browser.click('end-to-end');
  const link = await submitForm(browser);
  assert.match(link, /#[A-Za-z0-9_-]{43}$/);
  assert.equal(await service.decrypt(idOf(link), new URL(link).hash.slice(1)), 'for a program');
});

test('a file keeps its bytes and its name, and is saved, never shown', async () => {
  const bytes = randomBytes(20_000);
  const path = join(files, 'words & <b>.svg');
  writeFileSync(path, bytes);
  await openForm(browser, `${service.url}/`);
  await browser.click('kind-file');
  assert.deepEqual(
    [await browser.isVisible('secret'), await browser.isEnabled('end-to-end')],
    [false, false],
  );
  await browser.attach('file', path);
  const link = await submitForm(browser);
  await reveal(browser, link);
  assert.deepEqual(
    [await browser.text('revealed-heading'), await browser.text('file-name')],
    ['The file', 'words & b.svg'],
  );
  for (const id of ['text', 'copy']) assert.equal(await browser.isVisible(id), false);
  assert.deepEqual((await browser.saveFile())[1], bytes);
});

test('a file of 1 MiB is shared by drag and drop', async () => {
  await openForm(browser, `${service.url}/`);
  await untilLimits();
  const taken = await browser.dropFiles('secret', 1, 1);
  assert.deepEqual(taken, [false, false], 'the browser does not open it');
  await browser.untilProblem(/^Drop one file only\.$/);
  await browser.dropFiles('secret', 1_048_576);
  assert.equal(await browser.isVisible('file'), true);
  await reveal(browser, await submitForm(browser));
  assert.equal(await browser.text('file-name'), '7.bin');
});

test('a mistake is said at its field, nothing is sent, and nothing typed is lost', async () => {
  const large = join(files, 'large.bin');
  writeFileSync(large, Buffer.alloc(1_300_000));
  // In the page: half of a character has no form in JSON that the driver accepts.
  const type = (id: string, value: string) =>
    browser.run(`document.getElementById('${id}').value = ${value}`);
  const before = stored();
  await browser.load(`${service.url}/`);
  await browser.fill('passphrase', 'is not lost');
  await browser.click('submit');
  await browser.untilFieldProblem('token', /^Enter your access token\.$/);
  await browser.fill('token', AUTH_TOKEN);
  await browser.press(KEYS.Tab);
  await untilLimits();
  const TOO_LARGE = /^1\.2 MiB is too much: the limit is about 1 MiB\.$/;
  const HALF = /^This text holds half of a character/;
  const mistakes = [
    ['secret', /^Enter the text to share\.$/, () => browser.click('submit')],
    ['secret', TOO_LARGE, () => type('secret', '"x".repeat(1_300_000)')],
    ['secret', HALF, () => type('secret', '"a\\ud83d"')],
    ['passphrase', HALF, () => type('passphrase', '"bcd\\udd11"'), 'secret', '"\\ud83d\\udd11"'],
    ['passphrase', /^Enter at least 4 characters, or none\.$/, () => type('passphrase', '"abc"')],
    ['max-reads', /^Enter a number from 1 to \d+\.$/, () => browser.fill('max-reads', '0')],
    ['file', /^Choose a file\.$/, () => browser.click('kind-file'), 'max-reads', '1'],
    ['file', TOO_LARGE, () => browser.attach('file', large), 'passphrase', '"is not lost"'],
  ] as const;
  for (const [id, message, make, other, value] of mistakes) {
    await make();
    if (other !== undefined && value !== undefined) await type(other, value);
    await browser.click('submit');
    await browser.untilFieldProblem(id, message);
    assert.equal(await browser.focused(), id);
  }
  await checkPage(browser, 'make-wrong');
  assert.deepEqual(
    [stored(), ...(await valuesOf('secret', 'passphrase'))],
    [before, '🔑', 'is not lost'],
  );
});

test('a wrong access token is said at its field, but takes the focus only when the form is sent', async () => {
  const invalid = /^This access token is not valid\. Check it, or ask for a valid one\.$/;
  await openForm(browser, `${service.url}/`, 'wrong');
  await browser.fill('secret', 'typed before');
  await browser.untilFieldProblem('token', invalid);
  assert.equal(await browser.focused(), 'secret', 'the user may be typing');
  await browser.click('submit');
  await browser.until('document.activeElement.id === "token"');
  await browser.untilFieldProblem('token', invalid);
  assert.equal(await browser.value('secret'), 'typed before');
  await browser.fill('token', AUTH_TOKEN);
  await browser.press(KEYS.Tab);
  await browser.until('document.getElementById("token-error").hidden');
});

test('the form offers only what the operator allows, and keeps it without a connection', async () => {
  await openForm(browser, `${restricted.url}/`);
  await browser.until('document.getElementById("max-reads").max === "1"');
  const choices = await browser.run(`
    const all = [...document.getElementById("expires-in").options];
    return all.filter(({ disabled }) => !disabled).map(({ text }) => text);`);
  assert.deepEqual(choices, ['120 seconds']);
  await browser.fill('secret', 'confidential');
  await browser.fill('max-reads', '2');
  await browser.click('submit');
  await browser.untilFieldProblem('max-reads', /^Enter a number from 1 to 1\.$/);
  await browser.fill('max-reads', '1');
  await browser.setOffline(true);
  await browser.click('submit');
  await browser.untilProblem(/^The service did not answer\. Check the connection and try again\./);
  await browser.setOffline(false);
  await reveal(browser, await submitForm(browser));
  assert.equal(await browser.value('text'), 'confidential', 'what was typed is kept');
});

test('generated passwords and passphrases are long, and different each time', async () => {
  await browser.load(`${service.url}/`);
  const seen = new Set<string>();
  for (let i = 0; i < 3; i += 1) {
    await browser.click('generate');
    await browser.click('suggest');
    for (const value of await valuesOf('secret', 'passphrase')) seen.add(value);
  }
  assert.equal(seen.size, 6);
  const [password = '', passphrase = ''] = await valuesOf('secret', 'passphrase');
  assert.match(password, /^[A-Za-z2-9]{24}$/);
  assert.match(passphrase, /^([a-z2-9]{4}-){4}[a-z2-9]{4}$/);
});

test('without HTTPS the pages say what that means, and offer no file', async () => {
  const insecure = (address: string) => address.replace('localhost', INSECURE_HOST);
  await browser.load(insecure(`${service.url}/`));
  assert.match(await browser.text('insecure'), /^This page was opened without HTTPS\./);
  for (const id of ['kind-file', 'end-to-end']) assert.equal(await browser.isEnabled(id), false);
  const link = await createLink(browser, service, 'end to end');
  await browser.load(insecure(link));
  await browser.untilEnded('This link needs HTTPS');
  assert.equal((await service.row(idOf(link))).reads, 0);

  // Browsers warn of such pages themselves.
  await browser.log();
  // Without access to the clipboard, the text is selected.
  const { link: plain } = await service.store('by hand');
  assert.equal(await reveal(browser, insecure(plain)), 'by hand');
  await browser.click('copy');
  await browser.untilText('copy', /^Selected: press Ctrl\+C$/);
  await browser.press([KEYS.Control, 'c']);
  const ignored = /Cross-Origin-Opener-Policy header has been ignored/;
  for (const error of await browser.errors()) assert.match(error, ignored);
  await browser.load(`${open.url}/`);
  assert.equal(await browser.clipboard(), 'by hand');
});
