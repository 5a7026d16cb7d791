/** GET /api/audit/: the entries, their pages and filters; and that an entry stays as it is. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { startIdentity } from '../../../support/api-users.ts';
import { BEHIND_PROXY, loginFrom } from '../../../support/logins.ts';
import { assertPages } from '../../../support/paged.ts';
import { assertError, assertSuccess } from '../../../support/users.ts';
import { wordsOf } from '../../../support/words.ts';

const { identity, sql, admin, call, add, enter, key } = await startIdentity(
  { after },
  BEHIND_PROXY,
);
const ada = await enter();
const read = (query: string) => call(admin.token, 'GET', `/api/audit/?${query}`);
const totalOf = async (user: string) =>
  (await read(`limit=1&user=${encodeURIComponent(user)}`)).json._meta.pagination.total;
const fail = (username: string) => loginFrom(identity, '192.0.2.99', username);
const change = ({ id }: { id: string }, body: object, bearer = admin.token) =>
  call(bearer, 'PATCH', `/api/user/${id}`, body);

test('a line has the same members and values as its row', async () => {
  assertError(await fail(ada.username), 401, 'invalid_credentials');
  const answer = await read('limit=1');
  assertSuccess(answer, 'paged');
  const [line] = answer.json.data;
  const members = `actor_id count created_at detail event id ip key_created_by key_id request_id
    target_id user_id via`;
  assert.deepEqual(Object.keys(line).sort(), wordsOf(members));
  const [row] = await sql`select * from identity.audit where id = ${line.id}`;
  assert.deepEqual(
    { ...line, created_at: new Date(line.created_at) },
    { ...row, key_created_by: null },
  );
  assert.deepEqual(
    [line.event, line.ip, line.user_id, line.actor_id],
    ['login.failed', '192.0.2.99', ada.id, null],
  );
});

test('pages go through the whole trail, newest first, even within one moment', async () => {
  await sql`
    insert into identity.audit (id, created_at, event, via, count, detail)
    select gen_random_uuid(), case when n < 12 then '2020-01-01' else '2021-01-01' end::timestamptz,
      'user.changed', 'command', 1, '' from generate_series(1, 25) as n`;
  const all = (await sql`select id from identity.audit order by created_at desc, id desc`).map(
    ({ id }) => String(id),
  );
  await assertPages((path) => call(admin.token, 'GET', path), '/api/audit/', 7, all);
});

test('the filters by user and event hold for rows, total and links', async () => {
  const grace = await add();
  await change(ada, { verified: true });
  await change(ada, { first_name: 'Ada' }, ada.token);
  // An entry of grace that does not concern ada, and an entry without a user.
  for (const name of [grace.username, 'nobody-here']) await fail(name);
  const filters: ReadonlyArray<readonly [user: string | null, event: string | null]> = [
    [ada.id, null],
    [admin.id, null],
    [randomUUID(), null],
    [null, 'login.failed'],
    [null, 'key.revoked'],
    [admin.id, 'user.changed'],
    [grace.id, 'user.changed'],
  ];
  for (const [user, event] of filters) {
    const expected = await sql`
      select id from identity.audit
      where (${user}::uuid is null or user_id = ${user}::uuid or actor_id = ${user}::uuid)
        and (${event}::text is null or event = ${event}::text)
      order by created_at desc, id desc`;
    const filter = new URLSearchParams({ ...(user && { user }), ...(event && { event }) });
    const { data, _meta, _links } = (await read(`limit=100&${filter}`)).json;
    assert.deepEqual(
      data.map(({ id }: { id: string }) => ({ id })),
      [...expected],
    );
    assert.equal(_meta.pagination.total, expected.length);
    assert.equal(_links.first, `/api/audit/?page=1&limit=100&${filter}`);
  }
});

test('the entries of a user are found by the name, also after the user is deleted', async () => {
  const { id } = await add({ username: 'Leaving', email: 'leaving@example.org' });
  await fail('leaving');
  assert.deepEqual([await totalOf(id), await totalOf('LEAVING')], [2, 2]);
  assert.equal(await totalOf('leaving@example.org'), 2);
  await call(admin.token, 'DELETE', `/api/user/${id}`);
  assert.deepEqual([await totalOf(id), await totalOf('leaving')], [3, 3]);
  // The address of the deleted user is no name of theirs any more.
  assert.equal(await totalOf('leaving@example.org'), 0);
  // The name of two users: the trail has both.
  const next = await add({ username: 'leaving' });
  assert.deepEqual([await totalOf(next.id), await totalOf('leaving')], [1, 4]);
  assert.equal(await totalOf('nobody-here'), 0);
  await sql`update identity.users set username = '', username_key = '' where id = ${id}`;
  assert.deepEqual([await totalOf(id), await totalOf('leaving')], [3, 1]);
});

test('what is done with a key is found with the key and with whoever created it', async () => {
  const made = await key(admin, { user_id: ada.id });
  assertSuccess(await change(ada, { last_name: 'Byron' }, made.key));
  const [line] = (await read('limit=1&event=user.changed')).json.data;
  assert.deepEqual(
    [line.via, line.actor_id, line.key_id, line.key_created_by],
    ['key', ada.id, made.id, admin.id],
  );
});

test('one statement writes to the trail, and only retention removes rows', () => {
  const root = new URL('../../../../src/', import.meta.url);
  const source = readdirSync(root, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => readFileSync(new URL(name, root), 'utf8'))
    .join('\n')
    .replace(/\s+/g, ' ');
  const uses = (pattern: RegExp) => [...source.matchAll(pattern)].length;
  assert.equal(uses(/insert into identity\.audit\b/gi), 1);
  assert.equal(uses(/removal\w*\( ?'audit'/gi), 1);
  assert.equal(uses(/removalOfOld\('audit', 'id', 'created_at', auditSeconds\)/g), 1);
  assert.equal(uses(/removeBatch\( ?database, 'identity\.audit'/gi), 0);
  assert.equal(uses(/delete from identity\.audit\b/gi), 0);
  assert.equal(uses(/(update|truncate|merge into|copy)( table)?( only)? identity\.audit\b/gi), 0);
});
