/**
 * POST /api/auth/password: users change their own password with the current one; all sessions end,
 * a new one begins.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { type Answer, ask, logIn } from '../../../support/gatehouse.ts';
import { startIdentity, type Person } from '../../../support/api-users.ts';
import { untilLocked } from '../../../support/connections.ts';
import { createWaits, holdStatements } from '../../../support/hold.ts';
import { BEHIND_PROXY, loginFrom } from '../../../support/logins.ts';
import { assertError, assertSuccess, isOpen, PASSWORD, sessionOf } from '../../../support/users.ts';
import { rounds } from '../../../support/rounds.ts';

const { identity, databaseUrl, sql, admin, call, enter, key } = await startIdentity(
  { after },
  BEHIND_PROXY,
);
const NEW = 'another passphrase';
const HERE = '192.0.2.1';
const ELSEWHERE = '198.51.100.1';

/** From an address of one's choice, as a proxy passes it on. */
const change = (
  { token }: { token: string },
  current: unknown,
  next: unknown,
  address = HERE,
): Promise<Answer> =>
  ask('POST', `${identity}/api/auth/password`, {
    bearer: token,
    body: { current_password: current, new_password: next },
    headers: { 'x-forwarded-for': address },
  });
const hashOf = async ({ id }: { id: string }) =>
  String((await sql`select password_hash from identity.users where id = ${id}`)[0]?.password_hash);

/** @returns the user with the new session */
async function assertChanged<P extends Person>(user: P, answer: Answer, ended: string): Promise<P> {
  assertSuccess(answer);
  const { session: token, ...rest } = answer.json.data;
  assert.deepEqual(rest, { message: `Password changed. ${ended} ended.`, status: 'CHANGED' });
  assert.equal(await isOpen(identity, token), true);
  if (token !== user.token) assert.equal(await isOpen(identity, user.token), false);
  return { ...user, token };
}

test('only the new password works, and only the session of the reply is open', async () => {
  const user = await enter();
  const bystander = await enter();
  const others = [
    await logIn(identity, user.username, PASSWORD),
    await logIn(identity, user.username, PASSWORD),
  ];
  // These have ended before, so they are not counted.
  const expired = await logIn(identity, user.username, PASSWORD);
  const out = await logIn(identity, user.username, PASSWORD);
  await sql`update identity.sessions set expires_at = now()
    where id = ${(await sessionOf(identity, expired)).id}`;
  await call(null, 'POST', '/api/auth/logout', { session: out });
  const { key: own } = await key(user);

  const changed = await assertChanged(user, await change(user, PASSWORD, NEW), '3 sessions');
  for (const token of [user.token, ...others])
    assertError(await call(token, 'GET', '/api/test/'), 401, 'unauthorized');
  for (const bearer of [changed.token, own, bystander.token, admin.token])
    assert.equal(await isOpen(identity, bearer), true);
  const session = await sessionOf(identity, changed.token);
  const [row] = await sql`select ip, user_agent is not null as has_agent from identity.sessions
      where id = ${session.id}`;
  assert.deepEqual({ ...row }, { ip: '127.0.0.1', has_agent: true });
  assertError(
    await call(null, 'POST', '/api/auth/login', { username: user.username, password: PASSWORD }),
    401,
    'invalid_credentials',
  );
  await logIn(identity, user.username, NEW);
});

test('the message has the number of ended sessions, the own one included', async () => {
  let user = await enter();
  user = await assertChanged(user, await change(user, PASSWORD, NEW), '1 session');
  await logIn(identity, user.username, NEW);
  await assertChanged(user, await change(user, NEW, PASSWORD), '2 sessions');
});

test('a wrong current password is 401, and nothing changes', async () => {
  const user = await enter();
  const second = await logIn(identity, user.username, PASSWORD);
  const before = await hashOf(user);
  for (const wrong of ['', 'another phrase', PASSWORD.toUpperCase(), before])
    assertError(await change(user, wrong, NEW), 401, 'invalid_credentials');
  assert.equal(await hashOf(user), before);
  for (const token of [user.token, second]) assert.equal(await isOpen(identity, token), true);
});

test('of two changes at once one wins, and its password and session are the valid ones', async () => {
  for (let round = 0; round < rounds(4, 10); round += 1) {
    const user = await enter();
    const second: Person = {
      ...user,
      token: round % 2 === 0 ? user.token : await logIn(identity, user.username, PASSWORD),
    };
    const passwords = ['the first passphrase', 'the second passphrase'];
    const answers = await Promise.all([
      change(user, PASSWORD, passwords[0]),
      change(second, PASSWORD, passwords[1]),
    ]);
    assert.deepEqual(answers.map((answer) => answer.status).sort(), [200, 401]);
    const winner = answers.findIndex((answer) => answer.status === 200);
    assert.equal(await isOpen(identity, answers[winner]?.json.data.session), true);
    await logIn(identity, user.username, passwords[winner]);
    assertError(
      await call(null, 'POST', '/api/auth/login', {
        username: user.username,
        password: passwords[1 - winner],
      }),
      401,
      'invalid_credentials',
    );
  }
});

test('a login with the old password that waits for the change makes no session', async (t) => {
  const user = await enter();
  // The change has locked and updated the user's row, and waits with its row of the trail.
  await createWaits(sql);
  await sql`create trigger hold before insert on identity.audit
    for each row execute function wait_in_trigger(1)`;
  const trail = await holdStatements(t, databaseUrl);
  const changing = change(user, PASSWORD, NEW);
  await trail.met();
  const login = loginFrom(identity, ELSEWHERE, user.username, PASSWORD);
  await untilLocked(sql, 2);
  await trail.release();
  await assertChanged(user, await changing, '1 session');
  assertError(await login, 401, 'invalid_credentials');
  await sql`drop trigger hold on identity.audit`;
  const { json } = await call(admin.token, 'GET', `/api/session/?user=${user.id}&active=true`);
  assert.equal(json._meta.pagination.total, 1);
});
