/**
 * GET /api/user/, /api/session/ and /api/test/: what is listed, in which order, and how one pages
 * through it.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { ask, launch, logIn } from '../../../support/gatehouse.ts';
import {
  addUser,
  assertSession,
  assertSuccess,
  assertUser,
  openIdentity,
  PASSWORD,
} from '../../../support/users.ts';
import { assertPages } from '../../../support/paged.ts';

const { url, sql, databaseUrl } = await launch(['identity']);
const database = openIdentity({ after }, databaseUrl);
const identity = url.identity;

const plain = await addUser(database, 'plain-user', {
  first_name: 'First',
  last_name: 'Last',
  verified: true,
});
const many = await addUser(database, 'many-sessions');
const idle = await addUser(database, 'idle-user');
const deleted = await addUser(database, 'deleted-user');
await sql`update identity.users set deleted_at = now() where id = ${deleted}`;
await sql`update identity.users set enabled = false where id = ${idle}`;
// 23 sessions, one a minute; the last two end early, and one more has been deleted.
await sql`
  insert into identity.sessions (id, token_digest, user_id, expires_at, created_at, revoked,
    logged_out, deleted_at)
  select gen_random_uuid(), sha256(n::text::bytea), ${many}, now() - interval '1 hour' + n *
    interval '10 minutes',
    now() - n * interval '1 minute', n = 22, n = 23, case when n = 24 then now() end
  from generate_series(1, 24) as n`;
const inOrder = (
  await sql`select id from identity.sessions where user_id = ${many} and deleted_at is null
    order by created_at desc`
).map((row) => String(row.id));

const admin = await logIn(identity);
const own = await logIn(identity, 'plain-user', PASSWORD);
const list = (query: string, bearer = admin) =>
  ask('GET', `${identity}/api/session/${query}`, { bearer });
const ids = (answer: { json: { data: Array<{ id: string }> } }) =>
  answer.json.data.map((session) => session.id);

test('the first administrator is enabled, verified and a super administrator', async () => {
  const { user } = (await ask('GET', `${identity}/api/test/`, { bearer: admin })).json.data;
  assert.deepEqual(
    [user.username, user.email, user.enabled, user.verified, user.super_admin],
    ['admin', 'admin@localhost', true, true, true],
  );
});

test('by default, the session list has ten sessions', async () => {
  const answer = await list('');
  assertSuccess(answer, 'paged');
  answer.json.data.forEach(assertSession);
  assert.equal(answer.json.data.length, 10);
  assert.deepEqual(answer.json._meta.pagination, { page: 1, limit: 10, total: 25, total_pages: 3 });
  assert.deepEqual(answer.json._links, {
    first: '/api/session/?page=1&limit=10',
    last: '/api/session/?page=3&limit=10',
    prev: '',
    next: '/api/session/?page=2&limit=10',
  });
});

test('sessions are listed newest first, with any flags, without deleted ones', async () => {
  const answer = await list(`?user=${many}&limit=100`);
  assert.deepEqual(ids(answer), inOrder);
  assert.equal(inOrder.length, 23);
  const [second, last] = answer.json.data.slice(-2);
  assert.deepEqual(
    [second.revoked, second.logged_out, last.revoked, last.logged_out],
    [true, false, false, true],
  );
});

test('the pages have no gap or overlap, and the links lead through them', async () => {
  const pages = (user: string, expected: readonly string[]) => {
    const read = (path: string) => ask('GET', identity + path, { bearer: admin });
    return assertPages(read, '/api/session/', 5, expected, `&user=${user}`);
  };
  await pages(many, inOrder);
  for (const user of [idle, randomUUID(), '00000000-0000-0000-0000-000000000000'])
    await pages(user, []);
});

test('a caller who is no super administrator lists their own sessions, with any filter', async () => {
  for (const query of ['', `?user=${plain}`, `?user=${plain.toUpperCase()}`]) {
    const answer = await list(query, own);
    assertSuccess(answer, 'paged');
    assert.equal(answer.json._meta.pagination.total, 1);
    assert.deepEqual(
      answer.json.data.map((session: { user_id: string }) => session.user_id),
      [plain],
    );
  }
});

test('the links keep the path as it was asked for', async () => {
  const answer = await ask('GET', `${identity}/api/session?limit=20`, { bearer: admin });
  assert.equal(answer.json._links.next, '/api/session?page=2&limit=20');
});

test("the test endpoint tells the caller's user and address", async () => {
  const answer = await ask('GET', `${identity}/api/test/`, {
    bearer: own,
    headers: { 'x-forwarded-for': '203.0.113.9' },
  });
  assertSuccess(answer);
  assert.deepEqual(Object.keys(answer.json.data).sort(), ['ip', 'user']);
  assertUser(answer.json.data.user);
  assert.equal(answer.json.data.user.id, plain);
  // No proxy is trusted here, so the caller has forged the header.
  assert.equal(answer.json.data.ip, '127.0.0.1');
});
