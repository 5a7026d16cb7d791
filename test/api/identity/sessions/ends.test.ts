/**
 * How one session ends, and all of a user or of everyone in one step: at every replica, with the
 * cost, the counts and the flags, and while tokens and ids are told apart.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { COMMAND_LINE } from '../../../../src/identity/store/audit.ts';
import { logOutSession, revokeSessions } from '../../../../src/identity/store/session-ends.ts';
import { startIdentity } from '../../../support/api-users.ts';
import {
  type Answer,
  ask,
  assertStatus,
  logIn,
  startGatehouse,
} from '../../../support/gatehouse.ts';
import { meanwhile } from '../../../support/meanwhile.ts';
import { exchangeAtOnce, headOf } from '../../../support/socket.ts';
import {
  assertError,
  assertRevoked,
  assertSession,
  assertSuccess,
  isOpen,
  openIdentity,
  PASSWORD,
  sessionOf,
} from '../../../support/users.ts';

const { identity, databaseUrl, sql, admin, call, add, enter, key } = await startIdentity(
  { after },
  { TRUSTED_PROXIES: '127.0.0.1' },
);
const database = openIdentity({ after }, databaseUrl);
const there = (await startGatehouse({ after }, ['identity'], databaseUrl)).url.identity;

/** A user with a session that is known to be open at both replicas. */
async function openSession() {
  const user = await enter();
  const { id: session } = await sessionOf(there, user.token);
  assert.equal(await isOpen(identity, user.token), true);
  return { ...user, session };
}
type Open = Awaited<ReturnType<typeof openSession>>;

const logOut = (session: string) => call(null, 'POST', '/api/auth/logout', { session });
const revoke = (path: string) => call(admin.token, 'DELETE', `/api/session/${path}`);
const expire = ({ session }: Open) =>
  sql`update identity.sessions set expires_at = now() where id = ${session}`;

type End = (open: Open) => PromiseLike<unknown>;
const NONE = '0 sessions revoked.';
const ONE = '1 session revoked.';
/**
 * With the flags that are kept through a logout: revoked, logged out, expired; and what a
 * revocation says then.
 */
const ENDS: ReadonlyArray<readonly [when: string, end: End, flags?: boolean[], after?: string]> = [
  ['its time is up', expire, [false, false, true], ONE],
  ['it logs out', ({ token }) => logOut(token), [false, true, false], ONE],
  ['it is revoked by its token', ({ token }) => revoke(`revoke?session=${token}`)],
  [
    'it is revoked by its id',
    ({ session }) => revoke(`${session}/revoke`),
    [true, false, false],
    NONE,
  ],
  [
    'it is deleted',
    ({ session }) => sql`update identity.sessions set deleted_at = now() where id = ${session}`,
  ],
  [
    'its user is disabled',
    ({ id }) => sql`update identity.users set enabled = false where id = ${id}`,
  ],
  [
    'its user is deleted',
    ({ id }) => sql`update identity.users set deleted_at = now() where id = ${id}`,
  ],
];

for (const [when, end, flags, after = ''] of ENDS) {
  test(`a session has ended at once, at every replica, and once, when ${when}`, async () => {
    const open = await openSession();
    const other = await logIn(identity, open.username, PASSWORD);
    await end(open);
    for (const url of [identity, there]) {
      const body = { session: open.token };
      assertError(await ask('POST', `${url}/api/auth/session`, { body }), 401, 'invalid_session');
      assert.equal(await isOpen(url, open.token), false);
    }
    assert.equal(await isOpen(there, other), !/user is/.test(when));
    if (!flags) return;
    const info = () => call(admin.token, 'GET', `/api/session/info?session=${open.token}`);
    for (const look of [info, () => logOut(open.token).then(info)]) {
      const answer = await look();
      assertSuccess(answer);
      assertSession(answer.json.data);
      const { revoked, logged_out, expires_at, created_at, updated_at } = answer.json.data;
      assert.deepEqual([revoked, logged_out, Date.parse(expires_at) < Date.now()], flags);
      assert.equal(updated_at > created_at, end !== expire);
    }
    assertRevoked(await revoke(`revoke?session=${open.token}`), after);
    assertRevoked(await revoke(`${open.session}/revoke`), NONE);
  });
}

test('a logout needs no bearer, may be repeated, and takes only tokens', async () => {
  const { token, session, username } = await openSession();
  const other = await logIn(identity, username, PASSWORD);
  for (const known of [token, token, `session:${randomUUID()}`]) {
    const answer = await logOut(known);
    assertSuccess(answer);
    assert.equal(answer.json.data, null);
  }
  for (const wrong of [session, `session:${session.toUpperCase()}`, 'garbage', `${other}x`])
    assertError(await logOut(wrong), 400, 'invalid_body', ['/session']);
  assert.equal(await isOpen(identity, other), true);
});

test('a deleted session gets the same reply as an unknown one', async () => {
  const { token, session } = await openSession();
  await sql`update identity.sessions set deleted_at = now() where id = ${session}`;
  const info = await call(admin.token, 'GET', `/api/session/info?session=${token}`);
  assertError(info, 400, 'invalid_session_token');
  assertError(await revoke(`revoke?session=${token}`), 400, 'invalid_session_token');
  assertError(await revoke(`${session}/revoke`), 404, 'not_found');
});

test("only the database's clock counts, for the lifetime and for the end of a session", async (t) => {
  const { url } = await startGatehouse(t, ['identity'], databaseUrl, { SESSION_TTL: '90' });
  const token = await logIn(url.identity);
  const { id } = await sessionOf(identity, token);
  const [row] = await sql`select expires_at - created_at = interval '90 seconds' as exact
    from identity.sessions where id = ${id}`;
  assert.equal(row?.exact, true);
  await sql`update identity.sessions set expires_at = now() + interval '1 minute' where id = ${id}`;
  assert.equal(await isOpen(there, token), true);
});

test('a change of a user is visible at the next request, at every replica', async () => {
  const { token: bearer, id } = await openSession();
  const audit = () => ask('GET', `${there}/api/audit/`, { bearer });
  assertStatus(await audit(), 403);
  await sql`update identity.users set super_admin = true, first_name = 'Changed' where id = ${id}`;
  const { json } = await ask('GET', `${there}/api/test/`, { bearer });
  assert.equal(json.data.user.first_name, 'Changed');
  assertStatus(await audit(), 200);
});

test('credentials sent at the same moment are each answered for themselves', async () => {
  const one = await enter();
  const two = await enter();
  const out = await openSession();
  await logOut(out.token);
  const known: ReadonlyArray<readonly [credential: string, taken: string | number]> = [
    [one.token, one.username],
    [`session:${randomUUID()}`, 401],
    [(await key(one)).key, one.username],
    [out.token, 401],
    [two.token, two.username],
    [(await key(two)).key, two.username],
    [admin.token, 'admin'],
  ];
  // Each beside others before and behind it.
  const many = [...known, ...[...known].reverse(), ...known];
  const head = ['GET /api/test/ HTTP/1.1', 'Host: gatehouse', 'X-Forwarded-For: 192.0.2.9'];
  const answers = await exchangeAtOnce(
    identity,
    many.map(([credential]) => headOf([...head, `Authorization: Bearer ${credential}`])),
  );
  assert.deepEqual(
    answers.map(({ status, json }) => (status === 200 ? json.data.user.username : status)),
    many.map(([, taken]) => taken),
  );
});

// --- All sessions

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
const flagsOf = (row: { revoked: boolean; logged_out: boolean }) =>
  `${row.revoked} ${row.logged_out}`;
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
const revokeOf = (id: string) => revoke(`revoke/all/user?user=${id}`);
const change = (id: string, body: object) => call(admin.token, 'PATCH', `/api/user/${id}`, body);
/** So that the session of the administrator is open again. */
const forgetRevokeAll = () => sql`update identity.global_revocation set sessions_end_at = null`;

const ENDS_OF_ALL: Readonly<Record<string, (id: string) => Promise<Answer>>> = {
  disabled: (id) => change(id, { enabled: false }),
  promoted: (id) => change(id, { super_admin: true }),
  'given a password': (id) =>
    call(admin.token, 'POST', `/api/user/${id}/password`, { password: 'a new passphrase' }),
  deleted: (id) => call(admin.token, 'DELETE', `/api/user/${id}`),
  revoked: revokeOf,
};

for (const [what, end] of Object.entries(ENDS_OF_ALL)) {
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
    for (const url of [identity, there])
      for (const token of [user.token, second]) assert.equal(await isOpen(url, token), false);
    for (const { token } of [bystander, admin]) assert.equal(await isOpen(identity, token), true);
    const { rows } = await list(`user=${user.id}`);
    const flags = rows.map(flagsOf).sort().join(', ');
    assert.equal(flags, 'false false, false true, true false, true false');
    assert.equal((await list(`user=${user.id}&active=true`)).total, 0);
    assert.equal((await list(`user=${user.id}&active=false`)).total, 4);
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
  assertRevoked(await revokeOf(user.id), ONE);
  for (const path of [`${id}/revoke`, `revoke?session=${user.token}`])
    assertRevoked(await revoke(path), NONE);
  assertSuccess(await call(null, 'POST', '/api/auth/logout', { session: user.token }));
  // The service asks for no logout of a revoked session, unless the revocation comes in between.
  await logOutSession(database, COMMAND_LINE, id);
  assert.deepEqual((await list(`user=${user.id}`)).rows.map(flagsOf), ['true false']);
  assert.deepEqual(await trail(user.id), [{ count: 1, target_id: id, detail: '' }]);
  const logouts = await sql`select from identity.audit
    where event = 'session.logged_out' and target_id = ${id}`;
  assert.equal(logouts.length, 0);
});

test('more than 10,000 ended sessions are not counted', async () => {
  const { id } = await add();
  await addSessions(id, 10_001);
  assertRevoked(await revokeOf(id), 'More than 10,000 sessions revoked.');
  assertRevoked(await revokeOf(id), NONE);
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
  assertRevoked(await revoke('revoke/all'), `${total} sessions revoked.`);
  for (const { token } of [admin, user]) assert.equal(await isOpen(identity, token), false);
  const later = await logIn(identity);
  const infos = [admin, out, expired].map(({ token }) =>
    call(later, 'GET', `/api/session/info?session=${token}`),
  );
  const flags = (await Promise.all(infos)).map(({ json }) => flagsOf(json.data));
  assert.deepEqual(flags, ['true false', 'false true', 'false false']);

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
    assertSuccess(await revoke('revoke/all'));
  });
  assert.equal(await isOpen(identity, user.token), false);
  await sql`update identity.sessions set created_at = clock_timestamp()
    where user_id = ${admin.id}`;
  assert.equal((await list(`user=${user.id}&active=true`)).total, 0);
});

test("sessions from before the database's clock was set back end, and stay ended", async () => {
  for (const everyone of [false, true]) {
    await forgetRevokeAll();
    const user = await enter();
    const ofUser = everyone ? null : user.id;
    const ahead = (minutes: number) => sql`update identity.sessions
      set created_at = now() + make_interval(mins => ${minutes}) where user_id = ${user.id}`;
    await ahead(60);
    await revokeSessions(database, COMMAND_LINE, ofUser);
    assert.equal(await isOpen(identity, user.token), false);
    // The value never decreases.
    await ahead(-60);
    await revokeSessions(database, COMMAND_LINE, ofUser);
    await ahead(50);
    assert.equal(await isOpen(identity, user.token), false);
  }
});
