/** The inbox page over HTTP. `make e2e NAME=browser` tests it in a browser. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { openInbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { SOURCE_NAMES, SOURCES, type Source } from '../../../src/webhook/sources.ts';
import {
  assertAllLoaded,
  assertElements,
  assertNothingForeign,
  pagesOf,
  testServed,
} from '../../support/page-assertions.ts';
import { wordsOf } from '../../support/words.ts';

const inbox = await openInbox({ after }, { INBOX_PAGE: 'on', LOG_LEVEL: 'debug' });
const base = inbox.url;
const pages = pagesOf('webhook');

const FILES: ReadonlyArray<readonly [path: string, file: string]> = [
  ['/inbox', 'inbox.html'],
  ['/inbox/', 'inbox.html'],
  ['/inbox?token=whatever', 'inbox.html'],
  ...wordsOf('style.css page.js inbox.js inbox-filter.js inbox-list.js inbox.css').map(
    (name) => [`/pages/${name}`, name] as const,
  ),
];

test('without INBOX_PAGE the page is 404, and the inbox routes work', async (t) => {
  const { url, call } = await openInbox(t);
  for (const [path] of FILES) {
    // The page at / for browsers has a style sheet and scripts as well.
    if (/^\/pages\/(style\.css|page\.js)$/.test(path)) continue;
    const answer = await ask('GET', url + path);
    assert.deepEqual([answer.status, answer.json.error.code], [404, 'no_such_path'], path);
  }
  const paths = Object.keys((await ask('GET', `${url}/openapi.json`)).json.paths);
  assert.deepEqual(
    paths.filter((path) => /inbox/.test(path)),
    [],
  );
  assert.equal((await call('GET', '/events')).status, 200);
});

test('with INBOX_PAGE the page needs no token, and the routes it reads do', async () => {
  const { paths } = (await ask('GET', `${base}/openapi.json`)).json;
  for (const path of ['/inbox', '/pages/{file}']) {
    assert.deepEqual(paths[path]?.get?.security ?? [], [], path);
    assert.ok(paths[path]?.get?.summary, path);
  }
  for (const bearer of [null, WEBHOOK_TOKEN])
    assert.equal((await inbox.call('GET', '/events', bearer)).status, 401);
});

test('the page has a place for the links of the site and for who is signed in', async () => {
  const { text } = await ask('GET', `${base}/inbox`);
  assert.match(text, /<nav aria-label="Inbox">[^]*<span id="person"[^]*<\/nav>/);
});

const NOT_FOUND = wordsOf(`
  /pages/ /pages /pages/x.js /pages/INBOX.js /pages/inbox.js.map /pages/inbox.html /pages/make.js
  /pages/reveal.js /pages/inbox.js%00 /pages/..%2froutes.ts /pages/%2e%2e%2froutes.ts
  /pages/../routes.ts /pages/constructor /pages/__proto__ /inbox/x /Inbox /inbox.html / /s/x
`);
testServed(base, pages, FILES, NOT_FOUND);

const html = pages.read('inbox.html');
const SCRIPTS = pages.names.filter((name) => name.endsWith('.js'));

test('every file that the page loads is served, and no other', async () => {
  for (const name of assertAllLoaded(pages, ['inbox.html']))
    assert.equal((await ask('GET', `${base}/pages/${name}`)).status, 200, name);
});

test('the page has no inline or third-party content, stores nothing and renders no markup', () => {
  assertNothingForeign(pages, 'inbox.html', /^(\/(inbox(\?view=senders)?)?|#main)$/);
  // The token is sent in a header, never in a URL.
  for (const name of SCRIPTS) assert.doesNotMatch(pages.read(name), /[?&]token=|EventSource/, name);
});

test('every element that a script uses exists in the page with the expected type', () =>
  // What page.js has for other pages, this one need not have.
  assertElements(pages, 'inbox.html', SCRIPTS, /-(format|chart)\.js$/));

test('the page offers every status and every source', async () => {
  const sources = html.slice(html.indexOf('by-source'), html.indexOf('by-age'));
  const offered = [...sources.matchAll(/<option>([^<]+)<\/option>/g)].map(([, name = '']) => name);
  assert.deepEqual(offered, SOURCE_NAMES);
  const statuses = /STATUSES = \[(.*)\]/.exec(pages.read('inbox-state.js'))?.[1]?.match(/\w+/g);
  const { paths } = (await ask('GET', `${base}/openapi.json`)).json;
  const status = paths['/events'].get.parameters.find(
    ({ name }: { name: string }) => name === 'status',
  );
  assert.deepEqual(statuses?.sort(), [...status.schema.enum].sort());
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
    const [, guide = ''] =
      new RegExp(`<dl data-source="${name}" hidden>([\\s\\S]*?)</dl>`).exec(html) ?? [];
    const terms = [...guide.matchAll(/<dt>([^<]+)<\/dt>/g)].map(([, term]) => term);
    const asked = ['Where', 'Content type', 'Signing secret', 'Header that is verified', 'Events'];
    assert.deepEqual(terms, asked, name);
    assert.ok(guide.includes(source.scheme?.header ?? ''), name);
  }
});

test('the page contains no events, and no token is logged', async () => {
  await inbox.send('a marked event');
  const anonymous = await ask('GET', `${base}/inbox`);
  const authenticated = await ask('GET', `${base}/inbox`, { bearer: OPERATOR_TOKEN });
  assert.equal(authenticated.text, anonymous.text);
  assert.ok(!anonymous.text.includes('marked'));
  await inbox.call('GET', '/events');
  await ask('GET', `${base}/inbox?token=${OPERATOR_TOKEN}`);
  const written = inbox.gatehouse.stdout() + inbox.gatehouse.stderr();
  for (const mark of [OPERATOR_TOKEN, WEBHOOK_TOKEN, 'marked'])
    assert.ok(!written.includes(mark), mark);
});

test('no event name makes a list by a filter with many stars slow', async () => {
  await inbox.put({ event: 'a'.repeat(1_024), status: 'done' });
  const filter = `${'*a'.repeat(200)}*b`;
  const { status, json } = await inbox.call('GET', `/events?event=${encodeURIComponent(filter)}`);
  assert.deepEqual([status, json], [200, []]);
});
