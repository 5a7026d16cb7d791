/** INBOX_USERS: operators whom a trusted proxy names. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ask } from '../../support/gatehouse.ts';
import { openInbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { reply, startRecorder } from '../../support/recorder.ts';

const HEADER = { TRUSTED_USER_HEADER: 'X-Auth-Username', TRUSTED_PROXIES: '127.0.0.1' };
const WEBHOOK_COMMAND = '["/bin/true"]';
const settings = { ...HEADER, INBOX_USERS: 'alice, bob', WEBHOOK_COMMAND };
const inbox = await openInbox({ after }, settings);

type Headers = Readonly<Record<string, string>>;
const SAME = { 'sec-fetch-site': 'same-origin' };
const as = (user: string, headers: Headers = SAME) => ({ ...headers, 'x-auth-username': user });
const send = (headers: Headers, method: string, path: string, base = inbox.url) =>
  ask(method, base + path, { headers: { ...headers } });
const status = async (headers: Headers, base = inbox.url) =>
  (await send(headers, 'GET', '/events', base)).status;

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
  ['a page of this host, by its Origin', as('alice', { origin: inbox.url }), 200],
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
  const { url } = await openInbox(t, groups);
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
    const { url } = await openInbox(t, { ...HEADER, ...changed });
    assert.deepEqual([await status(as('mallory'), url), await status(SAME, url)], expected);
  });
}

test('who opens the page is told what identity says of the visitor, or that it fails', async (t) => {
  const verify = await startRecorder(t);
  const SIGNIN_VERIFY_URL = `${verify.url}/api/auth/verify`;
  const { url } = await openInbox(t, { INBOX_PAGE: 'on', INBOX_USERS: 'alice', SIGNIN_VERIFY_URL });
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
