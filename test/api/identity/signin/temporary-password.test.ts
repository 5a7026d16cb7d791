/** A password that was generated or set by an administrator: it may be known to others. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { factorsOf, linksOf } from '../../../support/factors.ts';
import { startGatehouse } from '../../../support/gatehouse.ts';
import { createWaits, holdStatements } from '../../../support/hold.ts';
import { hostOf, OWN, pagesOf, pendingOf, PORTAL, startPortal } from '../../../support/portal.ts';
import { assertError, PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after });
const { sql, call, add, addSignedIn, show, enterPassword, choosePassword } = portal;
const factors = factorsOf(portal);
const { events, addEnrolled, start, enter, freshCode, makeTemporary } = factors;
const { makeLink, openLink } = linksOf(portal);
/** The same password once it is normalized (NFKC): its first character in full width. */
const WIDE = String.fromCharCode(PASSWORD.charCodeAt(0) + 0xfee0) + PASSWORD.slice(1);

const logIn = (username: string, otp?: string) =>
  call(null, 'POST', '/api/auth/login', { username, password: PASSWORD, otp });
async function addTemporary() {
  const user = await add();
  await makeTemporary(user.id);
  return user;
}

test('it opens neither verify nor the pages and makes no key; the rest works', async () => {
  const { username } = await addTemporary();
  const { session, password_expires_at } = (await logIn(username)).json.data;
  assert.ok(password_expires_at);
  for (const refused of [
    await call(session, 'GET', '/api/auth/verify'),
    await call(session, 'POST', '/api/key/', {}),
  ]) {
    assert.equal(refused.status, 403);
    assert.match(refused.json.error.message, /temporary.*POST \/api\/auth\/password/);
  }
  assert.equal((await call(session, 'GET', '/api/test/')).status, 200);
  const change = (new_password: string) =>
    call(session, 'POST', '/api/auth/password', { current_password: PASSWORD, new_password });
  for (const same of [PASSWORD, WIDE])
    assertError(await change(same), 400, 'invalid_body', ['/new_password']);
  const bearer = (await change(OWN)).json.data.session;
  assert.equal((await call(bearer, 'GET', '/api/auth/verify')).status, 200);
  assert.equal((await call(bearer, 'POST', '/api/key/', {})).status, 201);
});

test('a login with it and a code does not pass verify', async () => {
  const user = await addEnrolled();
  await makeTemporary(user.id);
  const bearer = (await logIn(user.username, await freshCode(user))).json.data.session;
  for (const query of ['', '?require=second_factor']) {
    const refused = await call(bearer, 'GET', `/api/auth/verify${query}`);
    assert.equal(refused.status, 403, query);
    assert.match(refused.json.error.message, /temporary/);
  }
});

test('on the page, it cannot be changed to itself; whoever chooses another is signed in', async () => {
  const { username } = await addTemporary();
  const cookie = pendingOf(await enterPassword(username));
  for (const password of [PASSWORD, WIDE])
    assert.match((await choosePassword(cookie, password)).text, /Must differ from the current/);
  const done = await choosePassword(cookie);
  assert.equal((await show('/account', hostOf(done))).status, 200);
  assert.notEqual(hostOf(await enterPassword(username, OWN)), '');
  assert.match((await choosePassword(cookie, `${OWN}-2`)).text, /This sign-in has ended/);
});

test('only the page that replaces it says that it is temporary', async () => {
  const user = await addEnrolled();
  const other = await addTemporary();
  const says = /was generated or set by an administrator/;
  assert.doesNotMatch((await enterPassword(user.username)).text, says);
  await makeTemporary(user.id);
  assert.doesNotMatch((await enterPassword(user.username)).text, says);
  assert.match((await enterPassword(other.username)).text, says);
});

test('a first factor that is required comes after the new password, also with a link', async (t) => {
  const settings = { ...PORTAL, REQUIRE_SECOND_FACTOR: 'all' };
  const { url } = await startGatehouse(t, ['identity'], portal.databaseUrl, settings);
  const strict = pagesOf(url.identity);
  const { username } = await addTemporary();
  const { id } = await add({ password: undefined });
  for (const first of [await strict.enterPassword(username), await openLink(await makeLink(id))]) {
    const next = await strict.choosePassword(pendingOf(first));
    assert.match(next.text, /action="\/login\/enrol"/);
    assert.equal(hostOf(next), '');
  }
});

test('a right password whose second step is left leaves an entry, on the pages and in the API', async () => {
  const { id, username, host } = await addEnrolled();
  await start(username);
  assert.equal(await events(id, 'login.pending'), 1);
  assertError(await logIn(username), 401, 'second_factor_needed');
  assert.equal(await events(id, 'login.pending'), 2);
  const account = await show('/account', host);
  assert.match(account.text, /Sign-in not completed <span class="hint">second factor needed</);
  await enter(await start(username), '000000');
  assert.deepEqual([await events(id, 'login.pending'), await events(id, 'factor.failed')], [3, 1]);
  assert.equal(await events((await addSignedIn()).id, 'login.pending'), 0);
});

test('a right password leaves an entry also when no code is checked any more', async () => {
  const { id, username } = await addEnrolled();
  for (let attempt = 1; attempt <= 22; attempt += 1) {
    const { json } = await logIn(username, '000000');
    assert.equal(json.error.code, attempt <= 20 ? 'invalid_code' : 'too_many_requests');
    assert.equal(await events(id, 'login.pending'), attempt);
  }
  assert.equal(await events(id, 'factor.failed'), 20);
});

test('an account that is changed after its own password was chosen gets no session', async (t) => {
  const { id, username } = await addTemporary();
  const pending = pendingOf(await enterPassword(username));
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
