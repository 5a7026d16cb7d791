/**
 * The inbox page over HTTP, and INBOX_USERS: operators whom a trusted proxy names. `make e2e
 * NAME=browser` tests the page in a browser.
 */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { type Source, SOURCE_NAMES, SOURCES } from '../../../src/webhook/sources.ts';
import { ask, startGatehouse } from '../../support/gatehouse.ts';
import { openInbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { pagesOf, testPages } from '../../support/page-assertions.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { wordsOf } from '../../support/words.ts';

const HEADER = { TRUSTED_USER_HEADER: 'X-Auth-Username', TRUSTED_PROXIES: '127.0.0.1' };
const inbox = await openInbox(
  { after },
  {
    ...{ ...HEADER, INBOX_PAGE: 'on' },
    ...{ INBOX_USERS: 'alice, bob', WEBHOOK_COMMAND: '["/bin/true"]' },
  },
);
const { url: base } = inbox;
/** Another process on the same database. @returns its address */
const start = async (t: TestContext, settings: Readonly<Record<string, string>> = {}) =>
  (await startGatehouse(t, ['webhook'], inbox.databaseUrl, settings)).url.webhook;
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
  const without = await start(t);
  for (const path of ['/inbox', '/pages/inbox.js', '/pages/inbox.css']) {
    const { status, json } = await ask('GET', without + path);
    assert.deepEqual([status, json.error.code], [404, 'no_such_path'], path);
  }
  const { paths } = (await ask('GET', `${without}/openapi.json`)).json;
  assert.ok(Object.keys(paths).every((path) => !path.includes('inbox')));
  const listed = await ask('GET', `${without}/events`, { bearer: OPERATOR_TOKEN });
  assert.equal(listed.status, 200);
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

// --- INBOX_USERS

type Headers = Readonly<Record<string, string>>;
const SAME = { 'sec-fetch-site': 'same-origin' };
const as = (user: string, headers: Headers = SAME) => ({ ...headers, 'x-auth-username': user });
const send = (headers: Headers, method: string, path: string, to = base) =>
  ask(method, to + path, { headers: { ...headers } });
const status = async (headers: Headers, to = base) =>
  (await send(headers, 'GET', '/events', to)).status;

const site = (name: string) => as('alice', { 'sec-fetch-site': name });
const REQUESTS: ReadonlyArray<readonly [what: string, headers: Headers, expected: number]> = [
  ['a named user', as('alice'), 200],
  ['another one', as('bob'), 200],
  ['a user who is not listed', as('mallory'), 401],
  ['the list itself', as('alice, bob'), 401],
  ['another spelling', as('Alice'), 401],
  ['a star', as('*'), 401],
  ['no name', as(''), 401],
  ['no header', SAME, 401],
  ['a page of this host, by its Origin', as('alice', { origin: base }), 200],
  [
    'a page of this host, by X-Forwarded-Host',
    as('alice', { origin: 'https://inbox.example', 'x-forwarded-host': 'inbox.example' }),
    200,
  ],
  ['a page of another site', site('cross-site'), 401],
  ['a page of a sibling host', site('same-site'), 401],
  ['an address that was typed', site('none'), 401],
  ['a page with a foreign Origin', as('alice', { origin: 'http://evil.example' }), 401],
  ['a page with the Origin null', as('alice', { origin: 'null' }), 401],
  ['nothing that tells the page', as('alice', {}), 401],
  ['a wrong token beside the name', { ...as('alice'), authorization: 'Bearer wrong' }, 401],
  [
    'a valid token beside another name',
    { ...as('mallory'), authorization: `Bearer ${OPERATOR_TOKEN}` },
    200,
  ],
];
test('a user whom the proxy names and INBOX_USERS lists is admitted from a page of this host', async () => {
  for (const [what, headers, expected] of REQUESTS)
    assert.equal(await status(headers), expected, what);
});

test('a named user may do what an operator may, cannot send events, and is in the log', async () => {
  const pause = await send(as('alice'), 'POST', '/events/pause');
  assert.deepEqual([pause.status, pause.json.paused_by], [200, 'user:alice']);
  assert.equal((await send(as('bob'), 'POST', '/events/resume')).status, 200);
  assert.equal((await send(as('alice'), 'POST', '/webhook')).status, 401);
  const lines = inbox.gatehouse.stdout();
  assert.match(lines, /"message":"delivery paused","request_id":"[^"]+","by":"user:alice"/);
  assert.match(lines, /"route":"POST \/events\/pause"[^\n]*"user":"alice"/);
});

test('a list names groups, which only the header of the proxy decides', async (t) => {
  const INBOX_USERS = 'group:ops, alice';
  const groups = { ...HEADER, TRUSTED_GROUPS_HEADER: 'X-Auth-Groups', INBOX_USERS };
  const url = await start(t, groups);
  for (const [name, sent, expected] of [
    ['bob', 'ops', 200],
    ['bob', 'a,ops,z', 200],
    ['alice', '', 200],
    ['alice', 'other', 200],
    ['bob', 'other', 401],
    ['bob', 'op', 401],
    ['bob', 'Ops', 401],
    // What a client has sent, joined with the header of the proxy.
    ['bob', 'ops, other', 401],
    // Another program's names: none of them stands for a group.
    ['group:ops', '', 401],
    ['bob', 'group:ops', 401],
    ['', 'ops', 401],
  ] as const)
    assert.equal(await status({ ...as(name), 'x-auth-groups': sent }, url), expected, name + sent);
  // Without TRUSTED_GROUPS_HEADER, the header means nothing.
  assert.equal(await status({ ...as('mallory'), 'x-auth-groups': 'alice,group:ops' }), 401);
});

for (const [what, changed, expected] of [
  ['a star lists all users whom the proxy names', { INBOX_USERS: '*' }, [200, 401]],
  ['without INBOX_USERS, the header means nothing', {}, [401, 401]],
  [
    'from another address than that of the proxy, the header means nothing',
    { INBOX_USERS: '*', TRUSTED_PROXIES: '192.0.2.1' },
    [401, 401],
  ],
] as const) {
  test(what, async (t) => {
    const url = await start(t, { ...HEADER, ...changed });
    assert.deepEqual([await status(as('mallory'), url), await status(SAME, url)], expected);
    assert.equal(await status(as('x'.repeat(256)), url), 401, 'too long for a name');
  });
}

test('who opens the page is told what identity says of the visitor, or that it fails', async (t) => {
  const verify = await startRecorder(t);
  const SIGNIN_VERIFY_URL = `${verify.url}/api/auth/verify`;
  const url = await start(t, { INBOX_PAGE: 'on', INBOX_USERS: 'alice', SIGNIN_VERIFY_URL });
  const headers = { ...SAME, cookie: `__Host-gatehouse=${'A'.repeat(43)}` };
  const address = 'https://login.example.org/login';
  for (const [answer, expected, said] of [
    [reply(200, {}, { 'X-Auth-Username': 'alice' }), 200, { user: 'alice' }],
    [reply(401, {}, { Location: address }), 200, { sign_in: address }],
    [reply(429, {}, { 'Retry-After': '7' }), 429, null],
    [reply(502, {}), 503, null],
  ] as const) {
    verify.answer(answer);
    const visitor = await send(headers, 'GET', '/inbox/user', url);
    const data = said && { user: null, problem: null, sign_in: null, ...said };
    assert.deepEqual([visitor.status, said && visitor.json], [expected, data]);
  }
});
