/** INBOX_USERS: operators whom a trusted proxy names. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ask } from '../../support/gatehouse.ts';
import { openInbox, OPERATOR_TOKEN } from '../../support/inbox.ts';
import { reply, startRecorder } from '../../support/recorder.ts';

const HEADER = { TRUSTED_USER_HEADER: 'X-Auth-Username', TRUSTED_PROXIES: '127.0.0.1' };
const inbox = await openInbox(
  { after },
  { ...HEADER, INBOX_USERS: 'alice, bob', WEBHOOK_COMMAND: '["/bin/true"]' },
);
const SAME = { 'sec-fetch-site': 'same-origin' };
const as = (user: string, headers: Record<string, string> = SAME) => ({
  ...headers,
  'x-auth-username': user,
});
const status = async (
  headers: Record<string, string>,
  method = 'GET',
  path = '/events',
  base = inbox.url,
) => (await ask(method, base + path, { headers })).status;

const REQUESTS: ReadonlyArray<
  readonly [what: string, headers: Record<string, string>, expected: number]
> = [
  ['a named user', as('alice'), 200],
  ['another one', as('bob'), 200],
  ['with an Origin instead', as('alice', { origin: inbox.url }), 200],
  ['a user who is not listed', as('mallory'), 401],
  ['the list itself', as('alice, bob'), 401],
  ['another spelling', as('Alice'), 401],
  ['a star', as('*'), 401],
  ['no name', as(''), 401],
  ['no header', SAME, 401],
  ['a page of another site', as('alice', { 'sec-fetch-site': 'cross-site' }), 401],
  ['a page of a sibling host', as('alice', { 'sec-fetch-site': 'same-site' }), 401],
  ['a page with a foreign Origin', as('alice', { origin: 'http://evil.example' }), 401],
  ['a page with the Origin null', as('alice', { origin: 'null' }), 401],
  [
    'a page of this host, by X-Forwarded-Host',
    as('alice', { origin: 'https://inbox.example', 'x-forwarded-host': 'inbox.example' }),
    200,
  ],
  ['an address that was typed', as('alice', { 'sec-fetch-site': 'none' }), 401],
  ['nothing that tells the page', as('alice', {}), 401],
  ['a wrong token beside the name', { ...as('alice'), authorization: 'Bearer wrong' }, 401],
  [
    'a valid token beside another name',
    { ...as('mallory'), authorization: `Bearer ${OPERATOR_TOKEN}` },
    200,
  ],
];
for (const [what, headers, expected] of REQUESTS) {
  test(`the inbox answers ${what} with ${expected}`, async () =>
    assert.equal(await status(headers), expected));
}

test('a named user may do what an operator may, cannot send events, and is in the log', async () => {
  assert.equal(await status(as('alice'), 'POST', '/events/pause'), 200);
  assert.equal((await inbox.call('GET', '/events/delivery')).json.paused_by, 'user:alice');
  assert.equal(await status(as('bob'), 'POST', '/events/resume'), 200);
  assert.equal(await status(as('alice'), 'POST', '/webhook'), 401);
  const lines = inbox.gatehouse.stdout();
  assert.match(lines, /"message":"delivery paused","request_id":"[^"]+","by":"user:alice"/);
  assert.match(lines, /"route":"POST \/events\/pause"[^\n]*"user":"alice"/);
});

test('a list names groups, which only the header of the proxy decides', async (t) => {
  const { url } = await openInbox(t, {
    ...HEADER,
    TRUSTED_GROUPS_HEADER: 'X-Auth-Groups',
    INBOX_USERS: 'group:ops, alice',
  });
  const cases: ReadonlyArray<readonly [name: string, groups: string, expected: number]> = [
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
  ];
  for (const [name, groups, expected] of cases) {
    const headers = { ...as(name), 'x-auth-groups': groups };
    assert.equal(await status(headers, 'GET', '/events', url), expected, `${name}: ${groups}`);
  }
  // Without TRUSTED_GROUPS_HEADER, the header means nothing.
  const unheard = { ...as('mallory'), 'x-auth-groups': 'alice,group:ops' };
  assert.equal(await status(unheard), 401);
});

test('a star lists all users whom the proxy names', async (t) => {
  const { url } = await openInbox(t, { ...HEADER, INBOX_USERS: '*' });
  assert.equal(await status(as('mallory'), 'GET', '/events', url), 200);
  assert.equal(await status(SAME, 'GET', '/events', url), 401);
});

test('the header of a proxy means nothing from another address, or without INBOX_USERS', async (t) => {
  const elsewhere = await openInbox(t, {
    ...HEADER,
    TRUSTED_PROXIES: '192.0.2.1',
    INBOX_USERS: '*',
  });
  assert.equal(await status(as('alice'), 'GET', '/events', elsewhere.url), 401);
  const unlisted = await openInbox(t, HEADER);
  assert.equal(await status(as('alice'), 'GET', '/events', unlisted.url), 401);
});

test('who opens the page is told what identity says of the visitor, or that it fails', async (t) => {
  const verify = await startRecorder(t);
  const { url } = await openInbox(t, {
    INBOX_PAGE: 'on',
    INBOX_USERS: 'alice',
    SIGNIN_VERIFY_URL: `${verify.url}/api/auth/verify`,
  });
  const cookie = `__Host-gatehouse=${'A'.repeat(43)}`;
  const address = 'https://login.example.org/login';
  const cases = [
    [reply(200, {}, { 'X-Auth-Username': 'alice' }), 200, { user: 'alice' }],
    [reply(401, {}, { Location: address }), 200, { sign_in: address }],
    [reply(429, {}, { 'Retry-After': '7' }), 429, null],
    [reply(502, {}), 503, null],
  ] as const;
  for (const [answer, expected, said] of cases) {
    verify.answer(answer);
    const { status, json } = await ask('GET', `${url}/inbox/user`, {
      headers: { ...SAME, cookie },
    });
    const data = said && { user: null, problem: null, sign_in: null, ...said };
    assert.deepEqual([status, status === 200 ? json : null], [expected, data]);
  }
});
