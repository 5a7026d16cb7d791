/** The share pages over HTTP. `make e2e NAME=browser` tests them in a browser. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { ask, launch, startGatehouse } from '../../support/gatehouse.ts';
import {
  assertAllLoaded,
  assertElements,
  assertNothingForeign,
  pagesOf,
  scriptsOf,
  testServed,
} from '../../support/page-assertions.ts';
import { secretsClient } from '../../support/secrets.ts';
import { wordsOf } from '../../support/words.ts';

const {
  sql,
  databaseUrl,
  secrets: base,
} = await launch(['secrets'], {
  SHARE_PAGES: 'on',
  LOG_LEVEL: 'debug',
  TRUSTED_PROXIES: '127.0.0.1',
});
const pages = pagesOf('secrets');

const readsOf = async (id: string) => {
  const [row] =
    await sql`select reads::int, failed_reads::int as failed, ending from secrets.secrets where id = ${id}`;
  return { ...row };
};

const SCRIPTS = wordsOf(`
  make reveal receipt request kept-request answer links states access confirm content envelope form
  opening request-keys page qr
`);
const FILES: ReadonlyArray<readonly [path: string, file: string]> = [
  ['/', 'make.html'],
  [`/s/${randomUUID()}`, 'reveal.html'],
  ['/s/not-an-id', 'reveal.html'],
  ['/pages/style.css', 'style.css'],
  [`/r/${randomUUID()}`, 'receipt.html'],
  ['/links', 'links.html'],
  ['/request', 'request.html'],
  [`/request/${randomUUID()}`, 'kept-request.html'],
  [`/answer/${randomUUID()}`, 'answer.html'],
  ...SCRIPTS.map((name) => [`/pages/${name}.js`, `${name}.js`] as const),
];

test('without SHARE_PAGES: every page is 404', async (t) => {
  const { url } = await startGatehouse(t, ['secrets'], databaseUrl);
  const { id, secret } = await secretsClient(url.secrets).keep('without share pages');
  for (const [method, path] of [
    ...FILES.map(([path]) => ['GET', path] as const),
    ['HEAD', '/'],
    ['GET', `/s/${id}`],
    ['POST', `/s/${id}`],
  ] as const) {
    // Every service has the files that pages share.
    if (/^\/pages\/(style\.css|page\.js|qr\.js)$/.test(path)) continue;
    const answer = await ask(
      method,
      url.secrets + path,
      method === 'POST' ? { body: { secret } } : {},
    );
    assert.equal(answer.status, 404, path);
    if (method !== 'HEAD') assert.equal(answer.json.error.code, 'no_such_path', path);
  }
  assert.deepEqual(await readsOf(id), { reads: 0, failed: 0, ending: null });
});

const NOT_FOUND = wordsOf(`
  /pages/ /pages /pages/x.js /pages/STYLE.css /pages/style.css.map /pages/make.html
  /pages/reveal.html /pages/style.css%00 /pages/%00 /pages/..%2f..%2fpackage.json
  /pages/..%2fpages.ts /pages/%2e%2e%2froutes.ts /pages/..%5croutes.ts /pages/../../package.json
  /pages/.. /pages/%2e%2e /pages/./style.css /pages//style.css /pages/style.css/x /pages/constructor
  /pages/__proto__ /pages/toString /pages/%2fetc%2fpasswd /s /s/ /s/a/b
`);
testServed(base, pages, FILES, NOT_FOUND);

const NAMES = pages.names.filter((name) => name.endsWith('.html'));

test('every file that a page loads is served, and no other', async () => {
  for (const name of assertAllLoaded(pages, NAMES))
    assert.equal((await ask('GET', `${base}/pages/${name}`)).status, 200, name);
});

test('no page has inline or third-party content, or turns text into markup', () => {
  for (const name of NAMES) assertNothingForeign(pages, name, /^(#main|\/(request|links)?)$/);
  assert.doesNotMatch(pages.read('style.css'), /url\(|@import|@font-face|expression|\/\//);
});

test('every element that a script uses exists in its pages with the expected type', () => {
  const without = /^(states|address|qr|envelope|form|link|request-keys|reveal)\.js$/;
  for (const name of NAMES) assertElements(pages, name, scriptsOf(pages, name), without);
});
