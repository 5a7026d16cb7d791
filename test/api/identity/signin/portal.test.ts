/** The sign-in pages: their cookies, what these open, and where a browser goes then. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { reachable, readTree } from '../../../../scripts/reading.ts';
import { createRoutes } from '../../../../src/identity/routes.ts';
import { ask, logIn, startGatehouse } from '../../../support/gatehouse.ts';
import {
  forwarded,
  ORIGIN,
  OWN,
  PORTAL,
  signInFor,
  startPortal,
  valueOf,
  visitorOf,
} from '../../../support/portal.ts';
import { PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after });
const { identity, sql, admin, call, add, addSignedIn, key, signIn, enterPassword } = portal;
const { visit, show, post } = portal;
const verify = (cookie: string, query = '') => show(`/api/auth/verify${query}`, cookie);
const statusOf = async (path: string, cookie: string) => (await show(path, cookie)).status;
const opens = (cookie: string) =>
  Promise.all(['/account', '/api/auth/verify'].map((path) => statusOf(path, cookie)));

test('the form comes under a strict policy, and keeps an escaped address', async () => {
  const { headers, text } = await visit('/login?return_to=%22%3E%3Cscript%3E');
  const policy = /default-src 'none'.*form-action 'self'; frame-ancestors 'none'/;
  assert.match(headers.get('content-security-policy') ?? '', policy);
  // Otherwise browsers would send forms with `Origin: null`.
  assert.equal(headers.get('referrer-policy'), 'same-origin');
  assert.match(text, /value="&#34;&#62;&#60;script&#62;"/);
  const fields = { username: 'x', password: 'wrong', return_to: 'https://app.example.org/' };
  const again = await post('/login', '', fields);
  assert.deepEqual([again.status, again.cookies], [401, []]);
  assert.match(again.text, /name="return_to" value="https:\/\/app\.example\.org\/"/);
});

test('one page answers an unknown name, a wrong password, a disabled account, with any factors', async () => {
  const known = await add();
  const disabled = await add({ enabled: false });
  const guarded = await add();
  const both = await add({ enabled: false });
  await sql`update identity.users set second_factor = true where id in (${guarded.id}, ${both.id})`;
  const pages = new Set<string>();
  for (const [username, password] of [
    ['nobody-here', PASSWORD],
    [known.username, 'wrong-password'],
    [disabled.username, PASSWORD],
    [guarded.username, 'wrong-password'],
    [both.username, PASSWORD],
    [both.username, 'wrong-password'],
  ] as const) {
    const { status, headers, cookies, text } = await enterPassword(username, password);
    for (const name of ['date', 'content-length', 'x-request-id']) headers.delete(name);
    pages.add(JSON.stringify([status, [...headers], cookies, text.replaceAll(username, 'NAME')]));
  }
  assert.equal(pages.size, 1, [...pages].join('\n'));
});

test('signing in sets both cookies and returns to listed addresses only', async () => {
  const { username } = await add();
  const address = 'https://app.example.org/a?b=c&d=e';
  const { page } = await signIn(username, { fields: { return_to: address } });
  const [host = '', domain = ''] = page.cookies;
  assert.match(host, /^__Host-gatehouse=[\w-]{43}; Path=/);
  assert.match(domain, /^__Secure-gatehouse=[\w-]{43}; Domain=example\.org; Path=/);
  assert.match(page.text, /url=https:\/\/app\.example\.org\/a\?b=c&#38;d=e"/);
  for (const return_to of ['https://evil.example/', 'javascript:alert(1)', '']) {
    const { text } = (await signIn(username, { fields: { return_to } })).page;
    assert.match(text, /url=https:\/\/login\.example\.org\/account"/);
    assert.doesNotMatch(text, /evil|javascript/);
  }
});

test('a second sign-in and a logout end the session that the browser had', async () => {
  const first = await addSignedIn();
  const second = await signIn(first.username, { cookie: first.host });
  assert.equal(await statusOf('/account', first.host), 303);
  assert.equal(await statusOf('/account', second.host), 200);
  const out = await post('/logout', `${second.host}; ${second.domain}`);
  assert.deepEqual([out.status, out.headers.get('location')], [303, '/login']);
  assert.equal(out.cookies.filter((cookie) => cookie.endsWith('Max-Age=0')).length, 2);
  assert.deepEqual(await opens(`${second.host}; ${second.domain}`), [303, 401]);
  const ended = await show('/account', second.host);
  assert.equal(ended.headers.get('location'), signInFor('/account'));
  assert.equal((await post('/logout', second.host)).status, 303, 'logging out twice');
  // Nor does one whose row is marked as deleted.
  const { host, domain } = await signIn(first.username);
  await sql`update identity.sessions set deleted_at = now() where user_id = ${first.id}`;
  assert.deepEqual(await opens(`${host}; ${domain}`), [303, 401]);
});

test('the domain cookie opens verify, and nothing else', async () => {
  const { id, host, domain } = await addSignedIn();
  const { status, headers } = await verify(domain);
  const person = [headers.get('x-auth-user-id'), headers.get('x-auth-methods')];
  assert.deepEqual([status, ...person], [200, id, 'password']);
  assert.ok(Math.abs(Number(headers.get('x-auth-time')) - Date.now() / 1000) < 60);
  assert.deepEqual(await opens(domain), [303, 200]);
  assert.deepEqual(await opens(host), [200, 401], 'other hosts do not get that of the portal');
  for (const { method, pattern, security } of await createRoutes(null)) {
    if (security.length === 0 || pattern === '/api/auth/verify') continue;
    const path = identity + pattern.replace(/\{[a-z_]+\}/g, id);
    for (const sent of [
      { cookie: `${host}; ${domain}` },
      { authorization: `Bearer ${valueOf(domain)}` },
    ]) {
      const answer = await ask(method, path, { headers: { ...sent } });
      assert.equal(answer.status, 401, `${method} ${pattern}`);
    }
  }
});

test('a cookie that a neighboring host plants opens nothing, and hides nothing', async () => {
  const victim = await addSignedIn();
  const thief = await addSignedIn();
  for (const [own, planted] of [
    [victim.domain, thief.domain],
    [victim.host, thief.host],
  ] as const) {
    for (const cookie of [`${own}; ${planted}`, `${planted}; ${own}`]) {
      assert.deepEqual(await opens(cookie), [303, 401]);
      assert.match((await show('/login', cookie)).text, /name="password"/);
    }
  }
  // No other cookie takes the place of one that was given twice.
  assert.equal((await verify(`${victim.domain}; ${thief.domain}; ${thief.host}`)).status, 401);
  // The portal reads the cookie of its own host alone.
  for (const planted of [thief.domain, `__Host-Gatehouse=${valueOf(thief.host)}`]) {
    const { text } = await show('/account', `${planted}; ${victim.host}`);
    assert.ok(text.includes(`<dd>${victim.username}</dd>`), planted);
  }
  // The cookie `session` has no prefix: any host of the domain can set it.
  const token = await logIn(identity, thief.username, PASSWORD);
  for (const planted of [token, token.replace(':', '%3A')].map((form) => `session=${form}`)) {
    assert.equal((await verify(planted)).status, 401);
    for (const cookie of [`${planted}; ${victim.domain}`, `${victim.domain}; ${planted}`])
      assert.equal((await verify(cookie)).headers.get('x-auth-username'), victim.username);
  }
});

test('the account page shows its user, ends a session and changes the password', async () => {
  const { username } = await add({ first_name: '<b>Ada' });
  const here = await signIn(username);
  const there = await signIn(username);
  const { text } = await show('/account', here.host);
  assert.match(text, /<dd><span>&#60;b&#62;Ada<\/span>/);
  assert.match(text, />This session</);
  const shown = [...text.matchAll(/name="session_id" value="([^"]+)"/g)];
  assert.equal(shown.length, 1, 'the own session ends by signing out');
  const session_id = shown[0]?.[1] ?? '';
  assert.equal((await post('/account/sessions/end', here.host, { session_id })).status, 303);
  assert.equal(await statusOf('/account', there.host), 303);

  const change = (current_password: string, new_password: string, cookie = here.host) =>
    post('/account/password', cookie, { current_password, new_password });
  assert.equal((await change('x', OWN)).status, 401);
  assert.match((await change(PASSWORD, 'short')).text, /id="new_password-problem">Must have at/);
  const stolen = await signIn(username);
  const changed = await change(PASSWORD, OWN);
  assert.deepEqual([changed.status, changed.headers.get('location')], [303, '/account']);
  for (const { host, domain } of [stolen, here]) {
    assert.deepEqual(await opens(`${host}; ${domain}`), [303, 401]);
    assert.equal((await change(PASSWORD, OWN, host)).status, 303);
  }
  assert.deepEqual(await opens(`${changed.host}; ${changed.domain}`), [200, 200]);
});

test('all other sessions end, and the current one gets new tokens and keeps its expiry and proof', async () => {
  const here = await addSignedIn();
  const there = await signIn(here.username);
  const api = await logIn(identity, here.username, PASSWORD);
  const { key: own } = await key({ ...here, token: api });
  await sql`
    update identity.sessions
    set authenticated_at = now() - interval '1 hour', methods = 'passkey'
    where user_id = ${here.id} and domain_digest is not null`;
  const sessionOf = async (cookie: string) => {
    const { status, headers } = await verify(cookie);
    const [row] = await sql`select expires_at::text as ends from identity.sessions
      where id = ${headers.get('x-auth-session-id') ?? ''}`;
    return [status, headers.get('x-auth-methods'), headers.get('x-auth-time'), row?.ends];
  };
  const before = await sessionOf(here.domain);
  const page = await post('/account/sessions/end', here.host);
  for (const { host, domain } of [here, there])
    assert.deepEqual(await opens(`${host}; ${domain}`), [303, 401]);
  assert.equal((await call(api, 'GET', '/api/test/')).status, 401);
  assert.deepEqual(await sessionOf(page.domain), before);
  assert.equal(await statusOf('/account', page.host), 200);
  const [entry] = await sql`select count, actor_id from identity.audit
    where user_id = ${here.id} and event = 'session.revoked'`;
  assert.deepEqual({ ...entry }, { count: 3, actor_id: here.id });
  // The keys of the user end only on request.
  for (const [keys, status, ofKey] of [
    ['all', 400, 200],
    ['revoke', 303, 401],
  ] as const) {
    assert.equal((await post('/account/sessions/end', page.host, { keys })).status, status);
    assert.equal((await call(own, 'GET', '/api/test/')).status, ofKey);
  }
});

test('max_age and a required factor ask a person for a new sign-in, and do not accept a key', async () => {
  const { id, domain: cookie } = await addSignedIn();
  assert.equal((await verify(cookie, '?max_age=60')).status, 200);
  await sql`update identity.sessions
    set authenticated_at = authenticated_at - interval '2 minutes'`;
  const old = await verify(cookie, '?max_age=60');
  assert.equal(old.status, 401);
  assert.match(old.text, /"signin_too_old"/);
  assert.equal((await verify(cookie, '?max_age=300')).status, 200);
  const person = { cookie, headers: { accept: 'text/html' } };
  const locationFor = async (query: string) =>
    (await visit(`/api/auth/verify?${query}&redirect=302`, person)).headers.get('location');
  assert.equal(await locationFor('max_age=60'), `${ORIGIN}/login?again=on`);
  const token = () => call(admin.token, 'GET', '/api/auth/verify?max_age=60');
  assert.equal((await token()).status, 200);
  await sql`update identity.sessions set created_at = created_at - interval '2 minutes'`;
  assert.equal((await token()).status, 401);
  const asked = await verify(cookie, '?require=second_factor');
  assert.equal(asked.status, 401);
  assert.match(asked.text, /"second_factor_needed"/);
  assert.equal(await locationFor('require=second_factor'), `${ORIGIN}/account/factors`);
  // Added in another browser.
  await sql`update identity.users set second_factor = true where id = ${id}`;
  assert.equal(await locationFor('require=second_factor'), `${ORIGIN}/login?again=on`);
  const { key: own } = await key(null);
  for (const query of ['max_age=60', 'require=second_factor'])
    assert.equal((await call(own, 'GET', `/api/auth/verify?${query}`)).status, 403);
  const { status, headers } = await call(own, 'GET', '/api/auth/verify');
  const proof = [headers.get('x-auth-methods'), headers.get('x-auth-time')];
  assert.deepEqual([status, ...proof], [200, '', '']);
});

test('credentials of the program behind the proxy do not hide the cookie', async () => {
  const { domain: cookie } = await addSignedIn();
  for (const [headers, status] of [
    [{ authorization: 'Bearer eyJhbGciOiJub25lIn0.e30.' }, 200],
    [{ 'x-api-key': 'sk_live_51' }, 200],
    // Only the first credential is checked.
    [{ authorization: 'Bearer session:wrong' }, 401],
    [{ authorization: 'Bearer key:wrong' }, 401],
  ] as const) {
    const answer = await visit('/api/auth/verify', { cookie, headers: { ...headers } });
    assert.equal(answer.status, status, JSON.stringify(headers));
  }
});

test('a signed-in browser continues at once, but not without the cookie for the domain', async () => {
  const { host, domain } = await addSignedIn();
  const other = await addSignedIn();
  const path = `/login?return_to=${encodeURIComponent('https://wiki.example.org/x')}`;
  const both = `${host}; ${domain}`;
  assert.match((await show(path, both)).text, /url=https:\/\/wiki\.example\.org\/x"/);
  for (const [address, cookie] of [
    [path, host],
    [path, domain],
    [path, `${host}; ${other.domain}`],
    [path, ''],
    [`${path}&again=on`, both],
  ] as const)
    assert.match((await show(address, cookie)).text, /name="password"/);
});

test("without COOKIE_DOMAIN, only the cookie of the portal's host is set; it opens verify", async (context) => {
  const alone = await startPortal(context, { COOKIE_DOMAIN: '' });
  const { id, page, host } = await alone.addSignedIn();
  // Also that of a sign-in that waits, which is removed.
  assert.deepEqual([page.cookies.length, page.domain], [2, '']);
  const verified = await alone.show('/api/auth/verify?max_age=60', host);
  assert.deepEqual([verified.status, verified.headers.get('x-auth-user-id')], [200, id]);
  const twice = `${host}; ${host}`;
  for (const cookie of [`__Secure-gatehouse=${valueOf(host)}`, twice, `${twice}; session=x`])
    assert.equal((await alone.show('/api/auth/verify', cookie)).status, 401, cookie);
  await alone.sql`update identity.sessions
    set authenticated_at = authenticated_at - interval '2 minutes'`;
  assert.equal((await alone.show('/api/auth/verify?max_age=60', host)).status, 401);
  assert.match((await alone.show('/login', host)).text, /You are signed in/);
});

// --- Where a browser returns

const CANNOT_RETURN = 'a browser cannot return after signing in';

test('verify sends browsers to the sign-in page, in the way the proxy asks for', async () => {
  const page = forwarded('app.example.org');
  const script = { ...page, 'sec-fetch-mode': 'cors', 'sec-fetch-dest': 'empty' };
  const location = `${ORIGIN}/login?return_to=${encodeURIComponent('https://app.example.org/a?b=c')}`;
  for (const [query, headers, expected] of [
    ['?redirect=302', page, [303, location]],
    ['?redirect=401', page, [401, location]],
    ['', page, [401, null]],
    ['?redirect=302', script, [401, null]],
    ['?redirect=401', { ...page, 'x-forwarded-method': 'POST' }, [401, null]],
  ] as const) {
    const sent = await visit(`/api/auth/verify${query}`, { headers });
    assert.deepEqual([sent.status, sent.headers.get('location')], expected, query);
  }
});

// Of each message, five lines a second are written.
for (const [id, { headers, returns = null, problem }] of Object.entries({
  'missing-in-RETURN_ORIGINS': {
    headers: forwarded('app2.example.org'),
    returns: 'https://app2.example.org/a?b=c',
    problem: 'https://app2.example.org is not in RETURN_ORIGINS',
  },
  'outside-of-the-domain': {
    headers: forwarded('evil.example'),
    problem: 'https://evil.example is not in RETURN_ORIGINS',
  },
  'no-address': {
    headers: forwarded('', '/a'),
    problem: 'X-Forwarded-Proto, -Host and -Uri are no address of at most 2,048 characters',
  },
  'without-a-proxy': { headers: { accept: 'text/html' }, problem: undefined },
  'a-script': { headers: { ...forwarded('app2.example.org'), accept: '*/*' }, problem: undefined },
})) {
  test(`the log says why a browser does not return: ${id}`, async () => {
    const sent = await visit('/api/auth/verify?redirect=302', {
      headers: { ...headers, 'x-request-id': id },
    });
    const { searchParams } = new URL(sent.headers.get('location') ?? '', ORIGIN);
    const line = portal
      .log()
      .find(({ request_id, message }) => request_id === id && message === CANNOT_RETURN);
    assert.deepEqual([searchParams.get('return_to'), line?.problem], [returns, problem]);
  });
}

test('headers of a sender that is no trusted proxy have no effect, and the log says so', async (t) => {
  const settings = { ...PORTAL, TRUSTED_PROXIES: '192.0.2.1' };
  const { url, log } = await startGatehouse(t, ['identity'], portal.databaseUrl, settings);
  const page = await visitorOf(url.identity)('/api/auth/verify?redirect=302', {
    headers: forwarded('app.example.org'),
  });
  assert.equal(page.headers.get('location'), `${ORIGIN}/login`);
  const line = log().find(({ message }) => message === CANNOT_RETURN);
  assert.equal(line?.problem, 'the proxy is not in TRUSTED_PROXIES');
  assert.deepEqual([line.level, line.ip], ['warn', '127.0.0.1']);
});

test('the sign-in page names a program of the domain to which nobody returns, and no other', async () => {
  for (const [address, isNamed] of [
    ['https://app2.example.org/a', true],
    ['https://app.example.org/', false],
    ['https://evil.example/', false],
    ['https://app2.example.org.evil.example/', false],
    ['https://evilexample.org/', false],
    ['/', false],
  ] as const) {
    const { text } = await visit(`/login?return_to=${encodeURIComponent(address)}`, {
      headers: { host: new URL(ORIGIN).host },
    });
    assert.equal(text.includes('You will not return to https://app2.example.org'), isNamed);
    assert.equal(text.includes('You will not return'), isNamed, address);
  }
});

test('a service without the pages loads none of their code at its start', () => {
  const read = reachable(readTree(), ['src/cli.ts', 'src/main.ts', 'src/identity/start.ts']);
  assert.ok(read.includes('src/identity/guard.ts'));
  assert.ok(!read.some((file) => /\/(signin|factors)\//.test(file)));
});
