/**
 * How sessions end without a logout: by time, by a change of their user, through another replica.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { untilLocked } from '../../../support/connections.ts';
import { ask, launch, logIn, startGatehouse, assertStatus } from '../../../support/gatehouse.ts';
import {
  addUser,
  assertError,
  assertSuccess,
  isOpen,
  openIdentity,
  PASSWORD,
  sessionOf,
} from '../../../support/users.ts';

const { identity: here, sql, databaseUrl } = await launch(['identity']);
const there = (await startGatehouse({ after }, ['identity'], databaseUrl)).url.identity;
const database = openIdentity({ after }, databaseUrl);
const admin = await logIn(here);

let users = 0;
/** A user of its own for each test, with a session that is known to be open at both replicas. */
async function openSession() {
  users += 1;
  const username = `user-${users}`;
  const user = await addUser(database, username);
  const token = await logIn(here, username, PASSWORD);
  const { id } = await sessionOf(there, token);
  assert.deepEqual([await isOpen(here, token), await isOpen(there, token)], [true, true]);
  return { username, user, token, id };
}

async function assertEnded(token: string) {
  for (const identity of [here, there]) {
    const body = { session: token };
    const lookUp = await ask('POST', `${identity}/api/auth/session`, { body });
    assertError(lookUp, 401, 'invalid_session');
    const call = await ask('GET', `${identity}/api/test/`, { bearer: token });
    assertError(call, 401, 'unauthorized');
  }
}

const ends: Readonly<
  Record<string, (session: { user: string; id: string; token: string }) => Promise<unknown>>
> = {
  'its time is up': ({ id }) =>
    sql`update identity.sessions set expires_at = now() where id = ${id}`,
  'it is deleted': ({ id }) =>
    sql`update identity.sessions set deleted_at = now() where id = ${id}`,
  'its user is disabled': ({ user }) =>
    sql`update identity.users set enabled = false where id = ${user}`,
  'its user is deleted': ({ user }) =>
    sql`update identity.users set deleted_at = now() where id = ${user}`,
  'it logs out at another replica': ({ token }) =>
    ask('POST', `${there}/api/auth/logout`, { body: { session: token } }),
  'another replica revokes it by its token': ({ token }) =>
    ask('DELETE', `${there}/api/session/revoke?session=${token}`, { bearer: admin }),
  'another replica revokes it by its id': ({ id }) =>
    ask('DELETE', `${there}/api/session/${id}/revoke`, { bearer: admin }),
  'another replica revokes all of its user': ({ user }) =>
    ask('DELETE', `${there}/api/session/revoke/all/user?user=${user}`, { bearer: admin }),
};

for (const [when, end] of Object.entries(ends)) {
  test(`a session has ended at once, at every replica, when ${when}`, async () => {
    const session = await openSession();
    await end(session);
    await assertEnded(session.token);
    // Asking about it has not changed who else may do what.
    assert.equal(await isOpen(there, admin), true);
  });
}

test('a session that is about to expire is still open', async () => {
  const { token, id } = await openSession();
  await sql`update identity.sessions set expires_at = now() + interval '1 minute' where id = ${id}`;
  assert.equal(await isOpen(there, token), true);
});

test("only the database's clock counts: SESSION_TTL is measured there", async (t) => {
  const { url } = await startGatehouse(t, ['identity'], databaseUrl, { SESSION_TTL: '90' });
  const { id } = await sessionOf(here, await logIn(url.identity));
  const [row] = await sql`select expires_at - created_at = interval '90 seconds' as exact
      from identity.sessions where id = ${id}`;
  assert.equal(row?.exact, true);
});

test('a logout after the expiry or after a revocation is 200 and changes no flag', async () => {
  for (const change of [sql`expires_at = now()`, sql`revoked = true`]) {
    const { token, id } = await openSession();
    await sql`update identity.sessions set ${change} where id = ${id}`;
    assertStatus(await ask('POST', `${here}/api/auth/logout`, { body: { session: token } }), 200);
    const [row] = await sql`select logged_out from identity.sessions where id = ${id}`;
    assert.equal(row?.logged_out, false);
  }
});

test('a logout that waits for another end of the session changes nothing and is not recorded', async () => {
  for (const end of ['revoked', 'logged_out']) {
    const token = await logIn(here);
    const { id } = await sessionOf(here, token);
    const { logout } = await sql.begin(async (held) => {
      await held`update identity.sessions set ${held(end)} = true where id = ${id}`;
      const sent = ask('POST', `${here}/api/auth/logout`, { body: { session: token } });
      await untilLocked(held, 1);
      return { logout: () => sent };
    });
    assertSuccess(await logout());
    const [row] = await sql`
      select revoked, logged_out, (select count(*)::int from identity.audit
        where event = 'session.logged_out' and target_id = s.id) as recorded
      from identity.sessions s where id = ${id}`;
    const expected = { revoked: end === 'revoked', logged_out: end === 'logged_out', recorded: 0 };
    assert.deepEqual({ ...row }, expected);
  }
});

test("sessions of disabled and deleted users stay in an administrator's list", async () => {
  const disabled = await openSession();
  const deleted = await openSession();
  await sql`update identity.users set enabled = false where id = ${disabled.user}`;
  await sql`update identity.users set deleted_at = now() where id = ${deleted.user}`;
  const listed = async ({ user }: { user: string }) =>
    (await ask('GET', `${here}/api/session/?user=${user}`, { bearer: admin })).json.data[0].user;
  assert.equal((await listed(disabled)).enabled, false);
  assert.match((await listed(deleted)).deleted_at, /Z$/);
});

test('a change of a user is visible at the next request, at every replica', async () => {
  const { token, user } = await openSession();
  const bearer = token;
  assert.equal((await ask('DELETE', `${there}/api/session/revoke/all`, { bearer })).status, 403);
  await sql`update identity.users set super_admin = true, first_name = 'Changed'
    where id = ${user}`;
  assert.equal(
    (await ask('GET', `${there}/api/test/`, { bearer })).json.data.user.first_name,
    'Changed',
  );
  assert.ok((await ask('GET', `${there}/api/user/`, { bearer })).json.data.length > 1);
});
