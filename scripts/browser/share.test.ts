/** The share pages in a real Chromium: what those see who make a secret, and those who have a link, or a piece of one. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { AUTH_TOKEN } from '../../test/support/gatehouse.ts';
import { complaint, enterToken, focused, hush, make, reveal, startChromium, startService, visit, watch } from './house.ts';
import { KEYS } from './webdriver.ts';

const service = await startService();
const narrow = await startService({ SECRET_TTL_MAX: '3600', SECRET_READS_MAX: '1' });
const usual = await startService({ SECRET_READS: '1' });
const browser = await startChromium();
watch(browser, service, narrow, usual);

test('a secret that is made here is revealed by its link, once, and the second time is told in clear words', async () => {
  const link = await make(browser, service, 'hush, "ß" & <b>名前</b>');
  assert.match(link, new RegExp(`^${service.url}/s/[0-9a-f-]{36}#[A-Za-z0-9_-]{43}$`));
  assert.match(await browser.text('made'), /It can be read once, until \S/);
  assert.equal(await browser.isShown('locked'), false);
  assert.equal(await reveal(browser, link), 'hush, "ß" & <b>名前</b>');
  assert.equal(await focused(browser), 'revealed-heading');
  await visit(browser, link);
  await browser.click('submit');
  await complaint(browser, /^This link opens nothing any more: the secret has been read, has expired or was deleted, .* tell the sender, and ask for a new one\.$/);
  assert.equal(await browser.isShown('revealed'), false);
});

test('a wrong key is told in clear words and uses nothing up', async () => {
  const { id, link, key } = await service.keep('still there', { max_reads: 1 });
  await visit(browser, link.replace(key, randomBytes(32).toString('base64url')));
  await browser.click('submit');
  await complaint(browser, /^This link opens nothing any more: .*or the link was changed on its way\./);
  assert.equal(await service.reads(id), 0);
  assert.equal(await reveal(browser, link), 'still there');
});

test('a link that was cut off says so without asking the service, and the whole one opens in the same window', async () => {
  const { link, key } = await service.keep('whole', { max_reads: 1 });
  const asked = service.log().filter(({ route }) => route === 'POST /s/{id}').length;
  for (const cut of [link.replace(`#${key}`, ''), link.slice(0, -key.length), link.slice(0, -1), `${link}.`, link.replace(/\/s\/./, '/s/')]) {
    await visit(browser, cut);
    await complaint(browser, /^This link is not whole: .* Open it again exactly as it was sent, or ask for a new one\.$/);
    assert.equal(await browser.isEnabled('submit'), false);
  }
  await visit(browser, link.slice(0, -1));
  await complaint(browser, /not whole/);
  await browser.open(link);
  assert.equal(await browser.isShown('problem'), false);
  assert.equal(service.log().filter(({ route }) => route === 'POST /s/{id}').length, asked);
  await browser.click('submit');
  await browser.seen('revealed');
  assert.equal(await browser.value('text'), 'whole');
});

test('what has expired or was deleted is told in clear words', async () => {
  const deleted = await service.keep('gone');
  await service.remove(deleted.id);
  for (const { link } of [deleted, await service.keepExpired()]) {
    await visit(browser, link);
    await browser.click('submit');
    await complaint(browser, /^This link opens nothing any more: the secret has been read, has expired or was deleted/);
  }
});

test('a passphrase is asked for, a wrong one uses nothing up, the right one opens', async () => {
  const link = await make(browser, service, 'locked away', 'said by phone');
  assert.match(await browser.text('locked'), /^The passphrase is needed as well\. Do not send it along with the link\.$/);
  await visit(browser, link);
  assert.equal(await browser.isShown('lock'), false);
  await browser.click('submit');
  await complaint(browser, /^The sender has locked this secret with a passphrase\. Enter it and press the button again\.$/);
  assert.equal(await focused(browser), 'passphrase');
  await browser.press(...'wrong', KEYS.Enter);
  await complaint(browser, /^This passphrase is wrong\. Nothing was used up: check it and try again\.$/);
  await browser.fill('passphrase', 'said by phone');
  await browser.press(KEYS.Enter);
  await browser.seen('revealed');
  assert.equal(await browser.value('text'), 'locked away');
  assert.equal(await browser.value('passphrase'), '', 'it stays nowhere on the page');
});

test('too many wrong passphrases are told with the time to wait', async () => {
  const { link } = await service.keep('locked away', { passphrase: 'said by phone' });
  await visit(browser, link);
  await browser.click('submit');
  await complaint(browser, /locked/);
  for (let i = 0; i < 6; i += 1) {
    await hush(browser);
    await browser.fill('passphrase', `wrong ${i}`);
    await browser.press(KEYS.Enter);
    await complaint(browser, i < 5 ? /wrong/ : /^Too many attempts have failed\. Try again in 1\d minutes\.$/);
  }
});

test('an access token that is not the right one is told as soon as it is entered, and no more once it is', async () => {
  await visit(browser, `${service.url}/`);
  await browser.fill('token', 'wrong');
  await browser.press(KEYS.Tab);
  await complaint(browser, /^This access token is not the right one\. Ask the operator of this service for it\.$/);
  await hush(browser);
  await browser.fill('secret', 'hush');
  await browser.click('submit');
  await complaint(browser, /access token/);
  assert.equal(await browser.value('secret'), 'hush', 'what was typed is still there');
  await browser.fill('token', AUTH_TOKEN);
  await browser.click('submit');
  await browser.seen('made');
  assert.equal(await browser.isShown('problem'), false);
});

test('the form offers what the operator allows, and says what is not', async () => {
  await visit(browser, `${narrow.url}/`);
  await browser.fill('token', AUTH_TOKEN);
  await browser.press(KEYS.Tab);
  await browser.until('document.getElementById("max-reads").max === "1"');
  await browser.fill('secret', 'hush');
  const choices = await browser.run('return [...document.getElementById("expires-in").options].map(({ value, disabled }) => [value, disabled])');
  assert.deepEqual(choices, [['', false], ['3600', false], ['86400', true], ['604800', true], ['2592000', true]]);
  assert.equal(await browser.value('expires-in'), '3600');
  await browser.fill('max-reads', '2');
  await browser.click('submit');
  assert.equal(await browser.run('return document.getElementById("make").checkValidity()'), false);
  assert.equal(await browser.isShown('made'), false);
  await browser.fill('max-reads', '1');
  await browser.click('submit');
  await browser.seen('made');
  narrow.keys.add(new URL(await browser.value('link')).hash.slice(1));
});

test('what the service refuses is told by the names that the form has', async () => {
  await visit(browser, `${service.url}/`);
  await enterToken(browser, AUTH_TOKEN);
  await browser.run('document.getElementById("secret").value = "x".repeat(32769)');
  await browser.click('submit');
  await complaint(browser, /^The secret must have at most 32768 bytes in UTF-8\.$/);
  await browser.run('document.getElementById("secret").value = "x".repeat(70000)');
  await browser.click('submit');
  await complaint(browser, /^The request body is too large\./);
});

test('a refusal stays to be read, however late the answer comes that says what is allowed', async () => {
  await visit(browser, `${service.url}/`);
  // The token is entered last: its answer and that to the button are on their way together.
  await browser.run('const real = fetch; globalThis.fetch = (path, wish) => (path.endsWith("options") ? new Promise((go) => (globalThis.release = go)).then(() => real(path, wish)) : real(path, wish))');
  await browser.run('document.getElementById("secret").value = "x".repeat(32769)');
  await browser.fill('token', AUTH_TOKEN);
  await browser.click('submit');
  await complaint(browser, /^The secret must/);
  await browser.run('release()');
  await browser.until('performance.getEntriesByName(location.origin + "/api/store/options").length > 0');
  assert.equal(await browser.isShown('problem'), true);
});

test('a service that does not answer is told, with what may have become of the secret', async () => {
  const { link } = await service.keep('lost on the way');
  await visit(browser, link);
  await browser.chromium('Network.enable', {});
  await browser.chromium('Network.emulateNetworkConditions', { offline: true, latency: 0, downloadThroughput: 0, uploadThroughput: 0 });
  await browser.click('submit');
  await complaint(browser, /^The service did not answer\. Check the connection and try again\. If the secret could be read only once, this may have been that time\.$/);
  await browser.chromium('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
  const told = (await browser.log()).map(({ message }) => message);
  assert.ok(told.every((message) => message.includes('ERR_INTERNET_DISCONNECTED')), told.join('\n'));
  await browser.click('submit');
  await browser.seen('revealed');
});

test('what is said about the link is so where the service has a number of reads of its own', async () => {
  await visit(browser, `${usual.url}/`);
  await browser.fill('token', AUTH_TOKEN);
  await browser.fill('secret', 'hush');
  await browser.fill('max-reads', '');
  await browser.click('submit');
  await browser.seen('made');
  assert.match(await browser.text('made'), /It can be read once,/);
});

test('a link whose id was mangled is told in words for people', async () => {
  const { link, id } = await service.keep('mangled');
  await visit(browser, link.replace(id, `${id.slice(1, 9)}-${id.slice(9)}`));
  if (await browser.isEnabled('submit')) await browser.click('submit');
  await complaint(browser, /./);
  assert.doesNotMatch(await browser.text('problem'), /UUID|\/id/);
});

