/** POST /api/auth/login, /api/auth/logout and /api/auth/session, row by row. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ADMIN_PASSWORD, ask, launch, logIn } from '../../../support/gatehouse.ts';
import { BEHIND_PROXY, newAddress } from '../../../support/logins.ts';
import {
  addUser,
  assertError,
  assertSession,
  assertSuccess,
  isOpen,
  openIdentity,
  PASSWORD,
  sessionOf,
} from '../../../support/users.ts';

const { identity, sql, databaseUrl } = await launch(['identity'], BEHIND_PROXY);
const database = openIdentity({ after }, databaseUrl);

await addUser(database, 'plain-user');
await addUser(database, 'Émile', { email: 'emile@example.org', password: 'ﬁne pâssword' });
const disabled = await addUser(database, 'disabled-user');
await sql`update identity.users set enabled = false where id = ${disabled}`;
const deleted = await addUser(database, 'deleted-user');
await sql`update identity.users set deleted_at = now() where id = ${deleted}`;
const passwordless = await addUser(database, 'passwordless-user');
await sql`update identity.users set password_hash = null where id = ${passwordless}`;

/** Each from a network of its own: none is slowed down by what failed before it. */
const tryLogin = (body: unknown) =>
  ask('POST', `${identity}/api/auth/login`, { body, headers: { 'x-forwarded-for': newAddress() } });
const logout = (session: unknown) =>
  ask('POST', `${identity}/api/auth/logout`, { body: { session } });
const lookUp = (session: unknown) =>
  ask('POST', `${identity}/api/auth/session`, { body: { session } });
const sessions = async () => Number((await sql`select count(*) from identity.sessions`)[0]?.count);
const UNKNOWN = 'session:00000000-0000-4000-8000-000000000000';

test('a login answers with a new session token and nothing else', async () => {
  const one = await tryLogin({ username: 'admin', password: ADMIN_PASSWORD });
  const two = await tryLogin({ username: 'admin', password: ADMIN_PASSWORD });
  for (const answer of [one, two]) {
    assertSuccess(answer);
    assert.deepEqual(Object.keys(answer.json.data), ['session']);
    assert.match(
      answer.json.data.session,
      /^session:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
    );
  }
  assert.notEqual(one.json.data.session, two.json.data.session);
});

test('every refused login gets the same answer, and no session is made', async () => {
  const before = await sessions();
  const attempts: ReadonlyArray<readonly [why: string, username: string, password: string]> = [
    ['unknown user', 'nobody-here', PASSWORD],
    ['wrong password', 'plain-user', `${PASSWORD}!`],
    ['password in another case', 'plain-user', PASSWORD.toUpperCase()],
    ['password with a space behind', 'plain-user', `${PASSWORD} `],
    ['empty password', 'plain-user', ''],
    ['empty password of a user without one', 'passwordless-user', ''],
    ['empty name', '', PASSWORD],
    ['disabled', 'disabled-user', PASSWORD],
    ['deleted', 'deleted-user', PASSWORD],
    ['a wrong password for an e-mail address', 'plain-user@example.org', `${PASSWORD}!`],
    ['an e-mail address of nobody', 'nobody-here@example.org', PASSWORD],
    ['a name that only looks alike (Cyrillic а)', 'pl\u0430in-user', PASSWORD],
    ['a long name', 'n'.repeat(1_024), PASSWORD],
    ['a long password', 'plain-user', 'p'.repeat(4_096)],
    ['an SQL text', "' or 1=1 --", "' or 1=1 --"],
  ];
  const messages = new Set<string>();
  for (const [why, username, password] of attempts) {
    const answer = await tryLogin({ username, password });
    assert.equal(answer.status, 401, why);
    assertError(answer, 401, 'invalid_credentials');
    messages.add(JSON.stringify(answer.json.error));
  }
  assert.equal(messages.size, 1);
  assert.equal(await sessions(), before);
});

// HMAC, on which scrypt is built, pads a short key with zero bytes: to it both are the same key
// (RFC 2104, section 2).
test('a password with NUL characters behind it is another password', async () => {
  for (const more of ['\0', '\0\0\0', '\0!']) {
    const { status } = await tryLogin({ username: 'plain-user', password: PASSWORD + more });
    assert.ok(status === 400 || status === 401, `answered ${status}`);
  }
});

test('usernames match in any case and spelling, passwords in any Unicode spelling', async () => {
  const spellings = [
    ['PLAIN-USER', PASSWORD],
    ['Plain-User', PASSWORD],
    ['ｐｌａｉｎ-user', PASSWORD],
    ['Émile', 'fine pâssword'],
    ['e\u0301mile', 'ﬁne pa\u0302ssword'],
    ['ÉMILE', 'ﬁne pâssword'],
  ];
  for (const [username, password] of spellings) {
    const answer = await tryLogin({ username, password });
    assert.equal(answer.status, 200, `${username} / ${password}: ${answer.text}`);
  }
});

test('members that the login does not know are ignored', async () => {
  assertSuccess(await tryLogin({ username: 'admin', password: ADMIN_PASSWORD, remember: true }));
});

test('no content type is asked for', async () => {
  const body = JSON.stringify({ username: 'admin', password: ADMIN_PASSWORD });
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  assertSuccess(await ask('POST', `${identity}/api/auth/login`, { body, headers }));
});

test('a logout ends the session, by the flag logged_out alone', async () => {
  const token = await logIn(identity);
  const witness = await logIn(identity);
  const answer = await logout(token);
  assertSuccess(answer);
  assert.equal(answer.json.data, null);
  assert.equal(await isOpen(identity, token), false);
  const { data } = (
    await ask('GET', `${identity}/api/session/info?session=${token}`, { bearer: witness })
  ).json;
  assert.deepEqual([data.logged_out, data.revoked], [true, false]);
  assert.ok(data.updated_at > data.created_at);
});

test('a logout needs no bearer, ends no other session, and may be repeated', async () => {
  const token = await logIn(identity);
  const other = await logIn(identity);
  for (const session of [token, token, UNKNOWN]) {
    const answer = await logout(session);
    assertSuccess(answer);
    assert.equal(answer.json.data, null);
  }
  assert.equal(await isOpen(identity, other), true);
});

test('a logout with what is no token is 400, also with the id of a session', async () => {
  const token = await logIn(identity);
  const { id } = await sessionOf(identity, token);
  for (const session of [
    id,
    `session:${id.toUpperCase()}`,
    'garbage',
    '',
    `${token}x`,
    'x'.repeat(8_000),
  ]) {
    assertError(await logout(session), 400, 'invalid_body', ['/session']);
  }
  assert.equal(await isOpen(identity, token), true);
});

test('the session of a token is the Session with its user', async () => {
  const token = await logIn(identity, 'plain-user', PASSWORD);
  const answer = await lookUp(token);
  assertSuccess(answer);
  assertSession(answer.json.data);
  const { revoked, logged_out, deleted_at, user } = answer.json.data;
  assert.deepEqual([revoked, logged_out, deleted_at], [false, false, null]);
  assert.deepEqual(
    [user.username, user.email, user.super_admin, user.enabled, user.verified],
    ['plain-user', 'plain-user@example.org', false, true, false],
  );
});
