/** Opening a share link, whole, damaged or used, and its receipt, in a real Chromium. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { startBrowser } from './browsers.ts';
import {
  checkAfterEach,
  createLink,
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
const browser = await startBrowser();
checkAfterEach(browser, service);

/** No view was used. */
const READ = /^This secret was already viewed$/;
const WRONG = /^This link is incomplete or wrong$/;

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
