/** Codes and tokens: who may use them, how often, and what ends them, on every replica. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import {
  begin,
  CALLBACK,
  type Program,
  type Provider,
  readToken,
  startProvider,
  type Tokens,
} from '../../../support/oidc.ts';
import { PASSWORD } from '../../../support/users.ts';
import type { Page } from '../../../support/portal.ts';

const provider = await startProvider({ after }, { SESSION_IDLE_TTL: '300' });
const { sql, call, admin } = provider;
const second = await provider.replica();
const web = await provider.register('web', '--refresh');
const other = await provider.register('other', '--refresh');
const ada = await provider.enter();
const { host: cookie } = await provider.signIn(ada.username);
const OFFLINE = { scope: 'openid offline_access' };

const errorOf = ({ status, text }: Page) => [status, JSON.parse(text).error];
const INVALID_GRANT = [400, 'invalid_grant'];

const refresh = (
  { id, secret }: Program,
  { refresh_token }: Tokens,
  more = {},
  replica: Pick<Provider, 'post'> = second,
) =>
  replica.post('/oidc/token', {
    grant_type: 'refresh_token',
    refresh_token,
    client_id: id,
    ...(secret && { client_secret: secret }),
    ...more,
  });

/** Refused at the other process, with the next request. */
async function assertDead(program: Program, tokens: Tokens) {
  const info = await second.userinfo(tokens.access_token);
  assert.equal(info.status, 401);
  assert.match(info.headers.get('www-authenticate') ?? '', /^Bearer .*error="invalid_token"/);
  assert.deepEqual(errorOf(await refresh(program, tokens)), INVALID_GRANT);
}

async function assertAlive(tokens: Tokens) {
  const { status, text } = await second.userinfo(tokens.access_token);
  assert.equal(status, 200, text);
}

// --- Codes

test('a code is for its program, address and verifier, and a wrong try does not use it up', async () => {
  const begun = await provider.codeFor(web, cookie);
  const verifier = 'x'.repeat(43);
  for (const [program, more] of [
    [other, {}],
    [web, { code_verifier: verifier }],
    [web, { code_verifier: '' }],
    [web, { redirect_uri: 'https://evil.example/' }],
    [web, { code: 'unknown' }],
    [web, { code: '' }],
  ] as const) {
    const page = await second.exchange(program, begun, more);
    assert.deepEqual(errorOf(page), INVALID_GRANT, JSON.stringify(more));
  }
  for (const [more, status, error] of [
    [{ client_secret: `${web.secret.slice(1)}0` }, 401, 'invalid_client'],
    [{ client_secret: '' }, 401, 'invalid_client'],
    [{ client_id: 'unknown' }, 401, 'invalid_client'],
    [{ grant_type: 'password' }, 400, 'unsupported_grant_type'],
    [{ grant_type: '' }, 400, 'invalid_request'],
  ] as const) {
    const page = await second.exchange(web, begun, more);
    assert.deepEqual(errorOf(page), [status, error]);
    if (status === 401) assert.match(page.headers.get('www-authenticate') ?? '', /^Basic /);
  }
  assert.equal((await second.exchange(web, begun, { redirect_uri: '' })).status, 200);
});

test('a verifier without a challenge is refused', async () => {
  const plain = await provider.register('plain', '--without-pkce');
  const begun = await provider.codeFor(plain, cookie, {
    code_challenge: '',
    code_challenge_method: '',
  });
  assert.deepEqual(errorOf(await second.exchange(plain, begun)), INVALID_GRANT);
  // Without PKCE, the address is needed.
  const withoutPkce = { code_verifier: '' };
  const short = { ...withoutPkce, redirect_uri: '' };
  assert.deepEqual(errorOf(await second.exchange(plain, begun, short)), INVALID_GRANT);
  assert.equal((await second.exchange(plain, begun, withoutPkce)).status, 200);
});

test('a second use of a code is refused, and ends what the first one gave (AuthCodeReuse, AuthCodeReuseAfter30Seconds)', async () => {
  for (const seconds of [0, 30, 90]) {
    const begun = await provider.codeFor(web, cookie, OFFLINE);
    const tokens: Tokens = JSON.parse((await provider.exchange(web, begun)).text);
    await assertAlive(tokens);
    await sql`
      update identity.oidc_tokens set used_at = used_at - make_interval(secs => ${seconds})`;
    await provider.runJobs(/oidc_tokens/);
    assert.deepEqual(errorOf(await second.exchange(web, begun)), INVALID_GRANT);
    await assertDead(web, tokens);
  }
  const [entry] = await sql`
    select detail, user_id from identity.audit where event = 'grant.replayed'`;
  assert.equal(entry?.user_id, ada.id);
});

test('of four uses at once on two replicas, one succeeds, and then nothing does', async () => {
  const begun = await provider.codeFor(web, cookie, OFFLINE);
  const pages = await Promise.all(
    [provider, second, provider, second].map((one) => one.exchange(web, begun)),
  );
  const [first, ...more] = pages.filter(({ status }) => status === 200);
  assert.equal(more.length, 0);
  assert.ok(first);
  await assertDead(web, JSON.parse(first.text));
});

test('a code ends after a minute', async () => {
  const begun = await provider.codeFor(web, cookie);
  await sql`update identity.oidc_tokens set ends_at = ends_at - interval '60 seconds'`;
  assert.deepEqual(errorOf(await second.exchange(web, begun)), INVALID_GRANT);
});

test('a code is refused after its sign-in has ended', async () => {
  const user = await provider.enter();
  const program = await provider.register('late');
  for (const end of [
    (host: string) => provider.visit('/logout', { cookie: host, fields: 'x=' }),
    () => call(admin.token, 'DELETE', `/api/session/revoke/all/user?user=${user.id}`),
    () => provider.run(['client', 'set', 'late', '--groups', 'others']),
    () => sql`delete from identity.sessions where user_id = ${user.id}`,
  ]) {
    const { host } = await provider.signIn(user.username);
    const begun = await provider.codeFor(program, host);
    await end(host);
    assert.deepEqual(errorOf(await second.exchange(program, begun)), INVALID_GRANT);
    await provider.run(['client', 'set', 'late', '--groups', '']);
  }
});

test('the secret before a new one is valid for a day', async () => {
  const old = await provider.register('rotated');
  const replaced = await provider.run(['client', 'secret', 'rotated']);
  const secret = replaced.stdout.trim();
  const tokenOf = async (program: Program) => {
    const page = await second.exchange(program, await provider.codeFor(program, cookie));
    return page.status === 200 ? 'given' : errorOf(page);
  };
  const pass = (seconds: number) => sql`
    update identity.oidc_clients
    set previous_until = previous_until - make_interval(secs => ${seconds})`;
  assert.equal(await tokenOf(old), 'given');
  await pass(86_400 - 60);
  assert.equal(await tokenOf(old), 'given');
  await pass(60);
  assert.deepEqual(await tokenOf(old), [401, 'invalid_client']);
  assert.equal(await tokenOf({ ...old, secret }), 'given');
});

test('a program authenticates in one way, and as programs encode it', async () => {
  const basic = (id: string, secret: string) => ({
    authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`,
  });
  const fields = async () => {
    const { code, verifier } = await provider.codeFor(web, cookie);
    return {
      grant_type: 'authorization_code',
      code,
      code_verifier: verifier,
      redirect_uri: CALLBACK,
    };
  };
  const right = basic('web', web.secret);
  assert.equal((await second.post('/oidc/token', await fields(), right)).status, 200);
  const encoded = basic(
    '%77eb',
    web.secret.replace(/^./, (c) => `%${c.charCodeAt(0).toString(16)}`),
  );
  assert.equal((await second.post('/oidc/token', await fields(), encoded)).status, 200);
  const both = { ...(await fields()), client_id: 'web', client_secret: web.secret };
  assert.deepEqual(errorOf(await second.post('/oidc/token', both, right)), [
    400,
    'invalid_request',
  ]);
  for (const authorization of [
    'Basic',
    'Basic !',
    'Bearer x',
    basic('web', 'wrong').authorization,
  ]) {
    const page = await second.post('/oidc/token', await fields(), { authorization });
    assert.ok([400, 401].includes(page.status), page.text);
  }
  const twice = `${new URLSearchParams(await fields())}&client_id=web&client_id=web`;
  const page = await second.visit('/oidc/token', { fields: twice, isProgram: true });
  assert.deepEqual(errorOf(page), [400, 'invalid_request']);
});

test('guesses of codes and refresh tokens of a network are limited', async (t) => {
  const own = await startProvider(t);
  const words = [
    '--id',
    'spa',
    '--name',
    'Spa',
    '--public',
    '--no-consent',
    '--redirect',
    CALLBACK,
  ];
  assert.equal((await own.run(['client', 'create', ...words])).code, 0);
  const spa = { id: 'spa', secret: '' };
  const user = await own.enter();
  const { host } = await own.signIn(user.username);
  const begun = await own.codeFor(spa, host);
  const kinds = [
    ['authorization_code', 'code'],
    ['refresh_token', 'refresh_token'],
  ] as const;
  for (const [index, [grant_type, name]] of kinds.entries()) {
    const headers = { 'x-forwarded-for': `203.0.113.${index}` };
    const guess = (_: unknown, at: number) =>
      own.post('/oidc/token', { grant_type, client_id: 'spa', [name]: `guess ${at}` }, headers);
    const pages = await Promise.all(Array.from({ length: 150 }, guess));
    const refused = pages.find(({ status }) => status === 429);
    assert.ok(refused, grant_type);
    assert.equal(JSON.parse(refused.text).error, 'temporarily_unavailable');
    assert.match(refused.headers.get('retry-after') ?? '', /^\d+$/);
  }
  assert.equal((await own.exchange(spa, begun)).status, 200, 'from another network');
});

// --- Refresh

test('a refresh token is for its program, and gives no more than was granted', async () => {
  const tokens = await provider.tokensFor(web, cookie, OFFLINE);
  assert.deepEqual(errorOf(await refresh(other, tokens)), INVALID_GRANT);
  const wider = { scope: 'openid email' };
  assert.deepEqual(errorOf(await refresh(web, tokens, wider)), [400, 'invalid_scope']);
  const swapped = { ...tokens, refresh_token: tokens.access_token };
  assert.deepEqual(errorOf(await refresh(web, swapped)), INVALID_GRANT);
  assert.equal((await second.userinfo(tokens.refresh_token)).status, 401);
  assert.equal((await refresh(web, tokens)).status, 200);
});

test('a token of one kind is none of another', async () => {
  // Without PKCE, nothing but the kind tells them apart.
  const plain = await provider.register('kinds', '--refresh', '--without-pkce');
  const more = { ...OFFLINE, code_challenge: '', code_challenge_method: '' };
  const begun = await provider.codeFor(plain, cookie, more);
  const exchange = (code: string) =>
    second.exchange(plain, { ...begun, code }, { code_verifier: '' });
  const renew = (refresh_token: string) =>
    refresh(plain, { ...tokens, refresh_token }, { redirect_uri: CALLBACK });
  const page = await exchange(begun.code);
  const tokens: Tokens = JSON.parse(page.text);
  assert.equal(page.status, 200, page.text);
  for (const token of [tokens.access_token, tokens.refresh_token])
    assert.deepEqual(errorOf(await exchange(token)), INVALID_GRANT);
  assert.deepEqual(errorOf(await renew(tokens.access_token)), INVALID_GRANT);
  const { code } = await provider.codeFor(plain, cookie, more);
  assert.deepEqual(errorOf(await renew(code)), INVALID_GRANT);
  for (const token of [code, tokens.refresh_token])
    assert.equal((await second.userinfo(token)).status, 401);
  assert.equal((await renew(tokens.refresh_token)).status, 200);
});

test('only a program that is registered for it gets a refresh token', async () => {
  const without = await provider.register('without');
  const tokens = await provider.tokensFor(without, cookie, OFFLINE);
  assert.equal(tokens.refresh_token, undefined);
});

test('a program without a secret gets another refresh token each time', async () => {
  const words = ['client', 'create', '--id', 'spa', '--name', 'Spa', '--public'];
  const more = ['--refresh', '--no-consent', '--redirect', CALLBACK];
  assert.equal((await provider.run([...words, ...more])).code, 0);
  const spa = { id: 'spa', secret: '' };
  const first = await provider.tokensFor(spa, cookie, OFFLINE);
  // Two tabs at once, on two replicas: both go on.
  const children = await Promise.all([refresh(spa, first), refresh(spa, first, {}, provider)]);
  const [left, right] = children.map(({ status, text }): Tokens => {
    assert.equal(status, 200, text);
    return JSON.parse(text);
  });
  assert.ok(left && right);
  assert.notEqual(left.refresh_token, first.refresh_token);
  await sql`update identity.oidc_tokens set used_at = used_at - interval '11 seconds'`;
  assert.equal((await refresh(spa, left)).status, 200);
  // A thief's, or the first one's: nobody knows.
  assert.deepEqual(errorOf(await refresh(spa, first)), INVALID_GRANT);
  await assertDead(spa, right);
});

test('the grace of a refresh token counts from its first use', async () => {
  const words = ['client', 'create', '--id', 'tabs', '--name', 'Tabs', '--public'];
  const more = ['--refresh', '--no-consent', '--redirect', CALLBACK];
  assert.equal((await provider.run([...words, ...more])).code, 0);
  const tabs = { id: 'tabs', secret: '' };
  const first = await provider.tokensFor(tabs, cookie, OFFLINE);
  const pass = (seconds: number) => sql`
    update identity.oidc_tokens set used_at = used_at - make_interval(secs => ${seconds})`;
  assert.equal((await refresh(tabs, first)).status, 200);
  await pass(5);
  assert.equal((await refresh(tabs, first)).status, 200);
  await pass(6);
  assert.deepEqual(errorOf(await refresh(tabs, first)), INVALID_GRANT);
});

// --- What ends tokens

/** Each way in which a sign-in ends. `fresh`: of a user of its own. */
const ENDS: Readonly<Record<string, (user: { id: string; username: string }) => Promise<unknown>>> =
  {
    'the session is revoked': async ({ id }) => {
      const { json } = await call(admin.token, 'GET', `/api/session/?user=${id}&active=true`);
      for (const session of json.data)
        await call(admin.token, 'DELETE', `/api/session/${session.id}/revoke`);
    },
    'all sessions of the user are revoked': ({ id }) =>
      call(admin.token, 'DELETE', `/api/session/revoke/all/user?user=${id}`),
    'the user is disabled': ({ id }) =>
      call(admin.token, 'PATCH', `/api/user/${id}`, { enabled: false }),
    'the user is deleted': ({ id }) => call(admin.token, 'DELETE', `/api/user/${id}`),
    'the password is set by an administrator': ({ id }) =>
      call(admin.token, 'POST', `/api/user/${id}/password`, { password: `${PASSWORD}-2` }),
    'the user is made an administrator': ({ id }) =>
      call(admin.token, 'PATCH', `/api/user/${id}`, { super_admin: true }),
    'the user leaves the group': ({ id }) =>
      call(admin.token, 'PATCH', `/api/user/${id}`, { groups: ['others'] }),
    'the session expires': ({ id }) =>
      sql`update identity.sessions set expires_at = now() where user_id = ${id}`,
    'the session is not used': ({ id }) =>
      sql`update identity.sessions set last_seen_at = now() - interval '301 seconds'
        where user_id = ${id}`,
    'the program is for another group': () =>
      provider.run(['client', 'set', 'ends', '--groups', 'admins']),
    'the program needs a second factor': () =>
      provider.run(['client', 'set', 'ends', '--second-factor', 'true']),
    'the program is disabled': () => provider.run(['client', 'disable', 'ends']),
    'the program is deleted': () => provider.run(['client', 'delete', 'ends']),
    'a second factor is added elsewhere': ({ id }) =>
      sql`update identity.users set second_factor = true where id = ${id}`,
  };

for (const [name, end] of Object.entries(ENDS)) {
  test(`both tokens are dead at the next request of a replica if ${name}`, async () => {
    const program = await provider.register('ends', '--refresh', '--groups', 'staff');
    const user = await provider.enter({ groups: ['staff'] });
    const browser = await provider.signIn(user.username);
    const tokens = await provider.tokensFor(program, browser.host, OFFLINE);
    await assertAlive(tokens);
    await end(user);
    const info = await second.userinfo(tokens.access_token);
    assert.equal(info.status, 401);
    const page = await refresh(program, tokens);
    assert.ok([400, 401].includes(page.status), page.text);
    await provider.run(['client', 'delete', 'ends']);
  });
}

test('an access token ends after an hour, and is removed', async () => {
  const tokens = await provider.tokensFor(web, cookie, OFFLINE);
  await sql`update identity.oidc_tokens set ends_at = ends_at - interval '3600 seconds'
    where kind = 'access'`;
  assert.equal((await second.userinfo(tokens.access_token)).status, 401);
  await provider.runJobs(/oidc_tokens/);
  const [left] =
    await sql`select count(*)::int as n from identity.oidc_tokens where kind = 'access'`;
  assert.equal(left?.n, 0);
  assert.equal((await refresh(web, tokens)).status, 200);
});

test('an access token opens nothing else, and no session token opens the userinfo', async () => {
  const { access_token } = await provider.tokensFor(web, cookie);
  assert.equal((await call(access_token, 'GET', '/api/test/')).status, 401);
  assert.equal((await second.userinfo(ada.token)).status, 401);
  const none = await second.visit('/oidc/userinfo');
  assert.deepEqual(
    [none.status, none.headers.get('www-authenticate')],
    [401, 'Bearer realm="gatehouse"'],
  );
});

test('a program revokes its tokens, and no other program does', async () => {
  const revoke = ({ id, secret }: Program, token: string) =>
    second.post('/oidc/revoke', { token, client_id: id, client_secret: secret });
  const tokens = await provider.tokensFor(web, cookie, OFFLINE);
  assert.equal((await revoke(other, tokens.refresh_token)).status, 200);
  assert.equal((await revoke(other, tokens.access_token)).status, 200);
  await assertAlive(tokens);
  assert.equal((await revoke(web, 'unknown')).status, 200);
  assert.equal((await revoke(web, tokens.access_token)).status, 200);
  assert.equal((await second.userinfo(tokens.access_token)).status, 401);
  const again: Tokens = JSON.parse((await refresh(web, tokens)).text);
  assert.equal((await revoke(web, tokens.refresh_token)).status, 200);
  await assertDead(web, again);
  assert.deepEqual(errorOf(await revoke(web, '')), [400, 'invalid_request']);
});

// --- What moves with the session

test('a new sign-in of the same browser keeps its programs, and that of another user none', async () => {
  const user = await provider.enter();
  const first = await provider.signIn(user.username);
  const tokens = await provider.tokensFor(web, first.host, OFFLINE);
  const again = await provider.signIn(user.username, { cookie: first.host });
  await assertAlive(tokens);
  const moved = await provider.tokensFor(web, again.host, OFFLINE);
  assert.equal(typeof readToken(moved.id_token).claims.sid, 'string');
  const stranger = await provider.enter();
  await provider.signIn(stranger.username, { cookie: again.host });
  await assertDead(web, tokens);
});

test('"sign out everywhere else" keeps the programs of this browser, and ends others', async () => {
  const user = await provider.enter();
  const here = await provider.signIn(user.username);
  const there = await provider.signIn(user.username);
  const kept = await provider.tokensFor(web, here.host, OFFLINE);
  const ended = await provider.tokensFor(web, there.host, OFFLINE);
  await provider.visit('/account/sessions/end', { cookie: here.host, fields: 'x=' });
  await assertAlive(kept);
  await assertDead(web, ended);
});

test('a temporary password gets no code', async () => {
  const user = await provider.enter();
  const browser = await provider.signIn(user.username);
  const tokens = await provider.tokensFor(web, browser.host, OFFLINE);
  await sql`update identity.users set password_generated = true where id = ${user.id}`;
  await assertDead(web, tokens);
  const page = await provider.visit(begin(web).path, { cookie: browser.host });
  assert.match(page.headers.get('location') ?? '', /error=access_denied/);
});

// The last test: it signs out everyone.
test('both tokens are dead at the next request of a replica if all sessions end', async () => {
  for (const end of [
    () => call(admin.token, 'DELETE', '/api/session/revoke/all'),
    () => provider.run(['restored', 'identity', '--confirm']),
  ]) {
    const browser = await provider.signIn(ada.username);
    const tokens = await provider.tokensFor(web, browser.host, OFFLINE);
    await assertAlive(tokens);
    await end();
    await assertDead(web, tokens);
  }
});
