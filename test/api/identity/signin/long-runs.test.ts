/**
 * Names and passwords with long runs of combining marks: no request makes identity normalize one.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { linksOf } from '../../../support/factors.ts';
import { ask } from '../../../support/gatehouse.ts';
import { newAddress } from '../../../support/logins.ts';
import { LONG_RUN, longestRunNormalized } from '../../../support/normalized.ts';
import { startPortal } from '../../../support/portal.ts';
import { assertError, PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after });
const { admin, identity, call, add, enter, addSignedIn, show, enterPassword } = portal;
const { makeLink, beginLink } = linksOf(portal);

const NEW_PASSWORD = `${'\u0344'.repeat(340)}${'\u0323'.repeat(340)}x`;
/** As long as a name may be. */
const NAME = LONG_RUN.slice(400, 600);
/** What NFKC and NFD make of 30 marks in a row, at most. */
const LONGEST = 100;

const logIn = (username: string, password: string, from = newAddress()) =>
  ask('POST', `${identity}/api/auth/login`, {
    body: { username, password },
    headers: { 'x-forwarded-for': from },
  });
const { host } = await addSignedIn({ super_admin: true });
const someone = await enter();
const pending = await beginLink(await makeLink(someone.id));
const send = (method: string, path: string, body: object) => call(admin.token, method, path, body);
const changePassword = (current_password: string, new_password: string) =>
  call(someone.token, 'POST', '/api/auth/password', { current_password, new_password });
const find = (path: string) => show(`/account/${path}=${encodeURIComponent(NAME)}`, host);
const person = { username: 'new', email: 'new@example.org' };

const WAYS: Readonly<Record<string, [number, () => Promise<{ status: number; text: string }>]>> = {
  'the name of a login': [401, () => logIn(LONG_RUN, PASSWORD)],
  'the password of a login': [401, () => logIn('admin', LONG_RUN)],
  'the name on the sign-in page': [401, () => enterPassword(LONG_RUN)],
  'the password on the sign-in page': [401, () => enterPassword('admin', LONG_RUN)],
  'a new password': [400, () => changePassword(PASSWORD, NEW_PASSWORD)],
  'the current password': [401, () => changePassword(NEW_PASSWORD, 'another passphrase')],
  'a password that is chosen with a link': [
    400,
    () => portal.choosePassword(pending, NEW_PASSWORD),
  ],
  'the name of a new user': [400, () => send('POST', '/api/user/', { ...person, username: NAME })],
  'the password of a new user': [
    400,
    () => send('POST', '/api/user/', { ...person, password: NEW_PASSWORD }),
  ],
  'a first name': [400, () => send('PATCH', `/api/user/${someone.id}`, { first_name: `x${NAME}` })],
  'the search for a user': [200, () => find('users?search')],
  'the user of the audit trail': [200, () => find('audit?user')],
};

for (const [what, [status, work]] of Object.entries(WAYS)) {
  test(`a long run of combining marks in ${what} is not normalized`, async () => {
    const longest = await longestRunNormalized(async () => {
      const answer = await work();
      assert.equal(answer.status, status, answer.text);
    });
    assert.ok(longest <= LONGEST, `a run of ${longest} marks was normalized`);
  });
}

test('a name that nobody can have is throttled and answered like an unknown one', async () => {
  for (const name of [LONG_RUN, 'n'.repeat(256), `x${'\u0323'.repeat(31)}`]) {
    const from = newAddress();
    const unknown = await logIn('nobody-here', PASSWORD, from);
    for (let sent = 1; sent <= 5; sent += 1) {
      const answer = await logIn(name, PASSWORD, from);
      assertError(answer, 401, 'invalid_credentials');
      assert.deepEqual(answer.json.error, unknown.json.error);
    }
    assertError(await logIn(name, PASSWORD, from), 429, 'too_many_requests');
    assertError(await logIn(`${name}x`, PASSWORD, from), 401, 'invalid_credentials');
  }
});

test('names with 30 marks in a row, in Hangul and in other scripts are those of users', async () => {
  for (const name of [
    `z${'\u0301\u0323'.repeat(15)}`,
    'Z\u0351\u036b\u0343a\u0325\u034d\u0300l\u0322\u0316g\u0334\u0308o\u0330',
    '홍길동'.repeat(85),
    'นางสาวน้ำฝน',
    'n'.repeat(255),
  ]) {
    const password = `${name.slice(0, 40)} is not my password`;
    await add({ username: name, password });
    for (const spelling of [name, name.normalize('NFD'), name.normalize('NFKC')]) {
      if (spelling.length > 255) continue;
      const answer = await logIn(spelling, password.normalize('NFD'));
      assert.equal(answer.status, 200, `${spelling}: ${answer.text}`);
    }
  }
});
