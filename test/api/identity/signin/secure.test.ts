/**
 * The end of everything with which a stolen account can be used, and what a promotion ends. What
 * must happen once happens once, and what is limited stays limited, whichever replicas are asked.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startIdentity } from '../../../support/api-users.ts';
import { createPasskey } from '../../../support/authenticator.ts';
import { ALONE, factorsOf, startSignIn, tokenOf } from '../../../support/factors.ts';
import { ask, logIn, startGatehouse } from '../../../support/gatehouse.ts';
import { OWN, type Page, pagesOf, PORTAL } from '../../../support/portal.ts';
import { assertError, isOpen, PASSWORD } from '../../../support/users.ts';

const portal = await startSignIn({ after });
const { identity, sql, admin, call, add, addSignedIn, enter, key, signIn } = portal;
const { show, post, choosePassword } = portal;
const replica = await startGatehouse({ after }, ['identity'], portal.databaseUrl, PORTAL);
const { addEnrolled, codeNow, enterCode, events, forgetSteps, freshCode } = portal;
const { register, rowsOf, signInWith, start } = portal;
const { makeLink, openLink, beginLink } = portal;

const secure = (id: string, bearer = admin.token, at = identity) =>
  ask('POST', `${at}/api/user/${id}/secure`, { bearer });
const there = (id: string, bearer = admin.token) => secure(id, bearer, replica.url.identity);
const statusOfLink = async (token: string) => (await openLink(token)).status;
/** What the newest change of a user has recorded. */
async function trail(id: string) {
  const rows = await sql`select event, count, detail from identity.audit where user_id = ${id}
    and request_id = (select request_id from identity.audit
      where event in ('user.secured', 'user.changed') and user_id = ${id}
      order by created_at desc limit 1)
    order by event`;
  return rows.map(({ event, count, detail }) => `${event} ${count} ${detail}`.trim());
}

test('a secured account is out of the hands of whoever used it, and its user gets in again', async () => {
  const user = await enter();
  const own = await key(user);
  const { id: revoked } = await key(user);
  await call(admin.token, 'DELETE', `/api/key/${revoked}/revoke`);
  const passkey = createPasskey();
  const { host } = await signIn(user.username);
  const cookie = (await register(host, passkey)).host;
  const pending = await start(user.username);
  const token = await makeLink(user.id);
  const opened = await beginLink(token);

  const secured = await there(user.id);
  assert.equal(secured.status, 200, secured.text);
  // Without a factor, none is counted.
  assert.equal((await there((await enter()).id)).status, 200);
  const { text } = await ask('GET', `${replica.url.metrics}/metrics`);
  assert.match(text, /^gatehouse_factor_events_total\{factor="all",event="removed"\} 1$/m);
  const { message, status, link, expires_at, ...others } = secured.json.data;
  assert.deepEqual([status, others], ['SECURED', {}]);
  assert.equal(
    message,
    '2 sessions ended. Keys revoked: 1. Second factors removed: 1. The account has no password now.',
  );
  assert.ok(Date.parse(expires_at) > Date.now());
  for (const credential of [user.token, own.key])
    assert.equal(await isOpen(identity, credential), false);
  assert.equal((await show('/account', cookie)).status, 303);
  await assert.rejects(logIn(identity, user.username, PASSWORD));
  assert.equal((await signInWith(passkey, user.id)).status, 401);
  assert.match((await enterCode(pending, '000000')).text, /This sign-in has ended/);
  assert.equal((await choosePassword(opened)).status, 401);
  assert.equal(await statusOfLink(token), 401);
  assert.deepEqual(await trail(user.id), [
    'factor.removed 1 account secured',
    'key.revoked 1 account secured',
    'link.created 1',
    'link.revoked 1 account secured',
    'session.revoked 2',
    'user.secured 1',
  ]);
  assert.equal((await choosePassword(await beginLink(tokenOf(link)))).status, 200);
  assert.ok(await logIn(identity, user.username, OWN));
});

test('keys without a user that a secured administrator had made are revoked, too', async () => {
  const chief = await enter({ super_admin: true });
  const { json } = await call(chief.token, 'POST', '/api/key/', { user_id: null });
  const other = await enter();
  const kept = await call(chief.token, 'POST', '/api/key/', { user_id: other.id });
  assert.equal((await secure(chief.id)).status, 200);
  assert.equal((await call(json.data.key, 'GET', '/api/user/')).status, 401);
  assert.ok(await isOpen(identity, kept.json.data.key), 'it is of another user, who sees it');
});

test('an account without anything left to end can be secured again, also while it is disabled', async () => {
  const { id } = await add();
  const first = await secure(id);
  const second = await there(id);
  assert.match(second.json.data.message, /^0 sessions ended\. Keys revoked: 0\. /);
  assert.equal(await statusOfLink(tokenOf(first.json.data.link)), 401, 'the newest counts');
  assert.equal(await statusOfLink(tokenOf(second.json.data.link)), 200);
  await call(admin.token, 'PATCH', `/api/user/${id}`, { enabled: false });
  const third = await secure(id);
  assert.deepEqual(Object.keys(third.json.data), ['message', 'status']);
  assert.equal(await events(id, 'link.created'), 2);
});

test('of the same request at two replicas at once, one link opens', async () => {
  const { id } = await add();
  const answers = await Promise.all([secure(id), there(id), secure(id), there(id)]);
  const statuses: number[] = [];
  for (const { json } of answers) statuses.push(await statusOfLink(tokenOf(json.data.link)));
  assert.deepEqual(statuses.sort(), [200, 401, 401, 401]);
});

test('two administrators who secure each other at once do not both lose their access', async () => {
  for (let round = 0; round < 6; round += 1) {
    const one = await enter({ super_admin: true });
    const two = await enter({ super_admin: true });
    const answers = await Promise.all([secure(two.id, one.token), there(one.id, two.token)]);
    assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 401]);
  }
});

test('the page of a user has the button, asks first, and shows the link', async () => {
  const chief = await addSignedIn({ super_admin: true });
  const user = await enter();
  const path = `/account/users/${user.id}`;
  const shown = await show(path, chief.host);
  const button = /<summary class="button small">Secure this account<\/summary>/;
  assert.match(shown.text, button);
  const own = await show(`/account/users/${chief.id}`, chief.host);
  assert.doesNotMatch(own.text, button);
  for (const [page, hidden] of [
    [shown, []],
    [own, ['Reset link', 'Password']],
  ] as const) {
    const cards = page.text.matchAll(/<section class="card" hidden>\s*<h2>([^<]*)</g);
    assert.deepEqual(
      [...cards].map(([, title]) => title),
      hidden,
    );
  }
  const secured = await post(`${path}/secure`, chief.host);
  assert.match(secured.text, /1 session ended\. Keys revoked: 0\./);
  const [, link = ''] = /<pre [^>]*>([^<]+)<\/pre>/.exec(secured.text) ?? [];
  assert.equal(await statusOfLink(tokenOf(link)), 200);
  await call(admin.token, 'PATCH', `/api/user/${user.id}`, { enabled: false });
  const disabled = await post(`${path}/secure`, chief.host);
  assert.deepEqual([disabled.status, disabled.headers.get('location')], [303, path]);
  assert.equal((await post(`/account/users/${chief.id}/secure`, chief.host)).status, 403);
});

test('without the sign-in pages, the old password ends, and an administrator sets another', async (t) => {
  const plain = await startIdentity(t);
  const { id, username } = await plain.enter();
  const send = (path: string, body?: object) =>
    plain.call(plain.admin.token, 'POST', `/api/user/${id}/${path}`, body);
  assert.deepEqual(Object.keys((await send('secure')).json.data), ['message', 'status']);
  await assert.rejects(logIn(plain.identity, username, PASSWORD));
  await send('password', { password: OWN });
  assert.ok(await logIn(plain.identity, username, OWN));
});

test('a promotion ends sessions, keys and the link, so that nothing stolen becomes an administrator', async () => {
  const user = await enter();
  const own = await key(user);
  const other = await key(await enter());
  const token = await makeLink(user.id);
  const { host } = await signIn(user.username);
  const promote = () => call(admin.token, 'PATCH', `/api/user/${user.id}`, { super_admin: true });
  const promoted = await promote();
  assert.deepEqual([promoted.status, promoted.json.data.revoked_keys], [200, 1]);
  for (const credential of [user.token, own.key])
    assert.equal(await isOpen(identity, credential), false);
  assert.ok(await isOpen(identity, other.key));
  assert.equal((await show('/account', host)).status, 303);
  assert.equal(await statusOfLink(token), 401);
  assert.deepEqual(await trail(user.id), [
    'key.revoked 1 promotion',
    'link.revoked 1 promotion',
    'session.revoked 2',
    'user.changed 1 super_admin=true',
  ]);
  // Nobody is promoted a second time.
  const session = await logIn(identity, user.username, PASSWORD);
  assert.equal((await promote()).json.data.revoked_keys, undefined);
  assert.ok(await isOpen(identity, session));
});

test('a promotion that fails ends nothing', async () => {
  const user = await enter();
  const { username } = await add();
  const body = { super_admin: true, username };
  const refused = await call(admin.token, 'PATCH', `/api/user/${user.id}`, body);
  assertError(refused, 409, 'conflict', ['/username']);
  assert.ok(await isOpen(identity, user.token));
});

// --- Over replicas

const other = factorsOf({ ...portal, ...pagesOf(replica.url.identity) });
const ROUNDS = 5;
async function assertOne(...pages: ReadonlyArray<Promise<Page>>) {
  const statuses = (await Promise.all(pages)).map(({ status }) => status);
  assert.deepEqual(statuses.sort(), [200, 401]);
}

test('a code, and a recovery code, is accepted by one of two replicas', async () => {
  const user = await addEnrolled();
  for (const recovery of user.codes.slice(0, ROUNDS)) {
    for (const code of [await freshCode(user), recovery]) {
      const one = await start(user.username);
      const two = await other.start(user.username);
      await assertOne(portal.enterCode(one, code), other.enterCode(two, code));
    }
  }
  assert.equal(await rowsOf('sessions', user.id), 1 + 2 * ROUNDS);
  assert.equal(await events(user.id, 'recovery.used'), ROUNDS);
});

test('a pending sign-in makes one session, also by two right codes at once', async () => {
  const { username, codes } = await addEnrolled();
  const pending = await start(username);
  await assertOne(
    portal.enterCode(pending, codes[0] ?? ''),
    other.enterCode(pending, codes[1] ?? ''),
  );
});

test('the response of a passkey is accepted by one of two replicas', async () => {
  const { id, host } = await addSignedIn();
  const passkey = createPasskey();
  assert.equal((await portal.register(host, passkey)).status, 200);
  for (let round = 1; round <= ROUNDS; round += 1) {
    const browser = await portal.newBrowser();
    const { challenge } = await portal.options(ALONE, browser);
    // Synchronized passkeys always send 0: only the challenge tells the two apart.
    const credential = portal.answer(passkey, challenge, id, { counter: 0 });
    await assertOne(portal.send(credential, browser), other.send(credential, browser));
  }
  const [row] = await sql`select counter from identity.passkeys where user_id = ${id}`;
  assert.equal(row?.counter, '0');
});

test('wrong codes are limited for a sign-in and for a day over all replicas', async () => {
  const { id, username, secret, codes } = await addEnrolled();
  let rejected = 0;
  for (let round = 1; round <= 5; round += 1) {
    const pending = await start(username);
    const tries = [portal, other, portal, other, portal, other, portal, other].map((replica) =>
      replica.enterCode(pending, '000000'),
    );
    const pages = await Promise.all(tries);
    rejected += pages.filter(({ text }) => /wrong, too old, or was used before/.test(text)).length;
    assert.equal(rejected, Math.min(5 * round, 20));
  }
  assert.equal(await events(id, 'factor.failed'), 20);
  await forgetSteps(id);
  for (const code of [await codeNow(secret), codes[0] ?? '']) {
    for (const replica of [portal, other]) {
      const page = await replica.enterCode(await start(username), code);
      assert.deepEqual([page.status, page.host], [429, '']);
      assert.ok(Number(page.headers.get('retry-after')) > 0);
    }
  }
  const warnings = replica.log().filter(({ message }) => message === 'second factor throttled');
  const about = warnings.slice(-2).flatMap(({ factor, user_id }) => [factor, user_id]);
  assert.deepEqual(about, ['totp', id, 'recovery', id]);
  // A right code neither passes nor ends the limit, and is not used up.
  const [row] = await sql`select last_step from identity.totp where user_id = ${id}`;
  assert.deepEqual([row?.last_step, await rowsOf('recovery_codes', id)], ['0', 10]);
});
