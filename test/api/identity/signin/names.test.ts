/**
 * Names that people type, as phones and other keyboards write them, and who has which. With long
 * runs of combining marks, no request makes identity normalize one, or a password.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startSignIn } from '../../../support/factors.ts';
import { loginFrom, newAddress } from '../../../support/logins.ts';
import { LONG_RUN, longestRunNormalized } from '../../../support/normalized.ts';
import { rounds } from '../../../support/rounds.ts';
import { assertError, assertSuccess, PASSWORD } from '../../../support/users.ts';

const portal = await startSignIn({ after });
const { sql, admin, identity, call, add, enter, addSignedIn, post, show, signIn } = portal;
const { enterPassword, makeLink, beginLink } = portal;
/** From a network of its own, unless told otherwise. */
const login = (username: string, password = PASSWORD, from = newAddress()) =>
  loginFrom(identity, from, username, password);
const create = (username: string, email: string, token = admin.token) =>
  call(token, 'POST', '/api/user/', { username, email });

const PERSON = {
  username: "Anne-Marie O'Neill 7",
  email: 'anne-marie@münchen.example',
  first_name: 'Zoë Ludovica',
  last_name: 'D’Arcy–Lamb',
};
await add(PERSON);
const { host } = await addSignedIn({ super_admin: true });
const someone = await enter();
const pending = await beginLink(await makeLink(someone.id));

test('a name signs in as people type it, on the page and over the API', async () => {
  for (const name of [
    PERSON.email,
    'Anne–Marie  O’Neill ٧ ',
    'ANNE-marie@xn--mnchen-3ya.example',
    'anne-marie@mu\u0308nchen.example',
  ]) {
    assertSuccess(await login(name));
    await signIn(name);
  }
});

test('a password is compared as typed', async () => {
  for (const password of [`${PASSWORD} `, ` ${PASSWORD}`, PASSWORD.toUpperCase()])
    assertError(await login(PERSON.username, password), 401, 'invalid_credentials');
});

test("no username is another user's address, nor the other way round", async () => {
  const first = await create('first@example.org', 'first@example.org');
  assert.equal(first.status, 201, 'both may be the same for one user');
  for (const [username, email, path] of [
    ['anne-marie@xn--mnchen-3ya.example', 'second@example.org', '/username'],
    ['other', 'First@example.org', '/email'],
    ['ＦＩＲＳＴ@example.org', 'second@example.org', '/username'],
  ] as const)
    assertError(await create(username, email), 409, 'conflict', [path]);
  const { id } = (await create('second', 'second@example.org')).json.data;
  assert.equal((await create('mail@example.org', 'other@example.org')).status, 201);
  for (const [body, field] of [
    [{ username: PERSON.email }, 'username'],
    [{ email: 'mail@example.org' }, 'email'],
    [{ username: 'second@example.org' }, null],
    [{ username: 'second', email: 'third@example.org' }, null],
  ] as const) {
    const answer = await call(admin.token, 'PATCH', `/api/user/${id}`, body);
    if (field === null) assertSuccess(answer);
    else assertError(answer, 409, 'conflict', [`/${field}`]);
  }
  assert.equal((await create('second@example.org', 'fourth@example.org')).status, 201);
});

test('of users who take a name and an address at once, one gets it', async () => {
  // The changes of one administrator wait for each other anyway.
  const { token } = await enter({ super_admin: true });
  const pairs = Array.from({ length: 4 * rounds(4, 10) }, async (_, pair) => {
    const name = `race-${pair}@example.org`;
    const answers = await Promise.all([
      create(name, `own-${pair}@example.org`),
      create(`own-${pair}`, name, token),
    ]);
    assert.deepEqual(answers.map(({ status }) => status).sort(), [201, 409]);
  });
  await Promise.all(pairs);
});

test('the form of a new user reads names without the spaces of a phone', async () => {
  const fields = { username: 'grace ', email: ' grace@example.org', first_name: ' Grace ' };
  assert.equal((await post('/account/users', host, fields)).status, 200);
  const [row] = await sql`select username, email, first_name from identity.users
    where username_key = 'grace'`;
  assert.deepEqual(row, { username: 'grace', email: 'grace@example.org', first_name: 'Grace' });
});

test('users are found by words of their names', async () => {
  for (const [search, isFound] of [
    ["D'Arcy, Zoë", true],
    ['zoe\u0308 LAMB', true],
    [" o'neill marie ", true],
    ['münchen', true],
    ['xn--mnchen', false],
    ["zoë o'brien", false],
  ] as const) {
    const { text } = await show(`/account/users?search=${encodeURIComponent(search)}`, host);
    assert.equal(text.includes('Anne-Marie O&#39;Neill 7'), isFound, search);
  }
});

test('a name that nobody would see is rejected', async () => {
  for (const name of ['   ', '\u200b', '\u3000\u2800']) {
    assert.equal((await post('/account/keys', host, { name, days: '30' })).status, 400);
    const passkey = await post('/account/passkeys', host, { name, credential: '{}' });
    assert.match(passkey.text, /id="name-problem">Must /);
    assertError(await call(admin.token, 'POST', '/api/key/', { name }), 400, 'invalid_body', [
      '/name',
    ]);
  }
});

// --- Long runs of combining marks

const NEW_PASSWORD = `${'\u0344'.repeat(340)}${'\u0323'.repeat(340)}x`;
/** As long as a name may be. */
const NAME = LONG_RUN.slice(400, 600);
/** What NFKC and NFD make of 30 marks in a row, at most. */
const LONGEST = 100;

const send = (method: string, path: string, body: object) => call(admin.token, method, path, body);
const changePassword = (current_password: string, new_password: string) =>
  call(someone.token, 'POST', '/api/auth/password', { current_password, new_password });
const find = (path: string) => show(`/account/${path}=${encodeURIComponent(NAME)}`, host);
const newUser = (more: object) =>
  send('POST', '/api/user/', { username: 'new', email: 'new@example.org', ...more });

const WAYS: Readonly<Record<string, [number, () => Promise<{ status: number; text: string }>]>> = {
  'the name of a login': [401, () => login(LONG_RUN, PASSWORD)],
  'the password of a login': [401, () => login('admin', LONG_RUN)],
  'the name on the sign-in page': [401, () => enterPassword(LONG_RUN)],
  'the password on the sign-in page': [401, () => enterPassword('admin', LONG_RUN)],
  'a new password': [400, () => changePassword(PASSWORD, NEW_PASSWORD)],
  'the current password': [401, () => changePassword(NEW_PASSWORD, 'another passphrase')],
  'a password chosen with a link': [400, () => portal.choosePassword(pending, NEW_PASSWORD)],
  'the name of a new user': [400, () => newUser({ username: NAME })],
  'the password of a new user': [400, () => newUser({ password: NEW_PASSWORD })],
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
    const unknown = await login('nobody-here', PASSWORD, from);
    for (let sent = 1; sent <= 5; sent += 1) {
      const answer = await login(name, PASSWORD, from);
      assertError(answer, 401, 'invalid_credentials');
      assert.deepEqual(answer.json.error, unknown.json.error);
    }
    assertError(await login(name, PASSWORD, from), 429, 'too_many_requests');
    assertError(await login(`${name}x`, PASSWORD, from), 401, 'invalid_credentials');
  }
});
