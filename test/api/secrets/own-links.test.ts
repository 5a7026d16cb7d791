/** A signed-in user's list of links: whose they are, and that only their owner ends them. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { ADMIN_PASSWORD, ask, AUTH_TOKEN, logIn, startGatehouse } from '../../support/gatehouse.ts';
import { freePorts } from '../../support/ports.ts';

const { url: databaseUrl, sql } = await createDatabase();
const [port = ''] = await freePorts(1);
const SIGNIN = `http://localhost:${port}`;
const { url } = await startGatehouse({ after }, ['identity', 'secrets'], databaseUrl, {
  IDENTITY_PORT: port,
  SIGNIN_PAGES: 'on',
  SIGNIN_ORIGIN: SIGNIN,
  SIGNIN_VERIFY_URL: `http://127.0.0.1:${port}/api/auth/verify?redirect=401`,
  TRUSTED_PROXIES: '127.0.0.1',
  TRUSTED_USER_HEADER: 'X-User',
  TRUSTED_ID_HEADER: 'X-Id',
  SHARE_PAGES: 'on',
});
const bearer = await logIn(url.identity, 'admin', ADMIN_PASSWORD);
const PASSWORD = 'a long password of a test';
type Headers = Readonly<Record<string, string>>;
const OWN_PAGE: Headers = { 'sec-fetch-site': 'same-origin' };
const REQUEST = {
  title: 'Password of the shop',
  kind: 'text',
  digest: 'A'.repeat(43),
  public_key:
    'BGsX0fLhLEJH-Lzm5WOkQPJ3A32BLeszoPShOUXYmMKWT-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU',
};

/** Creates a user. @returns the cookie of a new sign-in */
async function signIn(username: string): Promise<string> {
  const names = { username, email: `${username}@example.org`, first_name: '', last_name: '' };
  const body = { ...names, password: PASSWORD, super_admin: false, verified: true, enabled: true };
  await ask('POST', `${url.identity}/api/user/`, { bearer, body });
  const { headers } = await ask('POST', `${url.identity}/login`, {
    headers: {
      host: `localhost:${port}`,
      origin: SIGNIN,
      'content-type': 'application/x-www-form-urlencoded',
    },
    body: String(new URLSearchParams({ username, password: PASSWORD, return_to: '' })),
  });
  // A password that an administrator has set is temporary.
  const cookies = headers.getSetCookie().map((cookie) => cookie.split(';')[0]);
  return cookies.find((cookie) => cookie?.startsWith('__Host-gatehouse=')) ?? '';
}

const send = (method: string, path: string, cookie: string, body?: object, more = OWN_PAGE) =>
  ask(method, url.secrets + path, { headers: { cookie, ...more }, ...(body && { body }) });
async function share(cookie: string): Promise<string> {
  const { status, json } = await send('POST', '/api/store/encrypt', cookie, { password: 'x' });
  assert.equal(status, 201);
  return json.id;
}
async function linksOf(cookie: string): Promise<readonly (readonly unknown[])[]> {
  const { status, json } = await send('GET', '/api/store/links', cookie);
  assert.equal(status, 200);
  return json.map((link: Record<string, unknown>) => [link.id, link.status, link.title]);
}

const ada = await signIn('ada');
const grace = await signIn('grace');

test('each user sees their own secrets and requests, newest first, and no key', async () => {
  const first = await share(ada);
  const asked = await send('POST', '/api/store/request', ada, REQUEST);
  assert.equal(asked.status, 201, asked.text);
  const last = await share(ada);
  const other = await share(grace);
  assert.deepEqual(await linksOf(ada), [
    [last, 'stored', null],
    [asked.json.id, 'requested', REQUEST.title],
    [first, 'stored', null],
  ]);
  assert.deepEqual(await linksOf(grace), [[other, 'stored', null]]);
  const { text } = await send('GET', '/api/store/links', ada);
  assert.doesNotMatch(text, /secret|receipt|key|digest/);
});

test('ended and answered links show how they ended', async () => {
  const ask = async () => (await send('POST', '/api/store/request', ada, REQUEST)).json.id;
  const deleted = await share(ada);
  const expired = await share(ada);
  const withdrawn = await ask();
  const answered = await ask();
  for (const id of [deleted, withdrawn])
    assert.equal((await send('DELETE', `/api/store/${id}`, ada)).status, 200);
  await sql`update secrets.secrets set expires_at = now() where id = ${expired}`;
  const [{ creator } = {}] = await sql`
    update secrets.requests set ending = 'answered', answer_key = '' where id = ${answered}
    returning creator`;
  await sql`insert into secrets.secrets (id, creator, key_id, commitment, blob, tag)
    values (${answered}, ${creator}, '', '', '', '')`;
  const links = (await linksOf(ada)).map(([id, ...state]) => [id, state] as const);
  assert.deepEqual(Object.fromEntries(links.slice(0, 4)), {
    [deleted]: ['deleted', null],
    [expired]: ['expired', null],
    [withdrawn]: ['withdrawn', REQUEST.title],
    [answered]: ['stored', REQUEST.title],
  });
});

test('only the owner ends a link, from a page of this host', async () => {
  const id = await share(ada);
  const path = `/api/store/${String(id)}`;
  assert.equal((await send('DELETE', path, grace)).status, 404, 'another user');
  const foreign = { 'sec-fetch-site': 'cross-site' };
  for (const more of [foreign, { 'sec-fetch-site': 'same-site' }, { 'sec-fetch-site': '' }])
    assert.notEqual((await send('DELETE', path, ada, undefined, more)).status, 200);
  assert.equal((await linksOf(ada))[0]?.[1], 'stored');
  assert.equal((await send('DELETE', path, ada)).json.status, 'deleted');
  assert.equal((await linksOf(ada))[0]?.[1], 'deleted');
});

test('a later user of the same name sees and ends nothing of the earlier one', async () => {
  const id = await share(grace);
  await sql`update identity.users set username = 'grace2', username_key = 'grace2',
    email = 'grace2@example.org', email_key = 'grace2@example.org' where username = 'grace'`;
  const later = await signIn('grace');
  assert.notEqual(later, '');
  assert.deepEqual(await linksOf(later), []);
  assert.equal((await send('GET', `/api/store/${id}`, later)).status, 404);
  assert.equal((await send('DELETE', `/api/store/${id}`, later)).status, 404);
  assert.equal((await linksOf(grace))[0]?.[0], id, 'the renamed user keeps them');
  assert.equal((await send('DELETE', `/api/store/${id}`, grace)).status, 200);
});

test('an id that the proxy says owns as well; a name alone and tokens have no list', async () => {
  const proxied = (user: string, id?: string) => ({
    ...OWN_PAGE,
    'x-user': user,
    ...(id && { 'x-id': id }),
  });
  const list = (headers: Headers) => send('GET', '/api/store/links', '', undefined, headers);
  const body = { password: 'x' };
  const stored = await send('POST', '/api/store/encrypt', '', body, proxied('ada', '1815'));
  assert.equal((await list(proxied('ada renamed', '1815'))).json[0].id, stored.json.id);
  assert.deepEqual((await list(proxied('ada', '1816'))).json, []);
  const options = await send('GET', '/api/store/options', '', undefined, proxied('ada'));
  assert.deepEqual(options.json.caller, { role: 'sender', user: 'ada' });
  for (const id of [undefined, '', '1815, 1816'])
    assert.equal((await list(proxied('ada', id))).status, 403, id);
  const { status } = await ask('GET', `${url.secrets}/api/store/links`, { bearer: AUTH_TOKEN });
  assert.equal(status, 403);
});

test('after the end of the session, and from another site, nothing is shown', async () => {
  const foreign = { 'sec-fetch-site': 'cross-site' };
  assert.equal((await send('GET', '/api/store/links', ada, undefined, foreign)).status, 401);
  await sql`update identity.sessions set revoked = true`;
  assert.equal((await send('GET', '/api/store/links', ada)).status, 401);
});
