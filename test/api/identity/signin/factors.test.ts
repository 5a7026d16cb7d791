/** Second factors: enrolment, the second step of a sign-in, and what a pending sign-in may do. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { totpCode } from '../../../../src/identity/factors/codes.ts';
import { createRoutes } from '../../../../src/identity/routes.ts';
import { createPasskey } from '../../../support/authenticator.ts';
import { createDatabase } from '../../../support/database.ts';
import { codesOn, factorsOf, PENDING, secretOn, setupOn } from '../../../support/factors.ts';
import { ADMIN_PASSWORD, ask, startGatehouse, assertStatus } from '../../../support/gatehouse.ts';
import { cookieFrom, ORIGIN, PORTAL, startPortal, visitorOf } from '../../../support/portal.ts';
import { PASSWORD } from '../../../support/users.ts';
import { SITE } from '../../../support/service-context.ts';

const portal = await startPortal({ after });
const { identity, sql, add, visit, signIn } = portal;
const { events, stepNow, forgetSteps, enrol, start, enter, register } = factorsOf(portal);

test('an app is set up with a key, a QR code and its first right code', async () => {
  const { username, id } = await add();
  const { host } = await signIn(username);
  const offered = await visit('/account/totp/start', { fields: {}, cookie: host });
  assert.match(offered.text, /<svg role="img" aria-label="QR code of the key"/);
  const secret = secretOn(offered.text);
  const wrong = await visit('/account/totp', {
    fields: setupOn(offered.text, '000000'),
    cookie: host,
  });
  assert.equal(wrong.status, 401);
  assert.deepEqual(secretOn(wrong.text), secret, 'the app has this key already');
  assertStatus(
    await visit('/login', { fields: { username, password: PASSWORD } }),
    200,
    'not asked for yet',
  );
  const done = await visit('/account/totp', {
    fields: setupOn(wrong.text, totpCode(secret, await stepNow())),
    cookie: host,
  });
  assert.equal(codesOn(done.text).length, 10);
  assert.equal(await events(id, 'factor.added'), 2);
  const [row] =
    await sql`select blob::text || client_key::text as sealed from identity.totp where user_id = ${id}`;
  assert.doesNotMatch(String(row?.sealed), new RegExp(secret.toString('hex')));
  assert.match(
    (await visit('/account/factors', { cookie: cookieFrom(done, '__Host-gatehouse') })).text,
    /In use</,
  );
});

test('a right password alone opens nothing, and the right code leads to the requested address', async () => {
  const { username, id } = await add();
  const { secret } = await enrol(username);
  const pending = await start(username);
  const token = pending.slice(PENDING.length + 1);
  for (const { method, pattern, security } of await createRoutes(SITE)) {
    if (security.length === 0) continue;
    const path = identity + pattern.replace(/\{[a-z_]+\}/g, id);
    for (const headers of [
      {
        cookie: `${pending}; __Host-gatehouse=${token}; __Secure-gatehouse=${token}; session=${token}`,
      },
      { authorization: `Bearer ${token}` },
    ]) {
      const response = await fetch(path, {
        method,
        redirect: 'manual',
        headers: { ...headers, origin: ORIGIN, 'sec-fetch-site': 'same-origin' },
      });
      assert.ok([401, 303].includes(response.status), `${method} ${pattern}: ${response.status}`);
      await response.body?.cancel();
    }
  }
  await forgetSteps(id);
  const done = await enter(pending, totpCode(secret, await stepNow()));
  assert.match(done.text, /url=https:\/\/app\.example\.org\/x"/);
  const verified = await visit('/api/auth/verify?require=second_factor', {
    cookie: cookieFrom(done, '__Secure-gatehouse'),
  });
  assert.deepEqual(
    [verified.status, verified.headers.get('x-auth-methods')],
    [200, 'password, totp'],
  );
  assertStatus(
    await enter(pending, totpCode(secret, await stepNow())),
    401,
    'a sign-in that is finished',
  );
});

test('a code is accepted once, and no earlier one after it', async () => {
  const { username, id } = await add();
  const { secret } = await enrol(username);
  const now = await stepNow();
  await forgetSteps(id);
  assert.equal((await enter(await start(username), totpCode(secret, now))).status, 200);
  assertStatus(
    await enter(await start(username), totpCode(secret, now - 1)),
    401,
    'an earlier step',
  );
  assert.match(
    (await enter(await start(username), totpCode(secret, now))).text,
    /wrong, too old, or was used before/,
  );
});

test('right codes do not count towards the limit of a day', async () => {
  const { username, id } = await add();
  const { secret } = await enrol(username);
  for (let logins = 1; logins <= 21; logins += 1) {
    await forgetSteps(id);
    const body = { username, password: PASSWORD, otp: totpCode(secret, await stepNow()) };
    assert.equal((await ask('POST', `${identity}/api/auth/login`, { body })).status, 200);
  }
});

test('a recovery code opens once, however it is written', async () => {
  const { username, id } = await add();
  const {
    codes: [first = '', second = ''],
  } = await enrol(username);
  const both = await Promise.all(
    [await start(username), await start(username)].map((cookie) =>
      enter(cookie, first.toLowerCase().replaceAll('-', ' ')),
    ),
  );
  assert.deepEqual(both.map(({ status }) => status).sort(), [200, 401]);
  assert.equal(await events(id, 'recovery.used'), 1);
  assert.equal((await enter(await start(username), second)).status, 200);
  assert.equal(
    Number(
      (await sql`select count(*)::int as n from identity.recovery_codes where user_id = ${id}`)[0]
        ?.n,
    ),
    8,
  );
  const stored =
    await sql`select digest::text as digest from identity.recovery_codes where user_id = ${id}`;
  assert.doesNotMatch(JSON.stringify(stored), new RegExp(second.replaceAll('-', '')));
});

test("a recovery code of another user opens nothing, and stays that user's", async () => {
  const owner = await add();
  const thief = await add();
  const { codes } = await enrol(owner.username);
  await enrol(thief.username);
  const pending = await start(thief.username);
  assert.equal((await enter(pending, codes[0] ?? '')).status, 401);
  const rows = await sql`select from identity.recovery_codes where user_id = ${owner.id}`;
  assert.equal(rows.length, 10);
});

test('after an app was removed, a form that was open before sets up nothing', async () => {
  const { username, id } = await add();
  const { host } = await enrol(username);
  const offered = await visit('/account/totp/start', { fields: {}, cookie: host });
  const removed = await visit('/account/factors/remove', { fields: {}, cookie: host });
  assert.equal(removed.status, 303, removed.text);
  const code = totpCode(secretOn(offered.text), await stepNow());
  const late = await visit('/account/totp', { fields: setupOn(offered.text, code), cookie: host });
  assert.equal(late.status, 401);
  assert.equal(await events(id, 'factor.added'), 2, 'the first app and its codes');
});

test('the API asks for the code after the right password only', async () => {
  const { username, id } = await add();
  const { secret } = await enrol(username);
  const login = (body: Record<string, string>) =>
    ask('POST', `${identity}/api/auth/login`, { body: { username, ...body } });
  const wrong = await login({ password: 'wrong-password' });
  const right = await login({ password: PASSWORD });
  assert.deepEqual([wrong.status, wrong.json.error.code], [401, 'invalid_credentials']);
  assert.deepEqual([right.status, right.json.error.code], [401, 'second_factor_needed']);
  const wrongCode = await login({
    password: 'wrong-password',
    otp: totpCode(secret, await stepNow()),
  });
  assert.equal(wrongCode.json.error.code, 'invalid_credentials');
  await forgetSteps(id);
  const otp = totpCode(secret, await stepNow());
  assert.equal(
    (await login({ password: PASSWORD, otp: '000000' })).json.error.code,
    'invalid_code',
  );
  assert.equal((await login({ password: PASSWORD, otp })).status, 200);
  assert.equal((await login({ password: PASSWORD, otp })).json.error.code, 'invalid_code');
});

test('a pending sign-in ends with a change of the password, the factors, or the right to log in', async () => {
  const changes = [
    (id: string) =>
      portal.call(portal.admin.token, 'POST', `/api/user/${id}/password`, {
        password: 'another-long-password',
      }),
    (id: string) => portal.call(portal.admin.token, 'PATCH', `/api/user/${id}`, { enabled: false }),
    (id: string) =>
      sql`update identity.pending_sign_ins set expires_at = now() where user_id = ${id}`,
  ];
  for (const change of changes) {
    const { username, id } = await add();
    const { secret } = await enrol(username);
    await forgetSteps(id);
    const pending = await start(username);
    await change(id);
    const late = await enter(pending, totpCode(secret, await stepNow()));
    assert.equal(late.status, 401);
    assert.match(late.text, /This sign-in has ended/);
  }
});

test('a second factor beside another one ends pending sign-ins', async () => {
  const { username, id } = await add();
  const { host, secret } = await enrol(username);
  await forgetSteps(id);
  const pending = await start(username);
  assert.equal((await register(host)).headers.get('location'), '/account/factors');
  const late = await enter(pending, totpCode(secret, await stepNow()));
  assert.equal(late.status, 401);
  assert.match(late.text, /This sign-in has ended/);
});

test('an app beside a passkey leaves the recovery codes valid', async () => {
  const { username, id } = await add();
  const { host } = await signIn(username);
  const added = await register(host);
  const codes = codesOn(added.text);
  assert.equal(codes.length, 10);
  const cookie = cookieFrom(added, '__Host-gatehouse');
  const offered = await visit('/account/totp/start', { fields: {}, cookie });
  const code = totpCode(secretOn(offered.text), await stepNow());
  const done = await visit('/account/totp', { fields: setupOn(offered.text, code), cookie });
  assert.equal(done.headers.get('location'), '/account/factors');
  const { count } = await sql`select from identity.recovery_codes where user_id = ${id}`;
  assert.equal(count, 10);
  assert.equal((await enter(await start(username), String(codes[0]))).status, 200);
});

test('a rule for a second factor leads to setting one up, and then to the requested address', async () => {
  const { username } = await add();
  const { host, domain } = await signIn(username);
  const navigation = {
    accept: 'text/html',
    'x-forwarded-proto': 'https',
    'x-forwarded-host': 'app.example.org',
    'x-forwarded-uri': '/pay?x=1',
  };
  const { headers } = await visit('/api/auth/verify?require=second_factor&redirect=302', {
    cookie: domain,
    headers: navigation,
  });
  const plain = await visit('/api/auth/verify?require=second_factor', { cookie: domain });
  assert.match(plain.text, /"second_factor_needed"/);
  const target = new URL(headers.get('location') ?? '');
  assert.equal(target.pathname, '/account/factors');
  const page = await visit(target.pathname + target.search, { cookie: host });
  assert.equal(page.status, 200, page.text);
  const fields = { return_to: /name="return_to" value="([^"]+)"/.exec(page.text)?.[1] ?? '' };
  assert.equal(fields.return_to, 'https://app.example.org/pay?x=1');
  const offered = await visit('/account/totp/start', { fields, cookie: host });
  const code = totpCode(secretOn(offered.text), await stepNow());
  const done = await visit('/account/totp', {
    fields: { ...fields, ...setupOn(offered.text, code) },
    cookie: host,
  });
  assert.match(
    done.text,
    /<a href="https:\/\/app\.example\.org\/pay\?x=1" class="button primary">/,
  );
});

/** A user with an app, two passkeys, recovery codes and a pending sign-in. */
async function addWithFactors() {
  const user = await add();
  let { host } = await enrol(user.username);
  const passkeys = [createPasskey(), createPasskey()] as const;
  for (const passkey of passkeys)
    host = cookieFrom(await register(host, passkey), '__Host-gatehouse');
  await start(user.username);
  const remove = async (passkey: string) => {
    const page = await visit('/account/factors/remove', { fields: { passkey }, cookie: host });
    assert.equal(page.status, 303, page.text);
  };
  return { ...user, passkeys, remove, host };
}
async function factorsIn(id: string) {
  const [row] = await sql`
    select (select count(*)::int4 from identity.totp where user_id = ${id}) as apps,
      (select count(*)::int4 from identity.passkeys where user_id = ${id}) as passkeys,
      (select count(*)::int4 from identity.recovery_codes where user_id = ${id}) as codes,
      (select count(*)::int4 from identity.pending_sign_ins where user_id = ${id}) as pending`;
  return row;
}

test('a removal removes the chosen factor of its user, and nothing else', async () => {
  const other = await addWithFactors();
  const { id, passkeys, remove } = await addWithFactors();
  assert.deepEqual(await factorsIn(id), { apps: 1, passkeys: 2, codes: 10, pending: 1 });
  await remove(passkeys[0].id.toString('base64url'));
  assert.deepEqual(await factorsIn(id), { apps: 1, passkeys: 1, codes: 10, pending: 0 });
  await remove('');
  assert.deepEqual(await factorsIn(id), { apps: 0, passkeys: 1, codes: 10, pending: 0 });
  await remove(passkeys[1].id.toString('base64url'));
  assert.deepEqual(await factorsIn(id), { apps: 0, passkeys: 0, codes: 0, pending: 0 });
  assert.deepEqual(await factorsIn(other.id), { apps: 1, passkeys: 2, codes: 10, pending: 1 });
});

test('an administrator removes all factors of one user', async () => {
  const other = await addWithFactors();
  const { id, username, host: own } = await addWithFactors();
  const administrator = await add({ super_admin: true });
  const { host } = await signIn(administrator.username);
  const path = `/account/users/${id}/remove_factors`;
  assert.equal((await visit(path, { fields: {}, cookie: host })).status, 303);
  assert.deepEqual(await factorsIn(id), { apps: 0, passkeys: 0, codes: 0, pending: 0 });
  assert.deepEqual(await factorsIn(other.id), { apps: 1, passkeys: 2, codes: 10, pending: 1 });
  assert.equal((await visit('/account', { cookie: own })).status, 303);
  assert.notEqual((await signIn(username)).host, '');
});

test('a completed sign-in leaves those that wait for other users', async () => {
  const first = await add();
  const second = await add();
  const firstCodes = await enrol(first.username);
  const secondCodes = await enrol(second.username);
  const waiting = await start(second.username);
  const completed = await enter(await start(first.username), firstCodes.codes[0] ?? '');
  assert.equal(completed.status, 200);
  assert.equal((await enter(waiting, secondCodes.codes[0] ?? '')).status, 200);
});

test('removing a factor while a sign-in waits for it ends that sign-in', async () => {
  const { username, id } = await add();
  const { host, secret } = await enrol(username);
  await forgetSteps(id);
  const pending = await start(username);
  await visit('/account/factors/remove', { fields: {}, cookie: host });
  assert.equal((await enter(pending, totpCode(secret, await stepNow()))).status, 401);
  assert.equal(await events(id, 'factor.removed'), 1);
});

test('a required second factor is set up before the first session', async (context) => {
  const database = await createDatabase(context);
  const environment = { ...PORTAL, REQUIRE_SECOND_FACTOR: 'super_admin' };
  const { url } = await startGatehouse(context, ['identity'], database.url, environment);
  const to = visitorOf(url.identity);
  const credentials = { username: 'admin', password: ADMIN_PASSWORD };
  const api = await ask('POST', `${url.identity}/api/auth/login`, { body: credentials });
  assert.deepEqual([api.status, api.json.error.code], [401, 'second_factor_needed']);
  const page = await to('/login', {
    fields: { ...credentials, return_to: 'https://app.example.org/y' },
  });
  const secret = secretOn(page.text);
  const pending = cookieFrom(page, PENDING);
  assert.equal(cookieFrom(page, '__Host-gatehouse'), '');
  const fields = (code: string) => ({
    fields: { ...setupOn(page.text, code), return_to: 'https://app.example.org/y' },
    cookie: pending,
  });
  const wrong = await to('/login/enrol', fields('000000'));
  assert.equal(wrong.status, 401);
  assert.deepEqual(secretOn(wrong.text), secret, 'the app has this key already');
  const done = await to('/login/enrol', fields(totpCode(secret, await stepNow())));
  assert.equal(codesOn(done.text).length, 10);
  assert.match(done.text, /href="https:\/\/app\.example\.org\/y"/);
  const verified = await to('/api/auth/verify?require=second_factor', {
    cookie: cookieFrom(done, '__Secure-gatehouse'),
  });
  assert.equal(verified.status, 200);
  const again = await to('/login', { fields: credentials });
  const late = await to('/login/enrol', {
    fields: { ...setupOn(page.text, '000000'), return_to: '' },
    cookie: cookieFrom(again, PENDING),
  });
  assert.match(late.text, /This sign-in has ended/, 'a second app beside the first one');
});
