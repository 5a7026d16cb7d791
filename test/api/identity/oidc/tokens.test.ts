/** Codes, access and refresh tokens: who may use them, and what ends them, on every replica. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { stopClock } from '../../../support/clock.ts';
import {
  assertAlive,
  assertDead,
  CALLBACK,
  errorOf,
  INVALID_GRANT,
  OFFLINE,
  type Program,
  startProvider,
  type Tokens,
  tokensIn,
} from '../../../support/oidc.ts';
import { PASSWORD } from '../../../support/users.ts';

const provider = await startProvider({ after }, { SESSION_IDLE_TTL: '300' });
const { sql, call, admin, run, codeFor, tokensFor, addSignedIn, signIn, post } = provider;
const second = await provider.replica();
const web = await provider.register('web', '--refresh');
const other = await provider.register('other', '--refresh');
const ada = await addSignedIn();
/** A program whose sign-ins end in many ways. */
const registerEnds = () => provider.register('ends', '--refresh', '--groups', 'staff');
let program = await registerEnds();

test('a code is for its program, address and verifier, and a wrong try does not use it up', async () => {
  const begun = await codeFor(web, ada.host);
  for (const [program, more, ...expected] of [
    [other, {}, ...INVALID_GRANT],
    [web, { code_verifier: 'x'.repeat(43) }, ...INVALID_GRANT],
    [web, { code_verifier: '' }, ...INVALID_GRANT],
    [web, { redirect_uri: 'https://evil.example/' }, ...INVALID_GRANT],
    [web, { code: 'unknown' }, ...INVALID_GRANT],
    [web, { code: '' }, ...INVALID_GRANT],
    [web, { client_secret: `${web.secret.slice(1)}0` }, 401, 'invalid_client'],
    [web, { client_secret: '' }, 401, 'invalid_client'],
    [web, { client_id: 'unknown' }, 401, 'invalid_client'],
    [web, { grant_type: 'password' }, 400, 'unsupported_grant_type'],
    [web, { grant_type: '' }, 400, 'invalid_request'],
  ] as const) {
    const page = await second.exchange(program, begun, more);
    assert.deepEqual(errorOf(page), expected, JSON.stringify(more));
    const challenge = page.headers.get('www-authenticate') ?? '';
    assert.equal(challenge.startsWith('Basic '), page.status === 401);
  }
  assert.equal((await second.exchange(web, begun, { redirect_uri: '' })).status, 200);
});

test('without PKCE, a verifier is refused, and the address is needed', async () => {
  const plain = await provider.register('plain', '--without-pkce');
  const more = { code_challenge: '', code_challenge_method: '' };
  const begun = await codeFor(plain, ada.host, more);
  for (const wrong of [{}, { code_verifier: '', redirect_uri: '' }])
    assert.deepEqual(errorOf(await second.exchange(plain, begun, wrong)), INVALID_GRANT);
  assert.equal((await second.exchange(plain, begun, { code_verifier: '' })).status, 200);
});

test('a second use of a code is refused, and ends what the first one gave (AuthCodeReuse, AuthCodeReuseAfter30Seconds)', async () => {
  for (const seconds of [0, 90]) {
    const begun = await codeFor(web, ada.host, OFFLINE);
    const tokens: Tokens = JSON.parse((await provider.exchange(web, begun)).text);
    await assertAlive(second, tokens);
    await sql`
      update identity.oidc_tokens set used_at = used_at - make_interval(secs => ${seconds})`;
    await provider.runJobs(/oidc_tokens/);
    assert.deepEqual(errorOf(await second.exchange(web, begun)), INVALID_GRANT);
    await assertDead(second, web, tokens);
  }
  const [entry] = await sql`select user_id from identity.audit where event = 'grant.replayed'`;
  assert.equal(entry?.user_id, ada.id);
});

test('of four uses at once on two replicas, one succeeds, and then nothing does', async () => {
  const begun = await codeFor(web, ada.host, OFFLINE);
  const pages = await Promise.all(
    [provider, second, provider, second].map((one) => one.exchange(web, begun)),
  );
  const [first = assert.fail(), ...more] = pages.filter(({ status }) => status === 200);
  assert.deepEqual(more, []);
  await assertDead(second, web, JSON.parse(first.text));
});

test('a code is refused after a minute', async () => {
  const begun = await codeFor(other, ada.host);
  await sql`update identity.oidc_tokens set ends_at = ends_at - interval '60 seconds'`;
  assert.deepEqual(errorOf(await second.exchange(other, begun)), INVALID_GRANT);
});

test('the secret before a new one is valid for a day', async () => {
  const old = await provider.register('rotated');
  const secret = (await run(['client', 'secret', 'rotated'])).stdout.trim();
  const statusFor = async (program: Program) =>
    (await second.exchange(program, await codeFor(program, ada.host))).status;
  const pass = (seconds: number) => sql`
    update identity.oidc_clients
    set previous_until = previous_until - make_interval(secs => ${seconds})`;
  await pass(86_400 - 60);
  assert.equal(await statusFor(old), 200);
  assert.equal(await statusFor({ ...old, secret: other.secret }), 401);
  await pass(60);
  assert.deepEqual([await statusFor(old), await statusFor({ ...old, secret })], [401, 200]);
});

test('a program authenticates in one way, and as programs encode it', async () => {
  const basic = (id: string, secret: string) =>
    `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`;
  const encoded = web.secret.replace(/^./, (c) => `%${c.charCodeAt(0).toString(16)}`);
  const both = { client_id: 'web', client_secret: web.secret };
  for (const [authorization, more, expected] of [
    [basic('web', web.secret), {}, [200, undefined]],
    [basic('%77eb', encoded), {}, [200, undefined]],
    [basic('web', web.secret), { client_id: 'web' }, [200, undefined]],
    [basic('web', web.secret), { client_id: 'other' }, [400, 'invalid_request']],
    [basic('web', web.secret), both, [400, 'invalid_request']],
    [basic('web', 'wrong'), {}, [401, 'invalid_client']],
    [basic('web', '100%'), {}, [401, 'invalid_client']],
    [`Basic ${Buffer.from('web').toString('base64')}`, {}, [400, 'invalid_request']],
    ['Basic', { client_id: 'web' }, [400, 'invalid_request']],
    ['Basic', {}, [400, 'invalid_request']],
    ['Basic !', {}, [400, 'invalid_request']],
    ['Bearer x', {}, [400, 'invalid_request']],
  ] as const) {
    const { code, verifier } = await codeFor(web, ada.host);
    const fields = { grant_type: 'authorization_code', redirect_uri: CALLBACK, ...more };
    const sent = { ...fields, code, code_verifier: verifier };
    const page = await second.tell('/oidc/token', sent, { authorization });
    assert.deepEqual(errorOf(page), expected, authorization);
  }
  const twice = await second.visit('/oidc/token', {
    fields: 'grant_type=authorization_code&client_id=web&client_id=web',
    isProgram: true,
  });
  assert.deepEqual(errorOf(twice), [400, 'invalid_request']);
});

test('guesses of codes and refresh tokens of a network are limited', async (t) => {
  stopClock(t);
  const spa = await provider.register('spa', '--public');
  for (const [network, [grant_type, name]] of [
    ['authorization_code', 'code'],
    ['refresh_token', 'refresh_token'],
  ].entries()) {
    const headers = { 'x-forwarded-for': `203.0.113.${network}` };
    const guess = (at: number) => {
      const fields = { grant_type: String(grant_type), [String(name)]: `guess ${at}` };
      return second.tell('/oidc/token', { ...fields, client_id: 'spa' }, headers);
    };
    let refused = await guess(0);
    for (let at = 1; at < 150 && refused.status !== 429; at += 1) refused = await guess(at);
    assert.equal(refused.status, 429, grant_type);
    assert.equal(JSON.parse(refused.text).error, 'temporarily_unavailable');
    assert.match(refused.headers.get('retry-after') ?? '', /^\d+$/);
  }
  const { host } = await signIn(ada.username);
  const begun = await codeFor(spa, host);
  assert.equal((await second.exchange(spa, begun)).status, 200, 'from another network');
});

// --- Refresh tokens

const pass = (seconds: number) => sql`
  update identity.oidc_tokens set used_at = used_at - make_interval(secs => ${seconds})`;

test('a refresh token is for its program, and gives no more than was granted', async () => {
  const tokens = await tokensFor(web, ada.host, OFFLINE);
  assert.deepEqual(errorOf(await second.refresh(other, tokens)), INVALID_GRANT);
  const wider = { scope: 'openid email' };
  assert.deepEqual(errorOf(await second.refresh(web, tokens, wider)), [400, 'invalid_scope']);
  assert.equal((await second.refresh(web, tokens)).status, 200);
  const without = await provider.register('without');
  assert.equal((await tokensFor(without, ada.host, OFFLINE)).refresh_token, undefined);
});

test('a token of one kind is none of another', async () => {
  // Without PKCE, nothing but the kind tells them apart.
  const plain = await provider.register('kinds', '--refresh', '--without-pkce');
  const more = { ...OFFLINE, code_challenge: '', code_challenge_method: '' };
  const begun = await codeFor(plain, ada.host, more);
  const exchange = (code: string) =>
    second.exchange(plain, { ...begun, code }, { code_verifier: '' });
  const tokens = tokensIn(await exchange(begun.code));
  const renew = (refresh_token: string) =>
    second.refresh(plain, { ...tokens, refresh_token }, { redirect_uri: CALLBACK });
  const { code } = await codeFor(plain, ada.host, more);
  for (const page of [
    await exchange(tokens.access_token),
    await exchange(tokens.refresh_token),
    await renew(tokens.access_token),
    await renew(code),
  ])
    assert.deepEqual(errorOf(page), INVALID_GRANT);
  for (const token of [code, tokens.refresh_token, admin.token])
    assert.equal((await second.userinfo(token)).status, 401);
  assert.equal((await call(tokens.access_token, 'GET', '/api/test/')).status, 401);
  const none = await second.visit('/oidc/userinfo');
  assert.equal(none.headers.get('www-authenticate'), 'Bearer realm="gatehouse"');
  assert.equal((await renew(tokens.refresh_token)).status, 200);
});

test('a program without a secret gets another refresh token each time', async () => {
  const tabs = await provider.register('tabs', '--public', '--refresh');
  const first = await tokensFor(tabs, ada.host, OFFLINE);
  // Two tabs at once, on two replicas: both go on.
  const pages = await Promise.all([second.refresh(tabs, first), provider.refresh(tabs, first)]);
  const [left = assert.fail(), right = assert.fail()] = pages.map(tokensIn);
  assert.notEqual(left.refresh_token, first.refresh_token);
  // The grace counts from the first use.
  await pass(5);
  assert.equal((await second.refresh(tabs, first)).status, 200);
  await pass(6);
  assert.equal((await second.refresh(tabs, left)).status, 200);
  // A thief's, or the first one's: nobody knows.
  assert.deepEqual(errorOf(await second.refresh(tabs, first)), INVALID_GRANT);
  await assertDead(second, tabs, right);
});

// --- What ends codes and tokens

/** Each way in which a sign-in at the program `ends` ends. */
const ENDS: Readonly<Record<string, (id: string, host: string) => PromiseLike<unknown>>> = {
  'the person signs out': (_, host) => post('/logout', host),
  'the session is revoked': (id) =>
    sql`update identity.sessions set revoked = true where user_id = ${id}`,
  'the session is removed': (id) => sql`delete from identity.sessions where user_id = ${id}`,
  'all sessions of the user are revoked': (id) =>
    call(admin.token, 'DELETE', `/api/session/revoke/all/user?user=${id}`),
  'the user is disabled': (id) => change(id, { enabled: false }),
  'the user is disabled, and the session is kept': (id) =>
    sql`update identity.users set enabled = false where id = ${id}`,
  'the user is deleted': (id) => call(admin.token, 'DELETE', `/api/user/${id}`),
  'the password is set by an administrator': (id) =>
    call(admin.token, 'POST', `/api/user/${id}/password`, { password: `${PASSWORD}-2` }),
  'the user is made an administrator': (id) => change(id, { super_admin: true }),
  'the user leaves the group': (id) => change(id, { groups: ['others'] }),
  'the session expires': (id) =>
    sql`update identity.sessions set expires_at = now() where user_id = ${id}`,
  'the session is not used': (id) =>
    sql`update identity.sessions set last_seen_at = now() - interval '301 seconds'
      where user_id = ${id}`,
  'the password becomes temporary': (id) =>
    sql`update identity.users set password_generated = true where id = ${id}`,
  'the program is for another group': () => run(['client', 'set', 'ends', '--groups', 'admins']),
  'the program needs a second factor': () =>
    run(['client', 'set', 'ends', '--second-factor', 'true']),
  'the program is disabled': () => run(['client', 'disable', 'ends']),
  'the program is deleted': () => run(['client', 'delete', 'ends']),
  'a second factor is added elsewhere': (id) =>
    sql`update identity.users set second_factor = true where id = ${id}`,
};
const change = (id: string, body: object) => call(admin.token, 'PATCH', `/api/user/${id}`, body);

for (const [name, end] of Object.entries(ENDS)) {
  test(`a code and both tokens are dead at the next request of a replica if ${name}`, async () => {
    const user = await addSignedIn({ groups: ['staff'] });
    const tokens = await tokensFor(program, user.host, OFFLINE);
    const begun = await codeFor(program, user.host);
    await assertAlive(second, tokens);
    await end(user.id, user.host);
    assert.equal((await second.userinfo(tokens.access_token)).status, 401);
    const isGone = /^the program is (disabled|deleted)$/.test(name);
    const expected = isGone ? [401, 'invalid_client'] : INVALID_GRANT;
    assert.deepEqual(errorOf(await second.refresh(program, tokens)), expected);
    assert.deepEqual(errorOf(await second.exchange(program, begun)), expected);
    if (!name.startsWith('the program')) return;
    await run(['client', 'delete', 'ends']);
    program = await registerEnds();
  });
}

test('an access token ends after an hour, and is removed', async () => {
  const tokens = await tokensFor(web, ada.host, OFFLINE);
  await sql`update identity.oidc_tokens set ends_at = ends_at - interval '3600 seconds'
    where kind = 'access'`;
  assert.equal((await second.userinfo(tokens.access_token)).status, 401);
  await provider.runJobs(/oidc_tokens/);
  assert.equal((await sql`select from identity.oidc_tokens where kind = 'access'`).length, 0);
  assert.equal((await second.refresh(web, tokens)).status, 200);
});

test('a program revokes its tokens, and no other program does', async () => {
  const revoke = ({ id, secret }: Program, token: string) =>
    second.tell('/oidc/revoke', { token, client_id: id, client_secret: secret });
  const tokens = await tokensFor(web, ada.host, OFFLINE);
  for (const token of [tokens.refresh_token, tokens.access_token])
    assert.equal((await revoke(other, token)).status, 200);
  await assertAlive(second, tokens);
  for (const token of ['unknown', tokens.access_token])
    assert.equal((await revoke(web, token)).status, 200);
  assert.equal((await second.userinfo(tokens.access_token)).status, 401);
  const again = tokensIn(await second.refresh(web, tokens));
  assert.equal((await revoke(web, tokens.refresh_token)).status, 200);
  await assertDead(second, web, again);
  assert.deepEqual(errorOf(await revoke(web, '')), [400, 'invalid_request']);
});

// --- What moves with the session

test('a new sign-in of the same browser keeps its programs, and that of another user none', async () => {
  const { username, host } = await addSignedIn();
  const tokens = await tokensFor(web, host, OFFLINE);
  const again = await signIn(username, { cookie: host });
  await assertAlive(second, tokens);
  await signIn(ada.username, { cookie: again.host });
  await assertDead(second, web, tokens);
});

test('"sign out everywhere else" keeps the programs of this browser, and ends others', async () => {
  const here = await addSignedIn();
  const there = await signIn(here.username);
  const kept = await tokensFor(web, here.host, OFFLINE);
  const ended = await tokensFor(web, there.host, OFFLINE);
  await post('/account/sessions/end', here.host);
  await assertAlive(second, kept);
  await assertDead(second, web, ended);
});

// The last test: it signs out everyone.
test('both tokens are dead at the next request of a replica if all sessions end', async () => {
  for (const end of [
    () => call(admin.token, 'DELETE', '/api/session/revoke/all'),
    () => run(['restored', 'identity', '--confirm']),
  ]) {
    const { host } = await signIn(ada.username);
    const tokens = await tokensFor(web, host, OFFLINE);
    await end();
    await assertDead(second, web, tokens);
  }
});
