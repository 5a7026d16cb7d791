/** The share pages in a real Chromium: where link, key and secret may and may not appear. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { AUTH_TOKEN } from '../../support/gatehouse.ts';
import { until } from '../../support/until.ts';
import { findProgram } from '../programs.ts';
import { INSECURE_HOST, startBrowser } from './browsers.ts';
import {
  browserErrors,
  checkAfterEach,
  createLink,
  focused,
  openPage,
  reveal,
  startService,
  untilEnded,
} from './setup.ts';
import { KEYS } from './webdriver.ts';
import { listenOn } from '../../support/ports.ts';

const service = await startService();
const browser = await startBrowser();
await browser.open(service.url);
await browser.grantPermission('clipboard-read');
checkAfterEach(browser, service);

const clipboard = (): Promise<string> => browser.runAsync('return navigator.clipboard.readText()');

test('the QR code encodes the link', async () => {
  const link = await createLink(browser, service, 'confidential');
  await browser.run('document.getElementById("code").open = true');
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-qr-'));
  const file = join(directory, 'qr.png');
  try {
    writeFileSync(file, await browser.screenshot('qr'));
    const decoded = execFileSync(findProgram('zbarimg') ?? 'zbarimg', ['--quiet', '--raw', file], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    assert.equal(decoded.trim(), link);
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test('loading, reloading and prefetching a link reveal and change nothing', async (t) => {
  const { id, link } = await service.store('unread', { max_reads: 1 });
  const before = await service.row(id);
  const loads = () =>
    service.log().filter(({ route, status }) => route === 'GET /s/{id}' && status === 200).length;
  const first = loads();
  await openPage(browser, link);
  await browser.reload();
  await browser.reload();
  await until(() => loads() === first + 3, 'three loads');
  assert.equal(await browser.isVisible('revealed'), false);
  // Stands for a web mail client, whose messages are pages of another origin.
  const html =
    '<!doctype html><title>mail</title><link rel="icon" href="data:,">' +
    `<link rel="prefetch" href="${link}"><a href="${link}">a secret</a>`;
  const mail = createServer((_request, response) => {
    response.setHeader('Content-Type', 'text/html').end(html);
  });
  await openPage(browser, `http://localhost:${await listenOn(t, mail)}/`);
  await until(() => loads() === first + 4, 'the prefetch');
  assert.equal(await service.row(id), before);
  await browser.until('document.title === "mail"');
  // The other page cannot read what it has prefetched.
  const blocked =
    /ERR_BLOCKED_BY_RESPONSE\.NotSameOrigin$|blocked due to its Cross-Origin-Resource/;
  const others = (await browserErrors(browser)).filter((text) => !blocked.test(text));
  assert.deepEqual(others, []);
  assert.equal(await reveal(browser, link), 'unread');
});

test('revealing removes the key from the address and from the history', async () => {
  const { id, link, key } = await service.store('revealed');
  await reveal(browser, link);
  assert.equal(await browser.address(), `${service.url}/s/${id}`);
  assert.ok(!JSON.stringify(await browser.history()).includes(key));
  await browser.open(`${service.url}/`);
  await browser.back();
  assert.equal(await browser.address(), `${service.url}/s/${id}`);
  assert.equal(await browser.value('text'), '', 'going back does not show the secret');
  assert.equal(await browser.isVisible('revealed'), false);
});

const COPIED = 'document.getElementById("copy").innerText === "Copied"';
const EXACT = 'first\r\nsecond \t\n\n third\r \r\n  ';

test('the copy buttons copy the exact link and text, line endings included', async () => {
  const link = await createLink(browser, service, 'confidential');
  await browser.click('copy');
  await browser.until(COPIED);
  assert.equal(await clipboard(), link);
  const exact = await service.store(EXACT);
  await reveal(browser, exact.link);
  await browser.click('copy');
  await browser.until(COPIED);
  assert.equal(await clipboard(), EXACT);
});

test('without clipboard access the page selects the text and says how to copy it', async () => {
  const { link } = await service.store('by hand');
  assert.equal(await reveal(browser, link.replace('localhost', INSECURE_HOST)), 'by hand');
  await browser.click('copy');
  await browser.until('document.getElementById("copy").innerText === "Selected: press Ctrl+C"');
  await browser.press([KEYS.Control, 'c']);
  const ignored =
    /The Cross-Origin-Opener-Policy header has been ignored, because the URL's origin was untrustworthy/;
  for (const error of await browserErrors(browser)) assert.match(error, ignored);
  await openPage(browser, `${service.url}/`);
  assert.equal(await clipboard(), 'by hand');
});

test('"Create another link" keeps the token and clears everything about the last secret', async () => {
  await createLink(browser, service, 'confidential', 'said by phone');
  await browser.click('again');
  await browser.untilVisible('make');
  assert.equal(await focused(browser), 'make-heading');
  const values = await Promise.all(
    ['token', 'secret', 'passphrase', 'link', 'receipt', 'made-passphrase'].map((id) =>
      browser.value(id),
    ),
  );
  assert.deepEqual(values, [AUTH_TOKEN, '', '', '', '', '']);
  assert.equal(await browser.run('return document.querySelectorAll("svg").length'), 0);
});

test('reloading a revealed link does not report a truncated link', async () => {
  await reveal(browser, (await service.store('revealed')).link);
  await browser.reload();
  await untilEnded(browser, /^You have viewed this secret$/);
});

test('the browser reports an inline style as a policy violation', async () => {
  await openPage(browser, `${service.url}/`);
  await browser.run(`
    const style = document.createElement('style');
    style.textContent = 'body { color: red }';
    document.head.append(style);`);
  assert.match(
    (await browserErrors(browser)).join('\n'),
    /violates the following (Content Security Policy )?directive/,
  );
});
