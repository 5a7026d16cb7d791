/**
 * A sign-in at a program: what each side gets, and how a program checks it; and a sign-out. Keys
 * that sign ID tokens: created, rotated, removed, and lost.
 */
import assert from 'node:assert/strict';
import { createPublicKey, verify } from 'node:crypto';
import { after, test } from 'node:test';
import {
  answerIn,
  begin,
  continuation,
  errorOf,
  fieldsOf,
  OFFLINE,
  readToken,
  startProvider,
} from '../../../support/oidc.ts';
import { ORIGIN } from '../../../support/portal.ts';

const OUT = 'https://app.example.net/out';
const provider = await startProvider({ after });
const { sql, run, visit, show, post, exchange, userinfo, signIn } = provider;
const grafana = await provider.register('grafana', '--refresh', '--logout-uri', OUT);
const ada = await provider.addSignedIn({ first_name: 'Ada', verified: true, groups: ['staff'] });
const FOREIGN = { origin: 'https://app.example.net', 'sec-fetch-site': 'cross-site' };

test('the documents name the endpoints, at the issuer', async () => {
  const { text, headers } = await visit('/.well-known/openid-configuration');
  assert.equal((await visit('/.well-known/oauth-authorization-server')).text, text);
  const document = JSON.parse(text);
  assert.equal(document.issuer, ORIGIN);
  assert.equal(headers.get('access-control-allow-origin'), '*');
  assert.equal(headers.get('cache-control'), 'public, max-age=300');
  assert.ok(Object.values(document).every((value) => !Array.isArray(value) || value.length > 0));
  const { keys } = JSON.parse((await visit('/oidc/keys')).text);
  const [{ kid, n, ...key }] = keys;
  assert.deepEqual([typeof kid, typeof n, keys.length], ['string', 'string', 1]);
  assert.deepEqual(key, { kty: 'RSA', e: 'AQAB', use: 'sig', alg: 'RS256' });
});

test('a browser brings back a code, and the program gets tokens for it (Server, IdTokenSignature, ServerTestClientSecretPost, UserInfoGet)', async () => {
  const page = await exchange(grafana, await provider.codeFor(grafana, ada.host));
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
  const publicKey = createPublicKey({ key, format: 'jwk' });
  const bytes = Buffer.from(signature, 'base64url');
  assert.ok(verify('sha256', Buffer.from(signed), publicKey, bytes));
  const { iat, exp, auth_time, sid, updated_at, iss, aud, amr, nonce, ...person } = claims;
  assert.deepEqual([iss, aud, amr, nonce], [ORIGIN, 'grafana', ['pwd'], 'nonce-1']);
  assert.deepEqual(person, {
    sub: ada.id,
    name: 'Ada',
    given_name: 'Ada',
    preferred_username: ada.username,
    email: `${ada.username}@example.org`,
    email_verified: true,
    groups: ['staff'],
  });
  assert.equal(Number(exp) - Number(iat), 600);
  assert.ok(Number(auth_time) <= Number(iat) && typeof sid === 'string');
  assert.deepEqual(JSON.parse((await userinfo(access_token)).text), { ...person, updated_at });
});

test('the access token is in the header or in a form, and nowhere else (UserInfoPostHeader, UserInfoPostBody)', async () => {
  const { access_token } = await provider.tokensFor(grafana, ada.host, { scope: 'openid' });
  const headers = { authorization: `Bearer ${access_token}` };
  for (const [fields, more, expected] of [
    [{ access_token }, {}, 200],
    [{ a: 'b' }, headers, 200],
    [{ access_token }, headers, 400],
    [{ a: 'b' }, {}, 401],
  ] as const) {
    const page = await provider.tell('/oidc/userinfo', fields, more);
    assert.equal(page.status, expected);
    if (expected === 200) assert.deepEqual(JSON.parse(page.text), { sub: ada.id });
    const challenge = page.headers.get('www-authenticate') ?? '';
    if (expected === 400) assert.match(challenge, /error="invalid_request"/);
  }
  assert.equal((await visit(`/oidc/userinfo?access_token=${access_token}`)).status, 401);
});

test('a refresh token gives another access token, without a nonce, and stays (RefreshToken)', async () => {
  const first = await provider.tokensFor(grafana, ada.host, OFFLINE);
  const again = JSON.parse((await provider.refresh(grafana, first)).text);
  assert.equal(again.refresh_token, first.refresh_token);
  assert.notEqual(again.access_token, first.access_token);
  const before = readToken(first.id_token).claims;
  const { nonce, sid, auth_time, sub } = readToken(again.id_token).claims;
  assert.deepEqual([nonce, sid, auth_time, sub], [undefined, before.sid, before.auth_time, ada.id]);
  assert.equal((await userinfo(again.access_token)).status, 200);
});

test('a browser that is not signed in sees the name of the program, and then goes on, with a long state', async () => {
  const sent = await visit(begin(grafana, { state: 'x'.repeat(2_000) }).path);
  const location = sent.headers.get('location') ?? '';
  const login = await visit(location, { headers: { host: 'login.example.org' } });
  assert.match(login.text, /Sign in to continue to Program grafana\./);
  const return_to = new URL(location, ORIGIN).searchParams.get('return_to') ?? '';
  const { page, host } = await signIn(ada.username, { fields: { return_to } });
  const { pathname, search } = new URL(continuation(page));
  const answer = answerIn(await show(pathname + search, host));
  assert.deepEqual([Boolean(answer.get('code')), answer.get('state')?.length], [true, 2_000]);
  const tooLong = await visit(begin(grafana, { state: 'x'.repeat(4_000) }).path);
  assert.deepEqual([tooLong.status, tooLong.headers.get('location')], [400, null]);
});

test('POST, also from a page of another site, continues with GET (EnsurePostRequestSucceeds)', async () => {
  for (const path of [begin(grafana).path, '/oidc/logout?client_id=grafana']) {
    const [address = '', fields = ''] = path.split('?');
    const page = await visit(address, { fields, headers: FOREIGN });
    assert.deepEqual([page.status, page.headers.get('location')], [303, path]);
  }
});

test('without OIDC, there is no route', async (t) => {
  const off = await startProvider(t, { OIDC: 'off' });
  for (const path of ['/.well-known/openid-configuration', '/oidc/keys', begin(grafana).path])
    assert.equal((await off.visit(path)).status, 404);
});

// --- Sign-out that a program begins

const BACK = { client_id: 'grafana', post_logout_redirect_uri: OUT };
const logOut = (query: Record<string, string>, cookie = '') =>
  show(`/oidc/logout?${new URLSearchParams(query)}`, cookie);
async function signedIn() {
  const { host } = await signIn(ada.username);
  return { host, ...(await provider.tokensFor(grafana, host, OFFLINE)) };
}
const isSignedIn = async (host: string) => (await show('/account', host)).status === 200;

test('with an ID token of the session, it ends at once, also after its tokens were revoked', async () => {
  for (const isRevoked of [false, true]) {
    const { host, id_token, access_token, refresh_token } = await signedIn();
    const { id, secret } = grafana;
    const fields = { token: refresh_token, client_id: id, client_secret: secret };
    if (isRevoked) assert.equal((await provider.tell('/oidc/revoke', fields)).status, 200);
    const query = { id_token_hint: id_token, post_logout_redirect_uri: OUT, state: 'a b' };
    const page = await logOut(query, host);
    assert.deepEqual([page.status, page.headers.get('location')], [303, `${OUT}?state=a+b`]);
    assert.ok(page.cookies.some((text) => /^__Host-gatehouse=;.*Max-Age=0/.test(text)));
    assert.equal((await userinfo(access_token)).status, 401);
    assert.equal(await isSignedIn(host), false);
  }
  const page = await logOut(BACK);
  assert.equal(page.headers.get('location'), OUT, 'who is signed out already');
});

test('without one, or with one of another session, the person is asked, and returns after it', async () => {
  const other = await signedIn();
  const { host } = await signedIn();
  const [head, body] = other.id_token.split('.');
  for (const id_token_hint of ['', other.id_token, `${head}.${body}.AAAA`, 'x']) {
    const page = await logOut({ ...BACK, id_token_hint, state: 's' }, host);
    assert.match(page.text, /A program asks you to sign out/);
  }
  const fields = fieldsOf((await logOut({ ...BACK, state: 's' }, host)).text);
  const confirm = (headers = {}) =>
    visit('/oidc/logout/confirm', { cookie: host, fields, headers });
  assert.equal((await confirm(FOREIGN)).status, 403);
  assert.equal(await isSignedIn(host), true);
  assert.equal(continuation(await confirm()), `${OUT}?state=s`);
  assert.equal(await isSignedIn(host), false);
});

test('nobody is sent to an address that the program has not registered', async () => {
  for (const address of ['https://evil.example/', `${OUT}/`, 'javascript:alert(1)']) {
    const { host, id_token } = await signedIn();
    const after = { post_logout_redirect_uri: address };
    const page = await logOut({ ...after, id_token_hint: id_token }, host);
    assert.deepEqual([page.status, page.headers.get('location')], [200, null]);
    const fields = { ...after, client_id: 'grafana', state: '' };
    const confirmed = await post('/oidc/logout/confirm', host, fields);
    assert.ok(!confirmed.text.includes(address));
  }
  for (const [action, location] of [
    ['disable', null],
    ['enable', OUT],
  ] as const) {
    await run(['client', action, 'grafana']);
    assert.equal((await logOut(BACK)).headers.get('location'), location, action);
  }
});

// --- Keys

/** The ids that a process which has read nothing yet publishes, and the one that signs. */
async function seenByReplica() {
  const replica = await provider.replica();
  const { keys } = JSON.parse((await replica.visit('/oidc/keys')).text);
  const page = await replica.exchange(grafana, await provider.codeFor(grafana, ada.host));
  return {
    published: keys.map(({ kid }: { kid: string }) => kid).sort(),
    signs: readToken(JSON.parse(page.text).id_token).head.kid,
  };
}
/** Lets time pass. @returns the ids of the keys, the oldest first */
async function keyIds(minutes = 0) {
  await sql`
    update identity.oidc_keys set created_at = created_at - make_interval(mins => ${minutes})`;
  return (await sql`select id from identity.oidc_keys order by created_at`).map(({ id }) => id);
}

test('a key is published at once, signs after an hour, and is removed when all its tokens have ended', async () => {
  const [first] = await keyIds();
  assert.equal((await run(['oidc', 'rotate'])).code, 0);
  const ids = await keyIds();
  assert.equal(ids.length, 2);
  assert.deepEqual(await seenByReplica(), { published: [...ids].sort(), signs: first });
  const [, second] = await keyIds(61);
  assert.equal((await seenByReplica()).signs, second);
  await provider.runJobs(/oidc_keys/);
  assert.deepEqual(await keyIds(49 * 60), ids);
  await provider.runJobs(/oidc_keys/);
  assert.deepEqual(await keyIds(), [second]);
});

test('"oidc rotate --now" leaves one key', async () => {
  const [old] = await keyIds();
  assert.equal((await run(['oidc', 'rotate', '--now'])).code, 0);
  const [id, ...more] = await keyIds();
  assert.notEqual(id, old);
  assert.deepEqual(more, []);
  assert.equal((await seenByReplica()).signs, id);
});

test('a private key is nowhere in clear text', async () => {
  const rows = await sql`select encode(blob, 'escape') as blob from identity.oidc_keys`;
  for (const text of [...rows.map(({ blob }) => String(blob)), JSON.stringify(provider.log())])
    assert.doesNotMatch(text, /PRIVATE KEY|MII[A-Za-z0-9+/]{40}/);
});

test('a key that was altered signs nothing, and no code is used up', async () => {
  const alter = () =>
    sql`update identity.oidc_keys set blob = set_byte(blob, 20, get_byte(blob, 20) # 1)`;
  await alter();
  const begun = await provider.codeFor(grafana, ada.host);
  const refused = await (await provider.replica()).exchange(grafana, begun);
  assert.deepEqual(errorOf(refused), [503, 'temporarily_unavailable']);
  await alter();
  assert.equal((await (await provider.replica()).exchange(grafana, begun)).status, 200);
});

test('replicas that start together create one key', async () => {
  await sql`delete from identity.oidc_keys`;
  await Promise.all([provider.replica(), provider.replica(), provider.replica()]);
  assert.equal((await keyIds()).length, 1);
});
