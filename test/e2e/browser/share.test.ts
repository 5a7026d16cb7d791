/**
 * The share pages in a real Chromium: making a link for a text or a file, and opening a whole,
 * damaged or used one.
 */
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
import { setTimeout as sleep } from 'node:timers/promises';
import { AUTH_TOKEN } from '../../support/gatehouse.ts';
import { until } from '../../support/until.ts';
import { plainKeys, plainOpen } from '../../unit/vectors/plain-browser-envelope.ts';
import { INSECURE_HOST, startBrowser } from './browsers.ts';
import {
  checkAfterEach,
  createLink,
  enterToken,
  focused,
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

const idOf = (link: string) => new URL(link).pathname.split('/').at(-1) ?? '';
/** Requests of the page wait in `held` until a test sends them. */
const holdFetch = (from: typeof browser) =>
  from.run(`
    const send = fetch;
    window.held = [];
    window.answers = 0;
    window.fetch = async (...request) => {
      await new Promise((resolve) => held.push(resolve));
      const answer = await send(...request);
      window.answers += 1;
      return answer;
    };`);
/** No view was used. */
const READ = /^This secret was already viewed$/;
const WRONG = /^This link is incomplete or wrong$/;

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

test('a link reveals its secret once, and then says that it was read', async () => {
  const link = await createLink(browser, service, 'confidential, "ß" & <b>名前</b>');
  assert.match(
    link,
    new RegExp(`^${service.url}/s/[0-9a-f-]{36}#1\\.[A-Za-z0-9_-]{43}\\.[A-Za-z0-9_-]{48}$`),
  );
  assert.match(await browser.text('made'), /It can be opened once, until \S/);
  assert.equal(await browser.isVisible('locked'), false);
  await openLink(browser, link);
  assert.match(await browser.text('about'), /^It can be opened once, until \S/);
  await browser.click('submit');
  await browser.untilVisible('revealed');
  assert.equal(await browser.value('text'), 'confidential, "ß" & <b>名前</b>');
  assert.equal(await focused(browser), 'revealed-heading');
  assert.match(
    await browser.text('left'),
    /^This was the last view\. The service has deleted the secret/,
  );
  assert.equal(await browser.isVisible('delete'), false);
  await openPage(browser, link);
  await untilEnded(browser, READ);
  assert.match(
    await browser.text('ended-text'),
    /opened on .+ If that was not you, tell the sender at once/,
  );
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

test('a wrong key, a cut link and a link with a mistake say so without using anything up', async () => {
  const { id, link, key } = await service.store('still there', { max_reads: 1 });
  await openPage(browser, link.replace(key, randomBytes(32).toString('base64url')));
  await untilEnded(browser, WRONG);
  const statuses = () =>
    service.log().filter(({ route }) => route === 'POST /s/{id}/status').length;
  const before = statuses();
  const cut = [link.replace(`#${key}`, ''), link.slice(0, -key.length), link.slice(0, -1)];
  for (const damaged of [...cut, `${link}x`, link.replace(/\/s\/./, '/s/')]) {
    await openPage(browser, damaged);
    await untilEnded(browser, WRONG);
  }
  const whole = await createLink(browser, service, 'end to end');
  const last = whole.at(-1) === 'A' ? 'B' : 'A';
  const atDot = whole.slice(0, whole.lastIndexOf('.'));
  for (const damaged of [whole.slice(0, -1), whole.slice(0, -1) + last, atDot]) {
    await openPage(browser, damaged);
    await untilEnded(browser, WRONG);
  }
  assert.equal(statuses(), before, 'no request is needed to see it');
  await browser.open(whole);
  await browser.untilVisible('submit');
  assert.equal(await reveal(browser, whole), 'end to end');
  assert.equal(await service.reads(id), 0);
  assert.equal(await reveal(browser, link), 'still there');
});

test('an expired and a deleted secret say so in the heading', async () => {
  const deleted = await service.store('deleted');
  await service.remove(deleted.id);
  await openPage(browser, deleted.link);
  await untilEnded(browser, /^This secret was deleted$/);
  await openPage(browser, (await service.storeExpired()).link);
  await untilEnded(browser, /^This link has expired$/);
});

test('a check that ends after the secret was revealed does not hide it', async () => {
  const { link } = await service.store('only once', { max_reads: 1 });
  await openLink(browser, link);
  await holdFetch(browser);
  await browser.click('submit');
  await browser.until('held.length === 1');
  await browser.run(`location.hash = ${JSON.stringify(randomBytes(32).toString('base64url'))}`);
  await browser.until('held.length === 2');
  await browser.run('held[0]()');
  await browser.untilVisible('revealed');
  await browser.run('held[1]()');
  await browser.until('answers === 2');
  await sleep(200);
  assert.equal(await browser.isVisible('revealed'), true);
  assert.equal(await browser.value('text'), 'only once');
});

test('a secret that another person reads while the page is open', async () => {
  const { id, key, link } = await service.store('contested', { max_reads: 1 });
  await openLink(browser, link);
  assert.equal(await service.decrypt(id, key), 'contested');
  await browser.click('submit');
  await untilEnded(browser, READ);
});

test('what is left after reading, and deleting it at once', async () => {
  const { id, link } = await service.store('twice', { max_reads: 3 });
  await reveal(browser, link);
  assert.match(await browser.text('left'), /^The link can be opened 2 more times until \S/);
  await browser.run(`location.hash = ${JSON.stringify(new URL(link).hash)}`);
  await browser.untilVisible('submit');
  assert.equal(await browser.isVisible('revealed'), false, 'the earlier view has ended');
  await browser.click('submit');
  await browser.untilVisible('revealed');
  assert.match(await browser.text('left'), /^The link can be opened once more until \S/);
  await browser.click('delete');
  await browser.until('/^Deleted\\./.test(document.getElementById("left").innerText)');
  assert.equal(await browser.isVisible('delete'), false);
  assert.equal(await browser.value('text'), 'twice', 'it can still be saved');
  assert.equal(await service.reads(id), 2);
  await openPage(browser, link);
  await untilEnded(browser, /^This secret was deleted$/);
});

test('the receipt shows whether the link was opened, and deletes the secret after a question', async () => {
  const link = await createLink(browser, service, 'confidential');
  const receipt = await browser.value('receipt');
  noteKeys(service, receipt);
  await openPage(browser, receipt);
  await browser.untilVisible('burn');
  assert.equal(await browser.text('state'), 'Not opened yet');
  await browser.click('delete');
  assert.equal(await focused(browser), 'cancel');
  await browser.click('cancel');
  assert.equal(await focused(browser), 'delete');
  await browser.click('delete');
  await browser.click('confirm');
  await browser.until('document.getElementById("state").innerText === "Deleted"');
  assert.equal(await browser.isVisible('burn'), false);
  await openPage(browser, link);
  await untilEnded(browser, /^This secret was deleted$/);
});

test('a receipt whose key is added in the address bar is shown with its heading', async () => {
  await createLink(browser, service, 'confidential');
  const receipt = await browser.value('receipt');
  noteKeys(service, receipt);
  await openPage(browser, receipt.replace(/#.*/, ''));
  await browser.until('document.title.startsWith("No such receipt ·")');
  await browser.open(receipt);
  await browser.until('document.getElementById("state").innerText === "Not opened yet"');
  assert.equal(await browser.text('receipt-heading'), 'Receipt');
});

test('the receipt of a secret that was read says when; a wrong address says so', async () => {
  const link = await createLink(browser, service, 'confidential');
  const receipt = await browser.value('receipt');
  noteKeys(service, receipt);
  await reveal(browser, link);
  await openPage(browser, receipt);
  await browser.until('document.getElementById("state").innerText === "Opened"');
  assert.match(await browser.text('opened'), /\d/);
  assert.equal(await browser.text('views'), '1 of 1');
  const unknown = receipt.replace(/#.*/, `#${'A'.repeat(43)}`);
  for (const wrong of [receipt.slice(0, -1), receipt.replace(/#./, '#'), unknown]) {
    await openPage(browser, wrong);
    await browser.until('document.title.startsWith("No such receipt ·")');
    assert.equal(await browser.isVisible('burn'), false);
  }
});

test('a passphrase is asked for at once, and a wrong one uses no read and is said at the field', async () => {
  const link = await createLink(browser, service, 'locked away', 'said by phone');
  assert.equal(await browser.value('made-passphrase'), 'said by phone');
  await openLink(browser, link);
  assert.equal(await browser.isVisible('lock'), true);
  await browser.click('submit');
  await untilFieldProblem(browser, 'passphrase', /^Enter the passphrase\.$/);
  assert.equal(await focused(browser), 'passphrase');
  await browser.press(...'wrong', KEYS.Enter);
  await untilFieldProblem(browser, 'passphrase', /^This passphrase is wrong\. No view was used\.$/);
  assert.equal(await browser.value('passphrase'), 'wrong', 'what was typed is kept');
  assert.equal(await service.reads(idOf(link)), 0);
  await browser.fill('passphrase', 'said by phone');
  await browser.press(KEYS.Enter);
  await browser.untilVisible('revealed');
  assert.equal(await browser.value('text'), 'locked away');
  assert.equal(await browser.value('passphrase'), '', 'the passphrase field is cleared');
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

test('too many wrong passphrases are reported with the time to wait', async () => {
  const { link } = await service.store('locked away', { passphrase: 'said by phone' });
  await openLink(browser, link);
  for (let i = 0; i < 6; i += 1) {
    await browser.run(
      'for (const one of document.querySelectorAll("#problem, .error")) one.textContent = ""',
    );
    await browser.fill('passphrase', `wrong ${i}`);
    await browser.press(KEYS.Enter);
    await untilProblem(
      browser,
      i < 5 ? /wrong/ : /^Too many attempts\. Try again in 1\d minutes\.$/,
    );
  }
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

test('without a connection a passphrase is kept, and neither it nor a view is used up', async () => {
  const { id, link } = await service.store('locked away', {
    passphrase: 'said by phone',
    max_reads: 1,
  });
  await openLink(browser, link);
  await browser.fill('passphrase', 'said by phone');
  await browser.setOffline(true);
  await browser.click('submit');
  await untilProblem(browser, /^The service did not answer\./);
  assert.equal(await browser.value('passphrase'), 'said by phone');
  await browser.setOffline(false);
  assert.equal(await service.reads(id), 0);
  await browser.click('submit');
  await browser.untilVisible('revealed');
});

test('without a connection a receipt says so and deletes nothing', async () => {
  const link = await createLink(browser, service, 'confidential');
  const receipt = await browser.value('receipt');
  noteKeys(service, receipt);
  await openPage(browser, receipt);
  await browser.untilVisible('burn');
  await browser.click('delete');
  await browser.setOffline(true);
  await browser.click('confirm');
  await untilProblem(browser, /^The service did not answer\./);
  assert.equal(await browser.isVisible('confirm'), true);
  await browser.setOffline(false);
  assert.equal(await service.reads(idOf(link)), 0);
  await browser.click('confirm');
  await browser.until('document.getElementById("state").innerText === "Deleted"');
  assert.equal(await browser.isVisible('problem'), false);
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
