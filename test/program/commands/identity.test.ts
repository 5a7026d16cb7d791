/**
 * Users and the audit trail by command: what is said where, what is refused, and what the service
 * makes of it.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, logIn, startGatehouse, variables } from '../../support/gatehouse.ts';
import type { Finished } from '../../support/process.ts';
import { assertUser, isOpen, PASSWORD } from '../../support/users.ts';

const file = await createDatabase();
const environment = { DATABASE_URL: file.url, PASSWORD_SCRYPT: variables().PASSWORD_SCRYPT ?? '' };
const UNKNOWN = '00000000-0000-4000-8000-000000000000';
const { identity } = (await startGatehouse({ after }, ['identity'], file.url)).url;
const administrator = await logIn(identity);

const run = (
  words: readonly string[],
  input?: string,
  given: Readonly<Record<string, string>> = environment,
) => runCommand(words, given, input);

/** Said to people alone, in these lines. */
function assertDone({ code, stdout, stderr }: Finished, ...lines: readonly string[]): void {
  assert.deepEqual(
    { code, stdout, stderr },
    { code: 0, stdout: '', stderr: lines.map((line) => `${line}\n`).join('') },
  );
}

/** @returns the id */
async function create(username: string, more: readonly string[] = []): Promise<string> {
  const { code, stderr } = await run(
    [
      'user',
      'create',
      '--username',
      username,
      '--email',
      `${username}@example.org`,
      '--password-stdin',
      ...more,
    ],
    PASSWORD,
  );
  assert.equal(code, 0, stderr);
  return /with id ([0-9a-f-]{36})\.\n$/.exec(stderr)?.[1] ?? '';
}

const read = async (path: string) =>
  (await ask('GET', `${identity}${path}`, { bearer: administrator })).json.data;
const trail = async () =>
  [...(await file.sql`select id from identity.audit order by id`)].map(({ id }) => id);
/** Every row of a user, for comparing. */
const rowOf = async (id: string) => ({
  ...(await file.sql`select * from identity.users where id = ${id}`)[0],
});

test('user show finds a user by id or by name in any case, as text or JSON', async () => {
  const id = await create('Shown', ['--first-name', 'Ünï', '--verified']);
  const user = await read(`/api/user/${id}`);
  for (const name of [id, 'Shown', 'SHOWN', 'ｓｈｏｗｎ']) {
    const { code, stdout, stderr } = await run(['user', 'show', name, '--json']);
    assert.deepEqual([code, stderr], [0, ''], name);
    assertUser(JSON.parse(stdout));
    assert.deepEqual(JSON.parse(stdout), user);
  }
  const { code, stdout, stderr } = await run(['user', 'show', 'shown']);
  assert.deepEqual([code, stderr], [0, '']);
  const lines = stdout
    .trimEnd()
    .split('\n')
    .map((line) => line.split(/ {2,}/));
  assert.deepEqual(
    lines.map(([member]) => member),
    Object.keys(user).map((name) => name.replaceAll('_', ' ')),
  );
  assert.deepEqual(
    lines.map(([, value = '']) => value),
    Object.values(user).map((value) => String(value ?? '–')),
  );
});

test('user list --json is what the interface lists', async () => {
  assert.deepEqual(
    JSON.parse((await run(['user', 'list', '--json'])).stdout),
    await read('/api/user/'),
  );
});

test('user set changes only what is named, and finds the user in any case', async () => {
  const id = await create('changed', ['--last-name', 'Before']);
  const { updated_at: _, ...before } = await rowOf(id);
  assertDone(
    await run([
      'user',
      'set',
      'CHANGED',
      '--first-name',
      'Ada',
      '--last-name',
      '',
      '--verified',
      'true',
    ]),
    `Changed user "changed" with id ${id}.`,
  );
  const { updated_at: __, ...row } = await rowOf(id);
  assert.deepEqual(row, { ...before, first_name: 'Ada', last_name: '', verified: true });
  assertDone(
    await run([
      'user',
      'set',
      id,
      '--verified',
      'false',
      '--super-admin',
      'true',
      '--email',
      'New@Example.org',
    ]),
    `Changed user "changed" with id ${id}.`,
  );
  const { verified, super_admin, email, email_key } = await rowOf(id);
  assert.deepEqual(
    { verified, super_admin, email, email_key },
    { verified: false, super_admin: true, email: 'New@Example.org', email_key: 'new@example.org' },
  );
});

test('a user with a new name logs in under it, and the old name is free', async () => {
  const id = await create('old-name');
  assertDone(
    await run(['user', 'set', 'old-name', '--username', 'New-Name']),
    `Changed user "New-Name" with id ${id}.`,
  );
  assert.match(await logIn(identity, 'new-name', PASSWORD), /^session:/);
  await assert.rejects(logIn(identity, 'old-name', PASSWORD), /401/);
  assert.equal(
    (await run(['user', 'create', '--username', 'old-name', '--email', 'second@example.org'])).code,
    0,
  );
  assertDone(
    await run(['user', 'set', 'new-name', '--username', 'NEW-NAME']),
    `Changed user "NEW-NAME" with id ${id}.`,
  );
});

test('a name or address of another user is exit code 1, and nothing is changed', async () => {
  await create('holder');
  const id = await create('taker');
  const before = await rowOf(id);
  assertRefused(
    await run(['user', 'set', 'taker', '--username', 'HOLDER', '--first-name', 'X']),
    1,
    /^gatehouse: username is taken by another user\n/,
  );
  assertRefused(
    await run(['user', 'set', 'taker', '--email', 'Holder@example.ORG', '--first-name', 'X']),
    1,
    /^gatehouse: email is taken by another user\n/,
  );
  assert.deepEqual(await rowOf(id), before);
});

test('a disabled user is logged out at once; an enabled one has no session', async () => {
  await create('switched');
  const token = await logIn(identity, 'switched', PASSWORD);
  assert.equal((await run(['user', 'set', 'switched', '--enabled', 'false'])).code, 0);
  assert.equal(await isOpen(identity, token), false);
  await assert.rejects(logIn(identity, 'switched', PASSWORD), /401/);
  assert.match((await run(['user', 'show', 'switched'])).stdout, /^enabled +false$/m);
  assert.equal((await run(['user', 'set', 'switched', '--enabled', 'true'])).code, 0);
  assert.equal(await isOpen(identity, token), false);
  assert.match(await logIn(identity, 'switched', PASSWORD), /^session:/);
});

test('a generated password is printed once, on standard output, and ends the sessions', async () => {
  await create('forgetful');
  const token = await logIn(identity, 'forgetful', PASSWORD);
  const { code, stdout, stderr } = await run(['user', 'password', 'Forgetful']);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^[A-Za-z0-9_-]{43}\n$/);
  assert.equal(
    stderr,
    'Set the password of user "forgetful"; the user\'s sessions have ended.\n' +
      'Password (shown only once, expires in 24 hours unless the user changes it):\n',
  );
  assert.equal(await isOpen(identity, token), false);
  await assert.rejects(logIn(identity, 'forgetful', PASSWORD), /401/);
  const login = (username: string, password: string) =>
    ask('POST', `${identity}/api/auth/login`, { body: { username, password } });
  assert.ok((await login('forgetful', stdout.trim())).json.data.password_expires_at);
  const created = await run([
    'user',
    'create',
    '--username',
    'newcomer',
    '--email',
    'newcomer@example.org',
  ]);
  assert.ok((await login('newcomer', created.stdout.trim())).json.data.password_expires_at);
  const [{ everything }] = await file.sql<[{ everything: string }]>`
    select string_agg(row::text, ' ') as everything from (select u::text as row
      from identity.users u union all select a::text from identity.audit a) as rows`;
  assert.ok(!everything.includes(stdout.trim()));
  const lists = [
    ['user', 'list'],
    ['user', 'show', 'forgetful'],
    ['user', 'show', 'forgetful', '--json'],
    ['audit', 'list'],
    ['audit', 'list', '--json'],
  ];
  for (const words of lists)
    assert.ok(!(await run(words)).stdout.includes(stdout.trim()), words.join(' '));
});

test('a password from standard input is not printed, and must obey the policy', async () => {
  const id = await create('given');
  const before = await rowOf(id);
  assertRefused(
    await run(['user', 'password', 'given', '--password-stdin'], 'seven77\n'),
    2,
    /^gatehouse: user password: password must have at least 8 characters\. See: gatehouse user password --help\n$/,
  );
  assertRefused(
    await run(['user', 'password', 'given', '--password-stdin'], ''),
    2,
    /password must have at least 8 characters/,
  );
  assertRefused(
    await run(['user', 'password', 'given', '--password-stdin'], 'password123'),
    2,
    /password is among the most common passwords/,
  );
  assert.deepEqual(await rowOf(id), before);
  assertDone(
    await run(['user', 'password', id, '--password-stdin'], ' another passphrase \n'),
    'Set the password of user "given"; the user\'s sessions have ended.',
  );
  assert.match(await logIn(identity, 'given', ' another passphrase '), /^session:/);
});

test('a deleted user has no session, is not listed, and the name is free', async () => {
  const id = await create('leaver');
  const token = await logIn(identity, 'leaver', PASSWORD);
  assertDone(await run(['user', 'delete', 'LEAVER']), `Deleted user "leaver" with id ${id}.`);
  assert.equal(await isOpen(identity, token), false);
  assert.ok(!(await run(['user', 'list'])).stdout.includes('leaver'));
  for (const name of [id, 'leaver'])
    assertRefused(await run(['user', 'delete', name]), 1, /there is no user with this id or name/);
  assert.notEqual(await create('leaver'), id);
});

test('second factors are removed with their recovery codes, and the sessions end', async () => {
  const id = await create('lost-phone');
  const token = await logIn(identity, 'lost-phone', PASSWORD);
  await file.sql`
    insert into identity.passkeys
      (id, user_id, name, spki, counter, is_backup_eligible, signs_in_alone)
    values ('\\x01', ${id}, 'phone', '\\x02', 0, false, false)`;
  await file.sql`insert into identity.recovery_codes (digest, user_id) values ('\\x03', ${id})`;
  await file.sql`update identity.users set second_factor = true where id = ${id}`;
  assertDone(
    await run(['user', 'factors', 'remove', 'LOST-phone']),
    'Removed 1 second factor of user "lost-phone"; the user\'s sessions have ended.',
  );
  assert.equal(await isOpen(identity, token), false);
  assert.match(await logIn(identity, 'lost-phone', PASSWORD), /^session:/, 'by the password alone');
  assert.equal(
    (await file.sql`select from identity.recovery_codes where user_id = ${id}`).length,
    0,
  );
  const [row] = await file.sql`select via, count, detail from identity.audit where user_id = ${id}
      and event = 'factor.removed'`;
  assert.deepEqual({ ...row }, { via: 'command', count: 1, detail: 'all' });
  assertDone(
    await run(['user', 'factors', 'remove', id]),
    'User "lost-phone" has no second factor.',
  );
  assertRefused(
    await run(['user', 'factors', 'remove', 'nobody']),
    1,
    /there is no user with this id or name/,
  );
});

test('the last enabled super administrator cannot be disabled, demoted or deleted', async (t) => {
  const own = await createDatabase(t);
  const url = (await startGatehouse(t, ['identity'], own.url)).url.identity;
  const here = { ...environment, DATABASE_URL: own.url };
  const token = await logIn(url);
  for (const words of [
    ['set', 'admin', '--enabled', 'false'],
    ['set', 'admin', '--super-admin', 'false', '--first-name', 'X'],
    ['delete', 'admin'],
  ]) {
    assertRefused(
      await run(['user', ...words], undefined, here),
      1,
      /^gatehouse: No other enabled super administrator has a password that does not expire\. Add one first\.\n$/,
    );
  }
  assert.equal(await isOpen(url, token), true);
  assert.deepEqual(
    {
      ...(
        await own.sql`select first_name, enabled, super_admin, deleted_at from identity.users`
      )[0],
    },
    { first_name: '', enabled: true, super_admin: true, deleted_at: null },
  );
  assert.equal(
    (
      await run(
        [
          'user',
          'create',
          '--username',
          'second',
          '--email',
          'second@example.org',
          '--super-admin',
        ],
        undefined,
        here,
      )
    ).code,
    0,
  );
  assert.equal(
    (await run(['user', 'delete', 'admin'], undefined, here)).code,
    1,
    'the password of the second one expires',
  );
  assert.equal(
    (await run(['user', 'password', 'second', '--password-stdin'], PASSWORD, here)).code,
    0,
  );
  assert.equal((await run(['user', 'delete', 'admin'], undefined, here)).code, 0);
  assert.equal(await isOpen(url, token), false);
});

test('an unknown user cannot be shown, changed or deleted, and leaves no trail', async () => {
  const before = await trail();
  for (const name of ['', `${UNKNOWN}0`])
    assertRefused(await run(['user', 'show', name]), 1, /there is no user with this id or name/);
  for (const name of ['nobody', UNKNOWN]) {
    for (const words of [['show'], ['set', '--verified', 'true'], ['password'], ['delete']]) {
      assertRefused(
        await run(['user', ...words, name]),
        1,
        /^gatehouse: there is no user with this id or name; see: gatehouse user list\n$/,
      );
    }
  }
  assertRefused(
    await run(['audit', 'list', '--user', 'nobody']),
    1,
    /there is no user with this id or name/,
  );
  assert.deepEqual(await trail(), before);
});

const helps: ReadonlyArray<readonly [command: string, usage: string, options: readonly string[]]> =
  [
    ['user show', 'USER [OPTION…]', ['--json']],
    [
      'user set',
      'USER [OPTION…]',
      [
        '--username NAME',
        '--email ADDRESS',
        '--first-name NAME',
        '--last-name NAME',
        '--groups NAMES',
        '--enabled true|false',
        '--verified true|false',
        '--super-admin true|false',
      ],
    ],
    ['user password', 'USER [OPTION…]', ['--password-stdin']],
    ['user delete', 'USER [OPTION…]', []],
    ['user factors remove', 'USER [OPTION…]', []],
    [
      'key create',
      '[OPTION…]',
      ['--user USER', '--without-user', '--name NAME', '--groups NAMES', '--expires-at TIME'],
    ],
    ['key list', '[OPTION…]', ['--user USER', '--json']],
    ['key revoke', 'ID [OPTION…]', []],
    ['audit list', '[OPTION…]', ['--user USER', '--event EVENT', '--limit NUMBER', '--json']],
  ];

test('the help of a command lists its arguments and every option', async () => {
  for (const [command, usage, options] of helps) {
    const { code, stdout, stderr } = await run([...command.split(' '), '--help'], undefined, {});
    assert.deepEqual([code, stderr], [0, '']);
    const [head, , summary, , ...rest] = stdout.trimEnd().split('\n');
    assert.equal(head, `Usage: gatehouse ${command} ${usage}`);
    assert.match(summary ?? '', /^[A-Z].{10,}\.$/);
    assert.deepEqual(
      rest.map((line) => /^ {2}(--.*?) {2,}\S/.exec(line)?.[1]),
      [...options, '--help'],
    );
  }
});

const wrong: ReadonlyArray<readonly [words: readonly string[], said: RegExp]> = [
  [['user', 'show'], /^gatehouse: user show takes USER\. See: gatehouse user show --help\n$/],
  [['user', 'show', 'admin', 'admin'], /user show takes USER/],
  [['user', 'set', '--verified', 'true'], /user set takes USER/],
  [['user', 'set', 'admin', 'admin', '--verified', 'true'], /user set takes USER/],
  [['user', 'password'], /user password takes USER/],
  [['user', 'password', 'admin', 'a new passphrase'], /user password takes USER/],
  [['user', 'delete'], /user delete takes USER/],
  [['user', 'delete', 'admin', 'nobody'], /user delete takes USER/],
  [['user', 'delete', 'admin', '--json'], /user delete: Unknown option '--json'/],
  [['user', 'set', 'admin'], /user set: name at least one option to change/],
  [['user', 'set', 'admin', '--enabled', 'maybe'], /user set: enabled must be true or false/],
  [['user', 'set', 'admin', '--verified', 'True'], /user set: verified must be true or false/],
  [['user', 'set', 'admin', '--super-admin', ''], /user set: super-admin must be true or false/],
  [['user', 'set', 'admin', '--enabled'], /user set: Option '--enabled <value>' argument missing/],
  [['user', 'set', 'admin', '--password', 'x'], /user set: Unknown option '--password'/],
  [['user', 'set', 'admin', '--username', ''], /user set: username /],
  [['user', 'set', 'admin', '--username', 'n'.repeat(10_000)], /user set: username /],
  [
    ['user', 'set', 'admin', '--username', ' admin'],
    /user set: username must not begin or end with a space/,
  ],
  [
    [
      'user',
      'set',
      'admin',
      '--email',
      'no address',
      '--first-name',
      'a\nb',
      '--last-name',
      '\u202e',
    ],
    /user set: [^;]*email must be [^;]*; first-name must [^;]*; last-name must /,
  ],
  [['audit', 'list', 'admin'], /audit list: /],
  [
    ['audit', 'list', '--limit', '0'],
    /^gatehouse: audit list: limit must be a whole number from 1 to 10000\. See: gatehouse audit list --help\n$/,
  ],
  [['audit', 'list', '--limit', '10001'], /limit must be a whole number/],
  [['audit', 'list', '--limit', '1.5'], /limit must be a whole number/],
  [['audit', 'list', '--limit=-1'], /limit must be a whole number/],
  [['audit', 'list', '--limit', ''], /limit must be a whole number/],
  [
    ['audit', 'list', '--event', 'login.Failed'],
    /audit list: event must be one of login\.succeeded, login\.failed, .*key\.revoked/,
  ],
  [['audit', 'list', '--event', ''], /event must be one of /],
];

test('wrong usage is one line with exit code 2, and nothing is done', async () => {
  const before = { trail: await trail(), users: await read('/api/user/') };
  for (const [words, said] of wrong) assertRefused(await run(words), 2, said);
  assert.deepEqual({ trail: await trail(), users: await read('/api/user/') }, before);
});

test('without a database or with an invalid password cost the exit code is 78', async () => {
  const commands = [
    ['show', 'admin'],
    ['set', 'admin', '--verified', 'true'],
    ['password', 'admin'],
    ['delete', 'admin'],
  ].map((words) => ['user', ...words]);
  for (const words of [...commands, ['audit', 'list']]) {
    assertRefused(await run(words, undefined, {}), 78, /DATABASE_URL/);
    assertRefused(
      await run(words, undefined, { ...environment, PASSWORD_SCRYPT: 'cheap' }),
      78,
      /PASSWORD_SCRYPT/,
    );
  }
});

test('commands appear in the trail as done by command, and audit list shows it', async () => {
  const id = await create('audited');
  await logIn(identity, 'audited', PASSWORD);
  await run(['user', 'set', 'audited', '--first-name', 'marked-text', '--verified', 'true']);
  await run(['user', 'password', 'audited']);
  await run(['user', 'delete', 'audited']);
  // A deleted user is found by id.
  const { code, stdout, stderr } = await run(['audit', 'list', '--user', id, '--json']);
  assert.deepEqual([code, stderr], [0, '']);
  assert.deepEqual(JSON.parse(stdout), await read(`/api/audit/?limit=100&user=${id}`));
  const rows: Array<Record<string, unknown>> = JSON.parse(stdout);
  const byCommand = rows
    .filter(({ via }) => via === 'command')
    .map(({ event, detail }) => [event, detail]);
  assert.deepEqual(byCommand.sort(), [
    ['password.set', ''],
    ['session.revoked', ''],
    ['user.changed', 'first_name verified=true'],
    ['user.created', ''],
    ['user.deleted', ''],
  ]);
  for (const row of rows.filter(({ via }) => via === 'command')) {
    assert.deepEqual(
      [row.actor_id, row.key_id, row.ip, row.request_id, row.user_id, row.count],
      [null, null, null, null, id, 1],
    );
  }
  assert.ok(!stdout.includes('marked-text'));
});

test('audit list takes a kind, a user by name and a number of lines, newest first', async () => {
  const id = await create('watched');
  await run(['user', 'set', 'watched', '--verified', 'true']);
  await run(['user', 'set', 'watched', '--verified', 'false']);
  const table = await run(['audit', 'list', '--user', 'WATCHED']);
  assert.deepEqual([table.code, table.stderr], [0, '']);
  const [head = '', ...lines] = table.stdout.trimEnd().split('\n');
  assert.match(head, /^TIME +EVENT +ABOUT USER +BY +KEY +KEY BY +IP +COUNT +DETAIL$/);
  assert.deepEqual(
    lines.map((line) => line.split(/ {2,}/).slice(1)),
    [
      ['user.changed', id, 'command', '–', '–', '–', '1', 'verified=false'],
      ['user.changed', id, 'command', '–', '–', '–', '1', 'verified=true'],
      ['user.created', id, 'command', '–', '–', '–', '1'],
    ],
  );
  const one = await run(['audit', 'list', '--event', 'login.succeeded', '--limit', '1', '--json']);
  const latest = await read('/api/audit/?limit=1&event=login.succeeded');
  assert.equal(latest.length, 1);
  assert.deepEqual(JSON.parse(one.stdout), latest);
  const none = await run(['audit', 'list', '--user', UNKNOWN]);
  assert.match(none.stdout, /^TIME [^\n]*\n$/);
  const few = await run(['audit', 'list', '--limit', '2']);
  assert.equal(few.stdout.trimEnd().split('\n').length, 3);
});
