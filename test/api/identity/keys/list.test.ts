/** GET /api/key/: whose keys are listed to whom, in which order, and how one pages through them. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { assertKey, startIdentity } from '../../../support/api-users.ts';
import { assertSuccess } from '../../../support/users.ts';
import { assertPages } from '../../../support/paged.ts';

const { sql, admin, call, enter, key } = await startIdentity({ after });
const one = await enter();
const other = await enter();
const idle = await enter();
const made: Array<{ id: string; user: string | null }> = [];
for (let round = 0; round < 6; round += 1) {
  for (const owner of [one, other, null, one])
    made.push({ id: (await key(owner, { name: `round ${round}` })).id, user: owner?.id ?? null });
}
const program = await key(null, { name: 'round 2' });
made.push({ id: program.id, user: null });
// All of one round at one moment: they are ordered by id.
await sql`update identity.api_keys set created_at = timestamptz '2026-01-01 00:00Z' +
  split_part(name, ' ', 2)::int * interval '1 microsecond'`;
await sql`update identity.api_keys set revoked = true where name = 'round 0'`;
await sql`update identity.api_keys set expires_at = now() - interval '1 day'
  where name = 'round 1'`;

const inOrder = async (user?: string) =>
  (
    await sql`select id from identity.api_keys where ${user === undefined}
      or user_id = ${user ?? null} order by created_at desc, id desc`
  ).map((row) => String(row.id));
const list = (query: string, bearer: string) => call(bearer, 'GET', `/api/key/${query}`);
const ids = (answer: { json: { data: Array<{ id: string }> } }) =>
  answer.json.data.map((one) => one.id);

test('the administrator sees every key, newest first, masked and with its user', async () => {
  const answer = await list('?limit=100', admin.token);
  assertSuccess(answer, 'paged');
  assert.deepEqual(ids(answer), await inOrder());
  assert.equal(answer.json.data.length, made.length);
  for (const each of answer.json.data) {
    assertKey(each);
    assert.match(each.key, /^key:[A-Za-z0-9_-]{8}…$/);
    assert.equal(each.user_id, made.find(({ id }) => id === each.id)?.user);
  }
  assert.equal(answer.json.data.filter((each: { revoked: boolean }) => each.revoked).length, 4);
});

test('any other user sees their own keys, with or without the filter', async () => {
  for (const query of [
    '?limit=100',
    `?limit=100&user=${one.id}`,
    `?limit=100&user=${one.id.toUpperCase()}`,
  ]) {
    const answer = await list(query, one.token);
    assertSuccess(answer, 'paged');
    assert.deepEqual(ids(answer), await inOrder(one.id));
    assert.equal(answer.json._meta.pagination.total, 12);
  }
});

test('the administrator may ask for those of one user', async () => {
  const answer = await list(`?user=${other.id}`, admin.token);
  assertSuccess(answer, 'paged');
  assert.deepEqual(ids(answer), await inOrder(other.id));
  assert.deepEqual(answer.json._meta.pagination, { page: 1, limit: 10, total: 6, total_pages: 1 });
});

test('the pages have no gap or overlap, and the links keep the filter', async () => {
  const pages = (bearer: string, expected: readonly string[], filter = '') =>
    assertPages((path) => call(bearer, 'GET', path), '/api/key/', 5, expected, filter);
  const ofOne = await inOrder(one.id);
  assert.equal(ofOne.length, 12);
  await pages(one.token, ofOne);
  await pages(admin.token, ofOne, `&user=${one.id}`);
  await pages(idle.token, []);
});

test("the keys of a deleted user stay in the administrator's list, revoked", async () => {
  const leaving = await enter();
  const { id } = await key(leaving);
  await call(admin.token, 'DELETE', `/api/user/${leaving.id}`);
  const answer = await list(`?user=${leaving.id}`, admin.token);
  assertSuccess(answer, 'paged');
  assert.deepEqual(ids(answer), [id]);
  assert.equal(answer.json.data[0].revoked, true);
  assert.match(answer.json.data[0].user.deleted_at, /Z$/);
});
