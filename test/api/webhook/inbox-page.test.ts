/** The inbox page over HTTP. `make e2e NAME=browser` tests it in a browser. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { ask, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { openInbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { SOURCE_NAMES } from '../../../src/webhook/sources.ts';
import { FRAME_FILES, framed, PAGE_SECURITY, SCRIPT } from '../../support/page-assertions.ts';
import { exchange } from '../../support/socket.ts';

const inbox = await openInbox({ after }, { INBOX_PAGE: 'on', LOG_LEVEL: 'debug' });
const base = inbox.url;
const source = new URL('../../../src/webhook/pages/', import.meta.url);
/** The files that all pages share. */
const shared = new URL('../../../src/platform/http/site/pages/', import.meta.url);
const read = (name: string) =>
  framed(
    name,
    readFileSync(new URL(name, readdirSync(shared).includes(name) ? shared : source), 'utf8'),
  );
const raw = (line: string) => exchange(base, [`${line} HTTP/1.1`, 'Host: x', 'Connection: close']);

const FILES: ReadonlyArray<readonly [path: string, file: string, type: string]> = [
  ['/inbox', 'inbox.html', 'text/html; charset=utf-8'],
  ['/inbox/', 'inbox.html', 'text/html; charset=utf-8'],
  ['/inbox?token=whatever', 'inbox.html', 'text/html; charset=utf-8'],
  ['/pages/style.css', 'style.css', 'text/css; charset=utf-8'],
  ['/pages/page.js', 'page.js', SCRIPT],
  ['/pages/inbox.js', 'inbox.js', SCRIPT],
  ['/pages/inbox-filter.js', 'inbox-filter.js', SCRIPT],
  ['/pages/inbox-list.js', 'inbox-list.js', SCRIPT],
  ['/pages/inbox.css', 'inbox.css', 'text/css; charset=utf-8'],
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

for (const [path, file, type] of FILES) {
  test(`${path} is the file ${file}, with these headers`, async () => {
    for (const method of ['GET', 'HEAD']) {
      const { status, headers, body } = await raw(`${method} ${path}`);
      assert.equal(status, 200);
      assert.equal(body, method === 'GET' ? read(file) : '');
      const {
        date,
        'x-request-id': requestId,
        connection,
        'content-length': length,
        ...rest
      } = Object.fromEntries(headers);
      assert.ok(date !== undefined && requestId !== undefined && connection === 'close');
      assert.equal(Number(length), Buffer.byteLength(read(file)));
      assert.deepEqual(rest, { 'content-type': type, ...PAGE_SECURITY });
    }
  });
}

const NOT_FOUND = [
  '/pages/',
  '/pages',
  '/pages/x.js',
  '/pages/INBOX.js',
  '/pages/inbox.js.map',
  '/pages/inbox.html',
  '/pages/make.js',
  '/pages/reveal.js',
  '/pages/qr.js',
  '/pages/inbox.js%00',
  '/pages/..%2froutes.ts',
  '/pages/%2e%2e%2froutes.ts',
  '/pages/../routes.ts',
  '/pages/constructor',
  '/pages/__proto__',
  '/inbox/x',
  '/Inbox',
  '/inbox.html',
  '/',
  '/s/x',
];
for (const path of NOT_FOUND) {
  test(`${path} is 404`, async () => {
    const { status, headers, json } = await raw(`GET ${path}`);
    assert.equal(status, 404);
    assert.match(json.error.code, /^(not_found|no_such_path)$/);
    assert.equal(
      headers.get('content-security-policy'),
      "default-src 'none'; frame-ancestors 'none'",
    );
  });
}

const html = read('inbox.html');
const SCRIPTS = ['page.js', ...readdirSync(source).filter((name) => name.endsWith('.js'))];

test('every file that the page loads is served, and no other', async () => {
  const loaded = [
    ...html.matchAll(/(?:href|src)="\/pages\/([^"]+)"/g),
    ...SCRIPTS.flatMap((name) => [
      ...read(name).matchAll(/^(?:import|\}) .*from '\/pages\/([^']+)'/gm),
    ]),
  ].map(([, name = '']) => name);
  assert.deepEqual(
    [...new Set([...loaded, 'inbox.html'])].sort(),
    [...readdirSync(source), 'page.js', ...FRAME_FILES].sort(),
  );
  for (const name of loaded)
    assert.equal((await ask('GET', `${base}/pages/${name}`)).status, 200, name);
});

test('the page has no inline or third-party content, stores nothing and renders no markup', () => {
  assert.doesNotMatch(
    html,
    /<style|\sstyle=|\son[a-z]+\s*=|javascript:|<base|<iframe|<object|<embed|http-equiv|srcdoc|action=|\/\//i,
  );
  const scripts = [...html.matchAll(/<script([^>]*)>([\s\S]*?)<\/script>/g)].map(
    ([, attributes, content]) => [attributes, content],
  );
  assert.deepEqual(scripts, [[' type="module" src="/pages/inbox.js"', '']]);
  for (const [, address = ''] of html.matchAll(/\s(?:src|href|srcset|data|poster)="([^"]*)"/g))
    assert.match(address, /^\/(inbox)?$|^\/pages\/([a-z]+\.(js|css)|logo)$/);
  for (const name of SCRIPTS) {
    const markup =
      /innerHTML|outerHTML|insertAdjacent|document\.write|setHTML|\beval\b|new Function/;
    const storage = /localStorage|sessionStorage|indexedDB|\.cookie|\bcaches\b|serviceWorker/;
    const foreign = /sendBeacon|WebSocket|import\(|[a-z]+:\/\//;
    const script = read(name).replace("'http://www.w3.org/2000/svg'", '');
    for (const forbidden of [markup, storage, foreign])
      assert.doesNotMatch(script, forbidden, name);
    // The token is sent in a header, never in a URL.
    assert.doesNotMatch(read(name), /[?&]token=|EventSource/, name);
  }
});

const TAGS: Readonly<Record<string, RegExp>> = {
  HTMLElement: /^[a-z0-9]+$/,
  HTMLDetailsElement: /^details$/,
  HTMLFormElement: /^form$/,
  HTMLInputElement: /^input$/,
  HTMLTextAreaElement: /^textarea$/,
  HTMLSelectElement: /^select$/,
  HTMLButtonElement: /^button$/,
  HTMLTableElement: /^table$/,
  HTMLTableSectionElement: /^tbody$/,
  HTMLAnchorElement: /^a$/,
};

test('every element that a script uses exists in the page with the expected type', () => {
  const elements = new Map(
    [...html.matchAll(/<([a-z0-9]+)[^>]*\sid="([^"]+)"/g)].map(([, tag = '', id = '']) => [
      id,
      tag,
    ]),
  );
  assert.equal(elements.size, [...html.matchAll(/\sid="/g)].length, 'every id is unique');
  // What page.js has for other pages, this one need not have.
  for (const name of SCRIPTS.slice(1)) {
    const used = [...read(name).matchAll(/element\('([^']+)', (\w+)\)/g)].map(
      ([, id = '', type = '']) => [id, type] as const,
    );
    assert.equal(used.length > 0, !/-(format|chart)\.js$/.test(name), name);
    for (const [id, type] of used)
      assert.match(elements.get(id) ?? '', TAGS[type] ?? assert.fail(type), `${name} uses ${id}`);
  }
  for (const [, ids = ''] of html.matchAll(
    /\s(?:for|aria-describedby|aria-labelledby|aria-controls)="([^"]+)"/g,
  )) {
    for (const id of ids.split(' ')) assert.ok(elements.has(id), `the page refers to ${id}`);
  }
});

test('the page offers every status and every source', async () => {
  const sources = html.slice(html.indexOf('by-source'), html.indexOf('by-age'));
  const offered = [...sources.matchAll(/<option>([^<]+)<\/option>/g)].map(([, name = '']) => name);
  assert.deepEqual(offered, SOURCE_NAMES);
  const statuses = /STATUSES = \[(.*)\]/.exec(read('inbox-state.js'))?.[1]?.match(/\w+/g);
  const { paths } = (await ask('GET', `${base}/openapi.json`)).json;
  const status = paths['/events'].get.parameters.find(
    ({ name }: { name: string }) => name === 'status',
  );
  assert.deepEqual(statuses?.sort(), [...status.schema.enum].sort());
});

test('the page contains no events, and no token is logged', async () => {
  await inbox.send('a marked event');
  const anonymous = await raw('GET /inbox');
  const authenticated = await exchange(base, [
    'GET /inbox HTTP/1.1',
    'Host: x',
    `Authorization: Bearer ${OPERATOR_TOKEN}`,
    'Connection: close',
  ]);
  assert.equal(authenticated.body, anonymous.body);
  assert.ok(!anonymous.body.includes('marked'));
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
