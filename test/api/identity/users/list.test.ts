/**
 * GET /api/user/ with and without a page: who is listed, in which order, and that a long list comes
 * whole.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { eachUser } from '../../../../src/identity/store/lists.ts';
import { startIdentity } from '../../../support/api-users.ts';
import { assertSuccess, assertUser, openIdentity, PASSWORD } from '../../../support/users.ts';
import { assertPages } from '../../../support/paged.ts';
import { assertStatus } from '../../../support/gatehouse.ts';

const { databaseUrl, sql, admin, call, add, enter, key } = await startIdentity({ after });
const plain = await enter();
const deleted = await add();
await call(admin.token, 'DELETE', `/api/user/${deleted.id}`);
// Three at a time have the same moment, and the moments are a microsecond apart: finer than
// JavaScript's own.
await sql`
  insert into identity.users (id, username, username_key, email, email_key, first_name, last_name,
    enabled, verified, super_admin, created_at, deleted_at)
  select gen_random_uuid(), 'many-' || n, 'many-' || n, n || '@example.org', n || '@example.org',
    '', '', n % 2 = 0, false, false,
    now() + (n / 3) * interval '1 microsecond', case when n % 500 = 0 then now() end
  from generate_series(1, 2000) as n`;
const inOrder = (
  await sql`select id from identity.users where deleted_at is null order by created_at, id`
).map((row) => String(row.id));

const list = (query = '', bearer = admin.token) => call(bearer, 'GET', `/api/user/${query}`);
const ids = (answer: { json: { data: Array<{ id: string }> } }) =>
  answer.json.data.map((user) => user.id);

test('2,000 users are listed in order, each once, without deleted ones', async () => {
  assert.equal(inOrder.length, 2_000 - 4 + 2);
  const answer = await list();
  assertSuccess(answer);
  assert.deepEqual(ids(answer), inOrder);
  answer.json.data.forEach(assertUser);
  assert.equal(answer.headers.get('content-length'), null);
});

test('a user is listed once, even if others are created and deleted between two batches', async (t) => {
  const batches = eachUser(openIdentity(t, databaseUrl), {});
  const first = ((await batches.next()).value ?? []).map((user: { id: string }) => user.id);
  assert.ok(first.length > 0 && first.length < inOrder.length);
  // The one by which the next batch is found is among them.
  const leaving = [first[5], first.at(-1), inOrder[first.length], inOrder[first.length + 7]].map(
    String,
  );
  for (const id of leaving)
    assert.equal((await call(admin.token, 'DELETE', `/api/user/${id}`)).status, 200);
  const { id: newcomer } = await add();
  const rest: string[] = [];
  for await (const batch of batches) rest.push(...batch.map(({ id }) => id));
  assert.deepEqual(
    [...first, ...rest],
    [...inOrder.filter((id) => first.includes(id) || !leaving.includes(id)), newcomer],
  );
  await call(admin.token, 'DELETE', `/api/user/${newcomer}`);
  await sql`update identity.users set deleted_at = null where id in ${sql(leaving)}`;
});

test('a key without a user lists every user too', async () => {
  assert.deepEqual(ids(await list('', (await key(null)).key)), inOrder);
});

test('either parameter requests a page', async () => {
  for (const [query, page, limit] of [
    ['?page=1', 1, 10],
    ['?limit=7', 1, 7],
    ['?page=3', 3, 10],
    ['?page=2&limit=100', 2, 100],
  ] as const) {
    const answer = await list(query);
    assertSuccess(answer, 'paged');
    answer.json.data.forEach(assertUser);
    assert.deepEqual(ids(answer), inOrder.slice((page - 1) * limit, page * limit));
    assert.deepEqual(answer.json._meta.pagination, {
      page,
      limit,
      total: 1_998,
      total_pages: Math.ceil(1_998 / limit),
    });
  }
});

test('the pages have no gap or overlap, and the links lead through them', () =>
  assertPages((path) => call(admin.token, 'GET', path), '/api/user/', 100, inOrder));

test('any other user has one page with only their own record', async () => {
  for (const bearer of [plain.token, (await key(plain)).key]) {
    assert.deepEqual(ids(await list('', bearer)), [plain.id]);
    await assertPages((path) => call(bearer, 'GET', path), '/api/user/', 1, [plain.id]);
  }
});

test('creations and deletions show in the totals at once', async () => {
  const total = async () => (await list('?limit=1')).json._meta.pagination.total;
  const before = await total();
  const made = await Promise.all(Array.from({ length: 10 }, () => add()));
  assert.equal(await total(), before + 10);
  // A refused one counts for nothing.
  assertStatus(
    await call(admin.token, 'POST', '/api/user/', {
      username: 'admin',
      email: 'x@example.org',
      password: PASSWORD,
    }),
    409,
  );
  await Promise.all(made.map(({ id }) => call(admin.token, 'DELETE', `/api/user/${id}`)));
  for (const { id } of made)
    assert.equal((await call(admin.token, 'DELETE', `/api/user/${id}`)).status, 404);
  assert.equal(await total(), before);
});
