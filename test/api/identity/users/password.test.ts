/** What users do with their own account: POST of /api/auth/password and /delete, and the export. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ADMIN_PASSWORD, ask, logIn, startGatehouse } from '../../../support/gatehouse.ts';
import { meanwhile } from '../../../support/meanwhile.ts';
import { PORTAL, startPortal } from '../../../support/portal.ts';
import { assertError, assertSuccess, isOpen, PASSWORD, sessionOf } from '../../../support/users.ts';

const portal = await startPortal({ after }, { SELF_DELETION: 'on' });
const { identity, databaseUrl, sql, admin, call, login, add, enter, key, visit, signIn } = portal;
const NEW = 'another passphrase';

const change = (bearer: string, current_password: string, new_password: string, url = identity) =>
  ask('POST', `${url}/api/auth/password`, { bearer, body: { current_password, new_password } });
const rowOf = async ({ id }: { id: string }) =>
  (await sql`select password_hash, deleted_at from identity.users where id = ${id}`)[0];

test('only the new password works, and only the session of the reply is open', async () => {
  const user = await enter();
  const kept = [(await enter()).token, (await key(user)).key, admin.token];
  const again = () => logIn(identity, user.username, PASSWORD);
  const ended = [user.token, await again(), await again()];
  // These have ended before, so they are not counted.
  const expired = await again();
  const out = await again();
  await sql`update identity.sessions set expires_at = now()
    where id = ${(await sessionOf(identity, expired)).id}`;
  await call(null, 'POST', '/api/auth/logout', { session: out });

  const answer = await change(user.token, PASSWORD, NEW);
  assertSuccess(answer);
  const { session: token, ...rest } = answer.json.data;
  assert.deepEqual(rest, { message: 'Password changed. 3 sessions ended.', status: 'CHANGED' });
  for (const bearer of ended) assert.equal(await isOpen(identity, bearer), false);
  for (const bearer of [token, ...kept]) assert.equal(await isOpen(identity, bearer), true);
  const [row] = await sql`select ip, user_agent from identity.sessions
    where id = ${(await sessionOf(identity, token)).id}`;
  assert.deepEqual({ ...row }, { ip: '127.0.0.1', user_agent: 'tests' });
  assertError(await login(user.username, PASSWORD), 401, 'invalid_credentials');
  await logIn(identity, user.username, NEW);
});

test('after a wrong current password, or for the same one again, nothing changes', async () => {
  const user = await enter();
  const before = await rowOf(user);
  for (const wrong of ['', PASSWORD.toUpperCase(), String(before?.password_hash)])
    assertError(await change(user.token, wrong, NEW), 401, 'invalid_credentials');
  const same = await change(user.token, PASSWORD, PASSWORD);
  assertError(same, 400, 'invalid_body', ['/new_password']);
  assert.deepEqual(await rowOf(user), before);
  assert.equal(await isOpen(identity, user.token), true);
});

test('of two changes at once one wins, and its password and session are the valid ones', async (t) => {
  const replica = await startGatehouse(t, ['identity'], databaseUrl, PORTAL);
  const user = await enter();
  const passwords = ['the first passphrase', 'the second passphrase'] as const;
  const urls = [identity, replica.url.identity];
  const answers = await meanwhile(
    sql,
    (held) => held`select from identity.users where id = ${user.id} for update`,
    () => passwords.map((one, index) => change(user.token, PASSWORD, one, urls[index])),
  );
  assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 401]);
  const winner = answers.findIndex(({ status }) => status === 200);
  assert.equal(await isOpen(identity, answers[winner]?.json.data.session), true);
  await logIn(identity, user.username, passwords[winner]);
  const lost = await login(user.username, passwords[1 - winner] ?? '');
  assertError(lost, 401, 'invalid_credentials');
});

const remove = (bearer: string, password = PASSWORD) =>
  call(bearer, 'POST', '/api/auth/delete', { password });

test('a person deletes the own account with the password, and all ends', async () => {
  const user = await enter();
  const { key: own } = await key(user);
  assertError(await remove(own), 403, 'forbidden');
  assertError(await remove(user.token, NEW), 401, 'invalid_credentials');
  assert.equal((await rowOf(user))?.deleted_at, null);
  assertSuccess(await remove(user.token));
  assert.notEqual((await rowOf(user))?.deleted_at, null);
  for (const bearer of [user.token, own]) assert.equal(await isOpen(identity, bearer), false);
  const entries = await sql`select event, actor_id, via from identity.audit
    where user_id = ${user.id} and event in ('password.failed', 'user.deleted') order by event`;
  const entry = { actor_id: user.id, via: 'session' };
  assert.deepEqual(
    [...entries],
    [
      { event: 'password.failed', ...entry },
      { event: 'user.deleted', ...entry },
    ],
  );
  assertError(await login(user.username, PASSWORD), 401, 'invalid_credentials');
});

test('the last super administrator cannot, and another one can', async () => {
  assertError(await remove(admin.token, ADMIN_PASSWORD), 409, 'conflict');
  assertSuccess(await remove((await enter({ super_admin: true })).token));
});

test('without SELF_DELETION nobody can, and the page does not offer it', async (t) => {
  const off = await startPortal(t);
  const user = await off.enter();
  const answer = await off.call(user.token, 'POST', '/api/auth/delete', { password: PASSWORD });
  assertError(answer, 403, 'forbidden');
  const { host } = await off.signIn(user.username);
  const page = await off.visit('/account', { cookie: host });
  assert.doesNotMatch(page.text, /account\/delete/);
});

test('the account page deletes the account with its password', async () => {
  const user = await add();
  const { host: cookie } = await signIn(user.username);
  assert.match((await visit('/account', { cookie })).text, /action="\/account\/delete"/);
  const wrong = await visit('/account/delete', { cookie, fields: { password: 'wrong' } });
  assert.equal(wrong.status, 401, wrong.text);
  assert.equal((await rowOf(user))?.deleted_at, null);
  const done = await visit('/account/delete', { cookie, fields: { password: PASSWORD } });
  assert.match(done.headers.get('location') ?? '', /^\/login/);
  assert.notEqual((await rowOf(user))?.deleted_at, null);
});

test('people export what is stored of them, and nobody else', async () => {
  const user = await enter();
  const { id } = await key(user);
  await key(await enter());
  const answer = await call(user.token, 'GET', '/api/auth/export');
  assertSuccess(answer);
  const { user: own, sessions, keys, audit } = answer.json.data;
  assert.deepEqual([own.id, sessions.length, keys.length, keys[0].id], [user.id, 1, 1, id]);
  assert.deepEqual(
    audit.map(({ event, user_id }: { event: string; user_id: string }) => [event, user_id]),
    ['key.created', 'login.succeeded', 'user.created'].map((event) => [event, user.id]),
  );
  assert.doesNotMatch(answer.text, /scrypt|digest/);
  const { host: cookie } = await signIn(user.username);
  const file = await visit('/account/export', { cookie });
  assert.equal(file.headers.get('content-disposition'), 'attachment; filename="account.json"');
  assert.equal(JSON.parse(file.text).user.id, user.id);
});
