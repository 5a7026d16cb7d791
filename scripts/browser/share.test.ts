/** The share pages in a real Chromium: storing a secret, and opening a whole, damaged or used link. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { AUTH_TOKEN } from '../../test/support/gatehouse.ts';
import {
  checkAfterEach, clearProblem, createLink, enterToken, focused, openPage, OPTIONS_LOADED, reveal, startChromium,
  startService, untilProblem,
} from './setup.ts';
import { KEYS } from './webdriver.ts';

const service = await startService();
const restricted = await startService({ SECRET_TTL_MAX: '3600', SECRET_READS_MAX: '1' });
const readOnce = await startService({ SECRET_READS: '1' });
const browser = await startChromium();
checkAfterEach(browser, service, restricted, readOnce);

const GONE = '^This link no longer works\\. '
  + 'The secret was already read, has expired or was deleted, or the link was changed\\.';
const INCOMPLETE = '^This link is incomplete or was changed\\. '
  + 'Open it exactly as you received it, or ask the sender for a new one\\.$';

test('a link reveals its secret once, and explains the second attempt', async () => {
  const link = await createLink(browser, service, 'confidential, "ß" & <b>名前</b>');
  assert.match(link, new RegExp(`^${service.url}/s/[0-9a-f-]{36}#[A-Za-z0-9_-]{43}$`));
  assert.match(await browser.text('made'), /The secret can be read once, until \S/);
  assert.equal(await browser.isVisible('locked'), false);
  assert.equal(await reveal(browser, link), 'confidential, "ß" & <b>名前</b>');
  assert.equal(await focused(browser), 'revealed-heading');
  await openPage(browser, link);
  await browser.click('submit');
  const advice = 'If you have not read the secret, tell the sender and ask for a new link\\.$';
  await untilProblem(browser, new RegExp(`${GONE} ${advice}`));
  assert.equal(await browser.isVisible('revealed'), false);
});

test('a wrong key is reported and uses no read', async () => {
  const { id, link, key } = await service.store('still there', { max_reads: 1 });
  await openPage(browser, link.replace(key, randomBytes(32).toString('base64url')));
  await browser.click('submit');
  await untilProblem(browser, new RegExp(GONE));
  assert.equal(await service.reads(id), 0);
  assert.equal(await reveal(browser, link), 'still there');
});

test('a truncated link is reported without a request, and the whole link then opens', async () => {
  const { link, key } = await service.store('whole', { max_reads: 1 });
  const requests = () => service.log().filter(({ route }) => route === 'POST /s/{id}').length;
  const before = requests();
  const truncated = [link.replace(`#${key}`, ''), link.slice(0, -key.length), link.slice(0, -1)];
  for (const damaged of [...truncated, `${link}.`, link.replace(/\/s\/./, '/s/')]) {
    await openPage(browser, damaged);
    await untilProblem(browser, new RegExp(INCOMPLETE));
    assert.equal(await browser.isEnabled('submit'), false);
  }
  await openPage(browser, link.slice(0, -1));
  await untilProblem(browser, /incomplete/);
  await browser.open(link);
  assert.equal(await browser.isVisible('problem'), false);
  assert.equal(requests(), before);
  await browser.click('submit');
  await browser.untilVisible('revealed');
  assert.equal(await browser.value('text'), 'whole');
});

test('an expired or deleted secret is reported', async () => {
  const deleted = await service.store('deleted');
  await service.remove(deleted.id);
  for (const { link } of [deleted, await service.storeExpired()]) {
    await openPage(browser, link);
    await browser.click('submit');
    await untilProblem(browser, new RegExp(GONE));
  }
});

test('a passphrase is required, and a wrong one uses no read', async () => {
  const link = await createLink(browser, service, 'locked away', 'said by phone');
  const note = /^The recipient also needs the passphrase\. Do not send it together with the link\.$/;
  assert.match(await browser.text('locked'), note);
  await openPage(browser, link);
  assert.equal(await browser.isVisible('lock'), false);
  await browser.click('submit');
  await untilProblem(
    browser, /^This secret is protected by a passphrase\. Enter it, then press the button again\.$/,
  );
  assert.equal(await focused(browser), 'passphrase');
  await browser.press(...'wrong', KEYS.Enter);
  await untilProblem(browser, /^The passphrase is wrong\. No read was used\. Check it and try again\.$/);
  await browser.fill('passphrase', 'said by phone');
  await browser.press(KEYS.Enter);
  await browser.untilVisible('revealed');
  assert.equal(await browser.value('text'), 'locked away');
  assert.equal(await browser.value('passphrase'), '', 'the passphrase field is cleared');
});

test('too many wrong passphrases are reported with the time to wait', async () => {
  const { link } = await service.store('locked away', { passphrase: 'said by phone' });
  await openPage(browser, link);
  await browser.click('submit');
  await untilProblem(browser, /protected by a passphrase/);
  for (let i = 0; i < 6; i += 1) {
    await clearProblem(browser);
    await browser.fill('passphrase', `wrong ${i}`);
    await browser.press(KEYS.Enter);
    await untilProblem(browser, i < 5 ? /wrong/ : /^Too many failed attempts\. Try again in 1\d minutes\.$/);
  }
});

test('a wrong access token is reported at once, until the right one is entered', async () => {
  await openPage(browser, `${service.url}/`);
  await browser.fill('token', 'wrong');
  await browser.press(KEYS.Tab);
  await untilProblem(browser, /^This access token is not valid\. Check it, or ask the operator for a valid one\.$/);
  await clearProblem(browser);
  await browser.fill('secret', 'confidential');
  await browser.click('submit');
  await untilProblem(browser, /access token/);
  assert.equal(await browser.value('secret'), 'confidential', 'the typed secret is kept');
  await browser.fill('token', AUTH_TOKEN);
  await browser.click('submit');
  await browser.untilVisible('made');
  assert.equal(await browser.isVisible('problem'), false);
});

test('the form offers only what the operator allows', async () => {
  await openPage(browser, `${restricted.url}/`);
  await browser.fill('token', AUTH_TOKEN);
  await browser.press(KEYS.Tab);
  await browser.until('document.getElementById("max-reads").max === "1"');
  await browser.fill('secret', 'confidential');
  const choices = await browser.run(
    'return [...document.getElementById("expires-in").options].map(({ value, disabled }) => [value, disabled])');
  assert.deepEqual(choices, [['', false], ['3600', false], ['86400', true], ['604800', true], ['2592000', true]]);
  assert.equal(await browser.value('expires-in'), '3600');
  await browser.fill('max-reads', '2');
  await browser.click('submit');
  assert.equal(await browser.run('return document.getElementById("make").checkValidity()'), false);
  assert.equal(await browser.isVisible('made'), false);
  await browser.fill('max-reads', '1');
  await browser.click('submit');
  await browser.untilVisible('made');
  restricted.keys.add(new URL(await browser.value('link')).hash.slice(1));
});

const setSecretLength = (length: number) =>
  browser.run(`document.getElementById("secret").value = "x".repeat(${length})`);

test('validation errors use the labels of the form', async () => {
  await openPage(browser, `${service.url}/`);
  await enterToken(browser, AUTH_TOKEN);
  await setSecretLength(32_769);
  await browser.click('submit');
  await untilProblem(browser, /^The secret must have at most 32768 bytes in UTF-8\.$/);
  await setSecretLength(70_000);
  await browser.click('submit');
  await untilProblem(browser, /^The request body is too large\./);
});

test('an error stays visible when the reply with the limits arrives after it', async () => {
  await openPage(browser, `${service.url}/`);
  // Entering the token last sends both requests at once; the one for the limits is held back here.
  await browser.run(`
    const real = fetch;
    globalThis.fetch = async (path, options) => {
      if (path.endsWith('options')) await new Promise((resolve) => (globalThis.release = resolve));
      return real(path, options);
    };`);
  await setSecretLength(32_769);
  await browser.fill('token', AUTH_TOKEN);
  await browser.click('submit');
  await untilProblem(browser, /^The secret must/);
  await browser.run('release()');
  await browser.until(OPTIONS_LOADED);
  assert.equal(await browser.isVisible('problem'), true);
});

test('a connection error is reported with what may have happened to the secret', async () => {
  const { link } = await service.store('interrupted');
  await openPage(browser, link);
  await browser.devtools('Network.enable', {});
  const emulate = (offline: boolean, throughput: number) => browser.devtools('Network.emulateNetworkConditions', {
    offline, latency: 0, downloadThroughput: throughput, uploadThroughput: throughput,
  });
  await emulate(true, 0);
  await browser.click('submit');
  const expected = [
    /^The service did not answer\. Check the connection and try again\./,
    /If the secret allowed only one read, that read may have been used\.$/,
  ].map(({ source }) => source).join(' ');
  await untilProblem(browser, new RegExp(expected));
  await emulate(false, -1);
  const messages = (await browser.log()).map(({ message }) => message);
  assert.ok(messages.every((message) => message.includes('ERR_INTERNET_DISCONNECTED')), messages.join('\n'));
  await browser.click('submit');
  await browser.untilVisible('revealed');
});

test('the page states the number of reads that the service sets by default', async () => {
  await openPage(browser, `${readOnce.url}/`);
  await browser.fill('token', AUTH_TOKEN);
  await browser.fill('secret', 'confidential');
  await browser.fill('max-reads', '');
  await browser.click('submit');
  await browser.untilVisible('made');
  assert.match(await browser.text('made'), /The secret can be read once,/);
});

test('a link with a malformed id is reported without technical terms', async () => {
  const { link, id } = await service.store('malformed');
  await openPage(browser, link.replace(id, `${id.slice(1, 9)}-${id.slice(9)}`));
  if (await browser.isEnabled('submit')) await browser.click('submit');
  await untilProblem(browser, /./);
  assert.doesNotMatch(await browser.text('problem'), /UUID|\/id/);
});
