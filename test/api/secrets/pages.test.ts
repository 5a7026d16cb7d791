/** The share pages over HTTP. `make e2e NAME=browser` tests them in a browser. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { ask, launch, startGatehouse } from '../../support/gatehouse.ts';
import { pagesOf, testPages } from '../../support/page-assertions.ts';
import { secretsClient, storedSecret } from '../../support/secrets.ts';
import { wordsOf } from '../../support/words.ts';

const { sql, databaseUrl, secrets: base } = await launch(['secrets'], { SHARE_PAGES: 'on' });

const FILES: ReadonlyArray<readonly [path: string, file: string]> = [
  ['/', 'make.html'],
  [`/s/${randomUUID()}`, 'reveal.html'],
  ['/s/not-an-id', 'reveal.html'],
  [`/r/${randomUUID()}`, 'receipt.html'],
  ['/links', 'links.html'],
  ['/request', 'request.html'],
  [`/request/${randomUUID()}`, 'kept-request.html'],
  [`/answer/${randomUUID()}`, 'answer.html'],
];

testPages(base, pagesOf('secrets'), {
  files: [...FILES, ['/pages/style.css', 'style.css'], ['/pages/qr.js', 'qr.js']],
  notFound: wordsOf(`
    /pages/ /pages /pages/x.js /pages/STYLE.css /pages/style.css.map /pages/make.html
    /pages/style.css%00 /pages/%00 /pages/..%2f..%2fpackage.json /pages/%2e%2e%2froutes.ts
    /pages/..%5croutes.ts /pages/../../package.json /pages/.. /pages/%2e%2e /pages/./style.css
    /pages//style.css /pages/style.css/x /pages/constructor /pages/__proto__ /pages/%2fetc%2fpasswd
    /s /s/ /s/a/b
  `),
  links: /^(#main|\/(request|links)?)$/,
  without: /^(states|address|qr|envelope|form|link|request-keys|reveal)\.js$/,
});

test('without SHARE_PAGES every page is 404, and no link opens', async (t) => {
  const { url } = await startGatehouse(t, ['secrets'], databaseUrl);
  const { id, secret } = await secretsClient(url.secrets).keep('without share pages');
  const before = await storedSecret(sql, id);
  for (const path of [...FILES.map(([one]) => one), '/pages/make.js']) {
    const { status, json } = await ask('GET', url.secrets + path);
    assert.deepEqual([status, json.error.code], [404, 'no_such_path'], path);
  }
  const opened = await ask('POST', `${url.secrets}/s/${id}`, { body: { secret } });
  assert.deepEqual([opened.status, opened.json.error.code], [404, 'no_such_path']);
  assert.deepEqual(await storedSecret(sql, id), before);
});
