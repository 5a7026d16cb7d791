/** GET /api/session/info and the four revocations, row by row. */
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { ask, launch, logIn } from '../../../support/gatehouse.ts';
import {
  addUser,
  assertError,
  assertRevoked,
  assertSession,
  assertSuccess,
  isOpen,
  openIdentity,
  PASSWORD,
  sessionOf,
} from '../../../support/users.ts';

const { identity, sql, databaseUrl } = await launch(['identity']);
const database = openIdentity({ after }, databaseUrl);
const one = await addUser(database, 'user-one');
await addUser(database, 'user-two');
const logInAs = (username: string) => logIn(identity, username, PASSWORD);
const del = (path: string, bearer: string) =>
  ask('DELETE', `${identity}/api/session/${path}`, { bearer });
const info = (token: string, bearer: string) =>
  ask('GET', `${identity}/api/session/info?session=${token}`, { bearer });

// Some tests count every session that there is.
beforeEach(async () => {
  await sql`delete from identity.sessions`;
});

test('a logged-in caller may read the session of a token', async () => {
  const token = await logIn(identity);
  const own = await logInAs('user-one');
  const answer = await info(token, own);
  assertSuccess(answer);
  assertSession(answer.json.data);
  assert.equal(answer.json.data.user.username, 'admin');
});

test('the session of a token that has ended is still returned, with its flags', async () => {
  const admin = await logIn(identity);
  const revoked = await logInAs('user-one');
  const loggedOut = await logInAs('user-one');
  const expired = await logInAs('user-one');
  const { id } = await sessionOf(identity, expired);
  await del(`revoke?session=${revoked}`, admin);
  await ask('POST', `${identity}/api/auth/logout`, { body: { session: loggedOut } });
  await sql`update identity.sessions set expires_at = now() - interval '1 second' where id = ${id}`;
  const flags = [];
  for (const token of [revoked, loggedOut, expired]) {
    const answer = await info(token, admin);
    assertSuccess(answer);
    assertSession(answer.json.data);
    flags.push([
      answer.json.data.revoked,
      answer.json.data.logged_out,
      Date.parse(answer.json.data.expires_at) < Date.now(),
    ]);
  }
  assert.deepEqual(flags, [
    [true, false, false],
    [false, true, false],
    [false, false, true],
  ]);
});

test('a deleted session gets the same reply as an unknown one', async () => {
  const admin = await logIn(identity);
  const token = await logInAs('user-one');
  const { id } = await sessionOf(identity, token);
  await sql`update identity.sessions set deleted_at = now() where id = ${id}`;
  assert.equal(await isOpen(identity, token), false);
  assertError(await info(token, admin), 400, 'invalid_session_token');
  assertError(await del(`revoke?session=${token}`, admin), 400, 'invalid_session_token');
  assertError(await del(`${id}/revoke`, admin), 404, 'not_found');
});

test('a session is revoked by its token in every form, at once and permanently', async () => {
  const admin = await logIn(identity);
  for (const encode of [
    (token: string) => token,
    (token: string) => encodeURIComponent(Buffer.from(token).toString('base64')),
  ]) {
    const token = await logInAs('user-one');
    const other = await logInAs('user-one');
    assertRevoked(await del(`revoke?session=${encode(token)}`, admin), '1 session revoked.');
    assert.deepEqual([await isOpen(identity, token), await isOpen(identity, other)], [false, true]);
    const { data } = (await info(token, admin)).json;
    assert.deepEqual([data.revoked, data.logged_out], [true, false]);
    assert.ok(data.updated_at > data.created_at);
  }
});

test('revoking twice is 200, and the second time counts nothing', async () => {
  const admin = await logIn(identity);
  const token = await logInAs('user-one');
  const { id } = await sessionOf(identity, token);
  assertRevoked(await del(`${id}/revoke`, admin), '1 session revoked.');
  assertRevoked(await del(`${id}/revoke`, admin), '0 sessions revoked.');
  assertRevoked(await del(`revoke?session=${token}`, admin), '0 sessions revoked.');
});

test('a session is revoked by its id: by a super administrator or by its user', async () => {
  const admin = await logIn(identity);
  const own = await logInAs('user-one');
  for (const bearer of [admin, own]) {
    const token = await logInAs('user-one');
    const { id } = await sessionOf(identity, token);
    assertRevoked(
      await del(`${bearer === own ? id.toUpperCase() : id}/revoke`, bearer),
      '1 session revoked.',
    );
    assert.equal(await isOpen(identity, token), false);
  }
});

test("revoke/all ends all sessions, the caller's too, and counts the open ones", async () => {
  const tokens = [
    await logIn(identity),
    await logIn(identity),
    await logInAs('user-one'),
    await logInAs('user-two'),
  ];
  const [admin = '', , ended = ''] = tokens;
  await ask('POST', `${identity}/api/auth/logout`, { body: { session: ended } });
  assertRevoked(await del('revoke/all', admin), '3 sessions revoked.');
  for (const token of tokens) assert.equal(await isOpen(identity, token), false);
  assert.equal(await isOpen(identity, await logIn(identity)), true);
});

test('a session that had expired before is not revoked by revoke/all', async () => {
  const expired = await logInAs('user-one');
  await sql`update identity.sessions set created_at = now() - interval '2 days',
    expires_at = now() - interval '1 day'`;
  assertRevoked(await del('revoke/all', await logIn(identity)), '1 session revoked.');
  assert.equal((await info(expired, await logIn(identity))).json.data.revoked, false);
});

test('the list of active sessions has its total after revocations of all and of a user', async () => {
  await logInAs('user-one');
  await del('revoke/all', await logIn(identity));
  const admin = await logIn(identity);
  await logInAs('user-one');
  await del(`revoke/all/user?user=${one}`, admin);
  await logInAs('user-one');
  const { json } = await ask('GET', `${identity}/api/session/?active=true`, { bearer: admin });
  assert.deepEqual([json.data.length, json._meta.pagination.total], [2, 2]);
});

test('simultaneous revocations of one session count it once', async () => {
  const admin = await logIn(identity);
  const token = await logInAs('user-one');
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => del(`revoke?session=${token}`, admin)),
  );
  const messages = answers.map((answer) => answer.json.data.message).sort();
  assert.deepEqual(messages, [
    ...Array<string>(19).fill('0 sessions revoked.'),
    '1 session revoked.',
  ]);
});
