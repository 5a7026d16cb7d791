/**
 * Links in a real Chromium as mail programs leave them: they open, and the key leaves the address
 * at once. Texts and keys come back as they were sent.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { runCommand } from '../../support/commands.ts';
import { AUTH_TOKEN } from '../../support/gatehouse.ts';
import { until } from '../../support/until.ts';
import { startBrowser } from './browsers.ts';
import { checkAppearance } from './accessibility.ts';
import {
  checkAfterEach,
  createLink,
  enterToken,
  noteKeys,
  openPage,
  reveal,
  startService,
  untilEnded,
  untilFieldProblem,
} from './setup.ts';

const service = await startService();
const browser = await startBrowser();
checkAfterEach(browser, service);

// Chromium runs as another user if this process is root.
const files = mkdtempSync(join(tmpdir(), 'gatehouse-links-'));
chmodSync(files, 0o777);
after(() => rmSync(files, { recursive: true }));

/**
 * The addresses that a browser opens after a program has changed the link. How such links are read:
 * test/unit/secrets/links.test.ts.
 */
const CHANGES: Readonly<Record<string, (link: string) => string>> = {
  'as it is': (link) => link,
  'with %23 and parameters': (link) => `${link.replace('#', '%23')}?utm_source=mail`,
  'with parameters before the #': (link) => link.replace('#', '?utm_source=mail&x=%25#'),
  'with a mark of quoted-printable': (link) => `${link.slice(0, -9)}=\r\n${link.slice(-9)}`,
};
const pathOf = (link: string) => new URL(link).href.replace(/#.*/, '');

async function untilAddress(address: string): Promise<void> {
  await browser.until(`location.href === ${JSON.stringify(address)}`);
  assert.equal((await browser.history()).at(-1), address, 'the history has no key either');
}

for (const [what, change] of Object.entries(CHANGES)) {
  test(`a link ${what} opens, and its key has left the address before`, async () => {
    const { link } = await service.store('confidential', { max_reads: 1 });
    const endToEnd = await createLink(browser, service, 'end to end');
    for (const [whole, text] of [
      [link, 'confidential'],
      [endToEnd, 'end to end'],
    ] as const) {
      await openPage(browser, change(whole));
      await browser.untilVisible('submit');
      await untilAddress(pathOf(whole));
      // The tab keeps the key until the secret is shown.
      await browser.reload();
      await browser.untilVisible('submit');
      await browser.click('submit');
      await browser.untilVisible('revealed');
      assert.equal(await browser.value('text'), text);
      assert.equal(
        await browser.run('return JSON.stringify(history.state)'),
        '{"isRevealed":true}',
      );
    }
  });

  test(`receipts and requests open ${what}`, async () => {
    await createLink(browser, service, 'confidential');
    const receipt = await browser.value('receipt');
    noteKeys(service, receipt);
    await openPage(browser, change(receipt));
    await browser.until('document.getElementById("state").innerText === "Not opened yet"');
    await untilAddress(pathOf(receipt));
    assert.equal(await browser.value('address'), receipt);

    const words = ['secret', 'request', 'Password of the shop'];
    const { stdout } = await runCommand(words, { GATEHOUSE_URL: service.url, AUTH_TOKEN });
    const [send = '', keep = ''] = stdout.trimEnd().split('\n');
    noteKeys(service, send, keep);
    await openPage(browser, change(keep));
    await browser.untilVisible('waiting');
    await untilAddress(pathOf(keep));
    assert.deepEqual([await browser.value('link'), await browser.value('own')], [send, keep]);
    await openPage(browser, change(send));
    await browser.untilVisible('content');
    await untilAddress(pathOf(send));
    await browser.fill('secret', 'hunter2');
    await browser.click('submit');
    await browser.untilVisible('sent');
    await openPage(browser, change(keep));
    await browser.untilVisible('submit');
    await browser.reload();
    await browser.untilVisible('submit');
    await browser.click('submit');
    await browser.untilVisible('revealed');
    assert.equal(await browser.value('text'), 'hunter2');
  });
}

test('an address without its key says what to do', async () => {
  const { link } = await service.store('confidential');
  await openPage(browser, pathOf(link));
  await untilEnded(browser, /^This link is incomplete or wrong$/);
  assert.match(await browser.text('ended-text'), /^Open it again from where you received it: /);
  await checkAppearance(browser, 'link-without-key');
  await openPage(browser, pathOf(link).replace('/s/', '/r/'));
  await browser.until('document.title.startsWith("No such receipt ·")');
  assert.match(await browser.text('about'), /open the link that you kept\.$/);
  await createLink(browser, service, 'confidential');
  const receipt = await browser.value('receipt');
  noteKeys(service, receipt);
  await openPage(browser, receipt);
  await browser.untilVisible('own');
  await checkAppearance(browser, 'receipt-with-link');
});

test('the Back button leads to the earlier of two links in one tab', async () => {
  const first = await service.store('the first');
  const second = await service.store('the second');
  await openPage(browser, first.link);
  await browser.untilVisible('submit');
  await browser.open(second.link);
  await browser.untilVisible('submit');
  await browser.back();
  await browser.untilVisible('submit');
  await browser.click('submit');
  await browser.untilVisible('revealed');
  assert.equal(await browser.value('text'), 'the first');
});

test('a program that clicks every button reads a secret, and does not if it has a passphrase', async () => {
  const clickAll = async (link: string) => {
    await openPage(browser, link);
    await browser.untilVisible('submit');
    await browser.run('for (const one of document.querySelectorAll("button")) one.click()');
  };
  const open = await service.store('confidential', { max_reads: 1 });
  await clickAll(open.link);
  await browser.untilVisible('revealed');
  assert.equal(await service.reads(open.id), 1);
  const locked = await service.store('confidential', { max_reads: 1, passphrase: 'by phone' });
  await clickAll(locked.link);
  await untilFieldProblem(browser, 'passphrase', /^Enter the passphrase\.$/);
  assert.equal(await service.reads(locked.id), 0);
});

test('half of a character is refused at its field, and nothing is sent', async () => {
  const requests = () =>
    service.log().filter(({ route }) => /^POST \/api\/store/.test(String(route))).length;
  // As an escape: half of a character has no form in JSON that the driver accepts.
  const type = (id: string, text: string) =>
    browser.run(`document.getElementById('${id}').value = 'a${text}'`);
  const before = requests();
  await openPage(browser, `${service.url}/`);
  await enterToken(browser, AUTH_TOKEN);
  await type('secret', '\\ud83db');
  await browser.click('submit');
  await untilFieldProblem(browser, 'secret', /^This text holds half of a character/);
  await type('secret', '\\ud83d\\udd11');
  await type('passphrase', 'bcd\\udd11');
  await browser.click('submit');
  await untilFieldProblem(browser, 'passphrase', /^This text holds half of a character/);
  await openPage(browser, `${service.url}/request`);
  await enterToken(browser, AUTH_TOKEN);
  await type('title', '\\udd11');
  await browser.click('submit');
  await untilFieldProblem(browser, 'title', /^This text holds half of a character/);
  assert.equal(requests(), before);
});

/** Saves what the page shows. @returns its bytes */
async function saveFile(): Promise<Buffer> {
  const downloads = mkdtempSync(join(files, 'downloads-'));
  chmodSync(downloads, 0o777);
  await browser.saveTo(downloads);
  await browser.click('save');
  const saved = () => readdirSync(downloads).filter((name) => !name.endsWith('.crdownload'));
  await until(() => saved().length === 1, 'the saved file');
  return readFileSync(join(downloads, saved()[0] ?? ''));
}

test('a private key that put has stored is saved by the page byte for byte, and works', async () => {
  const path = join(files, 'id_ed25519');
  execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', path]);
  const key = readFileSync(path);
  for (const [words, input] of [
    [[], key],
    [['--no-end-to-end'], key],
    [['--file', path], ''],
  ] as const) {
    const put = await runCommand(
      ['secret', 'put', ...words],
      { GATEHOUSE_URL: service.url, AUTH_TOKEN },
      input,
    );
    const link = put.stdout.trim();
    noteKeys(service, link);
    await openPage(browser, link);
    await browser.untilVisible('submit');
    await browser.click('submit');
    await browser.untilVisible('revealed');
    const isFile = words.some((word) => word === '--file');
    if (isFile) assert.equal(await browser.text('file-name'), 'id_ed25519');
    assert.deepEqual(await saveFile(), key);
  }
});

test('a text is copied and saved as it was sent: line ends, a byte order mark, one newline', async () => {
  for (const text of ['one\r\ntwo\r\n', '\ufeffone', '\n', '\r\n', 'one\n\n', '\u0000\u2028']) {
    const { link } = await service.store(text);
    await reveal(browser, link);
    assert.equal((await saveFile()).toString(), text);
  }
});
