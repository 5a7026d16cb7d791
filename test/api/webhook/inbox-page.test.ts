/** The inbox page over HTTP. `make e2e NAME=browser` tests it in a browser. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { SOURCE_NAMES, SOURCES, type Source } from '../../../src/webhook/sources.ts';
import { ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { openInbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { pagesOf, testPages } from '../../support/page-assertions.ts';
import { wordsOf } from '../../support/words.ts';

const inbox = await openInbox({ after }, { INBOX_PAGE: 'on', LOG_LEVEL: 'debug' });
const { url: base, call } = inbox;
const pages = pagesOf('webhook');
const html = pages.read('inbox.html');
const OPENAPI = (await ask('GET', `${base}/openapi.json`)).json.paths;

testPages(base, pages, {
  files: [
    ['/inbox', 'inbox.html'],
    ['/inbox/', 'inbox.html'],
    ['/inbox?token=whatever', 'inbox.html'],
    ['/pages/style.css', 'style.css'],
    ['/pages/page.js', 'page.js'],
    ['/pages/inbox.css', 'inbox.css'],
  ],
  notFound: wordsOf(`
    /pages/ /pages /pages/x.js /pages/INBOX.js /pages/inbox.js.map /pages/inbox.html /pages/make.js
    /pages/inbox.js%00 /pages/..%2froutes.ts /pages/%2e%2e%2froutes.ts /pages/../routes.ts
    /pages/constructor /pages/__proto__ /inbox/x /Inbox /inbox.html / /s/x
  `),
  links: /^(\/(inbox(\?view=senders)?)?|#main)$/,
  without: /-(format|chart)\.js$/,
  unchecked: 'page.js',
});

test('without INBOX_PAGE the page is 404, and the inbox routes work', async (t) => {
  const without = await openInbox(t);
  for (const path of ['/inbox', '/pages/inbox.js', '/pages/inbox.css']) {
    const { status, json } = await ask('GET', without.url + path);
    assert.deepEqual([status, json.error.code], [404, 'no_such_path'], path);
  }
  const { paths } = (await ask('GET', `${without.url}/openapi.json`)).json;
  assert.ok(Object.keys(paths).every((path) => !path.includes('inbox')));
  assert.equal((await without.call('GET', '/events')).status, 200);
});

test('the page offers every status and every source', () => {
  const sources = html.slice(html.indexOf('by-source'), html.indexOf('by-age'));
  const offered = [...sources.matchAll(/<option>([^<]+)<\/option>/g)].map(([, name]) => name);
  assert.deepEqual(offered, SOURCE_NAMES);
  const statuses = /STATUSES = \[(.*)\]/.exec(pages.read('inbox-state.js'))?.[1]?.match(/\w+/g);
  const { schema } = OPENAPI['/events'].get.parameters.find(
    ({ name }: { name: string }) => name === 'status',
  );
  assert.deepEqual(statuses?.sort(), [...schema.enum].sort());
});

test('the page says of every source what to enter at the sender', () => {
  const form = html.slice(html.indexOf('create-source'), html.indexOf('create-custom'));
  const offered = [...form.matchAll(/<option data-secret="(\w+)">(\w+)<\/option>/g)];
  const secretOf = ({ scheme, sendsSecret }: Source, name: string) => {
    if (scheme === null || name === 'custom') return 'none';
    return sendsSecret ? 'later' : 'needed';
  };
  assert.deepEqual(
    offered.map(([, secret, name]) => [name, secret]),
    SOURCE_NAMES.map((name) => [name, secretOf(SOURCES[name], name)]),
  );
  for (const name of SOURCE_NAMES) {
    const source: Source = SOURCES[name];
    const guide = new RegExp(`<dl data-source="${name}" hidden>([^]*?)</dl>`).exec(html)?.[1] ?? '';
    assert.equal(guide.match(/<dt>/g)?.length, 5, name);
    assert.ok(guide.includes(source.scheme?.header ?? ''), name);
  }
});

test('the page contains no events, and no token is logged', async () => {
  await inbox.send('a marked event');
  const anonymous = await ask('GET', `${base}/inbox`);
  const authenticated = await ask('GET', `${base}/inbox`, { bearer: OPERATOR_TOKEN });
  assert.equal(authenticated.text, anonymous.text);
  assert.ok(!anonymous.text.includes('marked'));
  await call('GET', '/events');
  await ask('GET', `${base}/inbox?token=${OPERATOR_TOKEN}`);
  const written = inbox.gatehouse.stdout() + inbox.gatehouse.stderr();
  for (const mark of [OPERATOR_TOKEN, WEBHOOK_TOKEN, 'marked'])
    assert.ok(!written.includes(mark), mark);
});
