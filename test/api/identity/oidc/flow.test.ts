/** A sign-in at a program: what each side gets, and how a program checks it. */
import assert from 'node:assert/strict';
import { createPublicKey, verify } from 'node:crypto';
import { after, test } from 'node:test';
import { answerIn, begin, continuation, readToken, startProvider } from '../../../support/oidc.ts';
import { ORIGIN } from '../../../support/portal.ts';

const provider = await startProvider({ after });
const { visit, exchange, userinfo } = provider;
const grafana = await provider.register('grafana', '--refresh');
const ada = await provider.enter({ first_name: 'Ada', verified: true, groups: ['staff'] });
const browser = await provider.signIn(ada.username);

test('the documents name the endpoints, at the issuer', async () => {
  const page = await visit('/.well-known/openid-configuration');
  const other = await visit('/.well-known/oauth-authorization-server');
  assert.equal(page.text, other.text);
  const document = JSON.parse(page.text);
  assert.equal(document.issuer, ORIGIN);
  assert.equal(page.headers.get('access-control-allow-origin'), '*');
  assert.equal(page.headers.get('cache-control'), 'public, max-age=300');
  for (const [name, value] of Object.entries(document)) {
    if (Array.isArray(value)) assert.ok(value.length > 0, name);
  }
  const { keys } = JSON.parse((await visit('/oidc/keys')).text);
  assert.deepEqual(
    keys.map(({ kid: _, n: __, ...key }: Record<string, unknown>) => key),
    [{ kty: 'RSA', e: 'AQAB', use: 'sig', alg: 'RS256' }],
  );
});

test('a browser brings back a code, and the program gets tokens for it (Server, IdTokenSignature, ServerTestClientSecretPost, UserInfoGet)', async () => {
  const page = await exchange(grafana, await provider.codeFor(grafana, browser.host));
  assert.equal(page.status, 200, page.text);
  assert.equal(page.headers.get('cache-control'), 'no-store');
  const { access_token, id_token, ...rest } = JSON.parse(page.text);
  assert.deepEqual(rest, {
    token_type: 'Bearer',
    expires_in: 3_600,
    scope: 'openid profile email groups',
  });
  const { head, claims } = readToken(id_token);
  const { keys } = JSON.parse((await visit('/oidc/keys')).text);
  const key = keys.find(({ kid }: { kid: string }) => kid === head.kid);
  const [signed = '', signature = ''] = id_token.split(/\.(?=[^.]*$)/);
  assert.ok(
    verify(
      'sha256',
      Buffer.from(signed),
      createPublicKey({ key, format: 'jwk' }),
      Buffer.from(signature, 'base64url'),
    ),
  );
  const { iat, exp, auth_time, sid, updated_at, ...known } = claims;
  const person = {
    sub: ada.id,
    name: 'Ada',
    given_name: 'Ada',
    preferred_username: ada.username,
    email: `${ada.username}@example.org`,
    email_verified: true,
    groups: ['staff'],
  };
  assert.deepEqual(known, {
    ...person,
    iss: ORIGIN,
    aud: 'grafana',
    amr: ['pwd'],
    nonce: 'nonce-1',
  });
  assert.equal(Number(exp) - Number(iat), 600);
  assert.ok(Number(auth_time) <= Number(iat) && typeof sid === 'string');
  const info = await userinfo(access_token);
  assert.deepEqual(JSON.parse(info.text), { ...person, updated_at });
});

test('scopes decide what a program learns', async () => {
  const { access_token } = await provider.tokensFor(grafana, browser.host, { scope: 'openid' });
  assert.deepEqual(JSON.parse((await userinfo(access_token)).text), { sub: ada.id });
});

test('the access token is in the header or in a form, and nowhere else (UserInfoPostHeader, UserInfoPostBody)', async () => {
  const { access_token } = await provider.tokensFor(grafana, browser.host);
  const headers = { authorization: `Bearer ${access_token}` };
  const send = (fields: string, more = {}) =>
    visit('/oidc/userinfo', { fields, isProgram: true, headers: more });
  for (const page of [await send(`access_token=${access_token}`), await send('a=b', headers)])
    assert.equal(JSON.parse(page.text).sub, ada.id);
  const both = await send(`access_token=${access_token}`, headers);
  assert.equal(both.status, 400);
  assert.match(both.headers.get('www-authenticate') ?? '', /error="invalid_request"/);
  assert.equal((await send('a=b')).status, 401);
  assert.equal((await visit(`/oidc/userinfo?access_token=${access_token}`)).status, 401);
});

test('a refresh token gives another access token, without a nonce, and stays (RefreshToken)', async () => {
  const scope = 'openid offline_access';
  const first = await provider.tokensFor(grafana, browser.host, { scope });
  const page = await provider.refresh(grafana, first);
  assert.equal(page.status, 200, page.text);
  const again = JSON.parse(page.text);
  assert.equal(again.refresh_token, first.refresh_token);
  assert.notEqual(again.access_token, first.access_token);
  const before = readToken(first.id_token).claims;
  const { claims } = readToken(again.id_token);
  assert.deepEqual(
    [claims.nonce, claims.sid, claims.auth_time, claims.sub],
    [undefined, before.sid, before.auth_time, before.sub],
  );
  assert.equal((await userinfo(again.access_token)).status, 200);
});

test('a browser that is not signed in sees the name of the program, and then goes on', async () => {
  const { path } = begin(grafana);
  const sent = await visit(path);
  assert.equal(sent.status, 303, sent.text);
  const login = await visit(sent.headers.get('location') ?? '', {
    headers: { host: 'login.example.org' },
  });
  assert.match(login.text, /Sign in to continue to Program grafana\./);
  const return_to = new URL(sent.headers.get('location') ?? '', ORIGIN).searchParams;
  const signedIn = await provider.signIn(ada.username, {
    fields: { return_to: return_to.get('return_to') ?? '' },
  });
  const address = new URL(continuation(signedIn.page));
  const answer = answerIn(
    await visit(address.pathname + address.search, { cookie: signedIn.host }),
  );
  assert.ok(answer.get('code'));
});

test('POST, also from a page of another site, continues with GET (EnsurePostRequestSucceeds)', async () => {
  const { path } = begin(grafana);
  const [, query = ''] = path.split('?');
  const page = await visit('/oidc/authorize', {
    fields: query,
    headers: { origin: 'https://app.example.net', 'sec-fetch-site': 'cross-site' },
  });
  assert.deepEqual([page.status, page.headers.get('location')], [303, path]);
});

test('a state of 2,000 characters survives the sign-in page', async () => {
  const { path } = begin(grafana, { state: 'x'.repeat(2_000) });
  const location = (await visit(path)).headers.get('location') ?? '';
  const { searchParams } = new URL(location, ORIGIN);
  const signedIn = await provider.signIn(ada.username, {
    fields: { return_to: searchParams.get('return_to') ?? '' },
  });
  assert.match(signedIn.page.text, /href="[^"]*\/oidc\/authorize\?/);
  const tooLong = await visit(begin(grafana, { state: 'x'.repeat(4_000) }).path);
  assert.equal(tooLong.status, 400);
  assert.equal(tooLong.headers.get('location'), null);
});

test('without OIDC, there is no route', async (t) => {
  const off = await startProvider(t, { OIDC: 'off' });
  for (const path of ['/.well-known/openid-configuration', '/oidc/keys', begin(grafana).path])
    assert.equal((await off.visit(path)).status, 404);
});
