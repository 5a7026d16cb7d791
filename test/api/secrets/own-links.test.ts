/** A signed-in user's list of links: whose they are, and that only their owner ends them. */
import assert from 'node:assert/strict';
import { createECDH } from 'node:crypto';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { ask, AUTH_TOKEN, logIn, startGatehouse } from '../../support/gatehouse.ts';
import { freePorts } from '../../support/ports.ts';

const { url: databaseUrl, sql } = await createDatabase();
const [port = ''] = await freePorts(1);
const SIGNIN = `http://localhost:${port}`;
const { url } = await startGatehouse({ after }, ['identity', 'secrets'], databaseUrl, {
  ...{ IDENTITY_PORT: port, SIGNIN_PAGES: 'on', SIGNIN_ORIGIN: SIGNIN, SHARE_PAGES: 'on' },
  SIGNIN_VERIFY_URL: `http://127.0.0.1:${port}/api/auth/verify?redirect=401`,
  ...{ TRUSTED_PROXIES: '127.0.0.1', TRUSTED_USER_HEADER: 'X-User', TRUSTED_ID_HEADER: 'X-Id' },
});
const bearer = await logIn(url.identity);
type Headers = Readonly<Record<string, string>>;
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

const ada = await signIn('ada');
const grace = await signIn('grace');

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

test('after the end of the session, and from another site, nothing is shown', async () => {
  assert.equal((await listOf(ada, { 'sec-fetch-site': 'cross-site' })).status, 401);
  await sql`update identity.sessions set revoked = true`;
  assert.equal((await listOf(ada)).status, 401);
});
