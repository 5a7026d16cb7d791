/**
 * What hands out rights or credentials needs a sign-in that is recent and complete (ASVS 7.5), and
 * a password that others do not know: not one that was generated or set by an administrator.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startSignIn } from '../../../support/factors.ts';
import { ask, logIn, startGatehouse } from '../../../support/gatehouse.ts';
import { createWaits, holdStatements } from '../../../support/hold.ts';
import { meanwhile } from '../../../support/meanwhile.ts';
import { OWN, pagesOf, PORTAL, signInFor } from '../../../support/portal.ts';
import { assertError, PASSWORD } from '../../../support/users.ts';

const portal = await startSignIn({ after });
const { identity, sql, call, login, add, addSignedIn, enter, show, post } = portal;
const { enterPassword, choosePassword, addEnrolled, start, enterCode, freshCode } = portal;
const { events, rowsOf, makeTemporary, makeLink, openLink } = portal;
const replica = await startGatehouse({ after }, ['identity'], portal.databaseUrl, {
  ...PORTAL,
  REQUIRE_SECOND_FACTOR: 'super_admin',
});

let names = 0;
const newUser = () => {
  names += 1;
  return { username: `made-${names}`, email: `made-${names}@example.org` };
};
const age = (id: string, seconds: number) => sql`
  update identity.sessions
  set created_at = created_at - make_interval(secs => ${seconds}),
    authenticated_at = authenticated_at - make_interval(secs => ${seconds})
  where user_id = ${id}`;
const addFactor = (id: string) =>
  sql`update identity.users set second_factor = true where id = ${id}`;
const changePassword = (bearer: string, current_password = PASSWORD, new_password = OWN) =>
  call(bearer, 'POST', '/api/auth/password', { current_password, new_password });

/** What a session is, by what happens to its user. */
const SESSIONS: Readonly<Record<string, (id: string) => PromiseLike<unknown>>> = {
  'of almost ten minutes': (id) => age(id, 595),
  'of eleven minutes': (id) => age(id, 660),
  'by the password alone of a user who has a factor': addFactor,
  'with a temporary password': makeTemporary,
};

test('a change of the password is no new proof, and no longer session', async () => {
  const chief = await enter({ super_admin: true });
  const target = await add();
  await sql`update identity.sessions set created_at = created_at - interval '3 hours',
    expires_at = expires_at - interval '3 hours', methods = 'password, totp'
    where user_id = ${chief.id}`;
  const rows = () => sql`select created_at, expires_at from identity.sessions
    where user_id = ${chief.id} order by created_at desc`;
  const [before] = await rows();
  const link = (bearer: string) => call(bearer, 'POST', `/api/user/${target.id}/link`, {});
  assertError(await link(chief.token), 401, 'signin_too_old');
  const same = await changePassword(chief.token, PASSWORD, PASSWORD);
  assertError(same, 400, 'invalid_body', ['/new_password']);
  const token = (await changePassword(chief.token)).json.data.session;
  assertError(await link(token), 401, 'signin_too_old');
  const { headers } = await call(token, 'GET', '/api/auth/verify');
  const provedAt = Math.floor(Number(before?.created_at) / 1000);
  assert.equal(headers.get('x-auth-time'), String(provedAt));
  assert.equal(headers.get('x-auth-methods'), 'password, totp');
  assertError(await call(token, 'GET', '/api/auth/verify?max_age=900'), 401, 'signin_too_old');
  assert.deepEqual((await rows())[0]?.expires_at, before?.expires_at);
  assert.equal((await link(await logIn(identity, chief.username, OWN))).status, 201);
});

test('a login with a code is a complete proof, and one before the factor is not', async () => {
  const user = await addEnrolled();
  const { username } = user;
  const early = await enter();
  await addFactor(early.id);
  assertError(await call(early.token, 'POST', '/api/key/', {}), 401, 'signin_too_old');
  const body = { username, password: PASSWORD, otp: await freshCode(user) };
  const token = (await call(null, 'POST', '/api/auth/login', body)).json.data.session;
  const { headers } = await call(token, 'GET', '/api/auth/verify?require=second_factor');
  assert.equal(headers.get('x-auth-methods'), 'password, totp');
  assert.equal((await call(token, 'POST', '/api/key/', {})).status, 201);
});

/** Of the other forms: `test/api/contract/callers-pages.test.ts`. */
test('the form that makes an administrator needs a recent and complete sign-in', async () => {
  for (const [index, [what, happen]] of Object.entries(SESSIONS).entries()) {
    const { id, host } = await addSignedIn({ super_admin: true });
    await happen(id);
    const count = () => sql`select count(*) from identity.audit`;
    const before = await count();
    const fields = { ...newUser(), role: 'administrator', first: 'link' };
    const page = await post('/account/users', host, fields);
    assert.equal(page.status, [200, 303, 303, 403][index], `${what}: ${page.text}`);
    if (index === 0) continue;
    assert.deepEqual(await count(), before, `${what} changes nothing`);
    const location = page.status === 303 ? signInFor('/account/users') : null;
    assert.equal(page.headers.get('location'), location, what);
  }
});

// --- Races

/** A request that waits for the row of a user, which is changed meanwhile. */
async function during<T>(id: string, change: string, request: () => Promise<T>): Promise<T> {
  const update = `update identity.users set ${change}, updated_at = now() where id = '${id}'`;
  const [answer] = await meanwhile(
    sql,
    (held) => held.unsafe(update),
    () => [request()],
  );
  return answer ?? assert.fail();
}

for (const [path, body] of Object.entries({
  '/api/key/': () => ({}),
  '/api/auth/password': () => ({ current_password: PASSWORD, new_password: OWN }),
  '/api/user/': newUser,
})) {
  test(`a session that is by the password alone when POST ${path} has waited changes nothing`, async () => {
    const { id, token } = await enter({ super_admin: true });
    const send = () => call(token, 'POST', path, body());
    const answer = await during(id, 'second_factor = true', send);
    assertError(answer, 403, 'forbidden');
    assert.match(answer.json.error.message, /^Your rights changed/);
    const made = await sql`select from identity.audit where actor_id = ${id}
      and event in ('password.changed', 'user.created')`;
    assert.deepEqual([made.length, await rowsOf('api_keys', id)], [0, 0]);
  });
}

test('an administrator who is disabled while a change waits is enabled by a recent sign-in alone', async () => {
  for (const [seconds, isEnabled] of [
    [660, false],
    [0, true],
  ] as const) {
    const { id, token } = await enter({ super_admin: true });
    const target = await add({ super_admin: true });
    await age(id, seconds);
    const answer = await during(target.id, 'enabled = false', () =>
      call(token, 'PATCH', `/api/user/${target.id}`, { enabled: true }),
    );
    assert.equal(answer.status, isEnabled ? 200 : 401, answer.text);
    const [row] = await sql`select enabled from identity.users where id = ${target.id}`;
    assert.equal(row?.enabled, isEnabled);
  }
});

test('a login that waits for a promotion needs the factor that administrators need', async () => {
  const { identity: there } = replica.url;
  const { id, username } = await add();
  const answer = await during(id, 'super_admin = true', () =>
    ask('POST', `${there}/api/auth/login`, { body: { username, password: PASSWORD } }),
  );
  assertError(answer, 401, 'second_factor_needed');
  const user = await add();
  const page = await during(user.id, 'super_admin = true', () =>
    pagesOf(there).enterPassword(user.username),
  );
  assert.deepEqual([page.status, page.host], [401, '']);
});

// --- Temporary passwords

/** The same password once it is normalized (NFKC): its first character in full width. */
const WIDE = String.fromCharCode(PASSWORD.charCodeAt(0) + 0xfee0) + PASSWORD.slice(1);

async function addTemporary() {
  const user = await add();
  await makeTemporary(user.id);
  return user;
}

test('a temporary password, also with a code, opens neither verify nor the pages and makes no key', async () => {
  const { username } = await addTemporary();
  const { session, password_expires_at } = (await login(username)).json.data;
  assert.ok(password_expires_at);
  const user = await addEnrolled();
  await makeTemporary(user.id);
  const proven = (await login(user.username, PASSWORD, await freshCode(user))).json.data.session;
  for (const refused of [
    await call(session, 'GET', '/api/auth/verify'),
    await call(session, 'POST', '/api/key/', {}),
    await call(proven, 'GET', '/api/auth/verify'),
    await call(proven, 'GET', '/api/auth/verify?require=second_factor'),
  ]) {
    assert.equal(refused.status, 403);
    assert.match(refused.json.error.message, /temporary.*POST \/api\/auth\/password/);
  }
  for (const same of [PASSWORD, WIDE]) {
    const refused = await changePassword(session, PASSWORD, same);
    assertError(refused, 400, 'invalid_body', ['/new_password']);
  }
  const bearer = (await changePassword(session)).json.data.session;
  assert.equal((await call(bearer, 'GET', '/api/auth/verify')).status, 200);
  assert.equal((await call(bearer, 'POST', '/api/key/', {})).status, 201);
});

test('the page that replaces a temporary password says so, wants another, and signs in', async () => {
  const { username } = await addTemporary();
  const page = await enterPassword(username);
  const says = /was generated or set by an administrator/;
  assert.match(page.text, says);
  const cookie = page.pending;
  for (const password of [PASSWORD, WIDE])
    assert.match((await choosePassword(cookie, password)).text, /Must differ from the current/);
  const done = await choosePassword(cookie);
  assert.equal((await show('/account', done.host)).status, 200);
  assert.notEqual((await enterPassword(username, OWN)).host, '');
  assert.match((await choosePassword(cookie, `${OWN}-2`)).text, /This sign-in has ended/);
  // No page says so before the second factor.
  const user = await addEnrolled();
  assert.doesNotMatch((await enterPassword(user.username)).text, says);
  await makeTemporary(user.id);
  assert.doesNotMatch((await enterPassword(user.username)).text, says);
});

test('a first factor that is required comes after the new password, also with a link', async (t) => {
  const settings = { ...PORTAL, REQUIRE_SECOND_FACTOR: 'all' };
  const { url } = await startGatehouse(t, ['identity'], portal.databaseUrl, settings);
  const strict = pagesOf(url.identity);
  const { username } = await addTemporary();
  const { id } = await add({ password: undefined });
  for (const first of [await strict.enterPassword(username), await openLink(await makeLink(id))]) {
    const next = await strict.choosePassword(first.pending);
    assert.match(next.text, /action="\/login\/enrol"/);
    assert.equal(next.host, '');
  }
});

test('a right password whose second step is left leaves an entry, on the pages and in the API', async () => {
  const { id, username, host } = await addEnrolled();
  await start(username);
  assert.equal(await events(id, 'login.pending'), 1);
  assertError(await login(username), 401, 'second_factor_needed');
  assert.equal(await events(id, 'login.pending'), 2);
  const account = await show('/account', host);
  assert.match(account.text, /Sign-in not completed <span class="hint">second factor needed</);
  await enterCode(await start(username), '000000');
  assert.deepEqual([await events(id, 'login.pending'), await events(id, 'factor.failed')], [3, 1]);
  assert.equal(await events((await addSignedIn()).id, 'login.pending'), 0);
  // Also when no code is checked any more.
  for (let attempt = 2; attempt <= 22; attempt += 1) {
    const { json } = await login(username, PASSWORD, '000000');
    assert.equal(json.error.code, attempt <= 20 ? 'invalid_code' : 'too_many_requests');
    assert.equal(await events(id, 'login.pending'), attempt + 2);
  }
  assert.equal(await events(id, 'factor.failed'), 20);
});

test('an account that is changed after its own password was chosen gets no session', async (t) => {
  const { id, username } = await addTemporary();
  const { pending } = await enterPassword(username);
  // The own password is stored, and the session not yet begun.
  await createWaits(sql);
  await sql`create trigger hold before delete on identity.pending_sign_ins
    for each row execute function wait_in_trigger(1)`;
  const step = await holdStatements(t, portal.databaseUrl);
  const chosen = choosePassword(pending);
  await step.met();
  await sql`update identity.users set updated_at = now() + interval '1 second' where id = ${id}`;
  await step.release();
  assert.equal((await chosen).status, 401);
  await sql`drop trigger hold on identity.pending_sign_ins`;
});
