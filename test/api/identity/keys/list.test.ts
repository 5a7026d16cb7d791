/** GET /api/key/: whose keys are listed to whom; and what becomes of the keys of an administrator. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { assertKey, type Person, startIdentity } from '../../../support/api-users.ts';
import { assertPages } from '../../../support/paged.ts';
import { assertError, assertRevoked, assertSuccess } from '../../../support/users.ts';

const { sql, admin, call, enter, key } = await startIdentity({ after });
const one = await enter();
for (const owner of [one, await enter(), null, one, null, one]) await key(owner);
// Pairs of one moment: they are ordered by id.
await sql`
  update identity.api_keys k set created_at = now() + n / 2 * interval '1 microsecond'
  from (select id, row_number() over (order by id) as n from identity.api_keys) numbered
  where numbered.id = k.id`;

const idsOf = async (owner?: string) =>
  (
    await sql`select id from identity.api_keys where ${owner === undefined}
      or user_id = ${owner ?? null} order by created_at desc, id desc`
  ).map((row) => String(row.id));

test('keys are listed newest first: all to the administrator, to others their own', async () => {
  const pages = (bearer: string, expected: readonly string[], filter = '') =>
    assertPages((path) => call(bearer, 'GET', path), '/api/key/', 2, expected, filter);
  await pages(admin.token, await idsOf());
  const own = await idsOf(one.id);
  assert.equal(own.length, 3);
  await pages(one.token, own);
  await pages(one.token, own, `&user=${one.id}`);
  await pages(admin.token, own, `&user=${one.id}`);
  for (const { key: shown, ...rest } of (await call(admin.token, 'GET', '/api/key/')).json.data) {
    assertKey({ ...rest, key: shown });
    assert.match(shown, /^key:[A-Za-z0-9_-]{8}…$/);
  }
});

test("the keys of a deleted user stay in the administrator's list, revoked", async () => {
  const leaving = await enter();
  const { id } = await key(leaving);
  await call(admin.token, 'DELETE', `/api/user/${leaving.id}`);
  const { data } = (await call(admin.token, 'GET', `/api/key/?user=${leaving.id}`)).json;
  assert.deepEqual([data.length, data[0].id, data[0].revoked], [1, id, true]);
  assert.match(data[0].user.deleted_at, /Z$/);
});

/** An administrator with two keys without a user and one for another user, and that user. */
async function scene() {
  const chief = await enter({ super_admin: true });
  const user = await enter();
  const create = async (body: object) =>
    (await call(chief.token, 'POST', '/api/key/', body)).json.data;
  const program = await create({ user_id: null });
  const second = await create({ user_id: null });
  const own = await create({});
  const others = await create({ user_id: user.id });
  const keys = [program, second, own, others, await key(null)];
  /** What each of the keys gets, in this order. */
  const statuses = () =>
    Promise.all(keys.map(async (one) => (await call(one.key, 'GET', '/api/user/')).status));
  return { chief, user, program, second, others, statuses };
}

const change = (of: Person, body: object) => call(admin.token, 'PATCH', `/api/user/${of.id}`, body);

/** The revocations of keys in the trail about this user. */
const trail = async ({ id }: Person) =>
  (
    await sql`select count, detail from identity.audit where event = 'key.revoked'
      and user_id = ${id} order by detail`
  ).map((row) => ({ ...row }));

test('a demotion revokes the keys without a user that the administrator created, and counts them', async () => {
  const { chief, program, second, statuses } = await scene();
  assertRevoked(await call(admin.token, 'DELETE', `/api/key/${second.id}/revoke`), 'Key revoked.');
  const answer = await change(chief, { super_admin: false });
  assertSuccess(answer);
  assert.equal(answer.json.data.revoked_keys, 1);
  assert.deepEqual(await statuses(), [401, 401, 200, 200, 200]);
  assert.deepEqual(await trail(chief), [{ count: 1, detail: 'without a user' }]);
  // A promotion does not revive them, and revokes the own one.
  assert.equal((await change(chief, { super_admin: true })).json.data.revoked_keys, 1);
  assert.deepEqual(await statuses(), [401, 401, 401, 200, 200]);
  assertError(await call(program.key, 'GET', '/api/user/'), 401, 'unauthorized');
});

test('a deletion revokes them beside the own keys, and says how many', async () => {
  const { chief, user, others, statuses } = await scene();
  const answer = await call(admin.token, 'DELETE', `/api/user/${chief.id}`);
  assertSuccess(answer);
  assert.match(answer.json.data.message, / Revoked 2 keys without a user /);
  assert.deepEqual(await statuses(), [401, 401, 401, 200, 200]);
  assert.deepEqual(await trail(chief), [
    { count: 1, detail: '' },
    { count: 2, detail: 'without a user' },
  ]);
  // The user of a key sees who created it.
  const [seen] = (await call(user.token, 'GET', '/api/key/')).json.data;
  assert.deepEqual(
    [others.created_by, others.created_by_username, seen.id, seen.created_by],
    [chief.id, chief.username, others.id, chief.id],
  );
});

test('a key without a user is suspended while its creator is disabled', async () => {
  const { chief, statuses } = await scene();
  assertSuccess(await change(chief, { enabled: false }));
  assert.deepEqual(await statuses(), [401, 401, 401, 200, 200]);
  assertSuccess(await change(chief, { enabled: true }));
  assert.deepEqual(await statuses(), [200, 200, 200, 200, 200]);
});
