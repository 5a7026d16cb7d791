/**
 * Requests for a secret in two browsers and on the command line: asking, answering once, reading,
 * withdrawing, and links that were cut or altered.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { createRequest } from '../../../src/secrets/pages/request-keys.js';
import { tagAnew } from '../../support/secret-requests.ts';
import { runCommand } from '../../support/commands.ts';
import { checkPage } from './accessibility.ts';
import { INSECURE_HOST, startBrowser } from './browsers.ts';
import { checkAfterEach, idOf, openForm, reveal, startService, submitForm } from './setup.ts';
import { KEYS } from './webdriver.ts';

const service = await startService();
const asker = await startBrowser();
const answerer = await startBrowser();
checkAfterEach(asker, service);
checkAfterEach(answerer, service);

const TITLE = 'Password of the shop';
const WITHDRAWN = 'This request was withdrawn';

/** @returns the link to send and the link to keep */
async function askFor(kind: 'text' | 'file' = 'text') {
  await openForm(asker, `${service.url}/request`);
  await asker.fill('title', TITLE);
  await asker.click(`kind-${kind}`);
  return { send: await submitForm(asker), keep: await asker.value('keep') };
}

async function openRequest(send: string): Promise<void> {
  await answerer.load(send);
  await answerer.untilVisible('content');
}

async function openKept(keep: string): Promise<void> {
  await asker.load(keep);
  await asker.untilVisible('waiting');
}

async function send(text: string): Promise<void> {
  await answerer.run('document.getElementById("secret").value = arguments[0]', text);
  await answerer.click('submit');
}

async function answerByCommand(link: string): Promise<void> {
  const { code, stderr } = await runCommand(['secret', 'answer'], {}, `${link}\nhunter2`);
  assert.equal(code, 0, stderr);
}

test('the kept link shows the answer while it is open, once', async () => {
  const links = await askFor();
  await checkPage(asker, 'request-made');
  await openKept(links.keep);
  const shown = [await asker.address(), await asker.value('link'), await asker.value('own')];
  assert.deepEqual(shown, [links.keep.replace(/#.*/, ''), links.send, links.keep]);
  await checkPage(asker, 'request-waiting');
  await openRequest(links.send);
  assert.equal(await answerer.text('title'), TITLE);
  const text = randomBytes(16 * 1_024).toString('hex');
  await send(text);
  await answerer.untilVisible('sent');
  await checkPage(answerer, 'answer-sent');
  await asker.untilHeading('The answer has come');
  await checkPage(asker, 'request-answered');
  assert.ok((await reveal(asker)) === text);
  await asker.reload();
  await asker.untilEnded('You have viewed this secret');
  await answerer.load(links.send);
  await answerer.untilEnded('This request already has an answer');
  await asker.load(links.keep);
  await asker.untilHeading('Receipt');
  await asker.untilText('state', /^Opened$/);
});

test('a file at the limit that is dropped on the page that answers is sent', async () => {
  const links = await askFor('file');
  await openRequest(links.send);
  await answerer.dropFiles('file', 1_048_576);
  await answerer.click('submit');
  await answerer.untilVisible('sent');
  await reveal(asker, links.keep);
  const [name, bytes] = await asker.saveFile();
  assert.ok(name === '7.bin' && bytes.equals(Buffer.alloc(1_048_576, 7)));
});

test('a request is withdrawn only if the service says that it is open, and takes no answer', async () => {
  const links = await askFor();
  await openRequest(links.send);
  await openKept(links.keep);
  // An answer may have come.
  await asker.run(`
    window.realFetch = fetch;
    window.deletions = 0;
    window.fetch = async (address, options) => {
      if (String(address).endsWith('/delete')) window.deletions += 1;
      else throw new TypeError('no connection');
      return realFetch(address, options);
    };`);
  await asker.click('withdraw');
  await asker.click('confirm');
  await asker.untilVisible('problem');
  await asker.until('document.getElementById("confirm").ariaBusy === null');
  assert.equal(await asker.run('return deletions'), 0);
  await asker.run('window.fetch = realFetch');
  await asker.click('confirm');
  await asker.untilEnded(WITHDRAWN);
  await send('too late');
  await answerer.untilEnded(WITHDRAWN);
});

test('an answer found by "Withdraw" stays on the page after it was revealed', async () => {
  const links = await askFor();
  await openKept(links.keep);
  // The next poll waits until the page is shown again.
  await asker.run(`
    window.isAway = true;
    window.checks = 0;
    Object.defineProperty(document, 'hidden', {
      get() {
        window.checks += 1;
        return window.isAway;
      },
    });`);
  await asker.until('checks > 0');
  await answerByCommand(links.send);
  await asker.click('withdraw');
  await asker.click('confirm');
  await asker.untilVisible('submit');
  assert.equal(await reveal(asker), 'hunter2');
  // The poll would change the page before it waits for anything.
  const polled = await asker.runAsync(`
    const before = checks;
    isAway = false;
    document.dispatchEvent(new Event('visibilitychange'));
    await new Promise((resolve) => setTimeout(resolve));
    return checks - before;`);
  assert.equal(polled, 1);
  await asker.untilHeading('The answer');
  assert.equal(await asker.isVisible('revealed'), true);
});

test('cut and foreign links say so', async () => {
  const { send, keep } = await askFor();
  const { hash } = new URL((await askFor()).send);
  for (const address of [send.slice(0, -1), send.replace(/#.*/, hash), keep.slice(0, -1)]) {
    await asker.load(address);
    await asker.untilEnded('This link is incomplete or wrong');
  }
});

/** Alters the request of a link, as a service can: its tag is right. */
async function alter(link: string, change: Readonly<{ public_key: string }>): Promise<void> {
  const id = idOf(link);
  await service.sql`update secrets.requests set ${service.sql(change)} where id = ${id}`;
  await tagAnew(service.sql, id);
}

// That kind and title are compared as well: test/unit/vectors/request-keys.test.ts.
test('a service that swaps the public key is noticed by both pages', async () => {
  const altered = 'This request was altered';
  // With its own digest, as a link to send would have it.
  const { request } = await createRequest('text', TITLE);
  const otherKey = { public_key: request.public_key };
  const links = await askFor();
  await openKept(links.keep);
  await alter(links.send, otherKey);
  await asker.untilEnded(altered);
  await asker.load(links.keep);
  await asker.untilEnded(altered);
  assert.deepEqual([await asker.value('link'), await asker.text('title')], ['', '']);
  await checkPage(asker, 'request-altered');
  await answerer.load(links.send);
  await answerer.untilEnded(altered);

  const answered = await askFor();
  await answerByCommand(answered.send);
  await alter(answered.send, otherKey);
  await asker.load(answered.keep);
  await asker.untilEnded(altered);
});

test('mistakes are said at their fields, and the forms work by keyboard', async () => {
  await asker.load(`${service.url}/request`);
  await asker.click('submit');
  await asker.untilFieldProblem('token', /^Enter your access token\.$/);
  await openForm(asker, `${service.url}/request`);
  await asker.click('submit');
  await asker.untilFieldProblem('title', /^Enter what you need/);
  // As an escape: half of a character has no form in JSON that the driver accepts.
  await asker.run(`document.getElementById('title').value = 'a\\udd11'`);
  await asker.click('submit');
  await asker.untilFieldProblem('title', /^This text holds half of a character/);
  await checkPage(asker, 'request-form');
  await asker.fill('title', 'x');
  await asker.press(KEYS.Enter);
  await asker.untilVisible('made');
  await openRequest(await asker.value('link'));
  await answerer.click('submit');
  await answerer.untilFieldProblem('secret', /^Enter the text to share\.$/);
  await checkPage(answerer, 'answer-form');
});

test('without HTTPS the pages say so, and offer nothing', async () => {
  const links = await askFor();
  const insecure = (address: string) => address.replace('localhost', INSECURE_HOST);
  await asker.load(insecure(`${service.url}/request`));
  assert.match(await asker.text('insecure'), /^This page was opened without HTTPS\./);
  assert.equal(await asker.isEnabled('submit'), false);
  for (const link of [links.send, links.keep]) {
    await asker.load(insecure(link));
    await asker.untilEnded('This link needs HTTPS');
  }
  // Chromium itself says that it ignores a header there.
  await asker.log();
});
