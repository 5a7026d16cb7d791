/**
 * Who may store secrets and see receipts: named tokens, people behind a proxy, and anyone. What
 * each role may call: `test/api/contract/callers-others.test.ts`. And a signed-in user's list of
 * links: whose they are, and that only their owner ends them.
 */
import assert from 'node:assert/strict';
import { createECDH } from 'node:crypto';
import { after, test, type TestContext } from 'node:test';
import { openConnections } from '../../support/connections.ts';
import {
  type Answer,
  ask,
  AUTH_TOKEN,
  launch,
  logIn,
  startGatehouse,
} from '../../support/gatehouse.ts';
import { freePorts } from '../../support/ports.ts';
import { secretsClient, storedSecret } from '../../support/secrets.ts';
import { problems } from '../../support/settings.ts';
import { exchange } from '../../support/socket.ts';
import { createSecretToken } from '../../support/tokens.ts';

const { sql, databaseUrl, secrets: base, log } = await launch(['secrets'], { LOG_LEVEL: 'debug' });
const database = openConnections({ after }, databaseUrl, 'secrets');
const { token: sender } = await createSecretToken(database, { name: 'ada', role: 'sender' });

const [port = ''] = await freePorts(1);
const SIGNIN = `http://localhost:${port}`;
const { url } = await startGatehouse({ after }, ['identity', 'secrets'], databaseUrl, {
  ...{ IDENTITY_PORT: port, SIGNIN_PAGES: 'on', SIGNIN_ORIGIN: SIGNIN, SHARE_PAGES: 'on' },
  SIGNIN_VERIFY_URL: `http://127.0.0.1:${port}/api/auth/verify?redirect=401`,
  ...{ TRUSTED_PROXIES: '127.0.0.1', TRUSTED_USER_HEADER: 'X-User', TRUSTED_ID_HEADER: 'X-Id' },
});
const bearer = await logIn(url.identity);
const ada = await signIn('ada');
const grace = await signIn('grace');

type Headers = Readonly<Record<string, string>>;
const store = (url: string, headers: Headers = {}, bearer?: string) =>
  ask('POST', `${url}/api/store/encrypt`, {
    headers,
    body: { password: 'x', max_reads: 2 },
    ...(bearer ? { bearer } : {}),
  });
const get = (url: string, path: string, headers: Headers = {}) =>
  ask('GET', url + path, { headers });
const outcomeOf = ({ status, json }: Answer) =>
  json.error === undefined ? status : `${status} ${json.error.code}`;
const REFUSED = '401 unauthorized';

test('the creator is in the row and in the log, and a token like that of a sender is 401', async () => {
  const { id } = (await store(base, {}, sender)).json;
  const { creator } = await storedSecret(sql, id);
  assert.match(creator, /^token:[0-9a-f-]{36}$/);
  assert.ok(log().some((line) => line.message === 'request' && line.creator === creator));
  for (const token of [`share:${'A'.repeat(43)}`, sender.replace('share:', ''), undefined])
    assert.equal(outcomeOf(await store(base, {}, token)), REFUSED);
});

const HEADER = {
  TRUSTED_USER_HEADER: 'X-Auth-Username',
  TRUSTED_PROXIES: '127.0.0.1',
  SHARE_PAGES: 'on',
};
const BARE = { 'x-auth-username': 'ada', 'x-forwarded-for': '203.0.113.5' };
const SAME = { ...BARE, 'sec-fetch-site': 'same-origin' };
const serve = async (t: TestContext, environment: Headers) =>
  (await startGatehouse(t, ['secrets'], databaseUrl, environment)).url.secrets;

test('a person whom a trusted proxy names stores secrets, and sees their own receipts', async (t) => {
  const url = await serve(t, HEADER);
  const options = await get(url, '/api/store/options', SAME);
  assert.deepEqual(options.json.caller, { role: 'sender', user: 'ada' });
  const { id } = (await store(url, SAME)).json;
  assert.equal((await storedSecret(sql, id)).creator, 'user:ada');
  const bob = { ...SAME, 'x-auth-username': 'bob' };
  for (const [path, headers, outcome] of [
    [`/api/store/${id}`, SAME, 200],
    [`/api/store/${id}`, bob, '404 not_found'],
    ['/api/store', SAME, '403 forbidden'],
  ] as const)
    assert.equal(outcomeOf(await get(url, path, headers)), outcome);
});

const ANYONE = { SHARE_ANYONE: 'on', SHARE_PAGES: 'on', TRUSTED_PROXIES: '127.0.0.1' };
const from = (address: string) => ({ 'x-forwarded-for': address });

test('with SHARE_ANYONE, anyone stores secrets, throttled by network, and sees nothing', async (t) => {
  const url = await serve(t, ANYONE);
  const { caller } = (await get(url, '/api/store/options')).json;
  assert.deepEqual(caller, { role: 'anyone', user: null });
  const { id, secret } = (await store(url, from('203.0.113.9'))).json;
  assert.equal((await ask('POST', `${url}/s/${id}`, { body: { secret } })).json.password, 'x');
  for (const path of [`/api/store/${id}`, '/api/store'])
    assert.equal(outcomeOf(await get(url, path)), REFUSED);
  for (let count = 1; count < 30; count += 1)
    assert.equal((await store(url, from('203.0.113.9'))).status, 201, String(count));
  const late = await store(url, from('203.0.113.9'));
  assert.equal(outcomeOf(late), '429 too_many_requests');
  assert.ok(Number(late.headers.get('retry-after')) > 0);
  assert.equal((await store(url, from('203.0.113.10'))).status, 201, 'another network');
  assert.equal((await store(url, from('203.0.113.9'), sender)).status, 201, 'a token');
  assert.equal(outcomeOf(await store(url, from('203.0.113.11'), 'wrong')), REFUSED);
});

test('an invalid body of anyone counts, and a later one is not read', async (t) => {
  const url = await serve(t, ANYONE);
  const paths = ['/api/store/encrypt', '/api/store/request'];
  const headers = from('203.0.113.40');
  for (let count = 0; count < 30; count += 1) {
    const body = { password: '' };
    const answer = await ask('POST', `${url}${paths[count % 2]}`, { body, headers });
    assert.equal(outcomeOf(answer), '400 invalid_body');
  }
  for (const path of paths) {
    const head = [`POST ${path} HTTP/1.1`, 'Host: a', 'X-Forwarded-For: 203.0.113.40'];
    const announced = ['Content-Length: 8000', 'Expect: 100-continue'];
    const { status } = await exchange(url, [...head, ...announced]);
    assert.equal(status, 429, 'without 100 Continue');
  }
  assert.equal((await store(url, headers, sender)).status, 201, 'a token');
});

test('a page of large secrets is short', async (t) => {
  const url = await serve(t, { SECRETS_MAX_BODY_BYTES: '1048576' });
  const { keep, list } = secretsClient(url);
  await keep('x'.repeat(1_047_552));
  assert.ok((await list('?limit=100')).json.length <= 9);
});

test('a setting without effect stops the start', () => {
  const proxied = { TRUSTED_USER_HEADER: 'X User', TRUSTED_PROXIES: '10.0.0.1' };
  assert.deepEqual(problems(proxied, ['secrets']), [
    'TRUSTED_USER_HEADER must be the name of a header.',
  ]);
  const [said = '', ...more] = problems({ TRUSTED_USER_HEADER: 'X-User' }, ['secrets']);
  assert.deepEqual([/^TRUSTED_USER_HEADER requires TRUSTED_PROXIES/.test(said), more], [true, []]);
  assert.deepEqual(problems({ SHARE_ANYONE: 'on' }, ['secrets']), [
    'SHARE_ANYONE=on requires SHARE_PAGES=on.',
  ]);
});

// --- Links of signed-in users

const OWN_PAGE: Headers = { 'sec-fetch-site': 'same-origin' };
const TITLE = 'Password of the shop';
const REQUEST = {
  ...{ title: TITLE, kind: 'text', digest: 'A'.repeat(43) },
  public_key: createECDH('prime256v1').generateKeys('base64url'),
};

/** Creates a user. @returns the cookie of a new sign-in */
async function signIn(username: string): Promise<string> {
  const password = 'a long password of a test';
  const names = { username, email: `${username}@example.org`, first_name: '', last_name: '' };
  const body = { ...names, password, super_admin: false, verified: true, enabled: true };
  await ask('POST', `${url.identity}/api/user/`, { bearer, body });
  const form = 'application/x-www-form-urlencoded';
  const { headers } = await ask('POST', `${url.identity}/login`, {
    headers: { host: `localhost:${port}`, origin: SIGNIN, 'content-type': form },
    body: String(new URLSearchParams({ username, password, return_to: '' })),
  });
  // A password that an administrator has set is temporary.
  const cookies = headers.getSetCookie().map((cookie) => cookie.split(';')[0] ?? '');
  return cookies.find((cookie) => cookie.startsWith('__Host-gatehouse=')) ?? assert.fail();
}

const send = (method: string, path: string, cookie: string, body?: object, more = OWN_PAGE) =>
  ask(method, url.secrets + path, { headers: { cookie, ...more }, ...(body && { body }) });
async function make(cookie: string, what: 'encrypt' | 'request'): Promise<string> {
  const body = what === 'encrypt' ? { password: 'x' } : REQUEST;
  const { status, json, text } = await send('POST', `/api/store/${what}`, cookie, body);
  assert.equal(status, 201, text);
  return json.id;
}
const listOf = (cookie: string, more = OWN_PAGE) =>
  send('GET', '/api/store/links', cookie, undefined, more);
/** Id, status and title of each link. */
const linksOf = async (cookie: string): Promise<unknown[][]> =>
  (await listOf(cookie)).json.map((link: Record<string, unknown>) => [
    link.id,
    link.status,
    link.title,
  ]);

test('each user sees their own secrets and requests, newest first, and no key', async () => {
  const first = await make(ada, 'encrypt');
  const asked = await make(ada, 'request');
  const last = await make(ada, 'encrypt');
  const other = await make(grace, 'encrypt');
  assert.deepEqual(await linksOf(ada), [
    [last, 'stored', null],
    [asked, 'requested', TITLE],
    [first, 'stored', null],
  ]);
  assert.deepEqual(await linksOf(grace), [[other, 'stored', null]]);
  assert.doesNotMatch((await listOf(ada)).text, /secret|receipt|key|digest/);
});

test('ended and answered links show how they ended', async () => {
  const deleted = await make(ada, 'encrypt');
  const expired = await make(ada, 'encrypt');
  const withdrawn = await make(ada, 'request');
  const answered = await make(ada, 'request');
  for (const id of [deleted, withdrawn])
    assert.equal((await send('DELETE', `/api/store/${id}`, ada)).status, 200);
  await sql`update secrets.secrets set expires_at = now() where id = ${expired}`;
  await sql`with answered as (update secrets.requests set ending = 'answered', answer_key = ''
      where id = ${answered} returning id, creator)
    insert into secrets.secrets (id, creator, key_id, commitment, blob, tag)
      select id, creator, '', '', '', '' from answered`;
  assert.deepEqual(
    (await linksOf(ada)).slice(0, 4).sort(),
    [
      [deleted, 'deleted', null],
      [expired, 'expired', null],
      [withdrawn, 'withdrawn', TITLE],
      [answered, 'stored', TITLE],
    ].sort(),
  );
});

test('only the owner ends a link, from a page of this host', async () => {
  const id = await make(ada, 'encrypt');
  const remove = (cookie: string, more?: Headers) =>
    send('DELETE', `/api/store/${id}`, cookie, undefined, more);
  assert.equal((await remove(grace)).status, 404, 'another user');
  for (const site of ['cross-site', 'same-site', ''])
    assert.notEqual((await remove(ada, { 'sec-fetch-site': site })).status, 200, site);
  assert.equal((await linksOf(ada))[0]?.[1], 'stored');
  assert.equal((await remove(ada)).json.status, 'deleted');
  assert.equal((await linksOf(ada))[0]?.[1], 'deleted');
});

test('a later user of the same name sees and ends nothing of the earlier one', async () => {
  const id = await make(grace, 'encrypt');
  await sql`update identity.users set username = 'grace2', username_key = 'grace2',
    email = 'grace2@example.org', email_key = 'grace2@example.org' where username = 'grace'`;
  const later = await signIn('grace');
  assert.deepEqual(await linksOf(later), []);
  for (const method of ['GET', 'DELETE'])
    assert.equal((await send(method, `/api/store/${id}`, later)).status, 404);
  assert.equal((await linksOf(grace))[0]?.[0], id, 'the renamed user keeps them');
  assert.equal((await send('DELETE', `/api/store/${id}`, grace)).status, 200);
});

test('an id that the proxy says owns as well; a name alone and tokens have no list', async () => {
  const proxied = (user: string, id?: string): Headers =>
    id === undefined
      ? { ...OWN_PAGE, 'x-user': user }
      : { ...OWN_PAGE, 'x-user': user, 'x-id': id };
  const body = { password: 'x' };
  const stored = await send('POST', '/api/store/encrypt', '', body, proxied('ada', '1815'));
  assert.equal((await listOf('', proxied('ada renamed', '1815'))).json[0].id, stored.json.id);
  assert.deepEqual((await listOf('', proxied('ada', '1816'))).json, []);
  const options = await send('GET', '/api/store/options', '', undefined, proxied('ada'));
  assert.deepEqual(options.json.caller, { role: 'sender', user: 'ada' });
  for (const id of [undefined, '', '1815, 1816'])
    assert.equal((await listOf('', proxied('ada', id))).status, 403, id);
  const byToken = await ask('GET', `${url.secrets}/api/store/links`, { bearer: AUTH_TOKEN });
  assert.equal(byToken.status, 403);
});
