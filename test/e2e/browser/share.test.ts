/**
 * Opening a share link, whole, changed on its way, or used, and its receipt, in a real browser; and
 * where its key and its text may not appear.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { keepExpired } from '../../support/expired.ts';
import { assertTabOrder, checkPage } from './accessibility.ts';
import { startBrowser } from './browsers.ts';
import { checkAfterEach, createLink, idOf, openLink, reveal, startService } from './setup.ts';
import { KEYS } from './webdriver.ts';

const service = await startService();
const browser = await startBrowser();
await browser.open(service.url);
await browser.grantPermission('clipboard-read');
checkAfterEach(browser, service);

const READ = 'This secret was already viewed';
const WRONG = 'This link is incomplete or wrong';
const DELETED = 'This secret was deleted';
const pathOf = (link: string) => new URL(link).href.replace(/#.*/, '');
const readsOf = async (link: string) => (await service.row(idOf(link))).reads;
/** For a link that is opened in the same tab. */
const setHash = (hash: string) => browser.run(`location.hash = ${JSON.stringify(hash)}`);

/** @returns a new link and its receipt */
async function createReceipt() {
  const link = await createLink(browser, service, 'confidential');
  return { link, receipt: await browser.value('receipt') };
}

// How all kinds of such links are read: test/unit/secrets/links.test.ts.
test('a link opens as it is or changed by a program, and its key has left the address before', async () => {
  const { link } = await service.store('confidential', { max_reads: 1 });
  for (const given of [
    link,
    `${link.replace('#', '%23')}?utm_source=mail`,
    link.replace('#', '?utm_source=mail&x=%25#'),
  ]) {
    await openLink(browser, given);
    await browser.until(`location.href === ${JSON.stringify(pathOf(link))}`);
    assert.equal((await browser.history()).at(-1), pathOf(link), 'the history has no key either');
    // The tab keeps it for a reload.
    await browser.reload();
    await browser.untilVisible('submit');
  }
  assert.equal((await service.row(idOf(link))).reads, 0, 'loading it reads nothing');
  assert.equal(await reveal(browser), 'confidential');
  assert.equal(await browser.run('return JSON.stringify(history.state)'), '{"isRevealed":true}');
});

test('a link reveals its secret once, and then says that it was read', async () => {
  const { link, receipt } = await createReceipt();
  await openLink(browser, link);
  assert.match(await browser.text('about'), /^It can be opened once, until \S/);
  await checkPage(browser, 'reveal');
  assert.equal(await reveal(browser), 'confidential');
  assert.equal(await browser.focused(), 'revealed-heading');
  assert.match(await browser.text('left'), /^This was the last view\./);
  assert.equal(await browser.isVisible('delete'), false);
  await browser.open(`${service.url}/`);
  await browser.back();
  await browser.untilEnded('You have viewed this secret');
  assert.equal(await browser.value('text'), '', 'going back does not show the secret');
  await browser.load(link);
  await browser.untilEnded(READ);
  assert.match(await browser.text('ended-text'), /opened on .+ If that was not you, tell/);
  await checkPage(browser, 'ended');

  await browser.load(receipt);
  await browser.untilText('state', /^Opened$/);
  assert.match(await browser.text('opened'), /\d/);
  assert.equal(await browser.text('views'), '1 of 1');
});

test('a wrong key, a cut link and a link with a mistake say so without using anything up', async () => {
  const { link, key } = await service.store('still there', { max_reads: 1 });
  await browser.load(link.replace(key, randomBytes(32).toString('base64url')));
  await browser.untilEnded(WRONG);
  const whole = await createLink(browser, service, 'end to end');
  const statuses = () => service.requests('POST /s/{id}/status');
  const before = statuses();
  const last = whole.at(-1) === 'A' ? 'B' : 'A';
  const mistaken = whole.slice(0, -1) + last;
  for (const address of [pathOf(link), link.replace(/\/s\/./, '/s/'), `${link}x`, mistaken]) {
    await browser.load(address);
    await browser.untilEnded(WRONG);
  }
  assert.match(await browser.text('ended-text'), /^Open it again from where you received it: /);
  assert.equal(statuses(), before, 'no request is needed to see it');
  await browser.open(whole);
  await browser.untilVisible('submit');
  assert.equal(await reveal(browser), 'end to end');
  assert.equal(await readsOf(link), 0);
});

test('an expired secret and one that another person reads meanwhile say so', async () => {
  const expired = await keepExpired(service.sql);
  await browser.load(`${service.url}/s/${expired.id}#${expired.secret}`);
  await browser.untilEnded('This link has expired');
  const { id, key, link } = await service.store('contested', { max_reads: 1 });
  await openLink(browser, link);
  assert.equal(await service.decrypt(id, key), 'contested');
  await browser.click('submit');
  await browser.untilEnded(READ);
});

test('a check that ends after the secret was revealed does not hide it', async () => {
  await openLink(browser, (await service.store('only once', { max_reads: 1 })).link);
  await browser.holdFetch();
  await browser.click('submit');
  await browser.until('held.length === 1');
  await setHash(randomBytes(32).toString('base64url'));
  await browser.until('held.length === 2');
  await browser.run('held[0]()');
  await browser.untilVisible('revealed');
  await browser.run('held[1]()');
  await browser.until('answers === 2');
  assert.equal(await browser.isVisible('revealed'), true);
  assert.equal(await browser.value('text'), 'only once');
});

test('what is left after reading, and deleting it at once', async () => {
  const { link } = await service.store('twice', { max_reads: 3 });
  await reveal(browser, link);
  assert.match(await browser.text('left'), /^The link can be opened 2 more times until \S/);
  await checkPage(browser, 'revealed');
  await assertTabOrder(browser);
  await setHash(new URL(link).hash);
  await browser.untilVisible('submit');
  assert.equal(await browser.isVisible('revealed'), false, 'the earlier view has ended');
  await reveal(browser);
  assert.match(await browser.text('left'), /^The link can be opened once more until \S/);
  await browser.click('delete');
  await browser.untilText('left', /^Deleted\./);
  assert.equal(await browser.isVisible('delete'), false);
  assert.equal(await browser.value('text'), 'twice', 'it can still be saved');
  await browser.load(link);
  await browser.untilEnded(DELETED);
});

test('the receipt deletes the secret after a question, but not without a connection', async () => {
  const { link, receipt } = await createReceipt();
  await browser.load(receipt);
  await browser.untilVisible('burn');
  assert.equal(await browser.text('state'), 'Not opened yet');
  await browser.click('delete');
  assert.equal(await browser.focused(), 'cancel');
  await checkPage(browser, 'receipt');
  await browser.click('cancel');
  assert.equal(await browser.focused(), 'delete');
  await browser.click('delete');
  await browser.setOffline(true);
  await browser.click('confirm');
  await browser.untilProblem(/^The service did not answer\./);
  assert.equal(await browser.isVisible('confirm'), true);
  await browser.setOffline(false);
  await browser.click('confirm');
  await browser.untilText('state', /^Deleted$/);
  for (const id of ['burn', 'problem']) assert.equal(await browser.isVisible(id), false);
  await browser.load(link);
  await browser.untilEnded(DELETED);
});

test('a wrong receipt says so, and one whose key is added in the address bar is shown', async () => {
  const { receipt } = await createReceipt();
  const unknown = receipt.replace(/#.*/, `#${'A'.repeat(43)}`);
  for (const wrong of [receipt.slice(0, -1), unknown, pathOf(receipt)]) {
    await browser.load(wrong);
    await browser.untilTitle('No such receipt');
    assert.equal(await browser.isVisible('burn'), false);
  }
  assert.match(await browser.text('about'), /open the link that you kept\.$/);
  await browser.open(receipt);
  await browser.untilText('state', /^Not opened yet$/);
  assert.equal(await browser.text('receipt-heading'), 'Receipt');
});

test('a passphrase is asked for at once, and a wrong one uses no read and is said at the field', async () => {
  const link = await createLink(browser, service, 'locked away', 'said by phone');
  await browser.load(link);
  await browser.untilVisible('lock');
  await assertTabOrder(browser);
  // As a program does that looks for what a link leads to.
  await browser.run('for (const one of document.querySelectorAll("button")) one.click()');
  await browser.untilFieldProblem('passphrase', /^Enter the passphrase\.$/);
  assert.equal(await browser.focused(), 'passphrase');
  await browser.press(...'wrong', KEYS.Enter);
  await browser.untilFieldProblem('passphrase', /^This passphrase is wrong\. No view was used\.$/);
  assert.equal(await browser.value('passphrase'), 'wrong', 'what was typed is kept');
  await checkPage(browser, 'reveal-locked');
  await browser.fill('passphrase', 'said by phone');
  await browser.setOffline(true);
  await browser.click('submit');
  await browser.untilProblem(
    /^The service did not answer\..* If a view was under way, it may have been used up\.$/,
  );
  await browser.setOffline(false);
  assert.equal(await readsOf(link), 0);
  await browser.click('submit');
  await browser.untilVisible('revealed');
  assert.equal(await browser.value('text'), 'locked away');
  assert.equal(await browser.value('passphrase'), '');
});

test('too many wrong passphrases are reported with the time to wait', async () => {
  const { link } = await service.store('locked away', { passphrase: 'said by phone' });
  await openLink(browser, link);
  for (let i = 0; i < 6; i += 1) {
    await browser.fill('passphrase', `wrong ${i}`);
    await browser.press(KEYS.Enter);
    await browser.until('document.getElementById("submit").ariaBusy === null');
  }
  await browser.untilProblem(/^Too many attempts\. Try again in 1\d minutes\.$/);
});

const MIXED = 'first\r\nsecond \t\n\n third\r \r\n  ';

test('a text is copied and saved as it was sent: line ends, a byte order mark, one newline', async () => {
  for (const text of [MIXED, '\ufeffone', '\n', '\u0000\u2028']) {
    await reveal(browser, (await service.store(text)).link);
    assert.equal(String((await browser.saveFile())[1]), text);
  }
  await reveal(browser, (await service.store(MIXED)).link);
  await browser.click('copy');
  await browser.untilText('copy', /^Copied$/);
  assert.equal(await browser.clipboard(), MIXED);
});
