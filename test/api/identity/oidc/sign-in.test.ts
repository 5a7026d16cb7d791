/**
 * Authorization requests, accepted or wrong, and where the browser goes then; and when the person
 * is asked: to sign in, again, with a second factor, or for consent. Names in capitals are those of
 * the conformance plan for a basic provider (OIDCCBasicTestPlan of the OpenID Foundation). Names of
 * other tests of this folder end with those of its cases that need several requests.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createPasskey } from '../../../support/authenticator.ts';
import { stopClock } from '../../../support/clock.ts';
import { factorsOf } from '../../../support/factors.ts';
import { meanwhile } from '../../../support/meanwhile.ts';
import {
  answerIn,
  begin,
  CALLBACK,
  continuation,
  fieldsOf,
  readToken,
  startProvider,
} from '../../../support/oidc.ts';
import { ORIGIN, type Page, valueOf } from '../../../support/portal.ts';
import { wordsOf } from '../../../support/words.ts';

const provider = await startProvider({ after });
const { sql, visit, show, post, signIn, addSignedIn } = provider;
const factors = factorsOf(provider);
const { addEnrolled, start, enterCode, makeTemporary } = factors;
const { register, proveWith, signInWith } = factors;
const web = await provider.register('web', '--refresh');
const strict = await provider.register('strict', '--second-factor');
const created = await provider.run([
  ...['client', 'create', '--id', 'native', '--name', 'Native', '--public', '--no-consent'],
  ...['--redirect', 'http://127.0.0.1/cb,app.example:/cb'],
]);
assert.equal(created.code, 0, created.stderr);
const ada = await addSignedIn({ first_name: 'Ada', last_name: 'Lovelace' });
const open = (path: string) => show(path, ada.host);
const assertStopped = ({ status, headers }: Page, what?: string) =>
  assert.deepEqual([status, headers.get('location')], [400, null], what);

type Parameters = Readonly<Record<string, string>>;
const PROFILE = wordsOf('name given_name family_name preferred_username updated_at');
const EMAIL = ['email', 'email_verified'];
const ALL = [...PROFILE, ...EMAIL, 'groups'];

/** With the claims that the program may know, besides `sub`. */
const ACCEPTED: Readonly<Record<string, readonly [Parameters, readonly string[]]>> = {
  EnsureRequestWithoutNonceSucceedsForCodeFlow: [{ nonce: '' }, ALL],
  ScopeProfile: [{ scope: 'openid profile' }, PROFILE],
  ScopeEmail: [{ scope: 'openid email' }, EMAIL],
  'ScopeAddress, ScopePhone': [{ scope: 'openid address phone' }, []],
  ScopeAll: [{ scope: 'openid profile email address phone' }, [...PROFILE, ...EMAIL]],
  PromptNoneLoggedIn: [{ prompt: 'none' }, ALL],
  MaxAge10000: [{ max_age: '10000' }, ALL],
  'EnsureRequestWithUnknownParameterSucceeds, LoginHint, UiLocales, ClaimsLocales, DisplayPopup': [
    { extra: 'x', login_hint: 'ada', ui_locales: 'de', claims_locales: 'de', display: 'popup' },
    ALL,
  ],
  'EnsureRequestWithAcrValuesSucceeds, ClaimsEssential': [
    { acr_values: '1 2', claims: '{"userinfo":{"name":{"essential":true}}}' },
    ALL,
  ],
};

for (const [name, [more, claims]] of Object.entries(ACCEPTED)) {
  test(name, async () => {
    const tokens = await provider.tokensFor(web, ada.host, more);
    const known = JSON.parse((await provider.userinfo(tokens.access_token)).text);
    assert.deepEqual(Object.keys(known).sort(), ['sub', ...claims].sort());
    const { nonce, auth_time } = readToken(tokens.id_token).claims;
    assert.equal(nonce, more['nonce'] === '' ? undefined : 'nonce-1');
    assert.equal(typeof auth_time, 'number');
  });
}

/** Each parameter that is wrong, with the error that the program gets. */
const WRONG: ReadonlyArray<readonly [Parameters, string]> = [
  [{ response_type: '' }, 'invalid_request'],
  [{ response_type: 'token' }, 'unsupported_response_type'],
  [{ response_type: 'code id_token' }, 'unsupported_response_type'],
  [{ response_mode: 'form_post' }, 'invalid_request'],
  [{ scope: 'profile' }, 'invalid_scope'],
  [{ scope: '' }, 'invalid_scope'],
  [{ request: 'eyJ' }, 'request_not_supported'],
  [{ request_uri: 'https://app.example.net/request' }, 'request_uri_not_supported'],
  [{ registration: '{}' }, 'registration_not_supported'],
  [{ code_challenge_method: 'plain' }, 'invalid_request'],
  [{ code_challenge_method: '' }, 'invalid_request'],
  [{ code_challenge: '' }, 'invalid_request'],
  [{ code_challenge: '', code_challenge_method: '' }, 'invalid_request'],
  [{ code_challenge: 'short' }, 'invalid_request'],
  [{ prompt: 'none login' }, 'invalid_request'],
  [{ max_age: '-1' }, 'invalid_request'],
  [{ nonce: 'x'.repeat(513) }, 'invalid_request'],
  [{ nonce: 'a\0b' }, 'invalid_request'],
];

for (const [more, error] of WRONG) {
  test(`${JSON.stringify(more).slice(0, 60)} is ${error}, with state and issuer`, async () => {
    const answer = answerIn(await open(begin(web, more).path));
    const told = ['error', 'state', 'iss', 'code'].map((name) => answer.get(name));
    assert.deepEqual(told, [error, 'a state & more', ORIGIN, null]);
  });
}

test('nothing leads to an address that is not registered (EnsureRegisteredRedirectUri)', async () => {
  const redirect_uri = 'https://evil.example/callback';
  for (const more of [{}, ...WRONG.map(([more]) => more), { prompt: 'none' }]) {
    const page = await open(begin(web, { ...more, redirect_uri }).path);
    assertStopped(page, JSON.stringify(more));
    assert.match(page.text, /address that is not registered for &#34;Program web&#34;/);
  }
  for (const address of ['', `${CALLBACK}/`, 'http://127.0.0.1:49152/cb', 'app.example:/cb'])
    assertStopped(await open(begin(web, { redirect_uri: address }).path), address);
});

test('an unknown program, or two of them, gets a page', async () => {
  for (const client_id of ['', 'unknown', 'web\0', 'WEB', 'w'.repeat(300)])
    assertStopped(await open(begin(web, { client_id }).path), client_id);
  for (const name of ['client_id', 'redirect_uri'])
    assertStopped(await open(`${begin(web).path}&${name}=x`), name);
  const twice = answerIn(await open(`${begin(web).path}&state=other`));
  assert.equal(twice.get('error'), 'invalid_request', 'another parameter is told to the program');
});

test('the state comes back byte for byte, and the redirect sends no referrer', async () => {
  assert.equal((await provider.visit(begin(web, { state: 'x'.repeat(65_536) }).path)).status, 431);
  for (const state of ['a+b c%20d', '\r\nSet-Cookie: a=b', '{"a":"\u2028"}', 'é😀', '\'"<>&']) {
    const page = await open(begin(web, { state }).path);
    assert.equal(answerIn(page).get('state'), state);
    assert.equal(page.headers.get('referrer-policy'), 'no-referrer');
  }
});

// --- When the person is asked

const administrator = provider.admin.token;

/** What the program gets, if the browser is sent on at once. */
const ask = async (program: { id: string }, cookie: string, more: Parameters = {}) =>
  show(begin(program, more).path, cookie);
const errorOf = (page: Page) => answerIn(page).get('error');
const locationOf = ({ headers }: Page) => new URL(headers.get('location') ?? '', ORIGIN);
/** Follows the link of a page that continues. */
async function follow(page: Page, cookie: string) {
  const { pathname, search } = new URL(continuation(page));
  return show(pathname + search, cookie);
}
/** What the program gets by the link of a page that continues. */
const answerOf = (page: Page) => new URL(continuation(page)).searchParams;
/** A program that asks for consent. */
async function registerAsking(id: string) {
  const program = await provider.register(id);
  await sql`update identity.oidc_clients set consent = true where id = ${id}`;
  return program;
}
const answer = (cookie: string, fields: Parameters, given = 'allow') =>
  post('/oidc/consent', cookie, { ...fields, answer: given });
/** What the form sends that asks a browser. */
async function askedOf(program: { id: string }, cookie: string, more: Parameters = {}) {
  const page = await ask(program, cookie, more);
  assert.equal(page.status, 200, page.text);
  return fieldsOf(page.text);
}

test('prompt=none never shows a page (PromptNoneNotLoggedIn)', async () => {
  const asks = await registerAsking('silent');
  for (const [program, cookie, error] of [
    [web, '', 'login_required'],
    [strict, ada.host, 'interaction_required'],
    [asks, ada.host, 'consent_required'],
  ] as const)
    assert.equal(errorOf(await ask(program, cookie, { prompt: 'none' })), error);
});

for (const [name, more] of Object.entries({
  PromptLogin: { prompt: 'login' },
  'prompt=select_account': { prompt: 'select_account' },
  'max_age=0': { max_age: '0' },
  MaxAge1: { max_age: '1' },
})) {
  test(`${name} asks once, and then continues`, async () => {
    const { id, username, host } = await addSignedIn();
    await sql`update identity.sessions set authenticated_at = now() - interval '2 seconds'
      where user_id = ${id}`;
    const location = locationOf(await ask(web, host, more));
    assert.deepEqual([location.pathname, location.searchParams.get('again')], ['/login', 'on']);
    const return_to = location.searchParams.get('return_to') ?? '';
    // Without a new sign-in, the mark opens nothing.
    const { pathname, search } = new URL(return_to);
    assert.equal(locationOf(await show(pathname + search, host)).pathname, '/login');
    const again = await signIn(username, { fields: { return_to }, cookie: host });
    assert.ok(answerIn(await follow(again.page, again.host)).get('code'));
  });
}

test('a mark of a new sign-in by other hands opens nothing', async () => {
  const forged = await ask(web, ada.host, { prompt: 'login', again: 'none.AAAA' });
  assert.equal(locationOf(forged).pathname, '/login');
});

test('an open code step, the token of the API, and the cookie "session" are no sign-in', async () => {
  const user = await addEnrolled();
  const open = await start(user.username);
  for (const headers of [
    { cookie: open },
    { cookie: `__Host-gatehouse=${valueOf(open)}` },
    { authorization: `Bearer ${administrator}` },
    { cookie: `session=${administrator}` },
    { cookie: `__Host-gatehouse=${administrator}` },
  ])
    assert.equal(locationOf(await visit(begin(web).path, { headers })).pathname, '/login');
  const { host } = await enterCode(open, user.codes[0] ?? '');
  const { id_token } = await provider.tokensFor(strict, host);
  assert.deepEqual(readToken(id_token).claims.amr, ['pwd', 'otp', 'mfa']);
});

test('a passkey is two factors, and alone it outlasts a temporary password', async () => {
  const { id, username, host } = await addSignedIn();
  const passkey = createPasskey();
  await register(host, passkey);
  const both = await proveWith(passkey, await start(username), id);
  const alone = await signInWith(passkey, id);
  for (const [page, amr] of [
    [both, ['pwd', 'pop', 'mfa']],
    [alone, ['pop', 'user', 'mfa']],
  ] as const) {
    const { id_token } = await provider.tokensFor(strict, page.host);
    assert.deepEqual(readToken(id_token).claims.amr, amr);
  }
  await makeTemporary(id);
  assert.equal(errorOf(await ask(strict, both.host)), 'access_denied');
  assert.ok((await provider.tokensFor(strict, alone.host)).id_token);
});

test('the hint of another person is an error (IdTokenHint)', async () => {
  const other = await addSignedIn();
  const { id_token } = await provider.tokensFor(web, ada.host);
  const [head, body] = id_token.split('.');
  const elsewhere = await provider.tokensFor(await provider.register('elsewhere'), ada.host);
  for (const [host, id_token_hint, error] of [
    [ada.host, id_token, null],
    [ada.host, elsewhere.id_token, 'login_required'],
    [other.host, id_token, 'login_required'],
    [ada.host, 'x', 'login_required'],
    [ada.host, `${head}.${body}.AAAA`, 'login_required'],
  ] as const)
    assert.equal(errorOf(await ask(web, host, { id_token_hint })), error);
});

test('a program for a group refuses others, and says so to the program', async () => {
  const staff = await provider.register('staff', '--groups', 'staff,admins');
  const member = await addSignedIn({ groups: ['admins'] });
  assert.equal(errorOf(await ask(staff, ada.host)), 'access_denied');
  assert.equal(errorOf(await ask(staff, member.host)), null);
});

test('a program that needs a second factor leads to the page that adds one', async () => {
  const { pathname, searchParams } = locationOf(await ask(strict, ada.host));
  assert.equal(pathname, '/account/factors');
  assert.match(searchParams.get('return_to') ?? '', /\/oidc\/authorize\?.*strict/);
});

test('a temporary password gets no code, and a session that has ended leads to the sign-in page', async () => {
  const { id, host } = await addSignedIn();
  await sql`update identity.users set password_generated = true where id = ${id}`;
  assert.equal(errorOf(await ask(web, host)), 'access_denied');
  await sql`update identity.sessions set expires_at = now() where user_id = ${id}`;
  assert.equal(locationOf(await ask(web, host)).pathname, '/login');
});

test('a session without the second factor that its user has by now is not enough', async () => {
  const { id, host } = await addSignedIn();
  await sql`update identity.users set second_factor = true where id = ${id}`;
  const { pathname, searchParams } = locationOf(await ask(web, host));
  assert.deepEqual([pathname, searchParams.get('again')], ['/login', 'on']);
  assert.equal(errorOf(await ask(web, host, { prompt: 'none' })), 'login_required');
});

test('a session that is not checked, because of guesses of its network, does not count as ended', async (t) => {
  stopClock(t);
  const headers = { 'x-forwarded-for': '192.0.2.78' };
  for (let guess = 1; guess <= 100; guess += 1)
    await visit('/link', { fields: { token: 'A'.repeat(43) }, headers });
  for (const path of [begin(web).path, begin(web, { prompt: 'none' }).path, '/logout']) {
    const { status, text, headers: sent } = await visit(path, { cookie: ada.host, headers });
    assert.deepEqual([status, sent.get('location')], [429, null], path);
    assert.match(text, /Too many attempts\. Try again in/);
  }
});

// --- Consent

test('a person is asked once for each program and set of scopes', async () => {
  const asks = await registerAsking('consent');
  const { text } = await ask(asks, ada.host);
  for (const said of ['Program consent', 'app.example.net', ada.username, 'e-mail', 'groups'])
    assert.ok(text.includes(said), said);
  assert.ok(answerOf(await answer(ada.host, fieldsOf(text))).get('code'));
  assert.equal(errorOf(await ask(asks, ada.host, { scope: 'openid email' })), null);
  await askedOf(asks, (await addSignedIn()).host);
  // Asked again: the program says so, or wants more.
  await askedOf(asks, ada.host, { prompt: 'consent' });
  await provider.run(['client', 'set', 'consent', '--refresh', 'true']);
  const more = await ask(asks, ada.host, { scope: 'openid email offline_access' });
  assert.match(more.text, /later, too/);
});

test('who refuses sends the program an error, and is asked again', async () => {
  const asks = await registerAsking('refused');
  const given = answerOf(await answer(ada.host, await askedOf(asks, ada.host), 'deny'));
  assert.deepEqual([given.get('error'), given.get('state')], ['access_denied', 'a state & more']);
  await askedOf(asks, ada.host);
});

test('the form of the consent takes no address that is not registered', async () => {
  const asks = await registerAsking('form');
  const [, request = ''] = begin(asks, { redirect_uri: 'https://evil.example/' }).path.split('?');
  for (const given of ['allow', 'deny']) {
    const page = await answer(ada.host, { request }, given);
    assert.equal(page.status, 400);
    assert.ok(!page.text.includes('evil.example'));
  }
  await askedOf(asks, ada.host);
});

test('a session that ends while the person is asked loses no request', async () => {
  const asks = await registerAsking('ended');
  const { username, host } = await addSignedIn();
  const fields = await askedOf(asks, host);
  await post('/logout', host);
  const login = new URL(continuation(await answer(host, fields)), ORIGIN);
  assert.equal(login.pathname, '/login');
  const return_to = login.searchParams.get('return_to') ?? '';
  const again = await signIn(username, { fields: { return_to }, cookie: host });
  const asked = await follow(again.page, again.host);
  assert.equal(asked.status, 200, 'nothing was allowed before the sign-in');
  const given = answerOf(await answer(again.host, fieldsOf(asked.text)));
  assert.deepEqual([Boolean(given.get('code')), given.get('state')], [true, 'a state & more']);
});

test('a session that is removed while the consent is stored gives no code', async () => {
  const asks = await registerAsking('removed');
  const { id, host } = await addSignedIn();
  const fields = await askedOf(asks, host);
  const [page = assert.fail()] = await meanwhile(
    sql,
    (held) => held`lock table identity.oidc_consents in exclusive mode`,
    () => [answer(host, fields)],
    (held) => held`delete from identity.sessions where user_id = ${id}`,
  );
  assert.equal(new URL(continuation(page), ORIGIN).pathname, '/login');
});

test('a form that is sent twice gives codes that work', async () => {
  const twice = await registerAsking('twice');
  const begun = begin(twice);
  const fields = fieldsOf((await show(begun.path, ada.host)).text);
  for (let times = 0; times < 2; times += 1) {
    const code = answerOf(await answer(ada.host, fields)).get('code') ?? '';
    assert.equal((await provider.exchange(twice, { ...begun, code })).status, 200);
  }
});

test('a form for one user grants nothing for another who has signed in meanwhile', async () => {
  const asks = await registerAsking('other');
  const fields = await askedOf(asks, ada.host);
  const bob = await addSignedIn();
  // Even if the program asks nobody any more.
  for (const consent of ['true', 'false']) {
    await provider.run(['client', 'set', 'other', '--consent', consent]);
    const page = await answer(bob.host, fields);
    assert.match(page.text, new RegExp(`wants to know about you, <strong>${bob.username}`));
    const given = await sql`select from identity.oidc_consents where user_id = ${bob.id}
      union all select from identity.oidc_grants where client_id = 'other'`;
    assert.equal(given.length, 0);
  }
});

test('a program without a secret is asked for each time, on any port of the machine', async () => {
  for (const [redirect_uri, named] of [
    ['http://127.0.0.1:49152/cb', '127.0.0.1:49152'],
    ['app.example:/cb', 'app.example:'],
  ] as const) {
    for (let times = 0; times < 2; times += 1) {
      const page = await ask({ id: 'native' }, ada.host, { redirect_uri });
      assert.ok(page.text.includes(named), page.text);
      assert.match(page.headers.get('content-security-policy') ?? '', /frame-ancestors 'none'/);
      assert.ok(answerOf(await answer(ada.host, fieldsOf(page.text))).get('code'), redirect_uri);
    }
  }
});
