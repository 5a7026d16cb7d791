/** The end of everything with which a stolen account can be used, and what a promotion ends. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startIdentity } from '../../../support/api-users.ts';
import { createPasskey } from '../../../support/authenticator.ts';
import { ALONE, factorsOf, PENDING } from '../../../support/factors.ts';
import { ask, logIn, startGatehouse } from '../../../support/gatehouse.ts';
import { cookieFrom, ORIGIN, PORTAL, startPortal } from '../../../support/portal.ts';
import { assertError, PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after });
const { identity, sql, admin, call, add, enter, key, visit, signIn } = portal;
const replica = await startGatehouse({ after }, ['identity'], portal.databaseUrl, PORTAL);
const { answer, enrol, events, newBrowser, options, register, send, start } = factorsOf(portal);
const NEW = 'a-password-of-my-own';

const secure = (id: string, bearer = admin.token, at = identity) =>
  ask('POST', `${at}/api/user/${id}/secure`, { bearer });
const tokenOf = (link: string) => link.slice(link.indexOf('#') + 1);
const open = (token: string) => visit('/link', { fields: { token } });
const statusOf = async (bearer: string) => (await call(bearer, 'GET', '/api/test/')).status;
const trail = async (id: string) =>
  (
    await sql`select event, count, detail from identity.audit where user_id = ${id}
      and request_id = (select request_id from identity.audit
        where event in ('user.secured', 'user.changed') and user_id = ${id}
        order by created_at desc limit 1)
      order by event, detail`
  ).map(({ event, count, detail }) => [event, count, detail]);

test('a secured account is out of the hands of whoever used it, and its user gets in again', async () => {
  const user = await enter();
  const own = await key(user);
  const { id: revoked } = await key(user);
  await call(admin.token, 'DELETE', `/api/key/${revoked}/revoke`);
  const { host } = await signIn(user.username);
  const passkey = createPasskey();
  const registered = await register(host, passkey);
  assert.equal(registered.status, 200, registered.text);
  const cookie = cookieFrom(registered, '__Host-gatehouse');
  const pending = await start(user.username);
  const { data } = (await call(admin.token, 'POST', `/api/user/${user.id}/link`, {})).json;
  const opened = cookieFrom(await open(tokenOf(data.link)), PENDING);

  const secured = await secure(user.id);
  assert.equal(secured.status, 200, secured.text);
  const { message, status, link, expires_at, ...others } = secured.json.data;
  assert.deepEqual([status, others], ['SECURED', {}]);
  assert.match(
    message,
    /^2 sessions ended\. Keys revoked: 1\. Second factors removed: 1\. The account has no password now\.$/,
  );
  assert.ok(Date.parse(expires_at) > Date.now());

  assert.deepEqual([await statusOf(user.token), await statusOf(own.key)], [401, 401]);
  assert.equal((await visit('/account', { cookie })).status, 303);
  await assert.rejects(logIn(identity, user.username, PASSWORD));
  const browser = await newBrowser();
  const { challenge } = await options(ALONE, browser);
  assert.equal((await send(answer(passkey, challenge, user.id), browser)).status, 401);
  const late = { fields: { code: '000000', return_to: '' }, cookie: pending };
  assert.match((await visit('/login/code', late)).text, /This sign-in has ended/);
  const choice = { fields: { password: NEW, return_to: '' } };
  assert.equal((await visit('/login/password', { ...choice, cookie: opened })).status, 401);
  assert.equal((await open(tokenOf(data.link))).status, 401);
  assert.deepEqual(await trail(user.id), [
    ['factor.removed', 1, 'account secured'],
    ['key.revoked', 1, 'account secured'],
    ['link.created', 1, ''],
    ['link.revoked', 1, 'account secured'],
    ['session.revoked', 2, ''],
    ['user.secured', 1, ''],
  ]);

  const next = cookieFrom(await open(tokenOf(link)), PENDING);
  assert.equal((await visit('/login/password', { ...choice, cookie: next })).status, 200);
  assert.ok(await logIn(identity, user.username, NEW));
});

test('the second factors that are removed with it are counted', async () => {
  const { id, username } = await add();
  await enrol(username);
  assert.equal((await secure(id, admin.token, replica.url.identity)).status, 200);
  const metrics = (await ask('GET', `${replica.url.metrics}/metrics`)).text;
  assert.match(metrics, /^gatehouse_factor_events_total\{factor="all",event="removed"\} 1$/m);
});

test('keys without a user that a secured administrator had made are revoked, too', async () => {
  const chief = await enter({ super_admin: true });
  const { json } = await call(chief.token, 'POST', '/api/key/', { user_id: null });
  const other = await enter();
  const kept = await call(chief.token, 'POST', '/api/key/', { user_id: other.id });
  assert.equal((await secure(chief.id)).status, 200);
  assert.equal((await call(json.data.key, 'GET', '/api/user/')).status, 401);
  assert.equal(await statusOf(kept.json.data.key), 200, 'it is of another user, who sees it');
});

test('an account without anything left to end can be secured again, also while it is disabled', async () => {
  const { id } = await add();
  const first = await secure(id);
  const second = await secure(id, admin.token, replica.url.identity);
  assert.equal(
    second.json.data.message,
    '0 sessions ended. Keys revoked: 0. Second factors removed: 0. The account has no password now.',
  );
  assert.equal((await open(tokenOf(first.json.data.link))).status, 401, 'the newest counts');
  assert.equal((await open(tokenOf(second.json.data.link))).status, 200);
  await call(admin.token, 'PATCH', `/api/user/${id}`, { enabled: false });
  const third = await secure(id);
  assert.deepEqual(Object.keys(third.json.data), ['message', 'status']);
  assert.equal(await events(id, 'link.created'), 2);
});

test('of the same request at two replicas at once, one link opens', async () => {
  const { id } = await add();
  const answers = await Promise.all(
    [0, 1, 2, 3].map((turn) =>
      secure(id, admin.token, turn % 2 === 0 ? identity : replica.url.identity),
    ),
  );
  const statuses: number[] = [];
  for (const { json } of answers) statuses.push((await open(tokenOf(json.data.link))).status);
  assert.deepEqual(statuses.sort(), [200, 401, 401, 401]);
});

test('two administrators who secure each other at once do not both lose their access', async () => {
  for (let round = 0; round < 6; round += 1) {
    const one = await enter({ super_admin: true });
    const two = await enter({ super_admin: true });
    const answers = await Promise.all([
      secure(two.id, one.token),
      secure(one.id, two.token, replica.url.identity),
    ]);
    const statuses = answers.map(({ status }) => status);
    assert.deepEqual(statuses.sort(), [200, 401]);
  }
});

test('the page of a user has the button, asks first, and shows the link', async () => {
  const { username } = await add({ super_admin: true });
  const { host: cookie } = await signIn(username);
  const user = await enter();
  const path = `/account/users/${user.id}`;
  const shown = await visit(path, { cookie });
  assert.match(shown.text, /<summary class="button small">Secure this account<\/summary>/);
  const secured = await visit(`${path}/secure`, { fields: {}, cookie });
  assert.equal(secured.status, 200, secured.text);
  assert.match(secured.text, /1 session ended\. Keys revoked: 0\./);
  const [, link = ''] = /<pre [^>]*>([^<]+)<\/pre>/.exec(secured.text) ?? [];
  assert.equal((await open(tokenOf(link))).status, 200);
  assert.equal(await statusOf(user.token), 401);
  await call(admin.token, 'PATCH', `/api/user/${user.id}`, { enabled: false });
  const disabled = await visit(`${path}/secure`, { fields: {}, cookie });
  assert.deepEqual([disabled.status, disabled.headers.get('location')], [303, path]);
  const [self] = await sql`select id from identity.users where username = ${username}`;
  const own = await visit(`/account/users/${self?.id}/secure`, { fields: {}, cookie });
  assert.equal(own.status, 403);
});

test('owners end all other sessions, and on request their keys', async () => {
  const user = await enter();
  const own = await key(user);
  const end = async (fields: Record<string, string>) => {
    const { host: cookie } = await signIn(user.username);
    return visit('/account/sessions/end', { fields, cookie });
  };
  assert.equal((await end({})).status, 303);
  assert.deepEqual([await statusOf(user.token), await statusOf(own.key)], [401, 200]);
  assert.equal((await end({ keys: 'all' })).status, 400);
  const ended = await end({ keys: 'revoke' });
  assert.equal(ended.status, 303);
  assert.equal(await statusOf(own.key), 401);
  assert.equal(await events(user.id, 'key.revoked'), 1);
});

test('without the sign-in pages, the old password ends, and an administrator sets another', async (t) => {
  const plain = await startIdentity(t);
  const user = await plain.enter();
  const secured = await plain.call(plain.admin.token, 'POST', `/api/user/${user.id}/secure`);
  assert.deepEqual(Object.keys(secured.json.data), ['message', 'status']);
  await assert.rejects(logIn(plain.identity, user.username, PASSWORD));
  const path = `/api/user/${user.id}/password`;
  await plain.call(plain.admin.token, 'POST', path, { password: NEW });
  assert.ok(await logIn(plain.identity, user.username, NEW));
});

test('a promotion ends sessions, keys and the link, so that nothing stolen becomes an administrator', async () => {
  const user = await enter();
  const own = await key(user);
  const other = await key(await enter());
  const { json } = await call(admin.token, 'POST', `/api/user/${user.id}/link`, {});
  const { host: cookie } = await signIn(user.username);
  const promote = () => call(admin.token, 'PATCH', `/api/user/${user.id}`, { super_admin: true });
  const promoted = await promote();
  assert.deepEqual([promoted.status, promoted.json.data.revoked_keys], [200, 1]);
  assert.deepEqual(
    [await statusOf(user.token), await statusOf(own.key), await statusOf(other.key)],
    [401, 401, 200],
  );
  assert.equal((await visit('/account', { cookie })).status, 303);
  assert.equal((await open(tokenOf(json.data.link))).status, 401);
  assert.deepEqual(await trail(user.id), [
    ['key.revoked', 1, 'promotion'],
    ['link.revoked', 1, 'promotion'],
    ['session.revoked', 2, ''],
    ['user.changed', 1, 'super_admin=true'],
  ]);
  // Nobody is promoted a second time.
  const token = await logIn(identity, user.username, PASSWORD);
  const again = await promote();
  assert.deepEqual([again.status, again.json.data.revoked_keys], [200, undefined]);
  assert.equal(await statusOf(token), 200);
});

test('a promotion that fails ends nothing', async () => {
  const user = await enter();
  const { username } = await add();
  const body = { super_admin: true, username };
  assertError(await call(admin.token, 'PATCH', `/api/user/${user.id}`, body), 409, 'conflict', [
    '/username',
  ]);
  assert.equal(await statusOf(user.token), 200);
});

// --- The audit trail of links

test('the trail has each opening of a link, and its end with the reason', async () => {
  const { id } = await add();
  const make = async () =>
    tokenOf((await call(admin.token, 'POST', `/api/user/${id}/link`, {})).json.data.link);
  const opened = await open(await make());
  assert.match(opened.text, /autocomplete="new-password"/);
  await make();
  await call(admin.token, 'PATCH', `/api/user/${id}`, { enabled: false });
  await call(admin.token, 'PATCH', `/api/user/${id}`, { enabled: true });
  await make();
  await call(admin.token, 'POST', `/api/user/${id}/password`, { password: NEW });
  await make();
  await call(admin.token, 'DELETE', `/api/user/${id}/link`);
  await make();
  await sql`update identity.links set expires_at = now() where user_id = ${id}`;
  await make();
  const rows = await sql`select event, via, detail from identity.audit
    where user_id = ${id} and event in ('link.revoked', 'login.pending') order by created_at`;
  assert.deepEqual(
    rows.map(({ event, via, detail }) => [event, via, detail]),
    [
      ['login.pending', 'link', 'link opened'],
      ['link.revoked', 'session', 'newer link'],
      ['link.revoked', 'session', 'user disabled'],
      ['link.revoked', 'session', 'new password'],
      ['link.revoked', 'session', ''],
    ],
  );
});

test('a code that is accepted before the sign-in is left has its entry', async () => {
  const { id, username } = await add();
  const { codes } = await enrol(username);
  const { data } = (await call(admin.token, 'POST', `/api/user/${id}/link`, {})).json;
  const cookie = cookieFrom(await open(tokenOf(data.link)), PENDING);
  const fields = { code: codes[0] ?? '', return_to: '' };
  assert.equal((await visit('/login/code', { fields, cookie })).status, 200);
  const rows = await sql`select detail from identity.audit
    where user_id = ${id} and event = 'login.pending' and via = 'link' order by created_at`;
  assert.deepEqual(
    rows.map(({ detail }) => detail),
    ['link opened', 'new password needed'],
  );
});

test('a link opens 20 times, however many requests come at once', async () => {
  const { id } = await add();
  const { data } = (await call(admin.token, 'POST', `/api/user/${id}/link`, {})).json;
  assert.ok(data.link.startsWith(ORIGIN));
  const pages = await Promise.all(Array.from({ length: 40 }, () => open(tokenOf(data.link))));
  const found = pages.filter(({ status }) => status === 200);
  assert.equal(found.length, 20);
  for (const page of pages) assert.ok([200, 401].includes(page.status));
  const late = await open(tokenOf(data.link));
  assert.match(late.text, /have been opened 20 times/);
  const [row] = await sql`
    select count(*)::int4 as count from identity.pending_sign_ins where user_id = ${id}`;
  assert.deepEqual([row?.count, await events(id, 'login.pending')], [20, 20]);
  // A sign-in that was begun goes on.
  const cookie = cookieFrom(found[0] ?? late, PENDING);
  const fields = { password: NEW, return_to: '' };
  assert.equal((await visit('/login/password', { fields, cookie })).status, 200);
});
