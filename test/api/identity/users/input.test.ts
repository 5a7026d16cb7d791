/**
 * What is refused of a new or a changed user, for the same reasons and with the same words, and
 * what is stored as it came.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { assertCreated, startIdentity } from '../../../support/api-users.ts';
import { logIn } from '../../../support/gatehouse.ts';
import { assertError, assertSuccess, PASSWORD } from '../../../support/users.ts';

const { identity, sql, admin, call, add } = await startIdentity({ after });
const create = (body: unknown) => call(admin.token, 'POST', '/api/user/', body);
const subject = await add({ username: 'subject', email: 'subject@example.org' });
const users = async () => [...(await sql`select * from identity.users order by id`)];

/** Neither a new user nor a change takes this. */
async function assertRefused(member: string, value: string) {
  const before = await users();
  const given = { username: 'new', email: 'new@example.org', [member]: value };
  assertError(await create(given), 400, 'invalid_body', [`/${member}`]);
  const changed = await call(admin.token, 'PATCH', `/api/user/${subject.id}`, { [member]: value });
  assertError(changed, 400, 'invalid_body', [`/${member}`]);
  assert.deepEqual(await users(), before);
}

/** `test/unit/identity/rules.test.ts` has every rule, and every value that a rule rejects. */
const RULES: ReadonlyArray<readonly [what: string, member: string, value: string]> = [
  // 255 characters, and 4,590 after NFKC: more than an entry of an index can hold.
  ['name that is too long after NFKC', 'username', '\ufdfa'.repeat(255)],
  ['name that looks blank', 'username', '\u2800'],
  ['address without exactly one @ between two texts', 'email', 'a@b@c'],
  ['address that is too long after NFKC', 'email', `${'\ufdfa'.repeat(200)}@b`],
  ['first name with control characters', 'first_name', 'a\x7fb'],
  ['last name that looks blank', 'last_name', ' '],
];
for (const [what, member, value] of RULES) {
  test(`a ${what} is 400, and nothing is stored`, () => assertRefused(member, value));
}

test('the reply to many errors is bounded', async () => {
  const members = Array.from({ length: 5_000 }, (_, index) => [`m${index}`, 0]);
  const answer = await create(Object.fromEntries(members));
  assert.equal(answer.status, 400);
  assert.ok(answer.text.length < 5_000);
});

test('an error does not repeat a rejected value: it may be a password in the wrong member', async () => {
  for (const member of ['username', 'email', 'first_name', 'enabled']) {
    const answer = await create({
      username: 'new',
      email: 'new@example.org',
      [member]: ' correct horse\n',
    });
    assertError(answer, 400, 'invalid_body', [`/${member}`]);
    assert.doesNotMatch(answer.text, /horse/);
  }
});

test('any other name is stored and returned unchanged', async () => {
  const names = [
    'n'.repeat(255),
    'Zoë',
    'zoe\u0308 decomposed',
    'Ελένη',
    '李雷',
    '山田 太郎',
    'محمد',
    '\u{1f600} smile',
    "O'Brien; drop table users; --",
    '<script>alert(1)</script>',
    '"quoted", comma',
    '100% %41 \\x',
    '../../etc/passwd',
    '${jndi:ldap://x}',
    'a:b',
    '{"a":1}',
    '0',
    'null',
    'undefined',
    'ＷＩＤＥ',
  ];
  for (const [index, name] of names.entries()) {
    const given = {
      username: name,
      email: `${index}-${name.replace(/\s/g, '_').replace(/@/g, '').slice(0, 100)}@exämple.org`,
      first_name: name,
      last_name: ` ${name.slice(0, 250)} `,
    };
    const answer = await create(given);
    assertCreated(answer);
    const shown = await call(admin.token, 'GET', `/api/user/${answer.json.data.id}`);
    assertSuccess(shown);
    const { username, email, first_name, last_name } = shown.json.data;
    assert.deepEqual({ username, email, first_name, last_name }, given);
  }
});

/** These break another rule than that they are easy to guess. */
const BROKEN = ['', 'seven77', 'PassWord', 'ｐassword', 'a\0bcdefgh', 'p'.repeat(1_025)];

test('a password that the policy rejects is 400 wherever one is set, and nothing is stored', async () => {
  const before = await users();
  const token = await logIn(identity, subject.username, PASSWORD);
  const cases = ['gatehouse1', 'administrator1', 'Webhook-2024', 'aaaaaaaaaa', 'Ada-Lovelace1815'];
  const own = { username: 'ada.lovelace', email: 'admin@localhost.example' };
  for (const password of [...BROKEN, ...cases, 'admin@localhost.example', 'ADA.LOVELACE'])
    assertError(await create({ ...own, password }), 400, 'invalid_body', ['/password']);
  for (const password of [...BROKEN, ...cases.slice(0, 4), 'subject@example.org', 'Subject99']) {
    const set = await call(admin.token, 'POST', `/api/user/${subject.id}/password`, { password });
    assertError(set, 400, 'invalid_body', ['/password']);
    const { message } = set.json.error.fields[0];
    assert.equal(/choose several unrelated words$/.test(message), !BROKEN.includes(password));
    const change = { current_password: PASSWORD, new_password: password };
    const changed = await call(token, 'POST', '/api/auth/password', change);
    assertError(changed, 400, 'invalid_body', ['/new_password']);
  }
  assert.deepEqual(await users(), before);
  assert.equal(
    (await sql`select from identity.throttles where attempts > 0`).length,
    0,
    'a rejected new password is no failure',
  );
});
