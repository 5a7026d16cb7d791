/**
 * The page at `/` of each service, for people who open its address; programs still get the JSON
 * error.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createDatabase } from '../support/database.ts';
import { ask, startGatehouse } from '../support/gatehouse.ts';
import { PAGE_SECURITY } from '../support/page-assertions.ts';

const { url: databaseUrl } = await createDatabase();
const SITE = { SITE_NAME: 'Example <Ltd>', SITE_COLOR: '#0a7d4b' };
const without = await startGatehouse(
  { after },
  ['identity', 'secrets', 'webhook'],
  databaseUrl,
  SITE,
);
const pages = await startGatehouse({ after }, ['webhook'], databaseUrl, { INBOX_PAGE: 'on' });
const plain = await startGatehouse({ after }, ['webhook'], databaseUrl, {
  WEBHOOK_VARIANT: 'plain',
});
const BROWSER = { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };
const open = (url: string, path = '/') => ask('GET', url + path, { headers: BROWSER });

const UNKNOWN = ['/pages/', '/pages/landing.ts', '/pages/frame.html', '/pages/__proto__', '/other'];

for (const service of ['identity', 'secrets', 'webhook'] as const) {
  test(`${service}: a browser sees what it is and whose, and what it may open`, async () => {
    const { status, text, headers } = await open(without.url[service]);
    assert.equal(status, 200);
    assert.equal(headers.get('content-type'), 'text/html; charset=utf-8');
    for (const [name, value] of Object.entries(PAGE_SECURITY))
      assert.equal(headers.get(name), value, name);
    assert.match(text, new RegExp(`<h1>Gatehouse ${service}</h1>`));
    assert.match(text, /Example &#60;Ltd&#62;/);
    assert.deepEqual(
      [...text.matchAll(/<a href="([^"]+)"/g)].map(([, path]) => path),
      ['/', '/openapi.json'],
    );
    for (const path of ['/pages/style.css', '/pages/site.css', '/pages/logo']) {
      assert.ok(text.includes(`"${path}"`), path);
      assert.equal((await open(without.url[service], path)).status, 200, path);
    }
    assert.match((await open(without.url[service], '/pages/site.css')).text, /--accent: #0a7d4b/);
  });

  test(`${service}: a program gets the JSON error, at this and at every unknown path`, async () => {
    for (const path of ['/', ...UNKNOWN]) {
      for (const accept of ['*/*', 'application/json', '']) {
        const { status, json } = await ask('GET', without.url[service] + path, {
          headers: { accept },
        });
        assert.deepEqual([status, json.error.code], [404, 'no_such_path'], `${path} ${accept}`);
      }
    }
  });

  test(`${service}: a browser gets a page at an unknown path`, async () => {
    for (const path of ['/pages/', '/other', '/other/deeper']) {
      const { status, text, headers } = await open(without.url[service], path);
      assert.equal(status, 404, path);
      assert.match(text, /<h1>There is no such page<\/h1>/, path);
      assert.match(text, /<a href="\/">start page<\/a>/, path);
      for (const [name, value] of Object.entries(PAGE_SECURITY))
        assert.equal(headers.get(name), value, name);
    }
  });
}

test('pages that are switched on are linked', async () => {
  assert.match((await open(pages.url.webhook)).text, /<a href="\/inbox">Inbox<\/a>/);
  assert.equal((await open(plain.url.webhook)).status, 200);
});
