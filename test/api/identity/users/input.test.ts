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
async function assertRefused(member: string, values: readonly unknown[]) {
  const before = await users();
  for (const value of values) {
    const what = JSON.stringify(value).slice(0, 60);
    for (const answer of [
      await create({ username: 'new', email: 'new@example.org', [member]: value }),
      await call(admin.token, 'PATCH', `/api/user/${subject.id}`, { [member]: value }),
    ]) {
      assert.equal(answer.status, 400, `${what}: ${answer.text}`);
      assertError(answer, 400, 'invalid_body', [`/${member}`]);
    }
  }
  assert.deepEqual(await users(), before);
}

const CONTROLS: readonly string[] = [
  '\0',
  '\x01',
  '\b',
  '\t',
  '\n',
  '\r\n',
  '\x1b[31m',
  '\x7f',
  '\u0080',
  '\u0085',
  '\u009b31m',
  '\u2028',
  '\u2029',
];
/** They turn the order of a line round where it is shown. */
const REVERSALS: readonly string[] = [
  '\u061c',
  '\u200e',
  '\u200f',
  '\u202a',
  '\u202e',
  '\u2066',
  '\u2069',
];
// 255 characters, and 4,590 after NFKC: more than an entry of an index can hold.
const SWELLING = '\ufdfa'.repeat(255);
const around = (character: string) => `a${character}b`;

test('a name that is too long after NFKC is 400', async () => {
  await assertRefused('username', [SWELLING]);
});

test('a name with control characters is 400', async () => {
  await assertRefused('username', [...CONTROLS, ...REVERSALS].map(around));
});

test('a name that begins or ends with a space of any kind is 400', async () => {
  await assertRefused('username', [
    ' admin',
    'admin ',
    '\u00a0admin',
    'admin\u3000',
    '\u2003admin',
    'admin\ufeff',
    ' ',
  ]);
});

test('a name with invisible format characters is 400', async () => {
  await assertRefused(
    'username',
    ['\u00ad', '\u200b', '\u200c', '\u200d', '\u2060', '\u2064', '\ufeff', '\u{e0041}'].map(around),
  );
});

test('a name with invisible letters and marks is 400', async () => {
  // Hangul fillers, the grapheme joiner, variation selectors.
  await assertRefused(
    'username',
    [
      '\u115f',
      '\u1160',
      '\u3164',
      '\uffa0',
      '\u034f',
      '\u180b',
      '\ufe00',
      '\ufe0f',
      '\u{e0100}',
    ].map((character) => `admin${character}`),
  );
});

test('an address without exactly one @ between two texts is 400', async () => {
  await assertRefused('email', [
    '',
    'plain',
    'plain.example.org',
    '@example.org',
    'plain@',
    '@',
    '@@',
    'a@b@c',
    'plain@@example.org',
    'plain at example.org',
  ]);
});

test('an address with spaces or control characters, or too long after NFKC, is 400', async () => {
  const inside = [' ', '\u00a0', '\u3000', ...CONTROLS, ...REVERSALS].map(
    (character) => `a${character}b@example.org`,
  );
  await assertRefused('email', [
    ...inside,
    ' a@example.org',
    'a@example.org ',
    'a@exam\nple.org',
    `${'\ufdfa'.repeat(200)}@b`,
  ]);
});

test('an address with invisible characters is 400', async () => {
  await assertRefused(
    'email',
    ['\u00ad', '\u200b', '\u2060', '\u3164', '\ufe0f'].map(
      (character) => `subject${character}@example.org`,
    ),
  );
});

test('a first or last name with control characters is 400', async () => {
  for (const member of ['first_name', 'last_name']) {
    await assertRefused(member, [...CONTROLS, ...REVERSALS].map(around));
  }
});

test('a password that the policy rejects creates no user', async () => {
  const before = await users();
  for (const password of [
    '',
    'seven77',
    'password',
    'PASSWORD1',
    'a\0bcdefgh',
    'p'.repeat(1_025),
  ]) {
    assertError(
      await create({ username: 'new', email: 'new@example.org', password }),
      400,
      'invalid_body',
      ['/password'],
    );
  }
  assert.deepEqual(await users(), before);
});

test('many errors are reported at once, in a bounded reply', async () => {
  assertError(
    await create({ username: '', email: 'x', first_name: 1, enabled: 'yes' }),
    400,
    'invalid_body',
    ['/username', '/email', '/first_name', '/enabled'],
  );
  const answer = await create(
    Object.fromEntries(Array.from({ length: 5_000 }, (_, index) => [`m${index}`, 0])),
  );
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

test('a name that looks blank, or a part of it, is 400', async () => {
  await assertRefused('username', [
    '\u2800',
    '\u3164',
    'a\u2800b',
    'a\u115fb',
    'a\uffa0b',
    'a\u{1d159}b',
  ]);
  for (const member of ['first_name', 'last_name'])
    await assertRefused(member, [' ', '\u2800', '\u3164 \u200d', '\u00ad']);
});

test('names that differ only by case folding are one account', async () => {
  const pairs = [
    ['σίσυφος', 'ΣΊΣΥΦΟΣ'],
    ['σίσυφοσ2', 'σίσυφος2'],
    ['straße', 'STRASSE'],
    ['strasse2', 'straẞe2'],
    ['ılgaz', 'ilgaz'],
    ['İpek', 'ipek'],
    ['ﬀ', 'FF'],
  ];
  for (const [index, [one = '', other = '']] of pairs.entries()) {
    assertCreated(await create({ username: one, email: `fold-${index}@example.org` }));
    assertError(
      await create({ username: other, email: `fold-${index}-b@example.org` }),
      409,
      'conflict',
      ['/username'],
    );
    assertError(
      await create({
        username: `fold-${index}`,
        email: `fold-${index}@EXAMPLE.org`.replace('s', 'ſ'),
      }),
      409,
      'conflict',
      ['/email'],
    );
  }
});

test('a password that is easy to guess is 400 wherever one is set, and nothing is stored', async () => {
  const before = await users();
  const token = await logIn(identity, subject.username, PASSWORD);
  const cases = ['gatehouse1', 'administrator1', 'Webhook-2024', 'aaaaaaaaaa', 'Ada-Lovelace1815'];
  const own = { username: 'ada.lovelace', email: 'admin@localhost.example' };
  for (const password of [...cases, 'admin@localhost.example', 'ADA.LOVELACE']) {
    assertError(await create({ ...own, password }), 400, 'invalid_body', ['/password']);
  }
  for (const password of [...cases.slice(0, 4), 'subject@example.org', 'Subject99']) {
    const set = await call(admin.token, 'POST', `/api/user/${subject.id}/password`, { password });
    assertError(set, 400, 'invalid_body', ['/password']);
    assert.match(set.json.error.fields[0].message, /choose several unrelated words$/);
    const change = { current_password: PASSWORD, new_password: password };
    assertError(await call(token, 'POST', '/api/auth/password', change), 400, 'invalid_body', [
      '/new_password',
    ]);
  }
  assert.deepEqual(await users(), before);
  assert.equal(
    (await sql`select from identity.throttles where attempts > 0`).length,
    0,
    'a rejected new password is no failure',
  );
});
