/** Sign-out that a program begins. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { continuation, fieldsOf, startProvider } from '../../../support/oidc.ts';

const OUT = 'https://app.example.net/out';
const provider = await startProvider({ after });
const { visit } = provider;
const web = await provider.register('web', '--logout-uri', OUT);
const ada = await provider.enter();

const logoutPath = (query: Record<string, string>) => `/oidc/logout?${new URLSearchParams(query)}`;

async function signedIn() {
  const { host } = await provider.signIn(ada.username);
  const { id_token, access_token } = await provider.tokensFor(web, host);
  return { cookie: host, id_token, access_token };
}

test('with an ID token of the session, it ends at once', async () => {
  const { cookie, id_token, access_token } = await signedIn();
  const query = { id_token_hint: id_token, post_logout_redirect_uri: OUT, state: 'a b' };
  const page = await visit(logoutPath(query), { cookie });
  assert.deepEqual([page.status, page.headers.get('location')], [303, `${OUT}?state=a+b`]);
  assert.ok(page.cookies.some((text) => /^__Host-gatehouse=;.*Max-Age=0/.test(text)));
  assert.equal((await provider.userinfo(access_token)).status, 401);
  assert.equal((await visit('/account', { cookie })).status, 303);
});

test('also after the program has revoked its tokens', async () => {
  const own = await provider.register('own', '--logout-uri', OUT, '--refresh');
  const { host: cookie } = await provider.signIn(ada.username);
  const { id_token, refresh_token } = await provider.tokensFor(own, cookie, {
    scope: 'openid offline_access',
  });
  const fields = { token: refresh_token, client_id: own.id, client_secret: own.secret };
  assert.equal((await provider.tell('/oidc/revoke', fields)).status, 200);
  const query = { id_token_hint: id_token, post_logout_redirect_uri: OUT };
  assert.equal((await visit(logoutPath(query), { cookie })).headers.get('location'), OUT);
});

test('without one, or with one of another session, the person is asked', async () => {
  const other = await signedIn();
  const { cookie } = await signedIn();
  const [head, body] = other.id_token.split('.');
  for (const id_token_hint of ['', other.id_token, `${head}.${body}.AAAA`, 'x']) {
    const query = { client_id: 'web', id_token_hint, post_logout_redirect_uri: OUT };
    const page = await visit(logoutPath(query), { cookie });
    assert.equal(page.status, 200);
    assert.match(page.text, /A program asks you to sign out/);
    assert.equal((await visit('/account', { cookie })).status, 200);
  }
});

test('who confirms is signed out, and returns to the program', async () => {
  const { cookie } = await signedIn();
  const query = { client_id: 'web', post_logout_redirect_uri: OUT, state: 's' };
  const asked = await visit(logoutPath(query), { cookie });
  const fields = fieldsOf(asked.text);
  const foreign = { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' };
  const refused = await visit('/oidc/logout/confirm', { cookie, fields, headers: foreign });
  assert.equal(refused.status, 403);
  const page = await visit('/oidc/logout/confirm', { cookie, fields });
  assert.equal(continuation(page), `${OUT}?state=s`);
  assert.equal((await visit('/account', { cookie })).status, 303);
});

test('nobody is sent to an address that the program has not registered', async () => {
  const addresses = ['https://evil.example/', `${OUT}/`, `${OUT}?a=b`, 'javascript:alert(1)'];
  for (const post_logout_redirect_uri of addresses) {
    const { cookie, id_token } = await signedIn();
    const query = { id_token_hint: id_token, post_logout_redirect_uri };
    const page = await visit(logoutPath(query), { cookie });
    assert.deepEqual([page.status, page.headers.get('location')], [200, null]);
    const fields = { client_id: 'web', post_logout_redirect_uri, state: '' };
    const confirmed = await visit('/oidc/logout/confirm', { cookie, fields });
    assert.ok(!confirmed.text.includes('evil.example'));
  }
});

test('POST, also from another site, continues with GET', async () => {
  const page = await visit('/oidc/logout', {
    fields: { client_id: 'web' },
    headers: { origin: 'https://app.example.net', 'sec-fetch-site': 'cross-site' },
  });
  assert.deepEqual(
    [page.status, page.headers.get('location')],
    [303, '/oidc/logout?client_id=web'],
  );
});

test('who is signed out already returns to the program', async () => {
  const query = { client_id: 'web', post_logout_redirect_uri: OUT };
  const page = await visit(logoutPath(query));
  assert.deepEqual([page.status, page.headers.get('location')], [303, OUT]);
});
