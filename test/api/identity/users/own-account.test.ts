/** POST /api/auth/delete and GET /api/auth/export, and the same on the account page. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { untilLocked } from '../../../support/connections.ts';
import { ask, logIn } from '../../../support/gatehouse.ts';
import { startPortal } from '../../../support/portal.ts';
import { assertError, assertSuccess, isOpen, PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after }, { SELF_DELETION: 'on' });
const { identity, sql, admin, call, add, enter, key, visit, signIn } = portal;
const remove = (bearer: string, password: string = PASSWORD) =>
  call(bearer, 'POST', '/api/auth/delete', { password });
const isDeleted = async (id: string) =>
  (await sql`select from identity.users where id = ${id} and deleted_at is not null`).count === 1;

test('a person deletes the own account with the password, and all ends', async () => {
  const user = await enter();
  const { key: whole } = await key(user);
  assertSuccess(await remove(user.token));
  assert.equal(await isDeleted(user.id), true);
  assert.deepEqual(
    [await isOpen(identity, user.token), await isOpen(identity, whole)],
    [false, false],
  );
  const [entry] = await sql`select actor_id, via from identity.audit
    where event = 'user.deleted' and user_id = ${user.id}`;
  assert.deepEqual({ ...entry }, { actor_id: user.id, via: 'session' });
});

test('an account that is deleted meanwhile has no session any more', async () => {
  const user = await enter();
  const { answer } = await sql.begin(async (holding) => {
    await holding`update identity.users set deleted_at = now() where id = ${user.id}`;
    const waiting = remove(user.token);
    await untilLocked(holding, 1);
    return { answer: waiting };
  });
  assertError(await answer, 401, 'unauthorized');
});

test('a wrong password deletes nothing, and counts as a failure', async () => {
  const user = await enter();
  assertError(await remove(user.token, 'another passphrase'), 401, 'invalid_credentials');
  assert.equal(await isDeleted(user.id), false);
  const { count } = await sql`select from identity.audit
    where event = 'password.failed' and user_id = ${user.id}`;
  assert.equal(count, 1);
});

test('an old sign-in, one without the factor, and a key delete nothing', async () => {
  const old = await enter();
  await sql`update identity.sessions set authenticated_at = now() - interval '11 minutes'
    where user_id = ${old.id}`;
  assertError(await remove(old.token), 401, 'signin_too_old');
  const alone = await enter();
  await sql`update identity.users set second_factor = true where id = ${alone.id}`;
  assertError(await remove(alone.token), 401, 'signin_too_old');
  const user = await enter();
  assertError(await remove((await key(user)).key), 403, 'forbidden');
  for (const { id } of [old, alone, user]) assert.equal(await isDeleted(id), false);
});

test('the last super administrator cannot, and another one can', async () => {
  const password = 'correct-horse-battery-staple';
  assertError(await remove(admin.token, password), 409, 'conflict');
  const chief = await enter({ super_admin: true });
  assertSuccess(await remove(chief.token));
  assert.equal(await isDeleted(chief.id), true);
});

test('without SELF_DELETION nobody can, and the page does not offer it', async (t) => {
  const off = await startPortal({ after: (fn) => t.after(fn) });
  const user = await off.enter();
  const answer = await off.call(user.token, 'POST', '/api/auth/delete', { password: PASSWORD });
  assertError(answer, 403, 'forbidden');
  assert.match(answer.json.error.message, /operator/);
  const { host } = await off.signIn(user.username);
  const page = await off.visit('/account', { cookie: host });
  assert.doesNotMatch(page.text, /account\/delete/);
  assert.match(page.text, /account\/export/);
});

test('the account page deletes the account with its password', async () => {
  const user = await add();
  const { host } = await signIn(user.username);
  assert.match((await visit('/account', { cookie: host })).text, /action="\/account\/delete"/);
  const wrong = await visit('/account/delete', { cookie: host, fields: { password: 'wrong' } });
  assert.equal(wrong.status, 401, wrong.text);
  assert.equal(await isDeleted(user.id), false);
  const done = await visit('/account/delete', { cookie: host, fields: { password: PASSWORD } });
  assert.equal(done.headers.get('location')?.startsWith('/login'), true, done.text);
  assert.equal(await isDeleted(user.id), true);
});

test('people export what is stored of them, and nobody else', async () => {
  const user = await enter();
  await enter();
  const { id } = await key(user, { name: 'mine' });
  const answer = await call(user.token, 'GET', '/api/auth/export');
  assertSuccess(answer);
  const { user: own, sessions, keys, audit } = answer.json.data;
  assert.deepEqual([own.id, sessions.length, keys.length], [user.id, 1, 1]);
  assert.equal(keys[0].id, id);
  const events = audit.map(({ event }: { event: string }) => event);
  assert.deepEqual(events, ['key.created', 'login.succeeded', 'user.created']);
  for (const { user_id } of audit) assert.equal(user_id, user.id);
  assert.doesNotMatch(answer.text, /scrypt|digest/);
  const { host } = await signIn(user.username);
  const file = await visit('/account/export', { cookie: host });
  assert.equal(file.headers.get('content-disposition'), 'attachment; filename="account.json"');
  assert.equal(JSON.parse(file.text).user.id, user.id);
  assert.equal((await ask('GET', `${identity}/api/auth/export`)).status, 401);
});

test('a deleted person is unknown at the next login', async () => {
  const user = await enter();
  assertSuccess(await remove(user.token));
  const body = { username: user.username, password: PASSWORD };
  assert.equal((await ask('POST', `${identity}/api/auth/login`, { body })).status, 401);
  await add({ username: user.username, email: `${user.username}@example.com` });
  assert.equal(await isOpen(identity, await logIn(identity, user.username, PASSWORD)), true);
});
