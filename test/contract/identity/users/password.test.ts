/** POST /api/auth/password: users change their own password, with the present one, and their other sessions end. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { connect } from '../../../../scripts/postgres.ts';
import { type Answer, ask, logIn } from '../../../support/gatehouse.ts';
import { openHouse, type Person } from '../../../support/house.ts';
import { untilSql } from '../../../support/lanes.ts';
import { BEHIND_PROXY, loginFrom, passTime } from '../../../support/strangers.ts';
import { assertError, assertSuccess, isOpen, PASSWORD, sessionOf } from '../../../support/users.ts';

const { identity, databaseUrl, sql, admin, call, enter, key } = await openHouse({ after }, BEHIND_PROXY);
const other = connect(databaseUrl);
after(() => other.end());
const NEW = 'another passphrase';
const HERE = '192.0.2.1';
const ELSEWHERE = '198.51.100.1';

/** From an address of one's choice, as a proxy passes it on. */
const change = ({ token }: { token: string }, current: unknown, next: unknown, address = HERE): Promise<Answer> =>
  ask('POST', `${identity}/api/auth/password`, { bearer: token, body: { current_password: current, new_password: next }, headers: { 'x-forwarded-for': address } });
const hashOf = async ({ id }: { id: string }) => String((await sql`select password_hash from identity.users where id = ${id}`)[0]?.password_hash);

function assertChanged(answer: Answer, message: string) {
  assertSuccess(answer);
  assert.deepEqual(answer.json.data, { message, status: 'CHANGED' });
}

test('the new password opens and the old one does not; the asking session stays and exactly the others end', async () => {
  const [user, bystander] = [await enter(), await enter()];
  const others = [await logIn(identity, user.username, PASSWORD), await logIn(identity, user.username, PASSWORD)];
  // These have ended before, so they are not counted.
  const [expired, out] = [await logIn(identity, user.username, PASSWORD), await logIn(identity, user.username, PASSWORD)];
  await sql`update identity.sessions set expires_at = now() where id = ${(await sessionOf(identity, expired)).id}`;
  await call(null, 'POST', '/api/auth/logout', { session: out });
  const { key: own } = await key(user);

  assertChanged(await change(user, PASSWORD, NEW), 'Password changed. 2 sessions ended.');
  for (const token of others) assertError(await call(token, 'GET', '/api/test/'), 401, 'unauthorized');
  for (const bearer of [user.token, own, bystander.token, admin.token]) assert.equal(await isOpen(identity, bearer), true);
  assertError(await call(null, 'POST', '/api/auth/login', { username: user.username, password: PASSWORD }), 401, 'invalid_credentials');
  await logIn(identity, user.username, NEW);
});

test('it says how many sessions have ended: none, one', async () => {
  const user = await enter();
  assertChanged(await change(user, PASSWORD, NEW), 'Password changed. 0 sessions ended.');
  await logIn(identity, user.username, NEW);
  assertChanged(await change(user, NEW, PASSWORD), 'Password changed. 1 session ended.');
});

test('a wrong present password is 401, and nothing changes', async () => {
  const user = await enter();
  const second = await logIn(identity, user.username, PASSWORD);
  const before = await hashOf(user);
  for (const wrong of ['', NEW, PASSWORD.toUpperCase(), before]) assertError(await change(user, wrong, NEW), 401, 'invalid_credentials');
  assert.equal(await hashOf(user), before);
  for (const token of [user.token, second]) assert.equal(await isOpen(identity, token), true);
});

test('a new password that the policy refuses is 400, and no failure is counted, whatever the present one', async () => {
  const user = await enter();
  const before = await hashOf(user);
  for (const current of [PASSWORD, 'wrong']) {
    for (const next of ['', 'seven77', 'password', 'PassWord', 'ｐassword', 'a\0bcdefgh', 'p'.repeat(1_025), 'p'.repeat(5_000)]) {
      assertError(await change(user, current, next), 400, 'invalid_body', ['/new_password']);
    }
  }
  assert.equal(await hashOf(user), before);
  assertChanged(await change(user, PASSWORD, NEW), 'Password changed. 0 sessions ended.');
});

test('a body that does not say exactly the two is 400', async () => {
  const user = await enter();
  const before = await hashOf(user);
  const send = (body: unknown) => call(user.token, 'POST', '/api/auth/password', body);
  assertError(await send({}), 400, 'invalid_body', ['/current_password', '/new_password']);
  assertError(await send({ new_password: NEW }), 400, 'invalid_body', ['/current_password']);
  assertError(await send({ current_password: PASSWORD }), 400, 'invalid_body', ['/new_password']);
  assertError(await send({ current_password: PASSWORD, new_password: NEW, user_id: admin.id }), 400, 'invalid_body', ['/user_id']);
  for (const wrong of [null, 1, ['x'], {}]) {
    assertError(await change(user, wrong, NEW), 400, 'invalid_body', ['/current_password']);
    assertError(await change(user, PASSWORD, wrong), 400, 'invalid_body', ['/new_password']);
  }
  for (const body of ['', '[]', 'null']) assertError(await send(body), 400, 'invalid_body', ['']);
  assert.equal(await hashOf(user), before);
});

test('without a session nobody changes a password: strangers are 401, keys 403', async () => {
  const user = await enter();
  const before = await hashOf(user);
  const body = { current_password: PASSWORD, new_password: NEW };
  assertError(await call(null, 'POST', '/api/auth/password', body), 401, 'unauthorized');
  for (const bearer of [(await key(user)).key, (await key(null)).key]) assertError(await call(bearer, 'POST', '/api/auth/password', body), 403, 'forbidden');
  await call(null, 'POST', '/api/auth/logout', { session: user.token });
  assertError(await change(user, PASSWORD, NEW), 401, 'unauthorized');
  assert.equal(await hashOf(user), before);
});

test('after five failures it is 429 with Retry-After, also for the right password and for a login from there', async () => {
  const [user, bystander] = [await enter(), await enter()];
  for (let failure = 1; failure <= 5; failure += 1) assertError(await change(user, 'wrong', NEW), 401, 'invalid_credentials');
  for (const current of ['wrong', PASSWORD]) {
    const answer = await change(user, current, NEW);
    assertError(answer, 429, 'too_many_requests');
    const seconds = Number(answer.headers.get('retry-after'));
    assert.ok(seconds >= 1 && seconds <= 15, String(seconds));
  }
  assertError(await loginFrom(identity, HERE, user.username, PASSWORD), 429, 'too_many_requests');
  // The session is as good as before, and so are other accounts and other networks.
  assert.equal(await isOpen(identity, user.token), true);
  assertChanged(await change(bystander, PASSWORD, NEW), 'Password changed. 0 sessions ended.');
  assertChanged(await change(user, PASSWORD, NEW, ELSEWHERE), 'Password changed. 0 sessions ended.');
});

test('when its time is over the right password is taken again, and clears the failures of that network', async () => {
  const user = await enter();
  for (let failure = 1; failure <= 5; failure += 1) assertError(await change(user, 'wrong', NEW), 401, 'invalid_credentials');
  await passTime(sql, 15);
  assertChanged(await change(user, PASSWORD, NEW), 'Password changed. 0 sessions ended.');
  for (let failure = 1; failure <= 5; failure += 1) assertError(await change(user, 'wrong', NEW), 401, 'invalid_credentials');
  assertError(await change(user, NEW, PASSWORD), 429, 'too_many_requests');
});

test('failed logins and failed changes are counted together', async () => {
  const user = await enter();
  for (let failure = 1; failure <= 3; failure += 1) assertError(await loginFrom(identity, HERE, user.username), 401, 'invalid_credentials');
  for (let failure = 4; failure <= 5; failure += 1) assertError(await change(user, 'wrong', NEW), 401, 'invalid_credentials');
  assertError(await change(user, PASSWORD, NEW), 429, 'too_many_requests');
});

test('of two changes at the same time one wins, and its password is the one that counts', async () => {
  for (let round = 0; round < 10; round += 1) {
    const user = await enter();
    const second: Person = { ...user, token: round % 2 === 0 ? user.token : await logIn(identity, user.username, PASSWORD) };
    const wishes = ['the first passphrase', 'the second passphrase'];
    const answers = await Promise.all([change(user, PASSWORD, wishes[0]), change(second, PASSWORD, wishes[1])]);
    assert.deepEqual(answers.map((answer) => answer.status).sort(), [200, 401]);
    const winner = answers.findIndex((answer) => answer.status === 200);
    await logIn(identity, user.username, wishes[winner]);
    assertError(await call(null, 'POST', '/api/auth/login', { username: user.username, password: wishes[1 - winner] }), 401, 'invalid_credentials');
  }
});

test('a login with the old password that began before the change was done does not outlive it', async () => {
  const user = await enter();
  const second = await sessionOf(identity, await logIn(identity, user.username, PASSWORD));
  const waiting = async () => (await sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).length;
  const { changing, login } = await other.begin(async (held) => {
    // The change has written the new password, not yet committed it, and is about to end this session.
    await held`select from identity.sessions where id = ${second.id} for update`;
    const changing = change(user, PASSWORD, NEW);
    await untilSql(async () => (await waiting()) === 1, 'the change waits');
    let isAnswered = false;
    const login = loginFrom(identity, ELSEWHERE, user.username, PASSWORD).finally(() => (isAnswered = true));
    await untilSql(async () => isAnswered || (await waiting()) === 2, 'the login waits for the change');
    return { changing: () => changing, login: () => login };
  });
  assertChanged(await changing(), 'Password changed. 1 session ended.');
  assertError(await login(), 401, 'invalid_credentials');
  const [row] = await sql`select count(*)::int as n from identity.sessions where user_id = ${user.id} and not revoked`;
  assert.equal(row?.n, 1);
});
