/**
 * GET /api/audit/: who may read the trail, its pages and filters; and that a line, once written,
 * stays as it is.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { EVENTS } from '../../../../src/identity/store/audit.ts';
import { ask, launch, logIn, assertStatus } from '../../../support/gatehouse.ts';
import { BEHIND_PROXY, loginFrom } from '../../../support/logins.ts';
import {
  addUser,
  assertError,
  assertSuccess,
  openIdentity,
  PASSWORD,
} from '../../../support/users.ts';
import { wordsOf } from '../../../support/words.ts';
import { assertPages } from '../../../support/paged.ts';

const { identity, sql, databaseUrl } = await launch(['identity'], BEHIND_PROXY);
const database = openIdentity({ after }, databaseUrl);
const ada = await addUser(database, 'ada');
const grace = await addUser(database, 'grace');
const bearer = await logIn(identity);
const read = (query = '', as = bearer) =>
  ask('GET', `${identity}/api/audit/${query}`, { bearer: as });

const MEMBERS = wordsOf(`
  actor_id count created_at detail event id ip key_created_by key_id request_id target_id user_id
  via
`);

test('a line has the same members and values as its row', async () => {
  assertError(await loginFrom(identity, '192.0.2.99', 'ada'), 401, 'invalid_credentials');
  const answer = await read('?limit=1');
  assertSuccess(answer, 'paged');
  const [line] = answer.json.data;
  assert.deepEqual(Object.keys(line).sort(), MEMBERS);
  const [row] = await sql`select * from identity.audit where id = ${line.id}`;
  assert.deepEqual(
    { ...line, created_at: new Date(line.created_at) },
    { ...row, key_created_by: null },
  );
  assert.deepEqual(
    [line.event, line.ip, line.user_id, line.actor_id],
    ['login.failed', '192.0.2.99', ada, null],
  );
});

test('pages go through the whole trail, newest first, even within one moment', async () => {
  for (let count = 0; count < 25; count += 1) {
    await sql`insert into identity.audit (id, created_at, event, via, count, detail)
      values (${randomUUID()}, ${count < 12 ? '2020-01-01' : '2021-01-01'}, 'user.changed',
        'command', 1, '')`;
  }
  const all = (await sql`select id from identity.audit order by created_at desc, id desc`).map(
    ({ id }) => String(id),
  );
  const readPath = (path: string) => read(path.replace('/api/audit/', ''));
  await assertPages(readPath, '/api/audit/', 7, all);
});

test('the filters by user and event hold for rows, total and links', async () => {
  await ask('PATCH', `${identity}/api/user/${ada}`, { bearer, body: { verified: true } });
  const own = await logIn(identity, 'ada', PASSWORD);
  await ask('PATCH', `${identity}/api/user/${ada}`, { bearer: own, body: { first_name: 'Ada' } });
  // An entry of grace that does not concern ada, and an entry without a user.
  assert.equal((await loginFrom(identity, '192.0.2.98', 'grace')).status, 401);
  assert.equal((await loginFrom(identity, '192.0.2.98', 'nobody-here')).status, 401);
  const [admin] = await sql`select id from identity.users where username = 'admin'`;

  const filters: ReadonlyArray<readonly [user: string | null, event: string | null]> = [
    [ada, null],
    [grace, null],
    [String(admin?.id), null],
    [randomUUID(), null],
    [null, 'login.failed'],
    [null, 'user.changed'],
    [null, 'key.revoked'],
    [ada, 'user.changed'],
    [String(admin?.id), 'user.changed'],
    [grace, 'user.changed'],
  ];
  for (const [user, event] of filters) {
    const expected = await sql`
      select id, actor_id from identity.audit
      where (${user}::uuid is null or user_id = ${user}::uuid or actor_id = ${user}::uuid)
        and (${event}::text is null or event = ${event}::text)
      order by created_at desc, id desc`;
    const filter = new URLSearchParams({
      ...(user === null ? {} : { user }),
      ...(event === null ? {} : { event }),
    });
    const answer = await read(`?limit=100&${filter}`);
    assertSuccess(answer, 'paged');
    const found = answer.json.data.map((line: { id: string }) => line.id);
    assert.deepEqual(
      found,
      expected.map(({ id }) => id),
      String(filter),
    );
    assert.equal(answer.json._meta.pagination.total, expected.length);
    assert.equal(answer.json._links.first, `/api/audit/?page=1&limit=100&${filter}`);
  }
  // The administrator is found in what was done to ada, and ada in what ada did.
  const of = async (user: unknown) =>
    (await read(`?limit=100&event=user.changed&user=${String(user)}`)).json.data.map(
      (line: { actor_id: string; user_id: string }) => [line.actor_id, line.user_id],
    );
  assert.deepEqual(await of(admin?.id), [[admin?.id, ada]]);
  assert.deepEqual(await of(ada), [
    [ada, ada],
    [admin?.id, ada],
  ]);
});

test('every event can be asked for', async () => {
  for (const event of EVENTS) assertSuccess(await read(`?event=${event}`), 'paged');
});

test('the entries of a user are found by the name, also after the user is deleted', async () => {
  const id = await addUser(database, 'Leaving');
  assert.equal((await loginFrom(identity, '192.0.2.97', 'leaving')).status, 401);
  const count = async (user: string) =>
    (await read(`?limit=1&user=${encodeURIComponent(user)}`)).json._meta.pagination.total;
  assert.deepEqual([await count(id), await count('LEAVING')], [2, 2]);
  await ask('DELETE', `${identity}/api/user/${id}`, { bearer });
  assert.deepEqual([await count(id), await count('leaving')], [3, 3]);
  // The name of two users: the trail has both.
  const next = await addUser(database, 'leaving');
  assert.deepEqual([await count(next), await count('leaving')], [1, 4]);
  assert.equal(await count('nobody-here'), 0);
  await sql`update identity.users set username = '', username_key = '' where id = ${id}`;
  assert.deepEqual([await count(id), await count('leaving')], [3, 1]);
});

test('what is done with a key is found with the key and with whoever created it', async () => {
  const [admin] = await sql`select id from identity.users where username = 'admin'`;
  const body = { user_id: ada };
  const { id, key } = (await ask('POST', `${identity}/api/key/`, { bearer, body })).json.data;
  const change = { bearer: key, body: { last_name: 'Byron' } };
  assertSuccess(await ask('PATCH', `${identity}/api/user/${ada}`, change));
  const [line] = (await read('?limit=1&event=user.changed')).json.data;
  assert.deepEqual(
    [line.via, line.actor_id, line.key_id, line.key_created_by],
    ['key', ada, id, admin?.id],
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

test('an entry stays unchanged after changes of the records that it names', async () => {
  const id = await addUser(database, 'brief-user');
  const session = await logIn(identity, 'brief-user', PASSWORD);
  const lines = () => sql`select audit::text as text from identity.audit order by created_at, id`;
  const before = await lines();
  for (const [method, path] of [
    ['PATCH', `user/${id}`],
    ['DELETE', `session/revoke?session=${session}`],
    ['DELETE', `user/${id}`],
    ['DELETE', 'session/revoke/all'],
  ] as const) {
    assertStatus(
      await ask(method, `${identity}/api/${path}`, {
        bearer,
        ...(method === 'PATCH' ? { body: { username: 'renamed' } } : {}),
      }),
      200,
      path,
    );
  }
  await sql`delete from identity.sessions`;
  const now = await lines();
  assert.deepEqual(now.slice(0, before.length), [...before]);
  assert.equal(now.length, before.length + 4);
});
