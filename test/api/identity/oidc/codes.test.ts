/** Codes: who may use them, how often, and what ends them, on every replica. */
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
} from '../../../support/oidc.ts';

const provider = await startProvider({ after });
const { sql, call, admin } = provider;
const second = await provider.replica();
const web = await provider.register('web', '--refresh');
const other = await provider.register('other');
const ada = await provider.enter();
const { host: cookie } = await provider.signIn(ada.username);

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
    await assertAlive(second, tokens);
    await sql`
      update identity.oidc_tokens set used_at = used_at - make_interval(secs => ${seconds})`;
    await provider.runJobs(/oidc_tokens/);
    assert.deepEqual(errorOf(await second.exchange(web, begun)), INVALID_GRANT);
    await assertDead(second, web, tokens);
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
  await assertDead(second, web, JSON.parse(first.text));
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
  assert.equal((await second.tell('/oidc/token', await fields(), right)).status, 200);
  const encoded = basic(
    '%77eb',
    web.secret.replace(/^./, (c) => `%${c.charCodeAt(0).toString(16)}`),
  );
  assert.equal((await second.tell('/oidc/token', await fields(), encoded)).status, 200);
  const both = { ...(await fields()), client_id: 'web', client_secret: web.secret };
  assert.deepEqual(errorOf(await second.tell('/oidc/token', both, right)), [
    400,
    'invalid_request',
  ]);
  for (const authorization of [
    'Basic',
    'Basic !',
    'Bearer x',
    basic('web', 'wrong').authorization,
  ]) {
    const page = await second.tell('/oidc/token', await fields(), { authorization });
    assert.ok([400, 401].includes(page.status), page.text);
  }
  const twice = `${new URLSearchParams(await fields())}&client_id=web&client_id=web`;
  const page = await second.visit('/oidc/token', { fields: twice, isProgram: true });
  assert.deepEqual(errorOf(page), [400, 'invalid_request']);
});

test('guesses of codes and refresh tokens of a network are limited', async (t) => {
  stopClock(t);
  const own = await startProvider(t);
  const spa = await own.register('spa', '--public');
  const kinds = [
    ['authorization_code', 'code'],
    ['refresh_token', 'refresh_token'],
  ] as const;
  for (const [index, [grant_type, name]] of kinds.entries()) {
    const headers = { 'x-forwarded-for': `203.0.113.${index}` };
    const guess = (_: unknown, at: number) =>
      own.tell('/oidc/token', { grant_type, client_id: 'spa', [name]: `guess ${at}` }, headers);
    const pages = await Promise.all(Array.from({ length: 150 }, guess));
    const refused = pages.find(({ status }) => status === 429);
    assert.ok(refused, grant_type);
    assert.equal(JSON.parse(refused.text).error, 'temporarily_unavailable');
    assert.match(refused.headers.get('retry-after') ?? '', /^\d+$/);
  }
  const user = await own.enter();
  const { host } = await own.signIn(user.username);
  const begun = await own.codeFor(spa, host);
  assert.equal((await own.exchange(spa, begun)).status, 200, 'from another network');
});
