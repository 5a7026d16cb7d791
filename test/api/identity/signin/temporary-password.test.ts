/** A password that was generated or set by an administrator: it may be known to others. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { totpCode } from '../../../../src/identity/factors/codes.ts';
import { factorsOf, PENDING } from '../../../support/factors.ts';
import { createWaits, holdStatements } from '../../../support/hold.ts';
import { ask, startGatehouse } from '../../../support/gatehouse.ts';
import { cookieFrom, PORTAL, startPortal, visitorOf } from '../../../support/portal.ts';
import { startIdentity } from '../../../support/api-users.ts';
import { PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after });
const { identity, sql, call, add, visit, signIn } = portal;
const plain = await startIdentity({ after });
const { events, enrol, start, enter, forgetSteps, stepNow } = factorsOf(portal);
const OWN = 'a-password-of-my-own';
/** The same password once it is normalized (NFKC): its first character in full width. */
const WIDE = String.fromCharCode(PASSWORD.charCodeAt(0) + 0xfee0) + PASSWORD.slice(1);

const makeTemporary = (own: typeof sql, id: string) =>
  own`update identity.users set password_generated = true, password_set_at = now() where id = ${id}`;
const logInAt = async (base: string, username: string) => {
  const { json } = await ask('POST', `${base}/api/auth/login`, {
    body: { username, password: PASSWORD },
  });
  return { token: String(json.data.session), expires: json.data.password_expires_at };
};
const enterPassword = (username: string) =>
  visit('/login', { fields: { username, password: PASSWORD, return_to: '' } });
const choose = (cookie: string, password: string) =>
  visit('/login/password', { fields: { password, return_to: '' }, cookie });

for (const [name, base, own] of [
  ['with the sign-in pages', identity, portal],
  ['without them', plain.identity, plain],
] as const) {
  test(`${name}, it opens neither verify nor the pages and makes no key; the rest works`, async () => {
    const { username, id } = await own.add();
    await makeTemporary(own.sql, id);
    const { token, expires } = await logInAt(base, username);
    assert.ok(expires);
    const send = (method: string, path: string, options = {}) =>
      ask(method, base + path, { bearer: token, ...options });
    const cookie = { bearer: undefined, headers: { cookie: `session=${token}` } };
    const byCookie = await send('GET', '/api/auth/verify', cookie);
    assert.equal(byCookie.status, own === plain ? 403 : 401);
    for (const refused of [
      await send('GET', '/api/auth/verify'),
      await send('POST', '/api/key/', { body: {} }),
    ]) {
      assert.equal(refused.status, 403);
      assert.match(refused.json.error.message, /temporary.*POST \/api\/auth\/password/);
    }
    assert.equal((await send('GET', '/api/test/')).status, 200);
    for (const new_password of [PASSWORD, WIDE]) {
      const same = await send('POST', '/api/auth/password', {
        body: { current_password: PASSWORD, new_password },
      });
      assert.equal(same.status, 400, new_password);
      assert.equal(same.json.error.fields[0].path, '/new_password');
    }
    const changed = await send('POST', '/api/auth/password', {
      body: { current_password: PASSWORD, new_password: OWN },
    });
    const bearer = changed.json.data.session;
    assert.equal((await ask('GET', `${base}/api/auth/verify`, { bearer })).status, 200);
    assert.equal((await ask('POST', `${base}/api/key/`, { bearer, body: {} })).status, 201);
  });
}

test('a login with it and a code does not pass verify', async () => {
  const { username, id } = await add();
  const { secret } = await enrol(username);
  await makeTemporary(sql, id);
  await forgetSteps(id);
  const { json } = await ask('POST', `${identity}/api/auth/login`, {
    body: { username, password: PASSWORD, otp: totpCode(secret, await stepNow()) },
  });
  const bearer = String(json.data.session);
  for (const query of ['', '?require=second_factor']) {
    const refused = await call(bearer, 'GET', `/api/auth/verify${query}`);
    assert.equal(refused.status, 403, query);
    assert.match(refused.json.error.message, /temporary/);
  }
});

test('on the page, it cannot be changed to itself; whoever chooses another is signed in', async () => {
  const { username, id } = await add();
  await makeTemporary(sql, id);
  const cookie = cookieFrom(await enterPassword(username), PENDING);
  for (const password of [PASSWORD, WIDE]) {
    const same = await choose(cookie, password);
    assert.equal(same.status, 400, password);
    assert.match(same.text, /Must differ from the current password/);
  }
  const done = await choose(cookie, OWN);
  assert.equal(done.status, 200);
  assert.match(done.text, /You are signed in/);
  const host = cookieFrom(done, '__Host-gatehouse');
  assert.equal((await visit('/account', { cookie: host })).status, 200);
  const again = await visit('/login', { fields: { username, password: OWN, return_to: '' } });
  assert.match(again.text, /You are signed in/);
  assert.match((await choose(cookie, 'another-new-password')).text, /This sign-in has ended/);
});

test('only the page that replaces it says that it is temporary', async () => {
  const says = /was generated or set by an administrator/;
  const { username, id } = await add();
  await enrol(username);
  const own = await enterPassword(username);
  assert.match(own.text, /enter the code/);
  assert.doesNotMatch(own.text, says);
  await makeTemporary(sql, id);
  assert.doesNotMatch((await enterPassword(username)).text, says);
  const other = await add();
  await makeTemporary(sql, other.id);
  assert.match((await enterPassword(other.username)).text, says);
});

test('a first factor that is required comes after the new password', async (t) => {
  const environment = { ...PORTAL, REQUIRE_SECOND_FACTOR: 'all' };
  const { url } = await startGatehouse(t, ['identity'], portal.databaseUrl, environment);
  const strict = visitorOf(url.identity);
  const { username, id } = await add();
  await makeTemporary(sql, id);
  const first = await strict('/login', {
    fields: { username, password: PASSWORD, return_to: '' },
  });
  const next = await strict('/login/password', {
    fields: { password: OWN, return_to: '' },
    cookie: cookieFrom(first, PENDING),
  });
  assert.match(next.text, /Set up an authenticator app/);
  assert.equal(cookieFrom(next, '__Host-gatehouse'), '');
});

test('a right password whose second step is left leaves an entry, on the pages and in the API', async () => {
  const { username, id } = await add();
  const { host } = await enrol(username);
  await start(username);
  assert.equal(await events(id, 'login.pending'), 1);
  const { status } = await ask('POST', `${identity}/api/auth/login`, {
    body: { username, password: PASSWORD },
  });
  assert.equal(status, 401);
  assert.equal(await events(id, 'login.pending'), 2);
  const account = await visit('/account', { cookie: host });
  assert.match(account.text, /Sign-in not completed <span class="hint">second factor needed</);
  await enter(await start(username), '000000');
  assert.deepEqual([await events(id, 'login.pending'), await events(id, 'factor.failed')], [3, 1]);
  const other = await add();
  await signIn(other.username);
  assert.equal(await events(other.id, 'login.pending'), 0);
});

test('a right password leaves an entry also when no code is checked any more', async () => {
  const { username, id } = await add();
  await enrol(username);
  const logIn = () =>
    ask('POST', `${identity}/api/auth/login`, {
      body: { username, password: PASSWORD, otp: '000000' },
    });
  let pending = 0;
  for (let status = 401; status === 401; pending += 1) {
    assert.ok(pending < 30);
    status = (await logIn()).status;
  }
  assert.equal(await events(id, 'factor.failed'), 20);
  assert.equal(await events(id, 'login.pending'), pending);
  assert.equal((await logIn()).json.error.code, 'too_many_requests');
  assert.equal(await events(id, 'login.pending'), pending + 1);
});

test('an account that is changed after its own password was chosen gets no session', async (t) => {
  const { username, id } = await add();
  await makeTemporary(sql, id);
  const pending = cookieFrom(await enterPassword(username), PENDING);
  // The own password is stored, and the session not yet begun.
  await createWaits(sql);
  await sql`create trigger hold before delete on identity.pending_sign_ins
    for each row execute function wait_in_trigger(1)`;
  const step = await holdStatements(t, portal.databaseUrl);
  const chosen = choose(pending, OWN);
  await step.met();
  await sql`update identity.users set updated_at = now() + interval '1 second' where id = ${id}`;
  await step.release();
  assert.equal((await chosen).status, 401);
  await sql`drop trigger hold on identity.pending_sign_ins`;
});
