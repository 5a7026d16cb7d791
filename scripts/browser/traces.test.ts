/** The share pages in a real Chromium: where link, key and secret go, and where they do not. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { AUTH_TOKEN } from '../../test/support/gatehouse.ts';
import { until } from '../../test/support/until.ts';
import { findProgram } from '../programs.ts';
import { complaint, focused, make, PLAIN_HOST, reveal, startChromium, startService, troubles, visit, watch } from './house.ts';
import { KEYS } from './webdriver.ts';

const service = await startService();
const browser = await startChromium();
await browser.open(service.url);
await browser.permit('clipboard-read');
watch(browser, service);

const clipboard = (): Promise<string> => browser.runAsync('return navigator.clipboard.readText()');

test('the QR code is the link', async () => {
  const link = await make(browser, service, 'hush');
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-qr-'));
  try {
    writeFileSync(join(directory, 'qr.png'), await browser.picture('qr'));
    const read = execFileSync(findProgram('zbarimg') ?? 'zbarimg', ['--quiet', '--raw', join(directory, 'qr.png')], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    assert.equal(read.trim(), link);
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test('loading, reloading and fetching ahead reveal nothing and change nothing', async (t) => {
  const { id, link } = await service.keep('not yet', { max_reads: 1 });
  const before = await service.row(id);
  const loads = () => service.log().filter(({ route, status }) => route === 'GET /s/{id}' && status === 200).length;
  const first = loads();
  await visit(browser, link);
  await browser.reload();
  await browser.reload();
  await until(() => loads() === first + 3, 'three loads');
  assert.equal(await browser.isShown('revealed'), false);
  // As a mail program would whose messages are pages of another origin.
  const html = `<!doctype html><title>mail</title><link rel="icon" href="data:,"><link rel="prefetch" href="${link}"><a href="${link}">a secret</a>`;
  const mail = createServer((_request, response) => void response.setHeader('Content-Type', 'text/html').end(html)).listen(0, '127.0.0.1');
  await once(mail, 'listening');
  t.after(() => void mail.close().closeAllConnections());
  const address = mail.address();
  await visit(browser, `http://localhost:${typeof address === 'object' ? address?.port : 0}/`);
  await until(() => loads() === first + 4, 'the fetch ahead');
  assert.equal(await service.row(id), before);
  await browser.until('document.title === "mail"');
  assert.deepEqual((await troubles(browser)).filter((text) => !text.endsWith('net::ERR_BLOCKED_BY_RESPONSE.NotSameOrigin')), [], 'and what was fetched is kept from the other page');
  assert.equal(await reveal(browser, link), 'not yet');
});

test('once it is revealed the key is neither in the address nor anywhere in the window\'s history', async () => {
  const { id, link, key } = await service.keep('revealed');
  await reveal(browser, link);
  assert.equal(await browser.address(), `${service.url}/s/${id}`);
  const { entries } = await browser.chromium('Page.getNavigationHistory', {});
  assert.deepEqual(entries.filter(({ url }: { url: string }) => url.includes(key)), []);
  await browser.open(`${service.url}/`);
  await browser.back();
  assert.equal(await browser.address(), `${service.url}/s/${id}`);
  assert.equal(await browser.value('text'), '', 'going back shows nothing');
  assert.equal(await browser.isShown('revealed'), false);
});

const COPIED = 'document.getElementById("status").innerText === "Copied."';
const EXACT = 'first\r\nsecond \t\n\n third\r \r\n  ';

test('the copy buttons copy exactly: the link, and a text with the ends of its lines', async () => {
  const link = await make(browser, service, 'hush');
  await browser.click('copy');
  await browser.until(COPIED);
  assert.equal(await clipboard(), link);
  const exact = await service.keep(EXACT);
  await reveal(browser, exact.link);
  await browser.click('copy');
  await browser.until(COPIED);
  assert.equal(await clipboard(), EXACT);
});

test('where the browser does not let a page copy, it says what to do instead, and that works', async () => {
  const { link } = await service.keep('by hand');
  const plain = link.replace('localhost', PLAIN_HOST);
  assert.equal(await reveal(browser, plain), 'by hand');
  await browser.click('copy');
  await browser.until('/^Selected\\. Copy it with Ctrl\\+C/.test(document.getElementById("status").innerText)');
  await browser.press([KEYS.Control, 'c']);
  for (const trouble of await troubles(browser)) assert.match(trouble, /The Cross-Origin-Opener-Policy header has been ignored, because the URL's origin was untrustworthy/);
  await visit(browser, `${service.url}/`);
  assert.equal(await clipboard(), 'by hand');
});

test('after "Make another" the token is still there and nothing of the secret before', async () => {
  await make(browser, service, 'hush', 'said by phone');
  await browser.click('copy');
  await browser.until(COPIED);
  await browser.click('again');
  await browser.seen('make');
  assert.equal(await focused(browser), 'make-heading');
  const values = await Promise.all(['token', 'secret', 'passphrase', 'link'].map((id) => browser.value(id)));
  assert.deepEqual(values, [AUTH_TOKEN, '', '', '']);
  assert.equal(await browser.run('return document.querySelectorAll("svg").length'), 0);
  assert.equal(await browser.text('status'), '', 'nor does it still say that something was copied');
});

test('a link that was revealed here does not say, when it is loaded again, that something is missing', async () => {
  await reveal(browser, (await service.keep('revealed')).link);
  await browser.reload();
  await complaint(browser, /./);
  assert.doesNotMatch(await browser.text('problem'), /missing at its end|not whole/);
});

test('the browser would have complained: of a script within the page, for one', async () => {
  await visit(browser, `${service.url}/`);
  await browser.run('document.head.append(Object.assign(document.createElement("style"), { textContent: "body { color: red }" }))');
  assert.match((await troubles(browser)).join('\n'), /violates the following Content Security Policy directive/);
});
