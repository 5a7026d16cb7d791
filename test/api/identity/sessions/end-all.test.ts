/**
 * Ending all sessions of a user, or of everyone, in one step: the cost, the counts, the flags, and
 * concurrent logins.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { COMMAND_LINE } from '../../../../src/identity/store/audit.ts';
import { logOutSession, revokeSessions } from '../../../../src/identity/store/session-ends.ts';
import { startIdentity } from '../../../support/api-users.ts';
import { type Answer, logIn } from '../../../support/gatehouse.ts';
import { meanwhile } from '../../../support/meanwhile.ts';
import {
  assertRevoked,
  assertSuccess,
  isOpen,
  openIdentity,
  PASSWORD,
  sessionOf,
} from '../../../support/users.ts';

const { identity, databaseUrl, sql, admin, call, add, enter } = await startIdentity({ after });
const database = openIdentity({ after }, databaseUrl);

const addSessions = (userId: string, count: number, expires = '1 day') => sql`
  insert into identity.sessions (id, token_digest, user_id, expires_at)
  select gen_random_uuid(), sha256(gen_random_uuid()::text::bytea), ${userId},
    now() + ${expires}::interval
  from generate_series(1, ${count}::int)`;
const list = async (query: string) => {
  const answer = await call(admin.token, 'GET', `/api/session/?${query}`);
  assertSuccess(answer, 'paged');
  return { rows: answer.json.data, total: answer.json._meta.pagination.total };
};
const trail = async (userId: string) => [
  ...(await sql`
  select count, target_id, detail from identity.audit where user_id = ${userId}
    and event = 'session.revoked' order by created_at`),
];
/** Row versions of the table: an update or delete changes this. */
const versions = async () =>
  (
    await sql`select count(*)::int as n, max(xmin::text::bigint)::text as newest
      from identity.sessions`
  )[0];
const revokeOf = (id: string) =>
  call(admin.token, 'DELETE', `/api/session/revoke/all/user?user=${id}`);
const change = (id: string, body: object) => call(admin.token, 'PATCH', `/api/user/${id}`, body);
/** So that the session of the administrator is open again. */
const forgetRevokeAll = () => sql`update identity.global_revocation set sessions_end_at = null`;

const ENDS: ReadonlyArray<readonly [what: string, end: (id: string) => Promise<Answer>]> = [
  ['disabled', (id) => change(id, { enabled: false })],
  ['promoted', (id) => change(id, { super_admin: true })],
  [
    'given a password',
    (id) => call(admin.token, 'POST', `/api/user/${id}/password`, { password: 'a new passphrase' }),
  ],
  ['deleted', (id) => call(admin.token, 'DELETE', `/api/user/${id}`)],
  ['revoked', revokeOf],
];

for (const [what, end] of ENDS) {
  test(`all sessions of a user who is ${what} have ended, none is touched, and no others end`, async () => {
    const user = await enter();
    const bystander = await enter();
    const second = await logIn(identity, user.username, PASSWORD);
    const loggedOut = await logIn(identity, user.username, PASSWORD);
    await call(null, 'POST', '/api/auth/logout', { session: loggedOut });
    await addSessions(user.id, 1, '-1 minute');
    const before = await versions();
    assertSuccess(await end(user.id));
    assert.deepEqual(await versions(), before);
    for (const token of [user.token, second]) assert.equal(await isOpen(identity, token), false);
    for (const { token } of [bystander, admin]) assert.equal(await isOpen(identity, token), true);
    const { rows } = await list(`user=${user.id}`);
    const flags = rows.map(
      (row: { revoked: boolean; logged_out: boolean }) => `${row.revoked} ${row.logged_out}`,
    );
    assert.deepEqual(flags.sort(), ['false false', 'false true', 'true false', 'true false']);
    assert.deepEqual((await list(`user=${user.id}&active=true`)).total, 0);
    assert.deepEqual((await list(`user=${user.id}&active=false`)).total, 4);
    assert.deepEqual(await trail(user.id), [{ count: 2, target_id: null, detail: '' }]);
    if (what !== 'disabled') return;
    assertSuccess(await change(user.id, { enabled: true }));
    assert.equal(await isOpen(identity, user.token), false);
    await logIn(identity, user.username, PASSWORD);
  });
}

test('a session that was revoked with all others is not revoked or logged out again', async () => {
  const user = await enter();
  const { id } = await sessionOf(identity, user.token);
  assertRevoked(await revokeOf(user.id), '1 session revoked.');
  for (const path of [`${id}/revoke`, `revoke?session=${user.token}`])
    assertRevoked(await call(admin.token, 'DELETE', `/api/session/${path}`), '0 sessions revoked.');
  assertSuccess(await call(null, 'POST', '/api/auth/logout', { session: user.token }));
  // The service asks for no logout of a revoked session, unless the revocation comes in between.
  await logOutSession(database, COMMAND_LINE, id);
  const [{ revoked, logged_out }] = (await list(`user=${user.id}`)).rows;
  assert.deepEqual([revoked, logged_out], [true, false]);
  assert.deepEqual(await trail(user.id), [{ count: 1, target_id: id, detail: '' }]);
  const logouts = await sql`select from identity.audit
    where event = 'session.logged_out' and target_id = ${id}`;
  assert.equal(logouts.length, 0);
});

test('more than 10,000 ended sessions are not counted', async () => {
  const { id } = await add();
  await addSessions(id, 10_001);
  assertRevoked(await revokeOf(id), 'More than 10,000 sessions revoked.');
  assertRevoked(await revokeOf(id), '0 sessions revoked.');
  const counted = { count: 10_000, target_id: null, detail: 'more than 10,000' };
  assert.deepEqual(await trail(id), [counted]);
  await sql`delete from identity.sessions where user_id = ${id}`;
});

test('a count that fails does not stop the revocation', async () => {
  const user = await enter();
  await sql`alter table identity.sessions rename to hidden_sessions`;
  assert.equal(await revokeSessions(database, COMMAND_LINE, user.id), null);
  await sql`alter table identity.hidden_sessions rename to sessions`;
  assert.equal(await isOpen(identity, user.token), false);
  assert.deepEqual(await trail(user.id), [{ count: 0, target_id: null, detail: 'not counted' }]);
});

test('the value never decreases', async () => {
  const user = await enter();
  await sql`update identity.users set sessions_end_at = now() + interval '1 hour'
    where id = ${user.id}`;
  await revokeSessions(database, COMMAND_LINE, user.id);
  const [row] = await sql`select sessions_end_at > now() + interval '50 minutes' as kept
    from identity.users where id = ${user.id}`;
  assert.equal(row?.kept, true);
});

test('of two revocations at once each session is counted by one', async () => {
  const { id } = await add();
  const databases = [database, openIdentity({ after }, databaseUrl)];
  await addSessions(id, 500);
  const counts = await Promise.all(databases.map((one) => revokeSessions(one, COMMAND_LINE, id)));
  assert.deepEqual(counts.sort(), [0, 500]);
});

test('a revocation that waits for a login ends the session of that login', async () => {
  const user = await enter();
  const counts = await meanwhile(
    sql,
    // As a login does.
    (held) => held`select from identity.users where id = ${user.id} for share`,
    () => [revokeSessions(database, COMMAND_LINE, user.id)],
    (held) => held`
      insert into identity.sessions (id, token_digest, user_id, created_at, expires_at)
      values (gen_random_uuid(), '\\x00', ${user.id}, clock_timestamp(), now() + interval '1 day')`,
  );
  assert.deepEqual(counts, [2]);
  assert.equal((await list(`user=${user.id}&active=true`)).total, 0);
});

test('"revoke all" ends the sessions of earlier logins, not of later ones, and counts the open', async () => {
  const user = await enter();
  const out = await enter();
  const expired = await enter();
  await call(null, 'POST', '/api/auth/logout', { session: out.token });
  await sql`update identity.sessions set created_at = now() - interval '2 days',
    expires_at = now() - interval '1 day' where user_id = ${expired.id}`;
  const { total } = await list('active=true');
  const answer = await call(admin.token, 'DELETE', '/api/session/revoke/all');
  assertRevoked(answer, `${total} sessions revoked.`);
  for (const { token } of [admin, user]) assert.equal(await isOpen(identity, token), false);
  const later = await logIn(identity);
  const flagsOf = async ({ token }: { token: string }) => {
    const { data } = (await call(later, 'GET', `/api/session/info?session=${token}`)).json;
    return [data.revoked, data.logged_out];
  };
  assert.deepEqual(await Promise.all([admin, out, expired].map(flagsOf)), [
    [true, false],
    [false, true],
    [false, false],
  ]);

  // The total of the active sessions takes account of the end of all, and of that of one user.
  await logIn(identity, user.username, PASSWORD);
  await revokeSessions(database, COMMAND_LINE, user.id);
  await logIn(identity, user.username, PASSWORD);
  const { json } = await call(later, 'GET', '/api/session/?active=true');
  assert.deepEqual([json.data.length, json._meta.pagination.total], [2, 2]);
  await forgetRevokeAll();
});

test('"revoke all" ends the session of a login that commits after it', async () => {
  const user = await enter();
  await sql.begin(async (login) => {
    await login`update identity.sessions set created_at = clock_timestamp()
      where user_id = ${user.id}`;
    assertSuccess(await call(admin.token, 'DELETE', '/api/session/revoke/all'));
  });
  assert.equal(await isOpen(identity, user.token), false);
  await sql`update identity.sessions set created_at = clock_timestamp()
    where user_id = ${admin.id}`;
  assert.equal((await list(`user=${user.id}&active=true`)).total, 0);
});

test("sessions from before the database's clock was set back end too", async () => {
  for (const everyone of [false, true]) {
    await forgetRevokeAll();
    const user = await enter();
    await sql`update identity.sessions set created_at = now() + interval '1 minute'
      where user_id = ${user.id}`;
    await revokeSessions(database, COMMAND_LINE, everyone ? null : user.id);
    assert.equal(await isOpen(identity, user.token), false);
  }
});
