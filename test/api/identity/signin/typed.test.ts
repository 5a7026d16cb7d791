/**
 * What people type is what they mean: names and codes as phones, other keyboards, other scripts,
 * and copy and paste write them.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { totpCode } from '../../../../src/identity/factors/codes.ts';
import { factorsOf } from '../../../support/factors.ts';
import { startPortal } from '../../../support/portal.ts';
import { assertError, assertSuccess, PASSWORD } from '../../../support/users.ts';
import { rounds } from '../../../support/rounds.ts';

const portal = await startPortal({ after });
const { sql, admin, call, add, enter: enterAs, visit, signIn } = portal;
const { stepNow, forgetSteps, enrol, start, enter, events } = factorsOf(portal);

const login = (username: string, more: object = {}) =>
  call(null, 'POST', '/api/auth/login', { username, password: PASSWORD, ...more });
const create = (username: string, email: string, token = admin.token) =>
  call(token, 'POST', '/api/user/', { username, email });

const PERSON = {
  username: "Anne-Marie O'Neill 7",
  email: 'anne-marie@münchen.example',
  first_name: 'Zoë Ludovica',
  last_name: 'D’Arcy–Lamb',
};
await add(PERSON);

const NAMES: Readonly<Record<string, string>> = {
  'the username': PERSON.username,
  'the e-mail address': PERSON.email,
  'capitals of a phone': 'Anne-marie@München.example',
  'a space after it': `${PERSON.email} `,
  'no-break spaces, tabs and a line break around it': `\u00a0\t${PERSON.username}\u3000\r\n`,
  'a space of zero width': `\u200b${PERSON.email}\u200b`,
  'marks of direction': `\u200e${PERSON.username}\u200f`,
  'a byte order mark': `\ufeff${PERSON.email}`,
  'a soft hyphen within': 'anne-\u00admarie@münchen.example',
  'full width': 'ａｎｎｅ－ｍａｒｉｅ＠münchen．example',
  'a hyphen that does not break': "Anne\u2011Marie O'Neill 7",
  'an en dash': "Anne–Marie O'Neill 7",
  'a typographic apostrophe': 'Anne-Marie O’Neill 7',
  'Arabic-Indic digits': "Anne-Marie O'Neill ٧",
  'Persian digits': "Anne-Marie O'Neill ۷",
  'two spaces': "Anne-Marie  O'Neill 7",
  'the ASCII form of the domain': 'anne-marie@xn--mnchen-3ya.example',
};
for (const [what, name] of Object.entries(NAMES)) {
  test(`${what} signs in, on the page and over the API`, async () => {
    assertSuccess(await login(name));
    await signIn(name);
  });
}

test('a password is compared as typed, after NFKC', async () => {
  for (const password of [`${PASSWORD} `, ` ${PASSWORD}`, PASSWORD.toUpperCase()])
    assertError(await login(PERSON.username, { password }), 401, 'invalid_credentials');
  await sql`delete from identity.throttles`;
});

test("no username is another user's address, nor the other way round", async () => {
  const taken = { path: '', message: 'is taken by another user' };
  const first = await create('first@example.org', 'first@example.org');
  assert.equal(first.status, 201, 'both may be the same for one user');
  const asName = await create('FIRST@example.org ', 'x@example.org');
  assertError(asName, 400, 'invalid_body', ['/username']);
  for (const [username, email, path] of [
    ['anne-marie@xn--mnchen-3ya.example', 'second@example.org', '/username'],
    ['other', 'First@example.org', '/email'],
    ['ＦＩＲＳＴ@example.org', 'second@example.org', '/username'],
  ] as const) {
    const refused = await create(username, email);
    assertError(refused, 409, 'conflict', [path]);
    assert.deepEqual(refused.json.error.fields, [{ ...taken, path }]);
  }
  const second = (await create('second', 'second@example.org')).json.data;
  const change = (body: object) =>
    call(admin.token, 'PATCH', `/api/user/${second.id}`, { ...body });
  assertError(await change({ username: PERSON.email }), 409, 'conflict', ['/username']);
  assert.equal((await create('mail@example.org', 'other@example.org')).status, 201);
  assertError(await change({ email: 'mail@example.org' }), 409, 'conflict', ['/email']);
  assertSuccess(await change({ username: 'second@example.org' }));
  assertSuccess(await change({ username: 'second', email: 'third@example.org' }));
  assert.equal((await create('second@example.org', 'fourth@example.org')).status, 201);
});

test('of users who take a name and an address at once, one gets it', async () => {
  // The changes of one administrator wait for each other anyway.
  const { token } = await enterAs({ super_admin: true });
  for (let round = 0; round < rounds(4, 10); round += 1) {
    const pairs = [0, 1, 2, 3].map(async (pair) => {
      const own = `own-${round}-${pair}`;
      const name = `race-${round}-${pair}@example.org`;
      const answers = await Promise.all([
        create(name, `${own}@example.org`),
        create(own, name, token),
      ]);
      assert.deepEqual(answers.map(({ status }) => status).sort(), [201, 409]);
    });
    await Promise.all(pairs);
  }
});

test('the form of a new user reads names without the spaces of a phone', async () => {
  const { host } = await signIn((await add({ super_admin: true })).username);
  const fields = { username: 'grace ', email: ' grace@example.org', first_name: ' Grace ' };
  const added = await visit('/account/users', { fields, cookie: host });
  assert.equal(added.status, 200, added.text);
  const [row] = await sql`select username, email, first_name from identity.users
    where username_key = 'grace'`;
  assert.deepEqual(row, { username: 'grace', email: 'grace@example.org', first_name: 'Grace' });
  const again = { ...fields, username: 'GRACE@example.org', email: 'g@example.org' };
  const refused = await visit('/account/users', { fields: again, cookie: host });
  assert.match(refused.text, /id="username-problem">Is taken by another user\.</);
});

test('users are found by words of their names', async () => {
  const { host } = await signIn((await add({ super_admin: true })).username);
  for (const [search, isFound] of [
    ["D'Arcy", true],
    ['D’ARCY-LAMB', true],
    ['zoe\u0308', true],
    ['zoë lamb', true],
    ["D'Arcy, Zoë", true],
    [' marie ', true],
    ["o'neill zoë", true],
    ['xn--mnchen', false],
    ['münchen', true],
    ["zoë o'brien", false],
  ] as const) {
    const path = `/account/users?search=${encodeURIComponent(search)}`;
    const { text } = await visit(path, { cookie: host });
    assert.equal(text.includes('Anne-Marie O&#39;Neill 7'), isFound, search);
  }
});

/** @param zero the digit 0 of a script */
const digitsFrom = (zero: number) => (code: string) =>
  code.replace(/\d/g, (digit) => String.fromCodePoint(zero + Number(digit)));
const CODES: Readonly<Record<string, (code: string) => string>> = {
  'digits of full width': digitsFrom(0xff10),
  'Arabic-Indic digits': digitsFrom(0x660),
  'Persian digits': digitsFrom(0x6f0),
  'Devanagari digits': digitsFrom(0x966),
  'Adlam digits': digitsFrom(0x1e950),
  'a hyphen': (code) => `${code.slice(0, 3)}-${code.slice(3)}`,
  'an em dash and spaces': (code) => `${code.slice(0, 3)} — ${code.slice(3)}`,
  'a narrow no-break space': (code) => `${code.slice(0, 3)}\u202f${code.slice(3)}`,
  'a space of zero width before it': (code) => `\u200b${code}`,
  'marks of direction': (code) => `\u200e\u2066${code}\u2069\u200e`,
  'a line break': (code) => `${code}\r\n`,
  'the words around it': (code) => `Your code is ${code.slice(0, 3)} ${code.slice(3)}.`,
};

test('a code of an app is read as it was typed or copied', async () => {
  const { username, id } = await add();
  const { secret } = await enrol(username);
  for (const [what, write] of Object.entries(CODES)) {
    await forgetSteps(id);
    const code = write(totpCode(secret, await stepNow()));
    const page = await enter(await start(username), code);
    assert.match(page.text, /<h1>You are signed in</, what);
    await forgetSteps(id);
    assertSuccess(await login(username, { otp: code }));
  }
  const other = await add();
  const { host } = await signIn(other.username);
  const offered = await visit('/account/totp/start', { fields: {}, cookie: host });
  assert.match(offered.text, /id="code"[^>]* maxlength="64"/, 'a copied code is not cut');
});

test('a recovery code is read with the dashes of a word processor', async () => {
  const { username } = await add();
  const { codes } = await enrol(username);
  for (const [at, dash] of ['–', '\u2011', '\u2212', ' - ', '\u200b', ''].entries()) {
    const code = (codes[at] ?? '').replaceAll('-', dash);
    const page = await enter(await start(username), code.toLowerCase());
    assert.match(page.text, /<h1>You are signed in</, JSON.stringify(dash));
  }
});

test('an empty otp is none, and no wrong code', async () => {
  const { username, id } = await add();
  const { secret } = await enrol(username);
  for (const otp of [...Array.from({ length: 20 }, () => ''), null, ' ', '\u200b'])
    assertError(await login(username, { otp }), 401, 'second_factor_needed');
  assert.equal(await events(id, 'factor.failed'), 0);
  await forgetSteps(id);
  assertSuccess(await login(username, { otp: totpCode(secret, await stepNow()) }));
});

test('an empty code on the page is no attempt', async () => {
  const { username, id } = await add();
  await enrol(username);
  const pending = await start(username);
  for (let count = 0; count < 8; count += 1) {
    const page = await enter(pending, ' - ');
    assert.equal(page.status, 400);
    assert.match(page.text, /id="code-problem">Code must not be empty\.|Must not be empty\./);
  }
  assert.equal(await events(id, 'factor.failed'), 0);
});

test('a name that nobody would see is rejected', async () => {
  const { username } = await add();
  const { host } = await signIn(username);
  for (const name of ['   ', '\u200b', '\u3000\u2800']) {
    const key = await visit('/account/keys', { fields: { name, days: '30' }, cookie: host });
    assert.equal(key.status, 400, JSON.stringify(name));
    const fields = { name, credential: '{}' };
    const passkey = await visit('/account/passkeys', { fields, cookie: host });
    assert.match(passkey.text, /id="name-problem">Must (not be empty|have a visible character)\./);
    const answer = await call(admin.token, 'POST', '/api/key/', { name });
    assertError(answer, 400, 'invalid_body', ['/name']);
  }
});
