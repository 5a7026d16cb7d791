/** Names that people type, as phones and other keyboards write them, and who has which. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startPortal } from '../../../support/portal.ts';
import { rounds } from '../../../support/rounds.ts';
import { assertError, assertSuccess, PASSWORD } from '../../../support/users.ts';

const { sql, admin, call, add, enter, addSignedIn, post, show, signIn } = await startPortal({
  after,
});
const login = (username: string, password = PASSWORD) =>
  call(null, 'POST', '/api/auth/login', { username, password });
const create = (username: string, email: string, token = admin.token) =>
  call(token, 'POST', '/api/user/', { username, email });

const PERSON = {
  username: "Anne-Marie O'Neill 7",
  email: 'anne-marie@münchen.example',
  first_name: 'Zoë Ludovica',
  last_name: 'D’Arcy–Lamb',
};
await add(PERSON);

for (const name of [PERSON.email, 'Anne–Marie  O’Neill ٧ ', 'ANNE-marie@xn--mnchen-3ya.example']) {
  test(`${name} signs in, on the page and over the API`, async () => {
    assertSuccess(await login(name));
    await signIn(name);
  });
}

test('a password is compared as typed', async () => {
  for (const password of [`${PASSWORD} `, ` ${PASSWORD}`, PASSWORD.toUpperCase()])
    assertError(await login(PERSON.username, password), 401, 'invalid_credentials');
  await sql`delete from identity.throttles`;
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
  const { host } = await addSignedIn({ super_admin: true });
  const fields = { username: 'grace ', email: ' grace@example.org', first_name: ' Grace ' };
  assert.equal((await post('/account/users', host, fields)).status, 200);
  const [row] = await sql`select username, email, first_name from identity.users
    where username_key = 'grace'`;
  assert.deepEqual(row, { username: 'grace', email: 'grace@example.org', first_name: 'Grace' });
});

test('users are found by words of their names', async () => {
  const { host } = await addSignedIn({ super_admin: true });
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
  const { host } = await addSignedIn();
  for (const name of ['   ', '\u200b', '\u3000\u2800']) {
    assert.equal((await post('/account/keys', host, { name, days: '30' })).status, 400);
    const passkey = await post('/account/passkeys', host, { name, credential: '{}' });
    assert.match(passkey.text, /id="name-problem">Must /);
    assertError(await call(admin.token, 'POST', '/api/key/', { name }), 400, 'invalid_body', [
      '/name',
    ]);
  }
});
