/** What super administrators do on the pages of users and of the audit trail. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { PENDING } from '../../../support/factors.ts';
import { cookieFrom, type Page, startPortal } from '../../../support/portal.ts';
import { PASSWORD } from '../../../support/users.ts';

const { sql, call, add, visit, signIn } = await startPortal({ after });
const chief = await add({ super_admin: true });
const administrator = await signIn(chief.username);
const post = (path: string, fields: Record<string, string> = {}, cookie = administrator.host) =>
  visit(path, { fields, cookie });
const show = (path: string, cookie = administrator.host) => visit(path, { cookie });
const userRow = async (id: string) => (await sql`select * from identity.users where id = ${id}`)[0];
const passwordOn = (text: string) => /<pre [^>]*>([^<]+)<\/pre>/.exec(text)?.[1] ?? '';

/** Sends a form of the page of a user and follows it, as a browser does. */
async function change(id: string, action: string, fields: Record<string, string> = {}) {
  const sent = await post(`/account/users/${id}/${action}`, fields);
  assert.equal(sent.status, 303, sent.text);
  const location = sent.headers.get('location') ?? '';
  const notice = cookieFrom(sent, '__Host-gatehouse-notice');
  const { text } = await show(location, `${administrator.host}; ${notice}`);
  return { location, said: /role="status">([^<]+)</.exec(text)?.[1], text };
}

test('a user is created with a generated password, which must be changed', async () => {
  const fields = { username: 'Grace', email: 'grace@example.org', role: 'administrator' };
  const created = await post('/account/users', fields);
  assert.equal(created.status, 200, created.text);
  const password = passwordOn(created.text);
  assert.match(password, /^[0-9A-Z]{4}(-[0-9A-Z]{4}){5}$/, '24 letters of 5 bits');
  const [row] = await sql`select * from identity.users where username = 'Grace'`;
  assert.deepEqual([row?.super_admin, row?.enabled], [true, true]);
  const signedIn = await visit('/login', {
    fields: { username: 'Grace', password, return_to: '' },
  });
  assert.match(signedIn.text, /<title>Choose a password/);
  const listed = await show('/account/users?search=grace');
  assert.match(listed.text, /Grace<[^]*Active<[^]*Super administrator<[^]*None<[^]*never/);
});

test('a user is invited with groups and a link, and gets another link to reset the password', async () => {
  const person = { username: 'invited', email: 'invited@example.org', groups: 'ops, choir' };
  const refused = await post('/account/users', { ...person, first: 'link', password: PASSWORD });
  assert.match(refused.text, /Must be empty: with an invitation link, the user chooses/);
  const wrong = await post('/account/users', { ...person, groups: 'Ops', first: 'link' });
  assert.match(wrong.text, /Must be names of 1 to 64 characters of a-z/);
  const invited = await post('/account/users', { ...person, first: 'link' });
  assert.equal(invited.status, 200, invited.text);
  const [user] = await sql`select id, password_hash, groups::text from identity.users
    where username = 'invited'`;
  assert.deepEqual([user?.password_hash, user?.groups], [null, '{choir,ops}']);
  const list = await show('/account/users?search=choir');
  assert.match(list.text, /invited[^]*Matching users: 1\./);
  const open = (page: Page) => visit('/link', { fields: { token: passwordOn(page.text) } });
  const cookie = cookieFrom(await open(invited), PENDING);
  const chosen = { password: 'a-password-of-my-own', return_to: '' };
  assert.equal((await post('/login/password', chosen, cookie)).status, 200);

  const reset = await post(`/account/users/${user?.id}/link`);
  const page = await show(`/account/users/${user?.id}`);
  assert.match(page.text, /name="groups" value="choir, ops"/);
  assert.equal((await post(`/account/users/${user?.id}/link`)).status, 200);
  assert.equal((await open(reset)).status, 401, 'a newer link ends it');
  const names = { ...person, groups: '', first_name: '', last_name: '' };
  await change(user?.id, 'edit', names);
  assert.deepEqual((await userRow(user?.id))?.groups, []);
  assert.equal((await post(`/account/users/${chief.id}/link`)).status, 403);
});

test('an address that an administrator enters is confirmed, unless the form says otherwise', async () => {
  for (const [username, verified] of [
    ['confirmed', 'true'],
    ['unconfirmed', 'false'],
  ] as const) {
    const names = { username, email: `${username}@example.org` };
    const created = await post('/account/users', { ...names, verified });
    assert.equal(created.status, 200, created.text);
    const [row] = await sql`select id, verified from identity.users where username = ${username}`;
    assert.equal(String(row?.verified), verified);
    const chosen = (text: string) => /<option value="(\w+)" selected>(Yes|No)</.exec(text)?.[1];
    assert.equal(chosen((await show(`/account/users/${row?.id}`)).text), verified);
    const edit = { ...names, first_name: '', last_name: '' };
    await change(row?.id, 'edit', edit);
    assert.equal(String((await userRow(row?.id))?.verified), verified, 'the form did not say');
    const other = verified === 'true' ? 'false' : 'true';
    await change(row?.id, 'edit', { ...edit, verified: other });
    assert.equal(String((await userRow(row?.id))?.verified), other);
  }
});

test('each action of the page of a user does what it says, once and again', async () => {
  const { id, username } = await add();
  const own = await signIn(username);
  const edited = {
    username: `${username}-new`,
    email: `${username}@new.example`,
    first_name: 'Ada',
    last_name: 'Lovelace',
  };
  assert.equal((await change(id, 'edit', edited)).said, 'The user is changed.');
  assert.match(
    (await show(`/account/users/${id}`)).text,
    /<dd><span>Ada<\/span> <span>Lovelace<\/span><\/dd>/,
  );

  assert.match((await change(id, 'promote')).text, /Super administrator</);
  assert.equal((await userRow(id))?.super_admin, true);
  assert.equal((await show('/account', own.host)).status, 303);
  assert.match((await change(id, 'demote')).said ?? '', /not a super administrator any more/);
  assert.equal((await userRow(id))?.super_admin, false);

  const again = await signIn(edited.username);
  assert.equal((await show('/account', again.host)).status, 200);
  assert.match((await change(id, 'end_sessions')).said ?? '', /^All sessions of the user/);
  assert.equal((await show('/account', again.host)).status, 303);

  const next = await signIn(edited.username);
  const page = await show(`/account/users/${id}`);
  const session = /name="session_id" value="([^"]+)"/.exec(page.text)?.[1] ?? '';
  assert.equal(
    (await change(id, 'end_session', { session_id: session })).said,
    'The session has ended.',
  );
  assert.equal((await show('/account', next.host)).status, 303);

  for (let time = 0; time < 2; time += 1) {
    assert.match((await change(id, 'disable')).text, /Disabled</);
    assert.equal((await userRow(id))?.enabled, false);
  }
  assert.match((await change(id, 'enable')).text, /Active</);

  const set = await post(`/account/users/${id}/password`, { password: '' });
  assert.match(set.text, /You will not see it again/);
  const login = { username: edited.username, password: passwordOn(set.text), return_to: '' };
  assert.match((await visit('/login', { fields: login })).text, /<title>Choose a password/);

  const removed = await change(id, 'delete');
  assert.equal(removed.location, '/account/users');
  assert.match(removed.said ?? '', /^The user is deleted/);
  assert.equal((await show(`/account/users/${id}`)).status, 404);
  assert.equal((await post(`/account/users/${id}/delete`)).status, 404);
});

test('a key of a user is revoked on the page of the user', async () => {
  const { id, username } = await add();
  const own = await signIn(username);
  const made = await post('/account/keys', { name: 'backup', days: '30' }, own.host);
  const secret = passwordOn(made.text);
  assert.equal((await call(secret, 'GET', `/api/user/${id}`)).status, 200);
  const page = await show(`/account/users/${id}`);
  const keyId = /name="key_id" value="([^"]+)"/.exec(page.text)?.[1] ?? '';
  assert.equal((await change(id, 'revoke_key', { key_id: keyId })).said, 'The key is revoked.');
  assert.equal((await call(secret, 'GET', `/api/user/${id}`)).status, 401);
});

test('a key without a user is made, shown and revoked on a page, with the keys that it made', async () => {
  const path = '/account/program-keys';
  const fields = {
    ...{ name: 'sign-up', days: '30', provision: 'on', verify: 'on' },
    ...{ scopes: 'orders:read, orders:write', groups: 'robots', provision_groups: 'customers' },
  };
  const made = await post(path, fields);
  assert.equal(made.status, 200, made.text);
  const secret = passwordOn(made.text);
  const [row] = await sql`select id, rights, scopes, groups, provision_groups, user_id
    from identity.api_keys where name = 'sign-up'`;
  assert.deepEqual(
    { ...row, id: '' },
    {
      ...{ id: '', rights: ['provision', 'verify'], scopes: ['orders:read', 'orders:write'] },
      ...{ groups: ['robots'], provision_groups: ['customers'], user_id: null },
    },
  );
  const { id } = await add();
  const body = { user_id: id, rights: ['verify'] };
  const of = (await call(secret, 'POST', '/api/key/', body)).json.data;
  const shown = (await show(path)).text;
  assert.match(shown, /sign-up: <code>key:/);
  const may =
    'may: provision, verify, orders:read, orders:write, group:robots, gives group:customers<br>';
  assert.ok(shown.includes(may), shown);
  // A key of a user is on the page of the user.
  assert.ok(!shown.includes(of.id));
  const wrong = await post(path, { name: 'sign-up', days: '30', groups: 'robots' });
  assert.equal(wrong.status, 400);
  assert.match(wrong.text, /id="verify-problem">Choose at least one right\.</);
  // A phone would write "Order's".
  for (const name of ['scopes', 'groups', 'provision_groups'])
    assert.match(wrong.text, new RegExp(`name="${name}"[^>]*\\sautocapitalize="none"`));

  const revoked = await post(`${path}/revoke`, { key_id: String(row?.id), with_made: 'true' });
  assert.equal(revoked.headers.get('location'), path);
  assert.equal((await call(secret, 'GET', '/api/auth/verify')).status, 401);
  assert.equal((await call(of.key, 'GET', '/api/auth/verify')).status, 401);
  assert.match((await show(path)).text, /Revoked</);
});

test('a form with an invalid field keeps what was typed and says why beside the field', async () => {
  const { id, username } = await add();
  const taken = await add();
  const fields = { username: taken.username, email: 'x@y.example', first_name: 'A', last_name: '' };
  const page = await post(`/account/users/${id}/edit`, fields);
  assert.equal(page.status, 409);
  assert.match(page.text, /id="username-problem">Is taken by another user\.</);
  assert.match(page.text, /name="email"[^>]* value="x@y.example"/);
  assert.equal((await userRow(id))?.username, username);
  const short = await post(`/account/users/${id}/password`, { password: 'short' });
  assert.equal(short.status, 400);
  assert.match(short.text, /id="password-problem">Must have at least/);
  assert.doesNotMatch(short.text, /value="short"/);
});

test('the page of an own account offers nothing that another administrator must do', async () => {
  const { id, username } = await add({ super_admin: true });
  const own = await signIn(username);
  const SHOWN = /<section class="card" >\s*<h2>(?:Reset link|Password)<|\/secure"/g;
  const path = `/account/users/${id}`;
  assert.equal((await show(path)).text.match(SHOWN)?.length, 3);
  assert.equal((await show(path, own.host)).text.match(SHOWN), null);
});

test('the factors of a user who does not exist are not called removed', async () => {
  const page = await post(`/account/users/${randomUUID()}/remove_factors`, {});
  assert.equal(page.status, 404);
});

test('an unknown event or page of the audit trail gets a sentence that says what to choose', async () => {
  const unknown = await show('/account/audit?event=nonsense');
  assert.equal(unknown.status, 400);
  assert.match(unknown.text, />Event must be one of login\.succeeded, [^<]*</);
  const all = await show('/account/audit?event=');
  assert.equal(all.status, 200);
  for (const path of ['audit?event=login.failed&', 'users?search=nobody-at-all&', 'keys?']) {
    const { text } = await show(`/account/${path}page=99`);
    assert.match(
      text,
      /There is no page 99\. <a href="[^"]*\?page=1&[^"]*"[^>]*>Go to page 1, the last one</,
    );
  }
  const { text } = await show('/account/audit?page=99');
  assert.doesNotMatch(text, /No entry matches/, 'there are entries, on other pages');
});

test('the audit trail is filtered by user, event and day, and exported as CSV', async () => {
  const { id, username } = await add();
  await signIn(username);
  await change(id, 'edit', {
    username: `=${username}`,
    email: 'f@g.example',
    first_name: '',
    last_name: '',
  });
  const [row] = await sql`
    select to_char(created_at at time zone 'UTC', 'YYYY-MM-DD') as day
    from identity.audit where user_id = ${id} and event = 'user.changed'`;
  const day = String(row?.day);
  const total = async (query: string) => {
    const { status, text } = await show(`/account/audit?${query}`);
    assert.equal(status, 200, query);
    return Number(/Matching entries: (\d+)/.exec(text)?.[1]);
  };
  const name = encodeURIComponent(`=${username}`);
  assert.ok((await total(`user=${name}`)) >= 3);
  assert.equal(await total(`user=${name}&event=user.changed`), 1);
  assert.equal(await total(`user=${name}&event=user.changed&from=${day}&to=${day}`), 1);
  assert.equal(await total(`user=${name}&from=2999-01-01`), 0);
  assert.equal(
    await total(`user=${name}&from=1000-01-01&to=2999-12-31`),
    await total(`user=${name}`),
  );
  assert.equal(await total(`user=${name}&to=2000-01-01`), 0);
  assert.equal(await total('user=nobody-of-this-name'), 0);
  for (const query of [
    'from=yesterday',
    'event=login',
    'to=2026-02-31x',
    'from=2026-13-01',
    'to=2026-02-32',
    // `Date` reads these, PostgreSQL does not.
    'from=0000-01-01',
    'to=9999-12-31',
    'to=-200000-01',
    'from=%2B275760-09',
    `user=${'a'.repeat(256)}`,
  ]) {
    assert.equal((await show(`/account/audit?${query}`)).status, 400, query);
  }
  const { text, headers } = await show(`/account/audit.csv?user=${name}&event=user.changed`);
  assert.equal(headers.get('content-type'), 'text/csv; charset=utf-8');
  const [columns, line, ...rest] = text.split('\r\n');
  assert.match(columns ?? '', /^\ufeff"actor","user","id","created_at","event"/);
  assert.match(line ?? '', new RegExp(`^"[^"]+","'=${username}","[^"]+","[^"]+","user\\.changed"`));
  assert.deepEqual(rest, ['']);
});

test('no cell of the CSV begins like a formula, whatever the program takes for a separator', async () => {
  const { id, username } = await add();
  const cellFor = async (start: string) => {
    const name = start + username;
    await change(id, 'edit', {
      username: name,
      email: 'cell@g.example',
      first_name: '',
      last_name: '',
    });
    const { text } = await show(
      `/account/audit.csv?event=user.changed&user=${encodeURIComponent(name)}`,
    );
    return /^"[^"]+","((?:[^"]|"")*)"/m.exec(text.split('\r\n')[1] ?? '')?.[1];
  };
  for (const sign of ['=', '+', '-', '@', '\uff1d', '\uff0b', '\uff0d', '\uff20']) {
    assert.equal(await cellFor(sign), `'${sign}${username}`);
    assert.equal(await cellFor(`a;${sign}`), `a;'${sign}${username}`);
    assert.equal(await cellFor(`a;"${sign}`), `a;""'${sign}${username}`);
  }
  assert.equal(await cellFor('a"=1,'), `a""=1,${username}`);
});

test('a notice is escaped, and one that is given twice is not shown', async () => {
  const cookie = `${administrator.host}; __Host-gatehouse-notice=${Buffer.from('<b>x').toString('base64url')}`;
  const { text } = await show('/account', cookie);
  assert.match(text, /role="status">&#60;b&#62;x</, 'escaped');
  const twice = `${cookie}; __Host-gatehouse-notice=eA`;
  assert.doesNotMatch((await show('/account', twice)).text, /role="status"/);
});
