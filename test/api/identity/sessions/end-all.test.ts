/**
 * Ending all sessions of a user, or of everyone, in one step: the cost, the counts, the flags, and
 * concurrent logins.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { connect } from '../../../../scripts/postgres.ts';
import { logOutSession, revokeSessions } from '../../../../src/identity/store/session-ends.ts';
import { COMMAND_LINE } from '../../../../src/identity/store/audit.ts';
import { type Answer, ask, logIn } from '../../../support/gatehouse.ts';
import { startIdentity } from '../../../support/api-users.ts';
import { untilSql } from '../../../support/connections.ts';
import {
  assertError,
  assertRevoked,
  assertSuccess,
  isOpen,
  openIdentity,
  PASSWORD,
  sessionOf,
} from '../../../support/users.ts';
import { rounds } from '../../../support/rounds.ts';

const { identity, databaseUrl, sql, admin, call, add, enter } = await startIdentity({ after });
const other = connect(databaseUrl);
after(() => other.end());
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

const disable = (id: string) => call(admin.token, 'PATCH', `/api/user/${id}`, { enabled: false });
const ENDS: ReadonlyArray<readonly [what: string, end: (id: string) => Promise<Answer>]> = [
  ['disabled', disable],
  [
    'given a password',
    (id) =>
      call(admin.token, 'POST', `/api/user/${id}/password`, { password: 'another passphrase' }),
  ],
  ['deleted', (id) => call(admin.token, 'DELETE', `/api/user/${id}`)],
  ['revoked', (id) => call(admin.token, 'DELETE', `/api/session/revoke/all/user?user=${id}`)],
];

test('a user with more than 10,000 sessions is changed without touching a session', async () => {
  const user = await enter();
  await addSessions(user.id, 10_001);
  for (const [what, end] of [...ENDS.slice(3), ...ENDS.slice(0, 3)]) {
    const before = await versions();
    assertSuccess(await end(user.id));
    assert.deepEqual(await versions(), before, what);
    await sql`update identity.users set sessions_end_at = null, enabled = true
      where id = ${user.id}`;
  }
  assert.deepEqual(
    await trail(user.id),
    ENDS.map(() => ({ count: 10_000, target_id: null, detail: 'more than 10,000' })),
  );
  await sql`delete from identity.sessions where user_id = ${user.id}`;
});

for (const [what, end] of ENDS) {
  test(`all sessions of a user who is ${what} have ended, and no others`, async () => {
    const user = await enter();
    const bystander = await enter();
    const second = await logIn(identity, user.username, PASSWORD);
    const loggedOut = await logIn(identity, user.username, PASSWORD);
    await ask('POST', `${identity}/api/auth/logout`, { body: { session: loggedOut } });
    await addSessions(user.id, 1, '-1 minute');
    assertSuccess(await end(user.id));
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
  });
}

test('a session that was revoked with all others is not revoked or logged out again', async () => {
  const user = await enter();
  const { id } = await sessionOf(identity, user.token);
  assertRevoked(
    await call(admin.token, 'DELETE', `/api/session/revoke/all/user?user=${user.id}`),
    '1 session revoked.',
  );
  assertRevoked(
    await call(admin.token, 'DELETE', `/api/session/${id}/revoke`),
    '0 sessions revoked.',
  );
  assertRevoked(
    await call(admin.token, 'DELETE', `/api/session/revoke?session=${user.token}`),
    '0 sessions revoked.',
  );
  assertSuccess(await call(null, 'POST', '/api/auth/logout', { session: user.token }));
  const { data } = (await call(admin.token, 'GET', `/api/session/info?session=${user.token}`)).json;
  assert.deepEqual([data.revoked, data.logged_out], [true, false]);
  assert.deepEqual(await trail(user.id), [{ count: 1, target_id: id, detail: '' }]);
});

test('the number of ended sessions is exact up to 10,000', async () => {
  const { id } = await add();
  const revoke = () => call(admin.token, 'DELETE', `/api/session/revoke/all/user?user=${id}`);
  await addSessions(id, 10_000);
  assertRevoked(await revoke(), '10000 sessions revoked.');
  await addSessions(id, 10_001);
  assertRevoked(await revoke(), 'More than 10,000 sessions revoked.');
  assertRevoked(await revoke(), '0 sessions revoked.');
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
  const [row] =
    await sql`select sessions_end_at > now() + interval '50 minutes' as kept from identity.users
      where id = ${user.id}`;
  assert.equal(row?.kept, true);
});

test('of two revocations at once each session is counted by one', async () => {
  const { id } = await add();
  const databases = [database, openIdentity({ after }, databaseUrl)];
  for (let round = 0; round < 5; round += 1) {
    await addSessions(id, 500);
    const counts = await Promise.all(databases.map((one) => revokeSessions(one, COMMAND_LINE, id)));
    assert.deepEqual(counts.sort(), [0, 500]);
  }
});

test('a login that waits for a user who is being disabled makes no session', async () => {
  const user = await enter();
  const waiting = async () =>
    (
      await sql`select from pg_stat_activity where datname = current_database()
        and wait_event_type = 'Lock'`
    ).length;
  const login = await other.begin(async (held) => {
    await held`update identity.users set enabled = false, sessions_end_at = clock_timestamp()
      where id = ${user.id}`;
    const answer = ask('POST', `${identity}/api/auth/login`, {
      body: { username: user.username, password: PASSWORD },
    });
    await untilSql(async () => (await waiting()) === 1, 'the login waits');
    return { answer: () => answer };
  });
  assertError(await login.answer(), 401, 'invalid_credentials');
  assert.equal((await sql`select from identity.sessions where user_id = ${user.id}`).length, 1);
});

test('a revocation that waits for a login ends the session of that login', async () => {
  const user = await enter();
  const waiting = async () =>
    (
      await sql`select from pg_stat_activity where datname = current_database()
        and wait_event_type = 'Lock'`
    ).length;
  const revocation = await other.begin(async (held) => {
    // As a login does.
    await held`select from identity.users where id = ${user.id} for share`;
    const count = revokeSessions(database, COMMAND_LINE, user.id);
    await untilSql(async () => (await waiting()) === 1, 'the revocation waits');
    await held`
      insert into identity.sessions (id, token_digest, user_id, created_at, expires_at)
      values (gen_random_uuid(), '\\x00', ${user.id}, clock_timestamp(), now() + interval '1 day')`;
    return { count: () => count };
  });
  assert.equal(await revocation.count(), 2);
  assert.equal((await list(`user=${user.id}&active=true`)).total, 0);
});

test('a login beside a change of the password has no session that outlives it', async () => {
  for (let round = 0; round < rounds(4, 10); round += 1) {
    const user = await enter();
    const logins = [1, 2].map(() =>
      ask('POST', `${identity}/api/auth/login`, {
        body: { username: user.username, password: PASSWORD },
      }),
    );
    assertSuccess(
      await call(admin.token, 'POST', `/api/user/${user.id}/password`, {
        password: 'another passphrase',
      }),
    );
    for (const answer of await Promise.all(logins)) {
      if (answer.status === 200)
        assert.equal(await isOpen(identity, answer.json.data.session), false);
      else assertError(answer, 401, 'invalid_credentials');
    }
  }
});

test('"revoke all" ends the sessions of earlier logins, not of later ones', async () => {
  const users = await Promise.all(Array.from({ length: 4 }, () => add()));
  for (let round = 0; round < 5; round += 1) {
    const root = await logIn(identity);
    const before = await Promise.all(
      users.map(({ username }) => logIn(identity, username, PASSWORD)),
    );
    const beside = users.map(({ username }) => logIn(identity, username, PASSWORD));
    assertSuccess(await call(root, 'DELETE', '/api/session/revoke/all'));
    const later = await Promise.all(
      users.map(({ username }) => logIn(identity, username, PASSWORD)),
    );
    await Promise.all(beside);
    for (const token of [root, ...before]) assert.equal(await isOpen(identity, token), false);
    for (const token of later) assert.equal(await isOpen(identity, token), true);
  }
});

/** So that the session of the administrator is open again. */
const forgetRevokeAll = () => sql`update identity.global_revocation set sessions_end_at = null`;

test('"revoke all" ends the session of a login that commits after it', async () => {
  await forgetRevokeAll();
  const user = await enter();
  const { id } = await sessionOf(identity, user.token);
  await other.begin(async (login) => {
    await login`update identity.sessions set created_at = clock_timestamp() where id = ${id}`;
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

test('a logout that comes after a revocation changes nothing', async () => {
  await forgetRevokeAll();
  const user = await enter();
  const { id } = await sessionOf(identity, user.token);
  await revokeSessions(database, COMMAND_LINE, user.id);
  await logOutSession(database, COMMAND_LINE, id);
  const [row] = (await list(`user=${user.id}`)).rows;
  assert.deepEqual([row.revoked, row.logged_out], [true, false]);
  assert.equal(
    (await sql`select from identity.audit where event = 'session.logged_out' and target_id = ${id}`)
      .length,
    0,
  );
});
