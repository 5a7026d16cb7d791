/** The filters of the list of users: over the API, on the page and in the CSV. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { factorsOf } from '../../../support/factors.ts';
import { startPortal } from '../../../support/portal.ts';

const portal = await startPortal({ after });
const { admin, add, call, enter, sql, visit, signIn } = portal;
let cookie = '';
let names: readonly string[] = [];

const ADDED = [
  { username: 'amber', super_admin: true },
  { username: 'bruno', groups: ['ops'] },
  { username: '=cara', enabled: false, groups: ['ops', 'devs'] },
  { username: 'dina', password: undefined, first_name: 'Ops' },
] as const;

before(async () => {
  for (const user of ADDED) await add(user);
  const [dina] = await sql`select id from identity.users where username = 'dina'`;
  await call(admin.token, 'POST', `/api/user/${String(dina?.id)}/link`, {});
  await factorsOf(portal).enrol('bruno');
  cookie = (await signIn('admin', { fields: { password: 'correct-horse-battery-staple' } })).host;
  names = ['admin', ...ADDED.map(({ username }) => username)];
});

/** On the page, in the order of its rows. */
async function shown(query: string) {
  const { text, status } = await visit(`/account/users?${query}`, { cookie });
  assert.equal(status, 200, text);
  const rows = text.matchAll(/<tr><td class="long"><a href="\/account\/users\/[^"]+">([^<]*)</g);
  const total = /Matching users: (\d+)\./.exec(text)?.[1];
  return { users: [...rows].map(([, name = '']) => name), total: Number(total), text };
}

const FILTERS: ReadonlyArray<readonly [query: string, users: readonly string[]]> = [
  ['state=active', ['admin', 'amber', 'bruno']],
  ['state=invited', ['dina']],
  ['state=disabled', ['=cara']],
  ['role=super_admin', ['admin', 'amber']],
  ['role=user&state=active', ['bruno']],
  ['second_factor=on', ['bruno']],
  ['second_factor=off&role=user', ['=cara', 'dina']],
  ['group=ops', ['bruno', '=cara']],
  ['group=ops&state=disabled', ['=cara']],
  ['search=ops', ['bruno', '=cara', 'dina']],
  ['search=DIN', ['dina']],
  ['group=nobody', []],
  ['username=BRUNO', ['bruno']],
  ['username=brun', []],
  ['username=bruno@example.org', []],
  ['username=bruno&group=devs', []],
];

for (const [query, users] of FILTERS) {
  test(`${query} selects the same users over the API, on the page and in the CSV`, async () => {
    const all = await call(admin.token, 'GET', `/api/user/?${query}`);
    const found = all.json.data.map(({ username }: { username: string }) => username);
    assert.deepEqual(found, users);
    const paged = await call(admin.token, 'GET', `/api/user/?${query}&limit=1`);
    assert.equal(paged.json._meta.pagination.total, users.length);
    const page = await shown(`${query}&sort=created`);
    assert.deepEqual([page.users, page.total], [users, users.length]);
    const csv = await visit(`/account/users.csv?${query}`, { cookie });
    assert.equal(csv.text.split('\r\n').length, users.length + 2);
    // A user without rights finds only the own record, under the same filters.
    const own = await enter();
    const self = await call(own.token, 'GET', `/api/user/?${query}`);
    const isSelf = /^state=active$|^role=user&state=active$|second_factor=off/.test(query);
    assert.equal(self.json.data.length, Number(isSelf), query);
    await call(admin.token, 'DELETE', `/api/user/${own.id}`);
  });
}

test('an e-mail address selects one user, and is no part of one', async () => {
  const [bruno] = await sql`select id, email from identity.users where username = 'bruno'`;
  const email = String(bruno?.email);
  const found = async (query: string) =>
    (await call(admin.token, 'GET', `/api/user/?${query}`)).json.data.map(
      ({ username }: { username: string }) => username,
    );
  assert.deepEqual(await found(`email=${email.toUpperCase()}`), ['bruno']);
  assert.deepEqual(await found(`email=${email.slice(1)}`), []);
});

test('one user is found by id, username and e-mail address', async () => {
  const [bruno] = await sql`select id, email from identity.users where username = 'bruno'`;
  const show = (bearer: string, name: string) =>
    call(bearer, 'GET', `/api/user/by-name?name=${encodeURIComponent(name)}`);
  const id = String(bruno?.id);
  for (const name of [id, id.toUpperCase(), 'bruno', ' ＢＲＵＮＯ ', String(bruno?.email)]) {
    const answer = await show(admin.token, name);
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.json.data.id, id);
  }
  assert.equal((await show(admin.token, 'nobody')).status, 404);
  assert.equal((await call(admin.token, 'GET', '/api/user/by-name')).status, 400);
  // Nobody learns which names are used.
  const own = await enter();
  const answers = [await show(own.token, 'bruno'), await show(own.token, 'nobody')];
  assert.deepEqual(
    answers.map(({ status, json }) => [status, json.error.message]),
    answers.map(() => [403, answers[0]?.json.error.message]),
  );
  assert.equal((await show(own.token, own.username)).json.data.id, own.id);
  await call(admin.token, 'DELETE', `/api/user/${own.id}`);
});

test('an empty filter of the form is none, and an unknown value is rejected', async () => {
  assert.equal((await shown('search=&state=&role=&second_factor=&group=')).total, names.length);
  for (const query of ['state=enabled', 'role=admin', 'second_factor=yes', 'sort=id', 'limit=0']) {
    assert.equal((await visit(`/account/users?${query}`, { cookie })).status, 400, query);
  }
  assert.equal((await call(admin.token, 'GET', '/api/user/?state=')).status, 400);
});

test('the list is sorted by each column, up and down', async () => {
  const users = async (sort: string) => (await shown(`sort=${sort}`)).users;
  assert.deepEqual(await users('username'), [...names].sort());
  assert.deepEqual(await users('-username'), [...names].sort().reverse());
  assert.deepEqual(await users('created'), names);
  assert.deepEqual(await users('-created'), [...names].reverse());
  const { text } = await shown('sort=-created&role=super_admin');
  assert.match(text, /aria-sort="descending"><a\s+href="[^"]*sort=created/);
  assert.match(text, /href="(?=[^"]*role=super_admin)[^"]*sort=username/, 'the filter stays');
});

test('the page says who waits for a link, who is disabled, and who looks', async () => {
  const { text } = await shown('');
  assert.match(text, />dina<[^]*?>Invited<[^]*?link ends <time/);
  assert.match(text, />admin<\/a>\s*<span[^>]*>You</);
  assert.equal(text.match(/>You</g)?.length, 1);
  await sql`update identity.links set expires_at = now() - interval '1 second'`;
  assert.match((await shown('state=invited')).text, />Invited<[^]*?no open link/);
});

test('the CSV has states and times, and no cell that begins like a formula', async () => {
  const { text, headers } = await visit('/account/users.csv?sort=created', { cookie });
  assert.match(headers.get('content-disposition') ?? '', /filename="users\.csv"/);
  const lines = text.split('\r\n');
  assert.match(
    lines[0] ?? '',
    /^\ufeff"state","second_factor","last_sign_in_at","link_ends_at","id"/,
  );
  assert.match(lines[3] ?? '', /^"active","true","\d{4}-[^"]+Z","",/);
  assert.match(lines[4] ?? '', /"'=cara"/);
  const plain = await signIn((await add()).username);
  assert.equal((await visit('/account/users.csv', { cookie: plain.host })).status, 403);
});

test('a sign-in is remembered when its sessions have been removed', async () => {
  const { id, username } = await add();
  await signIn(username);
  await sql`delete from identity.sessions where user_id = ${id}`;
  assert.match((await shown(`search=${username}`)).text, /data-label="Last sign-in"><time/);
});
