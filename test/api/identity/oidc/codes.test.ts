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
const { sql, call, admin, run, codeFor, addSignedIn, signIn, post } = provider;
const second = await provider.replica();
const web = await provider.register('web', '--refresh');
const other = await provider.register('other');
const ada = await addSignedIn();

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

const ENDS: Readonly<Record<string, (user: typeof ada) => PromiseLike<unknown>>> = {
  'a minute is over': () =>
    sql`update identity.oidc_tokens set ends_at = ends_at - interval '60 seconds'`,
  'the person signed out': ({ host }) => post('/logout', host),
  'the sessions were revoked': ({ id }) =>
    call(admin.token, 'DELETE', `/api/session/revoke/all/user?user=${id}`),
  'the session was removed': ({ id }) => sql`delete from identity.sessions where user_id = ${id}`,
  'the program is for others': () => run(['client', 'set', 'other', '--groups', 'others']),
};
for (const [what, end] of Object.entries(ENDS)) {
  test(`a code is refused after ${what}`, async () => {
    const user = await addSignedIn();
    const begun = await codeFor(other, user.host);
    await end(user);
    assert.deepEqual(errorOf(await second.exchange(other, begun)), INVALID_GRANT);
    await run(['client', 'set', 'other', '--groups', '']);
  });
}

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
    [basic('web', web.secret), both, [400, 'invalid_request']],
    [basic('web', 'wrong'), {}, [401, 'invalid_client']],
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
    const guess = (_: unknown, at: number) => {
      const fields = { grant_type: String(grant_type), [String(name)]: `guess ${at}` };
      return second.tell('/oidc/token', { ...fields, client_id: 'spa' }, headers);
    };
    const pages = await Promise.all(Array.from({ length: 150 }, guess));
    const refused = pages.find(({ status }) => status === 429) ?? assert.fail(grant_type);
    assert.equal(JSON.parse(refused.text).error, 'temporarily_unavailable');
    assert.match(refused.headers.get('retry-after') ?? '', /^\d+$/);
  }
  const { host } = await signIn(ada.username);
  const begun = await codeFor(spa, host);
  assert.equal((await second.exchange(spa, begun)).status, 200, 'from another network');
});
