/** When the person is asked: to sign in, again, with a second factor, or for consent. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { sha256 } from '../../../../src/platform/crypto/token.ts';
import { factorsOf } from '../../../support/factors.ts';
import {
  answerIn,
  begin,
  continuation,
  fieldsOf,
  readToken,
  startProvider,
} from '../../../support/oidc.ts';
import { cookieFrom, ORIGIN, type Page, valueOf } from '../../../support/portal.ts';

const provider = await startProvider({ after });
const { visit } = provider;
const web = await provider.register('web', '--refresh');
const strict = await provider.register('strict', '--second-factor');
const factors = factorsOf(provider);
const ada = await provider.enter();
const { host: cookie } = await provider.signIn(ada.username);

const errorOf = (page: Page) => answerIn(page).get('error');
const locationOf = ({ headers }: Page) => new URL(headers.get('location') ?? '', ORIGIN);

/** Follows the link of a page that continues. */
async function follow(page: Page, cookie: string) {
  const { pathname, search } = new URL(continuation(page));
  return visit(pathname + search, { cookie });
}

/** What the program gets by the link of a page that continues. */
const answerOf = (page: Page) => new URL(continuation(page)).searchParams;

test('prompt=none never shows a page (PromptNoneNotLoggedIn)', async () => {
  assert.equal(errorOf(await visit(begin(web, { prompt: 'none' }).path)), 'login_required');
  const asks = await provider.register('asks', '--second-factor');
  const path = begin(asks, { prompt: 'none' }).path;
  assert.equal(errorOf(await visit(path, { cookie })), 'interaction_required');
  await provider.run(['client', 'set', 'asks', '--second-factor', 'false', '--consent', 'true']);
  assert.equal(errorOf(await visit(path, { cookie })), 'consent_required');
  assert.equal(errorOf(await visit(begin(web, { prompt: 'none' }).path, { cookie })), null);
});

for (const [name, more] of Object.entries({
  PromptLogin: { prompt: 'login' },
  'prompt=select_account': { prompt: 'select_account' },
  'max_age=0': { max_age: '0' },
  MaxAge1: { max_age: '1' },
})) {
  test(`${name} asks once, and then continues`, async () => {
    const { host } = await provider.signIn(ada.username);
    await provider.sql`
      update identity.sessions set authenticated_at = now() - interval '2 seconds'`;
    const sent = await visit(begin(web, more).path, { cookie: host });
    const location = locationOf(sent);
    assert.deepEqual([location.pathname, location.searchParams.get('again')], ['/login', 'on']);
    const return_to = location.searchParams.get('return_to') ?? '';
    // Without a new sign-in, the mark opens nothing.
    const { pathname, search } = new URL(return_to);
    assert.equal(locationOf(await visit(pathname + search, { cookie: host })).pathname, '/login');
    const again = await provider.signIn(ada.username, { fields: { return_to }, cookie: host });
    const answer = answerIn(await follow(again.page, again.host));
    assert.ok(answer.get('code'));
  });
}

test('max_age that has not passed asks nobody', async () => {
  assert.equal(errorOf(await visit(begin(web, { max_age: '600' }).path, { cookie })), null);
});

test('a mark of other hands opens nothing', async () => {
  const forged = `${begin(web, { prompt: 'login' }).path}&again=none.AAAA`;
  assert.equal(locationOf(await visit(forged, { cookie })).pathname, '/login');
});

test('an open code step, the token of the API, and the cookie "session" are no sign-in', async () => {
  const user = await provider.enter();
  const { codes } = await factors.enrol(user.username);
  const open = await factors.start(user.username);
  for (const headers of [
    { cookie: open },
    { cookie: `__Host-gatehouse=${valueOf(open)}` },
    { authorization: `Bearer ${ada.token}` },
    { cookie: `session=${ada.token}` },
    { cookie: `__Host-gatehouse=${ada.token}` },
  ]) {
    const page = await visit(begin(web).path, { headers });
    assert.equal(locationOf(page).pathname, '/login');
  }
  const signedIn = cookieFrom(await factors.enter(open, codes[0] ?? ''), '__Host-gatehouse');
  const { id_token } = await provider.tokensFor(strict, signedIn);
  assert.deepEqual(readToken(id_token).claims.amr, ['pwd', 'otp', 'mfa']);
});

test('the hint of another person is an error (IdTokenHint)', async () => {
  const other = await provider.enter();
  const browser = await provider.signIn(other.username);
  const { id_token } = await provider.tokensFor(web, cookie);
  const hint = { id_token_hint: id_token };
  assert.equal(errorOf(await visit(begin(web, hint).path, { cookie })), null);
  const path = begin(web, hint).path;
  assert.equal(errorOf(await visit(path, { cookie: browser.host })), 'login_required');
  const [head, body] = id_token.split('.');
  for (const wrong of ['x', `${head}.${body}.AAAA`, `${head}.${body}.`]) {
    const page = await visit(begin(web, { id_token_hint: wrong }).path, { cookie });
    assert.equal(errorOf(page), 'login_required');
  }
});

test('a program for a group refuses others, and says so to the program', async () => {
  const staff = await provider.register('staff', '--groups', 'staff,admins');
  assert.equal(errorOf(await visit(begin(staff).path, { cookie })), 'access_denied');
  const member = await provider.enter({ groups: ['admins'] });
  const { host } = await provider.signIn(member.username);
  assert.equal(errorOf(await visit(begin(staff).path, { cookie: host })), null);
});

test('a program that needs a second factor leads to the page that adds one', async () => {
  const location = locationOf(await visit(begin(strict).path, { cookie }));
  assert.equal(location.pathname, '/account/factors');
  assert.match(location.searchParams.get('return_to') ?? '', /\/oidc\/authorize\?.*strict/);
});

// --- Consent

test('a person is asked once for each program and set of scopes', async () => {
  const asks = await provider.register('consent');
  await provider.run(['client', 'set', 'consent', '--consent', 'true']);
  const { path } = begin(asks);
  const page = await visit(path, { cookie });
  assert.equal(page.status, 200);
  for (const said of ['Program consent', 'app.example.net', ada.username, 'e-mail', 'groups'])
    assert.ok(page.text.includes(said), said);
  const fields = { ...fieldsOf(page.text), answer: 'allow' };
  const allowed = await visit('/oidc/consent', { cookie, fields });
  assert.equal(allowed.status, 200, allowed.text);
  assert.ok(answerOf(allowed).get('code'));
  assert.ok(
    answerIn(await visit(begin(asks, { scope: 'openid email' }).path, { cookie })).get('code'),
  );
  const other = await provider.enter();
  const { host } = await provider.signIn(other.username);
  assert.equal((await visit(path, { cookie: host })).status, 200, 'asks another person, too');
  // Asked again: the program says so, or wants more.
  const again = await visit(begin(asks, { prompt: 'consent' }).path, { cookie });
  assert.equal(again.status, 200);
  await provider.run(['client', 'set', 'consent', '--refresh', 'true']);
  const more = await visit(begin(asks, { scope: 'openid email offline_access' }).path, { cookie });
  assert.match(more.text, /later, too/);
});

test('who refuses sends the program an error', async () => {
  const asks = await provider.register('refused');
  await provider.run(['client', 'set', 'refused', '--consent', 'true']);
  const page = await visit(begin(asks).path, { cookie });
  const fields = { ...fieldsOf(page.text), answer: 'deny' };
  const denied = await visit('/oidc/consent', { cookie, fields });
  const answer = answerOf(denied);
  assert.deepEqual([answer.get('error'), answer.get('state')], ['access_denied', 'a state & more']);
  assert.equal((await visit(begin(asks).path, { cookie })).status, 200);
});

test('the form of the consent takes no address that is not registered, and no other site', async () => {
  const asks = await provider.register('form');
  await provider.run(['client', 'set', 'form', '--consent', 'true']);
  const { path } = begin(asks, { redirect_uri: 'https://evil.example/' });
  const request = path.split('?')[1] ?? '';
  for (const answer of ['allow', 'deny']) {
    const page = await visit('/oidc/consent', { cookie, fields: { request, answer } });
    assert.equal(page.status, 400);
    assert.ok(!page.text.includes('evil.example'));
  }
  const own = begin(asks).path.split('?')[1] ?? '';
  for (const headers of [
    { origin: 'https://app.example.org', 'sec-fetch-site': 'same-site' },
    { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' },
  ]) {
    const fields = { request: own, answer: 'allow', account: ada.id };
    assert.equal((await visit('/oidc/consent', { cookie, fields, headers })).status, 403);
  }
  assert.equal((await visit(begin(asks).path, { cookie })).status, 200);
});

/** What a browser shows that was asked, and what its form sends. */
async function askedOf(id: string, cookie: string) {
  const page = await visit(begin({ id }).path, { cookie });
  assert.equal(page.status, 200, page.text);
  return { ...fieldsOf(page.text), answer: 'allow' };
}

test('a session that ends while the person is asked loses no request', async () => {
  await provider.register('ended');
  await provider.run(['client', 'set', 'ended', '--consent', 'true']);
  const { host } = await provider.signIn(ada.username);
  const fields = await askedOf('ended', host);
  await visit('/logout', { cookie: host, fields: 'x=' });
  const page = await visit('/oidc/consent', { cookie: host, fields });
  const login = new URL(continuation(page), ORIGIN);
  assert.equal(login.pathname, '/login');
  const return_to = login.searchParams.get('return_to') ?? '';
  const again = await provider.signIn(ada.username, { fields: { return_to }, cookie: host });
  const asked = await follow(again.page, again.host);
  assert.equal(asked.status, 200, 'nothing was allowed before the sign-in');
  const allow = { ...fieldsOf(asked.text), answer: 'allow' };
  const answer = answerOf(await visit('/oidc/consent', { cookie: again.host, fields: allow }));
  assert.deepEqual([Boolean(answer.get('code')), answer.get('state')], [true, 'a state & more']);
});

test('a form that is sent twice, or in another tab, too, gives codes that work', async () => {
  const twice = await provider.register('twice');
  await provider.run(['client', 'set', 'twice', '--consent', 'true']);
  const begun = [begin(twice), begin(twice)];
  for (const { path, verifier } of [...begun, ...begun].slice(0, 3)) {
    const page = await visit(path, { cookie });
    const fields =
      page.status === 200 ? fieldsOf(page.text) : { request: path.split('?')[1] ?? '' };
    const sent = { account: ada.id, ...fields, answer: 'allow' };
    const code = answerOf(await visit('/oidc/consent', { cookie, fields: sent })).get('code') ?? '';
    const tokens = await provider.exchange(twice, { path, verifier, code });
    assert.equal(tokens.status, 200, tokens.text);
  }
});

test('a form for one user grants nothing for another who has signed in meanwhile', async () => {
  await provider.register('other');
  await provider.run(['client', 'set', 'other', '--consent', 'true']);
  const fields = await askedOf('other', cookie);
  const bob = await provider.enter();
  const { host } = await provider.signIn(bob.username);
  // Even if the program asks nobody any more.
  for (const consent of ['true', 'false']) {
    await provider.run(['client', 'set', 'other', '--consent', consent]);
    const page = await visit('/oidc/consent', { cookie: host, fields });
    assert.match(page.text, new RegExp(`wants to know about you, <strong>${bob.username}`));
    const [row] = await provider.sql`
      select (select count(*)::int from identity.oidc_consents where user_id = ${bob.id}) as given,
        (select count(*)::int from identity.oidc_grants where client_id = 'other') as granted`;
    assert.deepEqual(row, { given: 0, granted: 0 });
  }
});

test('a program without a secret on the device is asked for each time', async () => {
  const redirect = 'http://127.0.0.1/cb';
  const words = ['--id', 'device', '--name', 'Device', '--redirect', redirect, '--public'];
  await provider.run(['client', 'create', ...words, '--no-consent']);
  const device = { id: 'device', secret: '' };
  for (const port of [1_000, 2_000]) {
    const more = { redirect_uri: `http://127.0.0.1:${port}/cb` };
    const page = await visit(begin(device, more).path, { cookie });
    assert.equal(page.status, 200);
    const fields = { ...fieldsOf(page.text), answer: 'allow' };
    const allowed = await visit('/oidc/consent', { cookie, fields });
    assert.ok(answerOf(allowed).get('code'));
  }
});

test('a sign-in that has ended leads to the sign-in page', async () => {
  const browser = await provider.signIn(ada.username);
  await provider.sql`
    update identity.sessions set expires_at = now()
    where token_digest = ${sha256(valueOf(browser.host))}`;
  const page = await visit(begin(web).path, { cookie: browser.host });
  assert.equal(locationOf(page).pathname, '/login');
});
