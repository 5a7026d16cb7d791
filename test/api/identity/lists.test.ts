/**
 * The lists of users, sessions, keys and the trail: whose, in which order, their pages and filters;
 * that of users also on the page and in the CSV. And one user by a name.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import { eachUser } from '../../../src/identity/store/lists.ts';
import { assertKey } from '../../support/api-users.ts';
import { factorsOf } from '../../support/factors.ts';
import { decode } from '../../support/forms.ts';
import { ADMIN_PASSWORD, logIn } from '../../support/gatehouse.ts';
import { loginFrom } from '../../support/logins.ts';
import { ORIGIN, startPortal } from '../../support/portal.ts';
import {
  assertError,
  assertSession,
  assertSuccess,
  assertUser,
  openIdentity,
  PASSWORD,
} from '../../support/users.ts';

const portal = await startPortal({ after });
const { identity, admin, add, call, databaseUrl, enter, key, sql, visit, signIn } = portal;
const list = (query = '', bearer = admin.token) => call(bearer, 'GET', `/api/user/${query}`);
const namesIn = ({ json }: { json: { data: Array<{ username: string }> } }) =>
  json.data.map(({ username }) => username);
const idsIn = ({ json }: { json: { data: Array<{ id: string }> } }) =>
  json.data.map(({ id }) => id);

/**
 * The pages of a list have all of it in order, without a gap or overlap, and are empty past the
 * end. `test/unit/identity/policy.test.ts` has the links to other pages.
 * @param expected the ids of all
 * @param filter further parameters, which the links keep
 */
async function assertPages(
  path: string,
  limit: number,
  expected: readonly string[],
  filter = '',
  bearer = admin.token,
): Promise<void> {
  const total = expected.length;
  const total_pages = Math.ceil(total / limit);
  const at = (page: number) => `${path}?page=${page}&limit=${limit}${filter}`;
  const seen: string[] = [];
  const numbers = Array.from({ length: total_pages }, (_, index) => index + 1);
  for (const page of [...numbers, 1_000_000_000]) {
    const answer = await call(bearer, 'GET', at(page));
    assertSuccess(answer, 'paged');
    const { pagination } = answer.json._meta;
    assert.deepEqual(pagination, { page, limit, total, total_pages });
    assert.equal(answer.json._links.first, at(1));
    seen.push(...idsIn(answer));
  }
  assert.deepEqual(seen, expected);
}

const ADDED = [
  { username: 'amber', super_admin: true },
  { username: 'bruno', email: 'bruno@example.org', groups: ['ops'] },
  { username: '=cara', enabled: false, groups: ['ops', 'devs'] },
  { username: 'dina', password: undefined, first_name: 'Ops' },
] as const;
const NAMES = ['admin', ...ADDED.map(({ username }) => username)];
let cookie = '';

before(async () => {
  const ids = new Map<string, string>();
  for (const user of ADDED) ids.set(user.username, (await add(user)).id);
  await call(admin.token, 'POST', `/api/user/${ids.get('dina')}/link`, {});
  await factorsOf(portal).enrol('bruno');
  cookie = (await signIn('admin', { fields: { password: ADMIN_PASSWORD } })).host;
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
  ['group=ops&state=disabled', ['=cara']],
  ['group=nobody', []],
  ['search=ops', ['bruno', '=cara', 'dina']],
  ['search=DIN', ['dina']],
  ['username=BRUNO', ['bruno']],
  ['username=brun', []],
  ['username=bruno@example.org', []],
  ['username=bruno&group=devs', []],
  ['email=BRUNO@example.org', ['bruno']],
  ['email=runo@example.org', []],
];

for (const [query, users] of FILTERS) {
  test(`${query} selects the same users over the API, on the page and in the CSV`, async () => {
    assert.deepEqual(namesIn(await list(`?${query}`)), users);
    const paged = await list(`?${query}&limit=1`);
    assert.equal(paged.json._meta.pagination.total, users.length);
    const last = await call(admin.token, 'GET', paged.json._links.last);
    assert.deepEqual(namesIn(last), users.slice(-1), 'the links keep the filter');
    // The page knows no address as a filter.
    if (query.startsWith('email')) return;
    const page = await shown(`${query}&sort=created`);
    assert.deepEqual([page.users, page.total], [users, users.length]);
    const csv = await visit(`/account/users.csv?${query}`, { cookie });
    assert.equal(csv.text.split('\r\n').length, users.length + 2);
  });
}

test('users without rights find only the own record, by list and by name, and so do their keys', async () => {
  const own = await enter();
  const { key: ofOwn } = await key(own);
  for (const [query, found] of [
    ['', [own.username]],
    ['?state=active', [own.username]],
    ['?state=disabled', []],
    ['?group=ops', []],
  ] as const) {
    for (const bearer of [own.token, ofOwn])
      assert.deepEqual(namesIn(await list(query, bearer)), found);
  }
  await assertPages('/api/user/', 1, [own.id], '', own.token);
  const byName = (name: string, bearer = admin.token) =>
    call(bearer, 'GET', `/api/user/by-name?name=${encodeURIComponent(name)}`);
  for (const name of [own.id, own.id.toUpperCase(), ` ${own.username.toUpperCase()} `])
    assert.equal((await byName(name)).json.data.id, own.id, name);
  assert.equal((await byName('bruno@example.org')).json.data.username, 'bruno');
  // Nobody learns which names are used.
  const used = await byName('bruno', own.token);
  const unused = await byName('nobody', own.token);
  assertError(used, 403, 'forbidden');
  assert.deepEqual(used.json.error, unused.json.error);
  await call(admin.token, 'DELETE', `/api/user/${own.id}`);
});

test('an empty filter of the form is none, and an unknown value is rejected', async () => {
  assert.equal((await shown('search=&state=&role=&second_factor=&group=')).total, NAMES.length);
  for (const query of ['state=enabled', 'role=admin', 'second_factor=yes', 'sort=id', 'limit=0'])
    assert.equal((await visit(`/account/users?${query}`, { cookie })).status, 400, query);
});

const BY_EMAIL = ['admin', 'bruno', 'amber', '=cara', 'dina'];
/** The users, and where the head of each sorted column leads: beside how it is sorted now. */
const SORTED: ReadonlyArray<readonly [sort: string, users: string[], heads: string[]]> = [
  ['username', NAMES.toSorted(), ['-username ascending', 'email', '-created']],
  ['-username', NAMES.toSorted().reverse(), ['username descending', 'email', '-created']],
  ['email', BY_EMAIL, ['username', '-email ascending', '-created']],
  ['-email', BY_EMAIL.toReversed(), ['username', 'email descending', '-created']],
  ['created', NAMES, ['username', 'email', '-created ascending']],
  ['-created', NAMES.toReversed(), ['username', 'email', 'created descending']],
];

for (const [sort, users, heads] of SORTED) {
  test(`the page is sorted by ${sort}, and its heads lead to other orders of the same users`, async () => {
    assert.deepEqual((await shown(`sort=${sort}`)).users, users);
    const { text } = await shown(`sort=${sort}&role=super_admin&limit=1&page=2`);
    const links = text.matchAll(
      /<th\s+scope="col"\s+(?:aria-sort="(\w+)")?>\s*<a\s+href="([^"]+)">/g,
    );
    const leads = [...links].map(([, state, address = '']) => {
      const { searchParams: query } = new URL(decode(address), ORIGIN);
      assert.deepEqual([query.get('role'), query.get('page')], ['super_admin', '1']);
      return [query.get('sort'), state].filter(Boolean).join(' ');
    });
    assert.deepEqual(leads, heads);
  });
}

test('the pages lead to each other, and each to the same users as CSV', async () => {
  const linkOn = (text: string, kind: string) =>
    decode(new RegExp(`<a href="([^"]+)" ${kind}`).exec(text)?.[1] ?? '');
  /** The users of a page and of those to which it leads, which have one each. */
  async function walk(kind: string, query: string): Promise<string[]> {
    const { users, text } = await shown(query);
    const csv = await visit(linkOn(text, 'download'), { cookie });
    assert.match(csv.text, /"bruno"[^]*"amber"[^]*"admin"/);
    assert.equal(csv.text.split('\r\n').length, 5);
    const [, more = ''] = linkOn(text, kind).split('?');
    return more === '' ? users : [...users, ...(await walk(kind, more))];
  }
  const query = 'state=active&sort=-created&limit=1';
  assert.deepEqual(await walk('rel="next"', query), ['bruno', 'amber', 'admin']);
  assert.deepEqual(await walk('rel="prev"', `${query}&page=3`), ['admin', 'amber', 'bruno']);
});

test('the page says who waits for a link, and who looks', async () => {
  const { text } = await shown('');
  assert.match(text, />dina<[^]*?>Invited<[^]*?link ends <time/);
  assert.match(text, />admin<\/a>\s*<span[^>]*>You</);
  assert.equal(text.match(/>You</g)?.length, 1);
  await sql`update identity.links set expires_at = now() - interval '1 second'`;
  assert.match((await shown('state=invited')).text, />Invited<[^]*?no open link/);
});

test('the CSV has states and times, and no cell that begins like a formula, in any program', async () => {
  const signs = ['=', '+', '-', '@', '\uff1d', '\uff0b', '\uff0d', '\uff20'];
  const names = signs.flatMap((sign) => [`${sign}x`, `a;"${sign}x`]);
  await sql`
    insert into identity.users (id, username, username_key, email, email_key, first_name, last_name,
      enabled, verified, super_admin)
    select gen_random_uuid(), name, name, name, name, 'formula', '', true, false, false
      from unnest(${[...names, 'a"=1,']}::text[]) as name`;
  const { text, headers } = await visit('/account/users.csv?sort=created', { cookie });
  assert.match(headers.get('content-disposition') ?? '', /filename="users\.csv"/);
  const lines = text.split('\r\n');
  assert.match(lines[0] ?? '', /^\ufeff"state","second_factor","last_sign_in_at","link_ends_at"/);
  assert.match(lines[3] ?? '', /^"active","true","\d{4}-[^"]+Z","",/);
  assert.match(lines[4] ?? '', /"'=cara"/);
  for (const sign of signs)
    for (const cell of [`"'${sign}x"`, `"a;""'${sign}x"`]) assert.ok(text.includes(cell), cell);
  assert.ok(text.includes('"a""=1,"'), 'after what is no separator');
  await sql`delete from identity.users where first_name = 'formula'`;
});

test('a sign-in is remembered when its sessions have been removed', async () => {
  const { id, username } = await add();
  await signIn(username);
  await sql`delete from identity.sessions where user_id = ${id}`;
  assert.match((await shown(`search=${username}`)).text, /data-label="Last sign-in"><time/);
});

test('a long list is in order and whole, though users come and go between its batches', async (t) => {
  // Three at a time have the same moment, and the moments are a microsecond apart: finer than
  // JavaScript's own.
  await sql`
    insert into identity.users (id, username, username_key, email, email_key, first_name, last_name,
      enabled, verified, super_admin, created_at, deleted_at)
    select gen_random_uuid(), 'many-' || n, 'many-' || n, n || '@example.org', n || '@example.org',
      '', '', n % 2 = 0, false, false, now() + (n / 3) * interval '1 microsecond',
      case when n % 200 = 0 then now() end
    from generate_series(1, 600) as n`;
  const inOrder = (
    await sql`select id from identity.users where deleted_at is null order by created_at, id`
  ).map(({ id }) => String(id));
  // Without a page, it comes whole, also to a key without a user.
  for (const bearer of [admin.token, (await key(null)).key]) {
    const answer = await list('', bearer);
    assertSuccess(answer);
    assert.deepEqual(idsIn(answer), inOrder);
    answer.json.data.forEach(assertUser);
  }
  for (const [query, page, limit] of [
    ['?page=3', 3, 10],
    ['?limit=7', 1, 7],
  ] as const) {
    const answer = await list(query);
    assertSuccess(answer, 'paged');
    assert.deepEqual(idsIn(answer), inOrder.slice((page - 1) * limit, page * limit));
  }
  await assertPages('/api/user/', 100, inOrder);

  const batches = eachUser(openIdentity(t, databaseUrl), {});
  const first = ((await batches.next()).value ?? []).map(({ id }: { id: string }) => id);
  // The one by which the next batch is found is among them.
  const leaving = [first[5], first.at(-1), inOrder[first.length], inOrder[first.length + 7]].map(
    String,
  );
  await sql`update identity.users set deleted_at = now() where id in ${sql(leaving)}`;
  const { id: newcomer } = await add();
  const rest: string[] = [];
  for await (const batch of batches) rest.push(...batch.map(({ id }) => id));
  const expected = inOrder.filter((id) => first.includes(id) || !leaving.includes(id));
  assert.deepEqual([...first, ...rest], [...expected, newcomer]);
});

// --- Sessions, keys and the trail

const idsOf = async (table: string, owner: string | null = null) =>
  (
    await sql`select id from ${sql(`identity.${table}`)} x
      where to_jsonb(x) ->> 'deleted_at' is null and (${owner}::uuid is null or user_id = ${owner})
      order by created_at desc, id desc`
  ).map(({ id }) => String(id));

/** Pairs of one moment, which are ordered by id. */
const pair = (table: string) => sql`
  update ${sql(`identity.${table}`)} x
  set created_at = now() - interval '1 hour' + n / 2 * interval '1 microsecond'
  from (select id, row_number() over (order by id) as n
    from ${sql(`identity.${table}`)}) numbered
  where numbered.id = x.id`;

test('sessions and keys are listed newest first: all to administrators, to others their own', async () => {
  const one = await enter();
  for (const owner of [one, one, one, null]) await key(owner);
  for (let count = 1; count <= 3; count += 1) await logIn(identity, one.username, PASSWORD);
  const leaving = await enter();
  await key(leaving);
  await call(admin.token, 'DELETE', `/api/user/${leaving.id}`);
  for (const [table, path, assertView] of [
    ['sessions', '/api/session/', assertSession],
    ['api_keys', '/api/key/', assertKey],
  ] as const) {
    const [newest = ''] = await idsOf(table, one.id);
    await sql`update ${sql(`identity.${table}`)} set deleted_at = now() where id = ${newest}`;
    await pair(table);
    await assertPages(path, 2, await idsOf(table));
    const own = await idsOf(table, one.id);
    assert.ok(own.length >= 2);
    await assertPages(path, 2, own, '', one.token);
    for (const bearer of [one.token, admin.token])
      await assertPages(path, 2, own, `&user=${one.id}`, bearer);
    // Those of a deleted user stay.
    const { data } = (await call(admin.token, 'GET', `${path}?user=${leaving.id}`)).json;
    assert.deepEqual([data.length, data[0].revoked], [1, true]);
    assert.match(data[0].user.deleted_at, /Z$/);
    assertView(data[0]);
  }
});

test('the trail is listed newest first', async () => {
  await pair('audit');
  await assertPages('/api/audit/', 20, await idsOf('audit'));
});

const totalOf = async (user: string) => {
  const answer = await call(admin.token, 'GET', `/api/audit/?user=${encodeURIComponent(user)}`);
  return answer.json._meta.pagination.total;
};
const fail = (username: string) => loginFrom(identity, '192.0.2.99', username);

test('the filters by user and event hold for rows, total and links of the trail', async () => {
  const ada = await enter();
  const grace = await add();
  await call(admin.token, 'PATCH', `/api/user/${ada.id}`, { verified: true });
  await call(ada.token, 'PATCH', `/api/user/${ada.id}`, { first_name: 'Ada' });
  // An entry of grace that does not concern ada, and an entry without a user.
  for (const name of [grace.username, 'nobody-here']) await fail(name);
  for (const [user, event] of [
    [ada.id, null],
    [admin.id, null],
    [randomUUID(), null],
    [null, 'login.failed'],
    [null, 'link.late'],
    [admin.id, 'user.changed'],
    [grace.id, 'user.changed'],
  ] as const) {
    const expected = await sql`
      select id from identity.audit
      where (${user}::uuid is null or user_id = ${user}::uuid or actor_id = ${user}::uuid)
        and (${event}::text is null or event = ${event}::text)
      order by created_at desc, id desc`;
    const filter = new URLSearchParams({ ...(user && { user }), ...(event && { event }) });
    const ids = expected.map(({ id }) => String(id));
    await assertPages('/api/audit/', 100, ids, `&${filter}`);
  }
});

test('the entries of a user are found by the name, also after the user is deleted', async () => {
  const { id } = await add({ username: 'Leaving', email: 'leaving@example.org' });
  await fail('leaving');
  const totals = async (...names: string[]) => Promise.all(names.map(totalOf));
  const address = 'leaving@example.org';
  assert.deepEqual(await totals(id, 'LEAVING', address, 'nobody-here'), [2, 2, 2, 0]);
  await call(admin.token, 'DELETE', `/api/user/${id}`);
  // The address of the deleted user is no name of theirs any more.
  assert.deepEqual(await totals(id, 'leaving', address), [3, 3, 0]);
  // The name of two users: the trail has both.
  const next = await add({ username: 'leaving' });
  assert.deepEqual(await totals(next.id, 'leaving'), [1, 4]);
  await sql`update identity.users set username = '', username_key = '' where id = ${id}`;
  assert.deepEqual(await totals(id, 'leaving'), [3, 1]);
});
