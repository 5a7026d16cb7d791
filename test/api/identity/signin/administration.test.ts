/** What super administrators do on their pages, and what the audit trail says of sign-ins. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createPasskey } from '../../../support/authenticator.ts';
import { startSignIn, tokenOf } from '../../../support/factors.ts';
import { ask } from '../../../support/gatehouse.ts';
import { cookieFrom, OWN } from '../../../support/portal.ts';
import { assertSuccess, isOpen, PASSWORD } from '../../../support/users.ts';

const portal = await startSignIn({ after });
const { identity, sql, admin, call, login, add, addSignedIn, signIn, enterPassword } = portal;
const { addEnrolled, freshCode, start, enterCode, register, signInWith, proveWith } = portal;
const { makeLink, openLink, beginLink } = portal;
const chief = await addSignedIn({ super_admin: true });
const post = (path: string, fields: Record<string, string> = {}, cookie = chief.host) =>
  portal.post(path, cookie, fields);
const show = (path: string, cookie = chief.host) => portal.show(path, cookie);
const statusOf = async (path: string, cookie = chief.host) => (await show(path, cookie)).status;
const userRow = async (username: string) =>
  (await sql`select * from identity.users where username = ${username}`)[0];
const secretIn = (text: string) => /<pre [^>]*>([^<]+)<\/pre>/.exec(text)?.[1] ?? '';

/** Sends a form of the page of a user and follows it, as a browser does. */
async function change(id: string, action: string, fields: Record<string, string> = {}) {
  const sent = await post(`/account/users/${id}/${action}`, fields);
  assert.equal(sent.status, 303, sent.text);
  const location = sent.headers.get('location') ?? '';
  const notice = cookieFrom(sent, '__Host-gatehouse-notice');
  const { text } = await show(location, `${chief.host}; ${notice}`);
  return { location, said: /role="status">([^<]+)</.exec(text)?.[1] ?? '', text };
}

test('a user is created with a generated password, which must be changed', async () => {
  const fields = { username: 'Grace', email: 'grace@example.org', role: 'administrator' };
  const password = secretIn((await post('/account/users', fields)).text);
  assert.match(password, /^[0-9A-Z]{4}(-[0-9A-Z]{4}){5}$/, '24 letters of 5 bits');
  const row = await userRow('Grace');
  assert.deepEqual([row?.super_admin, row?.enabled], [true, true]);
  assert.match((await enterPassword('Grace', password)).text, /<title>Choose a password/);
  const { text } = await show('/account/users?search=grace');
  assert.match(text, /Grace<[^]*Active<[^]*Super administrator<[^]*None<[^]*never/);
});

test('a user is invited with groups and a link, and gets another link to reset the password', async () => {
  const named = { username: 'invited', email: 'invited@example.org', groups: 'ops, choir' };
  const person = { ...named, first: 'link' };
  for (const [wrong, message] of [
    [{ password: PASSWORD }, /Must be empty: with an invitation link, the user chooses/],
    [{ groups: 'Ops' }, /Must be names of 1 to 64 characters of a-z/],
  ] as const)
    assert.match((await post('/account/users', { ...person, ...wrong })).text, message);
  const invited = await post('/account/users', person);
  const { id, password_hash, groups } = (await userRow('invited')) ?? {};
  assert.deepEqual([password_hash, groups], [null, ['choir', 'ops']]);
  assert.match((await show('/account/users?search=choir')).text, /Matching users: 1\./);
  const cookie = await beginLink(tokenOf(secretIn(invited.text)));
  assert.equal((await portal.choosePassword(cookie)).status, 200);
  const link = async () => tokenOf(secretIn((await post(`/account/users/${id}/link`)).text));
  const reset = await link();
  const page = await post(`/account/users/${id}/link`, { factors: 'remove' });
  assert.match(page.text, /The link also removes the second factors\./);
  const opened = await openLink(tokenOf(secretIn(page.text)));
  assert.match(opened.text, /It also removes the second factors/);
  await beginLink(await link());
  assert.equal((await openLink(reset)).status, 401, 'a newer link ends it');
  assert.match((await show(`/account/users/${id}`)).text, /name="groups" value="choir, ops"/);
  await change(id, 'edit', { ...named, groups: '', first_name: '', last_name: '' });
  assert.deepEqual((await userRow('invited'))?.groups, []);
});

test('an address that an administrator enters is confirmed, unless the form says otherwise', async () => {
  for (const verified of [true, false]) {
    const username = `verified-${verified}`;
    const person = { username, email: `${username}@example.org` };
    await post('/account/users', { ...person, verified: String(verified) });
    const id = (await userRow(username))?.id;
    const { text } = await show(`/account/users/${id}`);
    assert.equal(/<option value="(\w+)" selected>(Yes|No)</.exec(text)?.[1], String(verified));
    const edit = { ...person, first_name: '', last_name: '' };
    for (const [fields, expected] of [
      [{}, verified],
      [{ verified: String(!verified) }, !verified],
    ] as const) {
      await change(id, 'edit', { ...edit, ...fields });
      assert.equal((await userRow(username))?.verified, expected);
    }
  }
});

test('each action of the page of a user does what it says, once and again', async () => {
  const { id, username: first } = await add();
  const username = `${first}-new`;
  const names = { username, email: 'ada@new.example', first_name: 'Ada', last_name: 'Lovelace' };
  const isSignedIn = async ({ host }: { host: string }) =>
    (await statusOf('/account', host)) === 200;
  const own = await signIn(first);
  assert.equal((await change(id, 'edit', names)).said, 'The user is changed.');
  assert.match((await show(`/account/users/${id}`)).text, /<span>Ada<\/span> <span>Lovelace</);
  assert.match((await change(id, 'promote')).text, /Super administrator</);
  assert.equal((await userRow(username))?.super_admin, true);
  assert.equal(await isSignedIn(own), false);
  assert.match((await change(id, 'demote')).said, /not a super administrator any more/);
  assert.equal((await userRow(username))?.super_admin, false);
  for (const action of ['end_sessions', 'end_session', 'disable']) {
    const session = await signIn(username);
    assert.equal(await isSignedIn(session), true);
    const { text } = await show(`/account/users/${id}`);
    const session_id = /name="session_id" value="([^"]+)"/.exec(text)?.[1] ?? '';
    assert.match((await change(id, action, { session_id })).said, /essions? .*ended\.$/);
    assert.equal(await isSignedIn(session), false, action);
  }
  assert.match((await change(id, 'disable')).text, /Disabled</);
  assert.match((await change(id, 'enable')).text, /Active</);
  const { host } = await signIn(username);
  const made = await post('/account/keys', { name: 'backup', days: '30' }, host);
  const key = secretIn(made.text);
  assert.ok(await isOpen(identity, key));
  const { text } = await show(`/account/users/${id}`);
  const key_id = /name="key_id" value="([^"]+)"/.exec(text)?.[1] ?? '';
  assert.equal((await change(id, 'revoke_key', { key_id })).said, 'The key is revoked.');
  assert.equal(await isOpen(identity, key), false);
  const set = await post(`/account/users/${id}/password`, { password: '' });
  assert.match(set.text, /You will not see it again/);
  const temporary = await enterPassword(username, secretIn(set.text));
  assert.match(temporary.text, /<title>Choose a password/);
  const removed = await change(id, 'delete');
  assert.equal(removed.location, '/account/users');
  assert.match(removed.said, /^The user is deleted/);
  assert.equal(await statusOf(`/account/users/${id}`), 404);
  for (const action of ['delete', 'remove_factors'])
    assert.equal((await post(`/account/users/${id}/${action}`)).status, 404, action);
});

test('a key without a user is made, shown and revoked on a page, with the keys that it made', async () => {
  const path = '/account/program-keys';
  const lists = { groups: 'robots', provision_groups: 'customers' };
  const scopes = 'orders:read, orders:write';
  const fields = { name: 'sign-up', days: '30', provision: 'on', verify: 'on', scopes, ...lists };
  const secret = secretIn((await post(path, fields)).text);
  const [row] = await sql`select id, rights, scopes, groups, provision_groups, user_id
    from identity.api_keys where name = 'sign-up'`;
  assert.deepEqual(row, {
    id: row?.id,
    rights: ['provision', 'verify'],
    scopes: ['orders:read', 'orders:write'],
    groups: ['robots'],
    provision_groups: ['customers'],
    user_id: null,
  });
  const body = { user_id: (await add()).id, rights: ['verify'] };
  const own = (await call(secret, 'POST', '/api/key/', body)).json.data;
  const shown = (await show(path)).text;
  const may =
    'may: provision, verify, orders:read, orders:write, group:robots, gives group:customers<br>';
  assert.ok(shown.includes('sign-up: <code>key:') && shown.includes(may), shown);
  // A key of a user is on the page of the user.
  assert.ok(!shown.includes(own.id));
  const wrong = await post(path, { name: 'sign-up', days: '30', ...lists });
  assert.equal(wrong.status, 400);
  assert.match(wrong.text, /id="verify-problem">Choose at least one right\.</);
  const revoked = await post(`${path}/revoke`, { key_id: String(row?.id), with_made: 'true' });
  assert.equal(revoked.headers.get('location'), path);
  for (const key of [secret, own.key])
    assert.equal((await call(key, 'GET', '/api/auth/verify')).status, 401);
  await sql`update identity.api_keys set deleted_at = now() where name = 'sign-up'`;
  assert.ok(!(await show(path)).text.includes('sign-up: <code>key:'));
});

test('a notice is escaped, and one that is given twice is not shown', async () => {
  const notice = Buffer.from('<b>x').toString('base64url');
  const cookie = `${chief.host}; __Host-gatehouse-notice=${notice}`;
  assert.match((await show('/account', cookie)).text, /role="status">&#60;b&#62;x</);
  const twice = await show('/account', `${cookie}; __Host-gatehouse-notice=eA`);
  assert.doesNotMatch(twice.text, /role="status"/);
});

// --- The audit trail

test('the audit trail is filtered by user, event and day, and exported as CSV', async () => {
  const { id, username } = await addSignedIn();
  await call(admin.token, 'PATCH', `/api/user/${id}`, { username: `=${username}` });
  const [row] = await sql`
    select to_char(created_at at time zone 'UTC', 'YYYY-MM-DD') as day
    from identity.audit where user_id = ${id} and event = 'user.changed'`;
  const name = encodeURIComponent(`=${username}`);
  const total = async (query: string) => {
    const { text } = await show(`/account/audit?user=${name}${query}`);
    return Number(/Matching entries: (\d+)/.exec(text)?.[1]);
  };
  const all = await total('');
  assert.ok(all >= 3, String(all));
  for (const [query, expected] of [
    ['&event=user.changed', 1],
    [`&event=user.changed&from=${row?.day}&to=${row?.day}`, 1],
    ['&from=2999-01-01', 0],
    ['&to=2000-01-01', 0],
    ['&from=1000-01-01&to=2999-12-31', all],
    ['&event=', all],
    ['-of-nobody', 0],
  ] as const)
    assert.equal(await total(query), expected, query);
  const { text, headers } = await show(`/account/audit.csv?user=${name}&event=user.changed`);
  assert.equal(headers.get('content-type'), 'text/csv; charset=utf-8');
  const [columns = '', line = '', ...rest] = text.split('\r\n');
  assert.match(columns, /^\ufeff"actor","user","id","created_at","event"/);
  assert.match(line, new RegExp(`^"[^"]+","'=${username}","[^"]+","[^"]+","user\\.changed"`));
  assert.deepEqual(rest, ['']);
});

test('an unknown filter or page of a list gets a sentence that says what to choose', async () => {
  for (const query of [
    'event=login',
    'from=yesterday',
    'to=2026-02-31x',
    'from=2026-13-01',
    'to=2026-02-32',
    // `Date` reads these, PostgreSQL does not.
    'from=0000-01-01',
    'to=9999-12-31',
    'to=-200000-01',
    'from=%2B275760-09',
    `user=${'a'.repeat(256)}`,
  ])
    assert.equal(await statusOf(`/account/audit?${query}`), 400, query);
  const unknown = await show('/account/audit?event=nonsense');
  assert.match(unknown.text, />Event must be one of login\.succeeded, [^<]*</);
  for (const path of ['audit?event=login.failed&', 'users?search=nobody-at-all&', 'keys?']) {
    const { text } = await show(`/account/${path}page=99`);
    assert.match(text, /There is no page 99\. <a href="[^"]*\?page=1&[^"]*"[^>]*>Go to page 1,/);
  }
  const { text } = await show('/account/audit?page=99');
  assert.doesNotMatch(text, /No entry matches/, 'there are entries, on other pages');
});

test('the audit trail names users, and gives the ids of erased ones', async () => {
  const user = await add();
  const gone = await add();
  await sql`update identity.users set username = '', username_key = ${gone.id}, deleted_at = now()
    where id = ${gone.id}`;
  const { text } = await show('/account/audit?event=user.created');
  const cell = (name: string, id: string) =>
    `<a href="/account/users/${id}" title="${id}">${name}</a>`;
  const rowOf = (id: string) => text.split('<tr>').find((row) => row.includes(id)) ?? '';
  const made = `${cell('admin', admin.id)} <span class="hint">in a browser</span>`;
  assert.ok(rowOf(user.id).includes(made), rowOf(user.id));
  assert.ok(rowOf(user.id).includes(cell(user.username, user.id)));
  assert.ok(rowOf(gone.id).includes(cell('an erased user', gone.id)));
});

test('the trail says how each sign-in was proved', async () => {
  const passkey = createPasskey();
  const user = await addEnrolled();
  const { id, username, codes } = user;
  await register(user.host, passkey);
  const enter = async (code = '') => enterCode(await start(username), code);
  const choose = (cookie: string, password = `${OWN}-2`) => portal.choosePassword(cookie, password);
  const link = async (more = {}) => beginLink(await makeLink(id, more));
  for (const [expected, work] of [
    ['password: password, totp', async () => login(username, PASSWORD, await freshCode(user))],
    ['password: password, totp', async () => enter(await freshCode(user))],
    ['password: password, recovery', () => enter(codes[0])],
    ['passkey: passkey', () => signInWith(passkey, id)],
    ['password: password, passkey', async () => proveWith(passkey, await start(username), id)],
    [
      'link: link, recovery',
      async () => choose((await enterCode(await link(), codes[1] ?? '')).pending),
    ],
    ['link: link', async () => choose(await link({ remove_factors: true }), PASSWORD)],
    ['password: password', () => login(username)],
    ['password: password', () => enterPassword(username)],
  ] as const) {
    const { status, text } = await work();
    assert.equal(status, 200, text);
    const [row] = await sql`select via || ': ' || detail as entry from identity.audit
      where user_id = ${id} and event = 'login.succeeded' order by created_at desc limit 1`;
    assert.equal(row?.entry, expected);
  }
});

test('what happens to second factors is counted', async (context) => {
  const own = await startSignIn(context);
  const user = await own.addEnrolled();
  await own.login(user.username, PASSWORD, '000000');
  assertSuccess(await own.login(user.username, PASSWORD, await own.freshCode(user)));
  const chief = await own.addSignedIn({ super_admin: true });
  const lost = await own.addEnrolled();
  // The second time, there is nothing to remove.
  for (let times = 1; times <= 2; times += 1) {
    await own.post('/account/factors/remove', user.host);
    await own.post(`/account/users/${lost.id}/remove_factors`, chief.host);
  }
  const { id } = await own.addEnrolled();
  const link = await own.makeLink(id, { remove_factors: true });
  assert.equal((await own.choosePassword(await own.beginLink(link))).status, 200);
  const { text } = await ask('GET', `${own.metrics}/metrics`);
  for (const [factor, event, count] of [
    ['totp', 'added', 3],
    ['totp', 'wrong', 1],
    ['totp', 'right', 1],
    ['totp', 'removed', 1],
    ['all', 'removed', 2],
  ] as const) {
    const line = `\ngatehouse_factor_events_total{factor="${factor}",event="${event}"} ${count}\n`;
    assert.ok(text.includes(line), line + text);
  }
});
