/**
 * Names and passwords with long runs of combining marks: no request makes identity normalize one.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ADMIN_PASSWORD, type Answer, ask } from '../../../support/gatehouse.ts';
import { newAddress } from '../../../support/logins.ts';
import { LONG_RUN, longestRunNormalized } from '../../../support/normalized.ts';
import { cookieFrom, startPortal } from '../../../support/portal.ts';
import { assertError, PASSWORD } from '../../../support/users.ts';

const portal = await startPortal({ after });
const { admin, identity, call, add, enter, visit, signIn } = portal;

const NEW_PASSWORD = `${'\u0344'.repeat(340)}${'\u0323'.repeat(340)}x`;
/** What NFKC and NFD make of 30 marks in a row, at most. */
const LONGEST = 100;

const logIn = (username: string, password: string, from = newAddress()): Promise<Answer> =>
  ask('POST', `${identity}/api/auth/login`, {
    body: { username, password },
    headers: { 'x-forwarded-for': from },
  });
const signInAs = (username: string, password: string) =>
  visit('/login', { fields: { username, password, return_to: '' } });
const cookie = (await signIn('admin', { fields: { password: ADMIN_PASSWORD } })).host;
const someone = await enter();

/** Opens a link of this user. @returns the cookie of the browser that may choose a password */
async function openLink(id: string): Promise<string> {
  const { json } = await call(admin.token, 'POST', `/api/user/${id}/link`, {});
  const page = await visit('/link', { fields: { token: String(json.data.link) } });
  return cookieFrom(page, '__Host-gatehouse-pending');
}
const pending = await openLink(someone.id);

const WAYS: ReadonlyArray<
  readonly [what: string, status: number, send: () => Promise<{ status: number; text: string }>]
> = [
  ['the name of a login', 401, () => logIn(LONG_RUN, PASSWORD)],
  ['the password of a login', 401, () => logIn('admin', LONG_RUN)],
  ['the name on the sign-in page', 401, () => signInAs(LONG_RUN, PASSWORD)],
  ['the password on the sign-in page', 401, () => signInAs('admin', LONG_RUN)],
  [
    'a new password',
    400,
    () =>
      call(someone.token, 'POST', '/api/auth/password', {
        current_password: PASSWORD,
        new_password: NEW_PASSWORD,
      }),
  ],
  [
    'the current password',
    401,
    () =>
      call(someone.token, 'POST', '/api/auth/password', {
        current_password: NEW_PASSWORD,
        new_password: 'another passphrase',
      }),
  ],
  [
    'a password that is chosen with a link',
    400,
    () =>
      visit('/login/password', {
        cookie: pending,
        fields: { password: NEW_PASSWORD, return_to: '' },
      }),
  ],
  [
    'the name of a new user',
    400,
    () =>
      call(admin.token, 'POST', '/api/user/', {
        username: LONG_RUN.slice(400, 600),
        email: 'new@example.org',
      }),
  ],
  [
    'the password of a new user',
    400,
    () =>
      call(admin.token, 'POST', '/api/user/', {
        username: 'new',
        email: 'new@example.org',
        password: NEW_PASSWORD,
      }),
  ],
  [
    'a first name',
    400,
    () =>
      call(admin.token, 'PATCH', `/api/user/${someone.id}`, {
        first_name: `x${LONG_RUN.slice(400, 600)}`,
      }),
  ],
  [
    'the search for a user',
    200,
    () =>
      visit(`/account/users?search=${encodeURIComponent(LONG_RUN.slice(400, 600))}`, { cookie }),
  ],
  [
    'the user of the audit trail',
    200,
    () => visit(`/account/audit?user=${encodeURIComponent(LONG_RUN.slice(400, 600))}`, { cookie }),
  ],
];

for (const [what, status, send] of WAYS) {
  test(`a long run of combining marks in ${what} is not normalized`, async () => {
    const longest = await longestRunNormalized(async () => {
      const answer = await send();
      assert.equal(answer.status, status, answer.text);
    });
    assert.ok(longest <= LONGEST, `a run of ${longest} marks was normalized`);
  });
}

test('a name that nobody can have is throttled and answered like an unknown one', async () => {
  for (const name of [LONG_RUN, 'n'.repeat(256), `x${'\u0323'.repeat(31)}`]) {
    const from = newAddress();
    const unknown = await logIn('nobody-here', PASSWORD, from);
    const answers: Answer[] = [];
    for (let sent = 0; sent < 6; sent += 1) answers.push(await logIn(name, PASSWORD, from));
    for (const answer of answers.slice(0, 5)) {
      assertError(answer, 401, 'invalid_credentials');
      assert.deepEqual(answer.json.error, unknown.json.error);
    }
    assertError(answers.at(-1) ?? unknown, 429, 'too_many_requests');
    const other = await logIn(`${name}x`, PASSWORD, from);
    assertError(other, 401, 'invalid_credentials');
  }
});

test('names with 30 marks in a row, in Hangul and in other scripts are those of users', async () => {
  for (const name of [
    `z${'\u0301\u0323'.repeat(15)}`,
    'Z\u0351\u036b\u0343a\u0325\u034d\u0300l\u0322\u0316g\u0334\u0308o\u0330',
    '홍길동'.repeat(85),
    '\u1112\u1169\u11bc\u1100\u1175\u11af',
    'นางสาวน้ำฝน',
    'ｶﾞｷﾞｸﾞ',
    'n'.repeat(255),
  ]) {
    const password = `${name.slice(0, 40)} is not my password`;
    await add({ username: name, password });
    const spellings = [name, name.normalize('NFD'), name.normalize('NFKC')];
    for (const spelling of spellings.filter(({ length }) => length <= 255)) {
      const answer = await logIn(spelling, password.normalize('NFD'));
      assert.equal(answer.status, 200, `${spelling}: ${answer.text}`);
    }
  }
});
