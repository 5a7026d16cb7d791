/** GET /api/key/: whose keys are listed to whom, in which order, and how one pages through them. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { assertKey, startIdentity, type Person } from '../../../support/api-users.ts';
import { assertSuccess, assertError, assertRevoked } from '../../../support/users.ts';
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

/** An administrator with two keys without a user and one for another user, and that user. */
async function scene() {
  const chief = await enter({ super_admin: true });
  const user = await enter();
  const create = async (body: object) =>
    (await call(chief.token, 'POST', '/api/key/', body)).json.data;
  const program = await create({ user_id: null, name: 'a program' });
  const second = await create({ user_id: null });
  const own = await create({});
  const others = await create({ user_id: user.id });
  const kept = await key(null);
  return { chief, user, program, second, own, others, kept };
}

const change = (by: Person, of: Person, body: object) =>
  call(by.token, 'PATCH', `/api/user/${of.id}`, body);

const status = async ({ key: bearer }: { key: string }) =>
  (await call(bearer, 'GET', '/api/user/')).status;

const listed = async (id: string) =>
  (await call(admin.token, 'GET', '/api/key/?limit=100')).json.data.find(
    (one: { id: string }) => one.id === id,
  );

/** The revocations of keys in the trail about this user. */
const trail = async ({ id }: Person) =>
  (
    await sql`select count, detail from identity.audit where event = 'key.revoked'
      and user_id = ${id} order by detail`
  ).map((row) => ({ ...row }));

test('the replies to a creation and to a list have the id and the username of the creator', async () => {
  const { chief, user, program, own, others } = await scene();
  for (const made of [program, own, others]) {
    assert.deepEqual([made.created_by, made.created_by_username], [chief.id, chief.username]);
    const { created_by: id, created_by_username: name } = await listed(made.id);
    assert.deepEqual([id, name], [chief.id, chief.username]);
  }
  // The user of the key sees it too.
  const [seen] = (await call(user.token, 'GET', '/api/key/')).json.data;
  assert.deepEqual([seen.id, seen.created_by_username], [others.id, chief.username]);
});

test('a demotion revokes the keys without a user that the administrator created, and counts them', async () => {
  const { chief, program, second, own, others, kept } = await scene();
  assertRevoked(await call(admin.token, 'DELETE', `/api/key/${second.id}/revoke`), 'Key revoked.');
  const answer = await change(admin, chief, { super_admin: false });
  assertSuccess(answer);
  assert.equal(answer.json.data.revoked_keys, 1);
  assert.deepEqual(
    await Promise.all([program, second, own, others, kept].map(status)),
    [401, 401, 200, 200, 200],
  );
  assert.equal((await listed(program.id)).revoked, true);
  assert.deepEqual(await trail(chief), [{ count: 1, detail: 'without a user' }]);
  // A later promotion does not revive them.
  const again = await change(admin, chief, { super_admin: true });
  assert.equal(again.json.data.revoked_keys, 1, 'the own one');
  assert.equal(await status(program), 401);
});

test('a deletion revokes them beside the own keys, and says how many', async () => {
  const { chief, program, second, own, others, kept } = await scene();
  const answer = await call(admin.token, 'DELETE', `/api/user/${chief.id}`);
  assertSuccess(answer);
  const message =
    'User deleted. Sessions and keys have ended. Revoked 2 keys without a user that they had created.';
  assert.equal(answer.json.data.message, message);
  assert.deepEqual(
    await Promise.all([program, second, own, others, kept].map(status)),
    [401, 401, 401, 200, 200],
  );
  assert.deepEqual(await trail(chief), [
    { count: 1, detail: '' },
    { count: 2, detail: 'without a user' },
  ]);
  assert.equal((await listed(others.id)).created_by, chief.id);
});

test('a key without a user is suspended while its creator is disabled', async () => {
  const { chief, program, others } = await scene();
  assertSuccess(await change(admin, chief, { enabled: false }));
  assertError(await call(program.key, 'GET', '/api/user/'), 401, 'unauthorized');
  assert.deepEqual([await status(others), (await listed(program.id)).revoked], [200, false]);
  assertSuccess(await change(admin, chief, { enabled: true }));
  assert.equal(await status(program), 200);
});

test('a key that is created beside the demotion of its creator does not outlive it', async () => {
  for (let round = 0; round < 10; round += 1) {
    const chief = await enter({ super_admin: true });
    const [made] = await Promise.all([
      call(chief.token, 'POST', '/api/key/', { user_id: null }),
      change(admin, chief, { super_admin: false }),
    ]);
    if (made.status === 201) assert.equal(await status(made.json.data), 401);
    else assertError(made, 403, 'forbidden');
  }
});
