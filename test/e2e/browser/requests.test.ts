/**
 * Requests for a secret in two Chromium profiles and on the command line, each against each:
 * asking, answering once, reading, withdrawing, and links that were cut or altered.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createRequest } from '../../../src/secrets/pages/request-keys.js';
import { runCommand } from '../../support/commands.ts';
import { AUTH_TOKEN } from '../../support/gatehouse.ts';
import { until } from '../../support/until.ts';
import { INSECURE_HOST, startBrowser } from './browsers.ts';
import {
  checkAfterEach,
  enterToken,
  noteKeys,
  openPage,
  startService,
  untilFieldProblem,
} from './setup.ts';
import { checkAppearance } from './accessibility.ts';
import { KEYS } from './webdriver.ts';

const service = await startService();
const asker = await startBrowser();
const answerer = await startBrowser();
checkAfterEach(asker, service);
checkAfterEach(answerer, service);

// Chromium runs as another user if this process is root.
const files = mkdtempSync(join(tmpdir(), 'gatehouse-requests-'));
chmodSync(files, 0o777);
after(() => rmSync(files, { recursive: true }));

type Links = Readonly<{ send: string; keep: string }>;
type Kind = 'text' | 'file';
const fileOf = (bytes: Buffer) => {
  const path = join(files, `${bytes.length}.bin`);
  writeFileSync(path, bytes, { mode: 0o644 });
  return path;
};
const headingOf = (browser: typeof asker) =>
  browser.run(
    `return [...document.querySelectorAll('h1')].find((one) => one.checkVisibility())?.innerText`,
  );
const untilHeading = (browser: typeof asker, heading: string) =>
  browser.until(`[...document.querySelectorAll('h1')]
    .some((one) => one.checkVisibility() && one.innerText === ${JSON.stringify(heading)})`);

async function askInBrowser(kind: Kind): Promise<Links> {
  await openPage(asker, `${service.url}/request`);
  await enterToken(asker, AUTH_TOKEN);
  await asker.fill('title', 'Password of the shop');
  if (kind === 'file') await asker.click('kind-file');
  await asker.click('submit');
  await asker.untilVisible('made');
  const links = { send: await asker.value('link'), keep: await asker.value('keep') };
  noteKeys(service, links.send, links.keep);
  return links;
}

async function askByCommand(kind: Kind): Promise<Links> {
  const words = [
    'secret',
    'request',
    'Password of the shop',
    ...(kind === 'file' ? ['--file'] : []),
  ];
  const { stdout } = await runCommand(words, { GATEHOUSE_URL: service.url, AUTH_TOKEN });
  const [send = '', keep = ''] = stdout.trimEnd().split('\n');
  noteKeys(service, send, keep);
  return { send, keep };
}

async function answerInBrowser({ send }: Links, kind: Kind, bytes: Buffer): Promise<void> {
  await openPage(answerer, send);
  await answerer.untilVisible('content');
  assert.equal(await answerer.text('title'), 'Password of the shop');
  if (kind === 'file') await answerer.attach('file', fileOf(bytes));
  else
    await answerer.run('document.getElementById("secret").value = arguments[0]', bytes.toString());
  await answerer.click('submit');
  await answerer.untilVisible('sent');
}

async function answerByCommand({ send }: Links, kind: Kind, bytes: Buffer): Promise<void> {
  const words = kind === 'file' ? ['--file', fileOf(bytes)] : [];
  const input = `${send}\n${kind === 'file' ? '' : bytes}`;
  const { code, stderr } = await runCommand(['secret', 'answer', ...words], {}, input);
  assert.equal(code, 0, stderr);
}

async function readInBrowser({ keep }: Links, kind: Kind, bytes: Buffer): Promise<void> {
  await openPage(asker, keep);
  await asker.untilVisible('submit');
  await asker.click('submit');
  await asker.untilVisible('revealed');
  if (kind === 'text') return assert.ok((await asker.value('text')) === bytes.toString());
  const downloads = mkdtempSync(join(files, 'downloads-'));
  chmodSync(downloads, 0o777);
  await asker.saveTo(downloads);
  assert.equal(await asker.text('file-name'), `${bytes.length}.bin`);
  await asker.click('save');
  const isWhole = () =>
    readdirSync(downloads).some((name) => readFileSync(join(downloads, name)).equals(bytes));
  await until(isWhole, 'the saved file with its bytes');
}

async function readByCommand({ keep }: Links, _kind: Kind, bytes: Buffer): Promise<void> {
  const { stdout, stderr } = await runCommand(['secret', 'get'], {}, keep);
  assert.ok(stdout.replace(/\n$/, '') === bytes.toString(), stderr);
}

const ASKERS = {
  browser: { ask: askInBrowser, read: readInBrowser },
  command: { ask: askByCommand, read: readByCommand },
};
const ANSWERERS = { browser: answerInBrowser, command: answerByCommand };
const CONTENTS: ReadonlyArray<readonly [Kind, number]> = [
  ['text', 1],
  ['text', 32 * 1_024],
  ['file', 1_048_576],
];
for (const [from, { ask, read }] of Object.entries(ASKERS)) {
  for (const [by, answer] of Object.entries(ANSWERERS)) {
    test(`asked in a ${from}, answered in a ${by}: 1 byte, 32 KiB, a file at the limit`, async () => {
      for (const [kind, size] of CONTENTS) {
        const bytes = Buffer.from(randomBytes(size).toString('hex').slice(0, size));
        const links = await ask(kind);
        await answer(links, kind, bytes);
        await read(links, kind, bytes);
        await openPage(answerer, links.send);
        await untilHeading(answerer, 'This request already has an answer');
        await openPage(asker, links.keep);
        await untilHeading(asker, 'Receipt');
        await asker.until('document.getElementById("state").innerText === "Opened"');
      }
    });
  }
}

test('the kept link shows the answer while it is open, and a withdrawn request takes none', async () => {
  const links = await askInBrowser('text');
  await checkAppearance(asker, 'request-made');
  await openPage(asker, links.keep);
  await asker.untilVisible('waiting');
  assert.equal(await asker.value('link'), links.send, 'the link to send is shown again');
  await checkAppearance(asker, 'request-waiting');
  await openPage(answerer, links.send);
  await answerer.untilVisible('content');
  await checkAppearance(answerer, 'answer');
  await answerer.fill('secret', 'hunter2');
  await answerer.click('submit');
  await answerer.untilVisible('sent');
  await checkAppearance(answerer, 'answer-sent');
  await asker.untilVisible('submit');
  assert.equal(await headingOf(asker), 'The answer has come');
  await checkAppearance(asker, 'request-answered');
  await asker.click('submit');
  await asker.untilVisible('revealed');
  assert.equal(await asker.value('text'), 'hunter2');
  await checkAppearance(asker, 'request-revealed');
  await asker.reload();
  await untilHeading(asker, 'You have viewed this secret');

  const withdrawn = await askInBrowser('text');
  await openPage(answerer, withdrawn.send);
  await answerer.untilVisible('content');
  await openPage(asker, withdrawn.keep);
  await asker.untilVisible('withdraw');
  // An answer may have come: nothing is deleted unless the service says that the request is open.
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
  await asker.until('!document.getElementById("confirm").disabled');
  assert.equal(await asker.run('return deletions'), 0);
  await asker.run('window.fetch = realFetch');
  await asker.click('confirm');
  await untilHeading(asker, 'This request was withdrawn');
  await checkAppearance(asker, 'request-withdrawn');
  await answerer.fill('secret', 'too late');
  await answerer.click('submit');
  await untilHeading(answerer, 'This request was withdrawn');
});

test('a file that is dropped on the page that answers is sent', async () => {
  const links = await askInBrowser('file');
  await openPage(answerer, links.send);
  await answerer.untilVisible('content');
  await answerer.run(`
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File(['dropped'], '7.bin'));
    const options = { dataTransfer, bubbles: true, cancelable: true };
    document.getElementById('file').dispatchEvent(new DragEvent('drop', options));`);
  await answerer.click('submit');
  await answerer.untilVisible('sent');
  await readInBrowser(links, 'file', Buffer.from('dropped'));
});

test('an answer found by "Withdraw" stays on the page after it was revealed', async () => {
  const links = await askInBrowser('text');
  await openPage(asker, links.keep);
  await asker.untilVisible('waiting');
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
  await answerByCommand(links, 'text', Buffer.from('hunter2'));
  await asker.click('withdraw');
  await asker.click('confirm');
  await asker.untilVisible('submit');
  await asker.click('submit');
  await asker.untilVisible('revealed');
  await asker.run('window.isAway = false; document.dispatchEvent(new Event("visibilitychange"))');
  await sleep(1_000);
  assert.equal(await headingOf(asker), 'The answer');
  assert.equal(await asker.isVisible('revealed'), true);
});

test('cut, altered and foreign links say so, and nothing is sent', async () => {
  const links = await askInBrowser('text');
  const other = await askInBrowser('text');
  const digest = other.send.split('#')[1] ?? '';
  const sent = [
    links.send.slice(0, -1),
    links.send.replace('#1.', '#2.'),
    links.send.replace(/#.*/, `#${digest}`),
  ];
  for (const wrong of sent) {
    await openPage(answerer, wrong);
    await untilHeading(answerer, 'This link is incomplete or wrong');
  }
  for (const wrong of [links.keep.slice(0, -1), links.keep.replace('#1.', '#2.')]) {
    await openPage(asker, wrong);
    await untilHeading(asker, 'This link is incomplete or wrong');
  }
  await checkAppearance(asker, 'request-cut');
});

test('a service that swaps the public key, or what is asked for, is noticed by both pages', async () => {
  const heading = 'This request was altered';
  // With its own digest, as a link to send would have it.
  const other = async () => {
    const { request } = await createRequest('text', 'Password of the shop');
    return { public_key: request.public_key };
  };
  for (const change of [await other(), { title: 'Password of the bank' }, { kind: 'file' }]) {
    const links = await askInBrowser('text');
    await service.alterRequest(links.send, change);
    await openPage(answerer, links.send);
    await untilHeading(answerer, heading);
    await openPage(asker, links.keep);
    await untilHeading(asker, heading);
    assert.equal(await asker.value('link'), '', 'no link to send is shown');
    assert.equal(await asker.text('title'), '');
  }
  await checkAppearance(asker, 'request-altered');

  // While the asker waits, and after an answer has come.
  const links = await askInBrowser('text');
  await openPage(asker, links.keep);
  await asker.untilVisible('waiting');
  await service.alterRequest(links.send, await other());
  await untilHeading(asker, heading);
  assert.equal(await asker.isVisible('waiting'), false);
  const answered = await askInBrowser('text');
  await answerByCommand(answered, 'text', Buffer.from('hunter2'));
  await service.alterRequest(answered.send, await other());
  await openPage(asker, answered.keep);
  await untilHeading(asker, heading);
  assert.equal(await asker.isVisible('reveal'), false);
});

test('mistakes are said at their fields, and the forms work by keyboard', async () => {
  await openPage(asker, `${service.url}/request`);
  await asker.click('submit');
  await untilFieldProblem(asker, 'token', /^Enter your access token\.$/);
  await enterToken(asker, AUTH_TOKEN);
  await asker.click('submit');
  await untilFieldProblem(asker, 'title', /^Enter what you need/);
  await checkAppearance(asker, 'request-form');
  await asker.fill('title', 'x');
  await asker.press(KEYS.Enter);
  await asker.untilVisible('made');
  noteKeys(service, await asker.value('link'), await asker.value('keep'));
  await openPage(answerer, await asker.value('link'));
  await answerer.untilVisible('content');
  await answerer.click('submit');
  await untilFieldProblem(answerer, 'secret', /^Enter the text to share\.$/);
  await checkAppearance(answerer, 'answer-form');
});

test('without HTTPS the pages say so, and offer nothing', async () => {
  const links = await askInBrowser('text');
  const insecure = (address: string) => address.replace('localhost', INSECURE_HOST);
  await openPage(asker, insecure(`${service.url}/request`));
  assert.match(await asker.text('insecure'), /^This page was opened without HTTPS\./);
  assert.equal(await asker.isEnabled('submit'), false);
  for (const link of [links.send, links.keep]) {
    await openPage(asker, insecure(link));
    await untilHeading(asker, 'This link needs HTTPS');
  }
  // Chromium itself says that it ignores a header there.
  await asker.log();
});
