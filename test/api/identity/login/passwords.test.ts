/**
 * Logins with a password that Gatehouse has generated: it is valid for 24 hours, the reply says so,
 * and it cannot stay (ASVS 6.4.1); and with one whose hash another program made. And what users do
 * with their own account: POST of /api/auth/password and /delete, and the export.
 */
import assert from 'node:assert/strict';
import { pbkdf2Sync } from 'node:crypto';
import { after, test } from 'node:test';
import { readForeignHash } from '../../../../src/identity/imported-hashes.ts';
import { COMMAND_LINE } from '../../../../src/identity/store/audit.ts';
import { findImportedHash } from '../../../../src/identity/store/hashes.ts';
import { setPassword } from '../../../../src/identity/users.ts';
import type { Person } from '../../../support/api-users.ts';
import { ADMIN_PASSWORD, ask, logIn, startGatehouse } from '../../../support/gatehouse.ts';
import { meanwhile } from '../../../support/meanwhile.ts';
import { PORTAL, startPortal, visitorOf } from '../../../support/portal.ts';
import {
  assertError,
  assertSuccess,
  CHEAP_PASSWORDS,
  isOpen,
  openIdentity,
  PASSWORD,
  sessionOf,
} from '../../../support/users.ts';
import { wordsOf } from '../../../support/words.ts';

const portal = await startPortal({ after }, { SELF_DELETION: 'on' });
const { identity, databaseUrl, sql, admin, call, login, add, enter, key, visit, signIn } = portal;
/** Here, SELF_DELETION is off. */
const replica = (await startGatehouse({ after }, ['identity'], databaseUrl, PORTAL)).url.identity;
const database = openIdentity({ after }, databaseUrl);
const GENERATED = 'made by a machine';
const OWN = 'a password of my own';
const DAY = 24 * 3_600;

type User = Omit<Person, 'token'>;
/** As `gatehouse user password` does it. */
const generate = ({ id }: User) =>
  setPassword(database, COMMAND_LINE, id, GENERATED, { ...CHEAP_PASSWORDS, areGenerated: true });
const passTime = ({ id }: User, seconds: number) =>
  sql`update identity.users set password_set_at = password_set_at - make_interval(secs =>
    ${seconds}) where id = ${id}`;
const change = (bearer: string, current_password: string, new_password: string, url = identity) =>
  ask('POST', `${url}/api/auth/password`, { bearer, body: { current_password, new_password } });
async function assertLasts(user: User, password: string) {
  await passTime(user, 100 * DAY);
  assert.deepEqual(Object.keys((await login(user.username, password)).json.data), ['session']);
}

test('a login says until when a generated password is valid; one that a person sets stays', async () => {
  const user = await add();
  await assertLasts(user, PASSWORD);
  const setBy = {
    user: (session: string) => change(session, GENERATED, OWN),
    admin: () => call(admin.token, 'POST', `/api/user/${user.id}/password`, { password: OWN }),
  };
  for (const set of Object.values(setBy)) {
    await generate(user);
    const { session, ...rest } = (await login(user.username, GENERATED)).json.data;
    assert.deepEqual(Object.keys(rest), ['password_expires_at']);
    const left = (Date.parse(rest.password_expires_at) - Date.now()) / 1_000;
    assert.ok(left > DAY - 600 && left < DAY + 600, `${left} s`);
    assertSuccess(await set(session));
    await assertLasts(user, OWN);
  }
});

test('after 24 hours a generated password is like a wrong one, for a login and for a change', async () => {
  const user = await add();
  await generate(user);
  await passTime(user, DAY - 60);
  const { session } = (await login(user.username, GENERATED)).json.data;
  await passTime(user, 60);
  const expired = await login(user.username, GENERATED);
  const wrong = await login(user.username, 'not the password');
  assertError(expired, 401, 'invalid_credentials');
  assert.deepEqual(expired.json.error, wrong.json.error);
  assertError(await change(session, GENERATED, OWN), 401, 'invalid_credentials');
  const { json } = await call(admin.token, 'GET', `/api/audit/?user=${user.id}&event=login.failed`);
  assert.deepEqual(
    json.data.map(({ detail }: { detail: string }) => detail),
    ['wrong password', 'password expired'],
  );
});

// --- Hashes of other programs

const foreign = (iterations: number) => {
  const hash = pbkdf2Sync(PASSWORD, 'seasalt8', iterations, 32, 'sha256').toString('base64');
  const stored = readForeignHash(`pbkdf2_sha256$${iterations}$seasalt8$${hash}`);
  assert.ok(typeof stored === 'string');
  return stored;
};
async function addImported(iterations = 1_000) {
  const user = await add();
  await sql`update identity.users set password_hash = ${foreign(iterations)} where id = ${user.id}`;
  return user;
}
const hashOf = async (id: string) =>
  String((await sql`select password_hash from identity.users where id = ${id}`)[0]?.password_hash);

test('the right password logs in, also at once, and ours replaces the hash; a wrong one changes nothing', async () => {
  const user = await addImported();
  const other = await addImported();
  assert.equal((await login(user.username, OWN)).status, 401);
  assert.equal(await hashOf(user.id), foreign(1_000));
  const answers = await Promise.all([1, 2, 3].map(() => login(user.username, PASSWORD)));
  for (const { status } of answers) assert.equal(status, 200);
  assert.match(await hashOf(user.id), /^\$scrypt\$/);
  assert.equal(await hashOf(other.id), foreign(1_000), 'another user with the same hash');
  assert.equal((await login(user.username, PASSWORD)).status, 200);
  assert.equal((await login(user.username, OWN)).status, 401);
});

test('a name without a user is checked against one imported hash, always the same one', async () => {
  await sql`update identity.users set password_hash = null where password_hash like 'imported$%'`;
  assert.equal(await findImportedHash(database, 'nobody'), null);
  const kinds = [1_000, 2_000, 3_000];
  for (const [index, iterations] of kinds.entries()) {
    const { id } = await addImported(iterations);
    // Far from each other, so that many names lie before each.
    await sql`update identity.users set id = ${`${index * 4}${id.slice(1)}`} where id = ${id}`;
  }
  const found = await Promise.all(
    Array.from({ length: 60 }, (_, index) => findImportedHash(database, `nobody-${index % 30}`)),
  );
  assert.deepEqual(found.slice(0, 30), found.slice(30));
  // Each kind is met.
  assert.deepEqual([...new Set(found)].sort(), kinds.map(foreign).sort());
  assert.equal((await login('nobody', PASSWORD)).status, 401);
});

// --- The own account

const rowOf = async ({ id }: { id: string }) =>
  (await sql`select password_hash, deleted_at from identity.users where id = ${id}`)[0];

test('only the new password works, and only the session of the reply is open', async () => {
  const user = await enter();
  const kept = [(await enter()).token, (await key(user)).key, admin.token];
  const again = () => logIn(identity, user.username, PASSWORD);
  const ended = [user.token, await again(), await again()];
  const answer = await change(user.token, PASSWORD, OWN);
  assertSuccess(answer);
  const { session: token, ...rest } = answer.json.data;
  assert.deepEqual(rest, { message: 'Password changed. 3 sessions ended.', status: 'CHANGED' });
  for (const bearer of ended) assert.equal(await isOpen(identity, bearer), false);
  for (const bearer of [token, ...kept]) assert.equal(await isOpen(identity, bearer), true);
  const [row] = await sql`select ip, user_agent from identity.sessions
    where id = ${(await sessionOf(identity, token)).id}`;
  assert.deepEqual({ ...row }, { ip: '127.0.0.1', user_agent: 'tests' });
  assert.equal((await login(user.username, PASSWORD)).status, 401);
  assert.equal((await login(user.username, OWN)).status, 200);
});

test('after a wrong current password, or for the same one again, nothing changes', async () => {
  const user = await enter();
  const before = await rowOf(user);
  for (const wrong of ['', PASSWORD.toUpperCase(), String(before?.password_hash)])
    assertError(await change(user.token, wrong, OWN), 401, 'invalid_credentials');
  const same = await change(user.token, PASSWORD, PASSWORD);
  assertError(same, 400, 'invalid_body', ['/new_password']);
  assert.deepEqual(await rowOf(user), before);
  assert.equal(await isOpen(identity, user.token), true);
});

test('of two changes at once one wins, and its password and session are the valid ones', async () => {
  const user = await enter();
  const passwords = ['the first passphrase', 'the second passphrase'] as const;
  const urls = [identity, replica];
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

const remove = (bearer: string, password = PASSWORD, url = identity) =>
  ask('POST', `${url}/api/auth/delete`, { bearer, body: { password } });

test('a person deletes the own account with the password, and all ends', async () => {
  assertError(await remove(admin.token, ADMIN_PASSWORD), 409, 'conflict');
  const user = await enter();
  const { key: own } = await key(user);
  assertError(await remove(user.token, OWN), 401, 'invalid_credentials');
  assert.equal((await rowOf(user))?.deleted_at, null);
  assertSuccess(await remove(user.token));
  assert.notEqual((await rowOf(user))?.deleted_at, null);
  for (const bearer of [user.token, own]) assert.equal(await isOpen(identity, bearer), false);
  const entries = await sql`select event from identity.audit
    where user_id = ${user.id} and actor_id = ${user.id} and via = 'session'`;
  const events = entries.map(({ event }) => String(event)).sort();
  assert.deepEqual(
    events,
    wordsOf('key.created key.revoked password.failed session.revoked user.deleted'),
  );
});

test('the account page deletes the account with its password, where SELF_DELETION is on', async () => {
  const user = await enter();
  const { host: cookie } = await signIn(user.username);
  assertError(await remove(user.token, PASSWORD, replica), 403, 'forbidden');
  const isOffered = async (look: typeof visit) =>
    (await look('/account', { cookie })).text.includes('action="/account/delete"');
  assert.deepEqual([await isOffered(visit), await isOffered(visitorOf(replica))], [true, false]);
  const wrong = await visit('/account/delete', { cookie, fields: { password: 'wrong' } });
  assert.equal(wrong.status, 401, wrong.text);
  assert.equal((await rowOf(user))?.deleted_at, null);
  const done = await visit('/account/delete', { cookie, fields: { password: PASSWORD } });
  assert.match(done.headers.get('location') ?? '', /^\/login/);
  assert.notEqual((await rowOf(user))?.deleted_at, null);
});

test('people export what is stored of them, and nobody else', async () => {
  const user = await enter();
  const session = await logIn(identity, user.username, PASSWORD);
  await call(null, 'POST', '/api/auth/logout', { session });
  const { id } = await key(user);
  await key(await enter());
  const answer = await call(user.token, 'GET', '/api/auth/export');
  assertSuccess(answer);
  const { user: own, sessions, keys, audit } = answer.json.data;
  assert.deepEqual([own.id, sessions.length, keys.length, keys[0].id], [user.id, 2, 1, id]);
  const events = 'key.created session.logged_out login.succeeded login.succeeded user.created';
  assert.deepEqual(
    audit.map(({ event, user_id }: { event: string; user_id: string }) => [event, user_id]),
    events.split(' ').map((event) => [event, user.id]),
  );
  assert.doesNotMatch(answer.text, /scrypt|digest/);
  const { host: cookie } = await signIn(user.username);
  const file = await visit('/account/export', { cookie });
  assert.equal(file.headers.get('content-disposition'), 'attachment; filename="account.json"');
  assert.equal(JSON.parse(file.text).user.id, user.id);
});
