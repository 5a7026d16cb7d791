/** Access and refresh tokens: who may use them, and what ends them, on every replica. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import {
  assertAlive,
  assertDead,
  begin,
  CALLBACK,
  errorOf,
  INVALID_GRANT,
  OFFLINE,
  type Program,
  readToken,
  startProvider,
  type Tokens,
} from '../../../support/oidc.ts';
import { PASSWORD } from '../../../support/users.ts';

const provider = await startProvider({ after }, { SESSION_IDLE_TTL: '300' });
const { sql, call, admin } = provider;
const second = await provider.replica();
const web = await provider.register('web', '--refresh');
const other = await provider.register('other', '--refresh');
const ada = await provider.enter();
const { host: cookie } = await provider.signIn(ada.username);

test('a refresh token is for its program, and gives no more than was granted', async () => {
  const tokens = await provider.tokensFor(web, cookie, OFFLINE);
  assert.deepEqual(errorOf(await second.refresh(other, tokens)), INVALID_GRANT);
  const wider = { scope: 'openid email' };
  assert.deepEqual(errorOf(await second.refresh(web, tokens, wider)), [400, 'invalid_scope']);
  const swapped = { ...tokens, refresh_token: tokens.access_token };
  assert.deepEqual(errorOf(await second.refresh(web, swapped)), INVALID_GRANT);
  assert.equal((await second.userinfo(tokens.refresh_token)).status, 401);
  assert.equal((await second.refresh(web, tokens)).status, 200);
});

test('a token of one kind is none of another', async () => {
  // Without PKCE, nothing but the kind tells them apart.
  const plain = await provider.register('kinds', '--refresh', '--without-pkce');
  const more = { ...OFFLINE, code_challenge: '', code_challenge_method: '' };
  const begun = await provider.codeFor(plain, cookie, more);
  const exchange = (code: string) =>
    second.exchange(plain, { ...begun, code }, { code_verifier: '' });
  const renew = (refresh_token: string) =>
    second.refresh(plain, { ...tokens, refresh_token }, { redirect_uri: CALLBACK });
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
  const spa = await provider.register('spa', '--public', '--refresh');
  const first = await provider.tokensFor(spa, cookie, OFFLINE);
  // Two tabs at once, on two replicas: both go on.
  const children = await Promise.all([second.refresh(spa, first), provider.refresh(spa, first)]);
  const [left, right] = children.map(({ status, text }): Tokens => {
    assert.equal(status, 200, text);
    return JSON.parse(text);
  });
  assert.ok(left && right);
  assert.notEqual(left.refresh_token, first.refresh_token);
  await sql`update identity.oidc_tokens set used_at = used_at - interval '11 seconds'`;
  assert.equal((await second.refresh(spa, left)).status, 200);
  // A thief's, or the first one's: nobody knows.
  assert.deepEqual(errorOf(await second.refresh(spa, first)), INVALID_GRANT);
  await assertDead(second, spa, right);
});

test('the grace of a refresh token counts from its first use', async () => {
  const tabs = await provider.register('tabs', '--public', '--refresh');
  const first = await provider.tokensFor(tabs, cookie, OFFLINE);
  const pass = (seconds: number) => sql`
    update identity.oidc_tokens set used_at = used_at - make_interval(secs => ${seconds})`;
  assert.equal((await second.refresh(tabs, first)).status, 200);
  await pass(5);
  assert.equal((await second.refresh(tabs, first)).status, 200);
  await pass(6);
  assert.deepEqual(errorOf(await second.refresh(tabs, first)), INVALID_GRANT);
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
    await assertAlive(second, tokens);
    await end(user);
    const info = await second.userinfo(tokens.access_token);
    assert.equal(info.status, 401);
    const page = await second.refresh(program, tokens);
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
  assert.equal((await second.refresh(web, tokens)).status, 200);
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
    second.tell('/oidc/revoke', { token, client_id: id, client_secret: secret });
  const tokens = await provider.tokensFor(web, cookie, OFFLINE);
  assert.equal((await revoke(other, tokens.refresh_token)).status, 200);
  assert.equal((await revoke(other, tokens.access_token)).status, 200);
  await assertAlive(second, tokens);
  assert.equal((await revoke(web, 'unknown')).status, 200);
  assert.equal((await revoke(web, tokens.access_token)).status, 200);
  assert.equal((await second.userinfo(tokens.access_token)).status, 401);
  const again: Tokens = JSON.parse((await second.refresh(web, tokens)).text);
  assert.equal((await revoke(web, tokens.refresh_token)).status, 200);
  await assertDead(second, web, again);
  assert.deepEqual(errorOf(await revoke(web, '')), [400, 'invalid_request']);
});

// --- What moves with the session

test('a new sign-in of the same browser keeps its programs, and that of another user none', async () => {
  const user = await provider.enter();
  const first = await provider.signIn(user.username);
  const tokens = await provider.tokensFor(web, first.host, OFFLINE);
  const again = await provider.signIn(user.username, { cookie: first.host });
  await assertAlive(second, tokens);
  const moved = await provider.tokensFor(web, again.host, OFFLINE);
  assert.equal(typeof readToken(moved.id_token).claims.sid, 'string');
  const stranger = await provider.enter();
  await provider.signIn(stranger.username, { cookie: again.host });
  await assertDead(second, web, tokens);
});

test('"sign out everywhere else" keeps the programs of this browser, and ends others', async () => {
  const user = await provider.enter();
  const here = await provider.signIn(user.username);
  const there = await provider.signIn(user.username);
  const kept = await provider.tokensFor(web, here.host, OFFLINE);
  const ended = await provider.tokensFor(web, there.host, OFFLINE);
  await provider.visit('/account/sessions/end', { cookie: here.host, fields: 'x=' });
  await assertAlive(second, kept);
  await assertDead(second, web, ended);
});

test('a temporary password gets no code', async () => {
  const user = await provider.enter();
  const browser = await provider.signIn(user.username);
  const tokens = await provider.tokensFor(web, browser.host, OFFLINE);
  await sql`update identity.users set password_generated = true where id = ${user.id}`;
  await assertDead(second, web, tokens);
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
    await assertAlive(second, tokens);
    await end();
    await assertDead(second, web, tokens);
  }
});
