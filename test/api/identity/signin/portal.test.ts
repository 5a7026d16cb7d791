/** The sign-in pages: forms, cookies, and what the cookies open. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { reachable, readTree } from '../../../../scripts/reading.ts';
import { createRoutes } from '../../../../src/identity/routes.ts';
import { logIn, assertStatus } from '../../../support/gatehouse.ts';
import { cookieFrom, ORIGIN, signInFor, startPortal, valueOf } from '../../../support/portal.ts';
import { PASSWORD } from '../../../support/users.ts';

const routes = await createRoutes(null);

const { identity, sql, admin, call, add, key, visit, signIn } = await startPortal({ after });

test('the form comes under a strict policy, and repeats only an escaped name', async () => {
  const page = await visit('/login?return_to=%22%3E%3Cscript%3E');
  assert.equal(page.status, 200);
  assert.match(
    page.headers.get('content-security-policy') ?? '',
    /default-src 'none'.*form-action 'self'; frame-ancestors 'none'/,
  );
  assert.equal(
    page.headers.get('referrer-policy'),
    'same-origin',
    'browsers would otherwise send forms with Origin: null',
  );
  assert.match(page.text, /value="&#34;&#62;&#60;script&#62;"/);
  const again = await visit('/login', {
    fields: { username: '<i>"x', password: 'wrong', return_to: 'https://app.example.org/' },
  });
  assert.equal(again.status, 401);
  assert.match(again.text, /role="alert"[^>]*>The username or password is wrong/);
  assert.match(again.text, /name="username"[^>]* value="&#60;i&#62;&#34;x"/);
  assert.match(again.text, /name="return_to" value="https:\/\/app\.example\.org\/"/);
  assert.doesNotMatch(again.text, /value="wrong"/);
  assert.deepEqual(again.cookies, []);
});

test('one page answers an unknown name, a wrong password, a disabled account, with any factors', async () => {
  const known = await add();
  const disabled = await add({ enabled: false });
  const guarded = await add();
  const both = await add({ enabled: false });
  await sql`update identity.users set second_factor = true where id in (${guarded.id}, ${both.id})`;
  const pages = [];
  for (const [username, password] of [
    ['nobody-here', PASSWORD],
    [known.username, 'wrong-password'],
    [disabled.username, PASSWORD],
    [guarded.username, 'wrong-password'],
    [both.username, PASSWORD],
    [both.username, 'wrong-password'],
  ] as const) {
    const page = await visit('/login', { fields: { username, password, return_to: '' } });
    const headers = [...page.headers].filter(
      ([name]) => !['date', 'content-length', 'x-request-id'].includes(name),
    );
    pages.push(
      `${page.status} ${JSON.stringify([headers, page.cookies])} ${page.text.replaceAll(username, 'NAME')}`,
    );
  }
  assert.equal(new Set(pages).size, 1, pages.join('\n'));
});

test('a cookie that a neighboring host plants beside the own one opens nothing', async () => {
  const victim = await signIn((await add()).username);
  const thief = await signIn((await add()).username);
  for (const [own, planted] of [
    [victim.domain, thief.domain],
    [victim.host, thief.host],
  ] as const) {
    for (const cookie of [`${own}; ${planted}`, `${planted}; ${own}`]) {
      assert.equal((await visit('/api/auth/verify', { cookie })).status, 401);
      const { headers } = await visit('/account', { cookie });
      assert.equal(headers.get('location'), signInFor('/account'));
      assert.match((await visit('/login', { cookie })).text, /name="password"/);
    }
  }
  // No other cookie takes the place of one that was given twice.
  const twice = `${victim.domain}; ${thief.domain}; ${thief.host}`;
  assert.equal((await visit('/api/auth/verify', { cookie: twice })).status, 401);
  // The portal reads the cookie of its own host alone.
  for (const cookie of [
    `${thief.domain}; ${victim.host}`,
    `__Host-Gatehouse=${valueOf(thief.host)}; ${victim.host}`,
  ]) {
    const page = await visit('/account', { cookie });
    assert.match(page.text, new RegExp(`<dd>${victim.username}</dd>`));
  }
});

test('the cookie "session", which any neighboring host can set, names nobody', async () => {
  const victim = await signIn((await add()).username);
  const { username } = await add();
  const token = await logIn(identity, username, PASSWORD);
  const forms = [token, token.replace(':', '%3A'), Buffer.from(token).toString('base64url')];
  for (const planted of forms.map((form) => `session=${form}`)) {
    assert.equal((await visit('/api/auth/verify', { cookie: planted })).status, 401, planted);
    for (const cookie of [`${planted}; ${victim.domain}`, `${victim.domain}; ${planted}`]) {
      const { headers } = await visit('/api/auth/verify', { cookie });
      assert.equal(headers.get('x-auth-username'), victim.username, cookie);
    }
  }
});

test('a session that was stolen before a change of the password opens nothing after it', async () => {
  const { username } = await add();
  const here = await signIn(username);
  const stolen = await signIn(username);
  const fields = { current_password: PASSWORD, new_password: 'a-new-long-password' };
  const changed = await visit('/account/password', { fields, cookie: here.host });
  for (const cookie of [stolen.host, stolen.domain, here.host, here.domain]) {
    assert.equal((await visit('/api/auth/verify', { cookie })).status, 401);
    assert.equal((await visit('/account', { cookie })).status, 303);
    assert.equal((await visit('/account/password', { fields, cookie })).status, 303);
  }
  assertStatus(
    await visit('/api/auth/verify', { cookie: cookieFrom(changed, '__Secure-gatehouse') }),
    200,
  );
});

test('signing in sets both cookies and returns to listed addresses only', async () => {
  const { username } = await add();
  const { page } = await signIn(username, {
    fields: { return_to: 'https://app.example.org/a?b=c&d=e' },
  });
  assert.match(
    page.cookies[0] ?? '',
    /^__Host-gatehouse=[\w-]{43}; Path=\/; Secure; HttpOnly; SameSite=Lax$/,
  );
  assert.match(
    page.cookies[1] ?? '',
    /^__Secure-gatehouse=[\w-]{43}; Domain=example\.org; Path=\/; Secure; HttpOnly; SameSite=Lax$/,
  );
  assert.match(page.text, /url=https:\/\/app\.example\.org\/a\?b=c&#38;d=e"/);
  for (const address of ['https://evil.example/', '//evil.example', 'javascript:alert(1)', '']) {
    const other = (await signIn(username, { fields: { return_to: address } })).page.text;
    assert.match(other, /url=https:\/\/login\.example\.org\/account"/);
    assert.doesNotMatch(other, /evil|javascript/);
  }
});

test('a second sign-in and a logout end the session that the browser had', async () => {
  const { username } = await add();
  const first = await signIn(username);
  const second = await signIn(username, { cookie: first.host });
  assert.equal((await visit('/account', { cookie: first.host })).status, 303);
  assert.equal((await visit('/account', { cookie: second.host })).status, 200);
  const out = await visit('/logout', { fields: {}, cookie: `${second.host}; ${second.domain}` });
  assert.deepEqual([out.status, out.headers.get('location')], [303, '/login']);
  assert.equal(out.cookies.filter((cookie) => cookie.endsWith('Max-Age=0')).length, 2);
  assert.equal(
    (await visit('/account', { cookie: second.host })).headers.get('location'),
    signInFor('/account'),
  );
  assert.equal((await visit('/api/auth/verify', { cookie: second.domain })).status, 401);
  assertStatus(
    await visit('/logout', { fields: {}, cookie: second.host }),
    303,
    'logging out twice',
  );
});

test('the domain cookie opens verify, and nothing else', async () => {
  const { username, id } = await add();
  const { host, domain } = await signIn(username);
  const verified = await visit('/api/auth/verify', { cookie: domain });
  assert.equal(verified.status, 200);
  assert.equal(verified.headers.get('x-auth-user-id'), id);
  assert.equal(verified.headers.get('x-auth-methods'), 'password');
  assert.ok(Math.abs(Number(verified.headers.get('x-auth-time')) - Date.now() / 1000) < 60);
  assertStatus(
    await visit('/api/auth/verify', { cookie: host }),
    401,
    'that of the portal, which other hosts do not get',
  );
  assert.equal((await visit('/account', { cookie: domain })).status, 303);
  for (const two of [`${domain}; ${domain}`, `${host}; ${host}`]) {
    assertStatus(await visit('/api/auth/verify', { cookie: two }), 401, 'a cookie given twice');
    assert.equal((await visit('/account', { cookie: two })).status, 303);
  }
  for (const { method, pattern, security } of routes) {
    if (security.length === 0 || pattern === '/api/auth/verify') continue;
    const path = pattern.replace(/\{[a-z_]+\}/g, id);
    for (const token of [valueOf(domain), null]) {
      const headers: Record<string, string> =
        token === null ? { cookie: `${host}; ${domain}` } : { authorization: `Bearer ${token}` };
      const response = await fetch(identity + path, { method, headers });
      assert.equal(response.status, 401, `${method} ${pattern}`);
      await response.body?.cancel();
    }
  }
});

test('the account page shows its user, changes the password and ends sessions', async () => {
  const { username } = await add({ first_name: '<b>Ada' });
  const here = await signIn(username);
  const there = await signIn(username);
  const page = await visit('/account', { cookie: here.host });
  assert.match(page.text, /<dd><span>&#60;b&#62;Ada<\/span>/);
  const id = /name="session_id" value="([0-9a-f-]{36})"/.exec(page.text)?.[1] ?? '';
  const ended = await visit('/account/sessions/end', {
    fields: { session_id: id },
    cookie: here.host,
  });
  assert.equal(ended.status, 303);
  assert.equal((await visit('/account', { cookie: there.host })).status, 303);
  assert.equal((await visit('/account', { cookie: here.host })).status, 200);

  const wrong = await visit('/account/password', {
    fields: { current_password: 'x', new_password: 'a-new-long-password' },
    cookie: here.host,
  });
  assert.equal(wrong.status, 401);
  assert.match(wrong.text, /The current password is wrong/);
  const weak = await visit('/account/password', {
    fields: { current_password: PASSWORD, new_password: 'short' },
    cookie: here.host,
  });
  assert.equal(weak.status, 400);
  assert.match(
    weak.text,
    /<p class="error" role="alert" id="new_password-problem">Must have at least/,
  );
  const changed = await visit('/account/password', {
    fields: { current_password: PASSWORD, new_password: 'a-new-long-password' },
    cookie: here.host,
  });
  assert.equal(changed.status, 303);
  assert.equal(changed.headers.get('location'), '/account');
  const fresh = `__Host-gatehouse=${valueOf(changed.cookies[0])}`;
  assertStatus(
    await visit('/account', { cookie: here.host }),
    303,
    'a token from before the change',
  );
  assert.equal((await visit('/account', { cookie: fresh })).status, 200);
});

test('all other sessions end, and the current one gets new tokens and keeps its expiry and proof', async () => {
  const { username, id } = await add();
  const here = await signIn(username);
  const there = await signIn(username);
  const api = await logIn(identity, username, PASSWORD);
  await sql`
    update identity.sessions
    set authenticated_at = now() - interval '1 hour', methods = 'passkey'
    where user_id = ${id} and domain_digest is not null`;
  const sessionOf = async (cookie: string) => {
    const { status, headers } = await visit('/api/auth/verify', { cookie });
    const [row] =
      await sql`select expires_at::text as ends from identity.sessions where id = ${headers.get('x-auth-session-id') ?? ''}`;
    return [status, headers.get('x-auth-methods'), headers.get('x-auth-time'), row?.ends];
  };
  const before = await sessionOf(here.domain);
  assert.match((await visit('/account', { cookie: here.host })).text, /Sign out everywhere else/);
  const page = await visit('/account/sessions/end', { fields: {}, cookie: here.host });
  const notice = cookieFrom(page, '__Host-gatehouse-notice').split('=')[1] ?? '';
  assert.equal(Buffer.from(notice, 'base64url').toString(), 'All other sessions have ended.');
  for (const cookie of [here.host, there.host, here.domain, there.domain]) {
    assert.equal((await visit('/api/auth/verify', { cookie })).status, 401);
  }
  assert.equal((await call(api, 'GET', '/api/test/')).status, 401);
  assert.deepEqual(await sessionOf(cookieFrom(page, '__Secure-gatehouse')), before);
  assertStatus(await visit('/account', { cookie: cookieFrom(page, '__Host-gatehouse') }), 200);
  const [entry] =
    await sql`select count, actor_id from identity.audit where user_id = ${id} and event = 'session.revoked'`;
  assert.deepEqual([entry?.count, entry?.actor_id], [3, id]);
});

test('verify redirects only browsers to the portal, in the way the proxy asks for', async () => {
  const page = {
    accept: 'text/html',
    'x-forwarded-proto': 'https',
    'x-forwarded-host': 'app.example.org',
    'x-forwarded-uri': '/a?b=c',
  };
  const location = `${ORIGIN}/login?return_to=${encodeURIComponent('https://app.example.org/a?b=c')}`;
  for (const [query, status] of [
    ['?redirect=302', 303],
    ['?redirect=401', 401],
  ] as const) {
    const sent = await visit(`/api/auth/verify${query}`, { headers: page });
    assert.deepEqual([sent.status, sent.headers.get('location')], [status, location]);
    for (const headers of [
      { accept: '*/*' },
      { ...page, 'x-forwarded-method': 'POST' },
      { ...page, 'sec-fetch-mode': 'cors', 'sec-fetch-dest': 'empty' },
    ]) {
      const refused = await visit(`/api/auth/verify${query}`, { headers });
      assert.deepEqual([refused.status, refused.headers.get('location')], [401, null]);
    }
    const elsewhere = await visit(`/api/auth/verify${query}`, {
      headers: { ...page, 'x-forwarded-host': 'evil.example' },
    });
    assert.equal(elsewhere.headers.get('location'), `${ORIGIN}/login`);
  }
  assert.equal((await visit('/api/auth/verify', { headers: page })).headers.get('location'), null);
});

test('max_age asks for a new sign-in of a person, and does not accept a key', async () => {
  const { username } = await add();
  const { domain: cookie } = await signIn(username);
  assert.equal((await visit('/api/auth/verify?max_age=60', { cookie })).status, 200);
  await sql`update identity.sessions set authenticated_at = authenticated_at - interval '2 minutes'`;
  const old = await visit('/api/auth/verify?max_age=60', { cookie });
  assert.equal(old.status, 401);
  assert.match(old.text, /"signin_too_old"/);
  assert.equal((await visit('/api/auth/verify?max_age=300', { cookie })).status, 200);
  const page = await visit('/api/auth/verify?max_age=60&redirect=302', {
    cookie,
    headers: { accept: 'text/html' },
  });
  assert.equal(page.headers.get('location'), `${ORIGIN}/login?again=on`);
  const bearer = { authorization: `Bearer ${admin.token}` };
  const token = await visit('/api/auth/verify?max_age=60', { headers: bearer });
  assert.deepEqual([token.status, token.headers.get('x-auth-methods')], [200, 'password']);
  await sql`update identity.sessions set created_at = created_at - interval '2 minutes'`;
  assert.equal((await visit('/api/auth/verify?max_age=60', { headers: bearer })).status, 401);
  const { key: own } = await key(null);
  assertStatus(await visit('/api/auth/verify?max_age=60', { headers: { 'x-api-key': own } }), 403);
  const passed = await visit('/api/auth/verify', { headers: { 'x-api-key': own } });
  assert.deepEqual(
    [passed.status, passed.headers.get('x-auth-methods'), passed.headers.get('x-auth-time')],
    [200, '', ''],
  );
});

test('a signed-in browser is redirected at once, but not without the cookie for the domain', async () => {
  const { host, domain } = await signIn((await add()).username);
  const path = `/login?return_to=${encodeURIComponent('https://wiki.example.org/x')}`;
  assert.match(
    (await visit(path, { cookie: `${host}; ${domain}` })).text,
    /url=https:\/\/wiki\.example\.org\/x"/,
  );
  for (const cookie of [host, domain, ''])
    assert.match((await visit(path, { cookie })).text, /<form method="post"/);
  assert.match(
    (await visit(`${path}&again=on`, { cookie: `${host}; ${domain}` })).text,
    /<form method="post"/,
  );
});

test("without COOKIE_DOMAIN, only the cookie of the portal's host is set; it opens verify", async (context) => {
  const alone = await startPortal(context, { COOKIE_DOMAIN: '' });
  const { username, id } = await alone.add();
  const { page, host, domain } = await alone.signIn(username);
  assert.deepEqual(
    [page.cookies.length, domain],
    [2, ''],
    'with that of the pending sign-in, which is removed',
  );
  const verified = await alone.visit('/api/auth/verify?max_age=60', { cookie: host });
  assert.deepEqual(
    [
      verified.status,
      verified.headers.get('x-auth-user-id'),
      verified.headers.get('x-auth-methods'),
    ],
    [200, id, 'password'],
  );
  for (const cookie of [
    `__Secure-gatehouse=${valueOf(host)}`,
    `${host}; ${host}`,
    `${host}; ${host}; session=${valueOf(host)}`,
  ]) {
    assert.equal((await alone.visit('/api/auth/verify', { cookie })).status, 401, cookie);
  }
  await alone.sql`update identity.sessions set authenticated_at = authenticated_at - interval '2 minutes'`;
  assert.equal((await alone.visit('/api/auth/verify?max_age=60', { cookie: host })).status, 401);
  assert.match((await alone.visit('/login', { cookie: host })).text, /You are signed in/);
});

test('a service without the pages loads none of their code at its start', () => {
  const read = reachable(readTree(), ['src/cli.ts', 'src/main.ts', 'src/identity/start.ts']);
  assert.ok(read.includes('src/identity/guard.ts'));
  assert.deepEqual(
    read.filter((file) => /\/(signin|factors)\//.test(file)),
    [],
  );
});
