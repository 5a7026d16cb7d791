/** Users and tokens by command, on a real database, and what the services make of them. */
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { migrateAll } from '../../../src/commands/program.ts';
import { configure } from '../../../src/serve.ts';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, logIn, startGatehouse, variables } from '../../support/gatehouse.ts';

const file = await createDatabase();
const environment = {
  DATABASE_URL: file.url,
  PASSWORD_SCRYPT: variables(file.url).PASSWORD_SCRYPT ?? '',
};
const PASSWORD = 'a passphrase for tests';

before(async () => {
  await migrateAll(
    await configure(['identity', 'secrets', 'webhook'], 'administer', environment),
    process,
  );
});

const run = (words: readonly string[], input?: string | Buffer) =>
  runCommand(words, environment, input);

const create = (
  username: string,
  email: string,
  more: readonly string[] = [],
  input?: string | Buffer,
) => run(['user', 'create', '--username', username, '--email', email, ...more], input);

const names = async () =>
  (await file.sql`select username from identity.users order by username`).map(
    ({ username }) => username,
  );

test('a created user gets a password, once and on standard output alone, and can log in with it', async (t) => {
  const { code, stdout, stderr } = await create('made', 'made@example.org');
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^[A-Za-z0-9_-]{43}\n$/);
  assert.match(
    stderr,
    /^Created user "made" with id [0-9a-f-]{36}\.\nPassword \(shown only once, expires in 24 hours unless the user changes it\):\n$/,
  );
  const [row] =
    await file.sql`select first_name, last_name, verified, super_admin, enabled, password_hash from identity.users where username = 'made'`;
  assert.deepEqual(
    { ...row, password_hash: '' },
    {
      first_name: '',
      last_name: '',
      verified: false,
      super_admin: false,
      enabled: true,
      password_hash: '',
    },
  );
  assert.ok(!JSON.stringify(row).includes(stdout.trim()));
  const { url } = await startGatehouse(t, ['identity'], file.url);
  assert.match(await logIn(url.identity, 'made', stdout.trim()), /^session:/);
  await assert.rejects(logIn(url.identity, 'made', `${stdout.trim()} `), /401/);
});

const given: ReadonlyArray<readonly [what: string, input: string, password: string]> = [
  ['with a newline', `${PASSWORD}\n`, PASSWORD],
  ['with the newline of another system', `${PASSWORD}\r\n`, PASSWORD],
  [
    'with spaces that belong to it, in letters of the whole world',
    '  пароль 密码 🔑 ',
    '  пароль 密码 🔑 ',
  ],
];

test('a password from standard input is taken as it is, less one newline, and shown nowhere', async (t) => {
  const { url } = await startGatehouse(t, ['identity'], file.url);
  for (const [index, [what, input, password]] of given.entries()) {
    const { code, stdout, stderr } = await create(
      `given-${index}`,
      `given-${index}@example.org`,
      ['--password-stdin'],
      input,
    );
    assert.deepEqual([code, stdout], [0, ''], `${what}: ${stderr}`);
    assert.ok(!stderr.includes(password.trim()));
    assert.match(await logIn(url.identity, `given-${index}`, password), /^session:/, what);
  }
});

test('every option of a user sets its member', async () => {
  const { code } = await create('options', 'options@example.org', [
    '--first-name',
    'Ünï',
    '--last-name',
    'C. Ode',
    '--super-admin',
    '--verified',
  ]);
  assert.equal(code, 0);
  const [row] =
    await file.sql`select first_name, last_name, verified, super_admin from identity.users where username = 'options'`;
  assert.deepEqual(
    { ...row },
    { first_name: 'Ünï', last_name: 'C. Ode', verified: true, super_admin: true },
  );
});

const passwords: ReadonlyArray<readonly [what: string, input: string | Buffer, said: RegExp]> = [
  ['a short one', 'seven77\n', /password must have at least 8 characters/],
  ['none', '', /password must have at least 8 characters/],
  ['a common one in capitals', 'PASSWORD123\n', /password is among the most common passwords/],
  ['one that is no UTF-8 text', Buffer.from('fffefdfcfbfaf9f8f7f6f5f4', 'hex'), /UTF-8/],
];

test('a password that breaks a rule is rejected with that rule, and no user is created', async () => {
  for (const [what, input, said] of passwords) {
    const finished = await create('refused', 'refused@example.org', ['--password-stdin'], input);
    assertRefused(finished, 2, said);
    assert.ok(!(await names()).includes('refused'), what);
  }
});

const wrong: ReadonlyArray<
  readonly [username: string, email: string, more: readonly string[], said: RegExp]
> = [
  ['', 'x@example.org', [], /username /],
  ['line\nbreak', 'x@example.org', [], /username must not contain control characters/],
  [
    'wrong',
    'x@example.org',
    ['--first-name', '\u001b[31m'],
    /first-name must not contain control characters/,
  ],
  [' two', 'no address', [], /username [^;]*; email /],
];

test('every invalid option of a user is reported at once, with exit code 2', async () => {
  const before = await names();
  for (const [username, email, more, said] of wrong)
    assertRefused(await create(username, email, more), 2, said);
  assert.deepEqual(await names(), before);
});

const twins: ReadonlyArray<readonly [username: string, email: string, said: RegExp]> = [
  ['TWIN', 'other@example.org', /username is taken by another user/],
  ['ｔｗｉｎ', 'other@example.org', /username is taken by another user/],
  ['another', 'Twin@EXAMPLE.org', /email is taken by another user/],
];

test('a name or an address that only looks different is taken, with exit code 1', async () => {
  assert.equal((await create('twin', 'twin@example.org')).code, 0);
  for (const [username, email, said] of twins)
    assertRefused(await create(username, email), 1, said);
  assert.ok(!(await names()).includes('another'));
});

test('of users created at once under one name, exactly one is stored', async () => {
  const finished = await Promise.all(
    [1, 2, 3].map((number) => create('race', `race-${number}@example.org`)),
  );
  assert.deepEqual(finished.map(({ code }) => code).sort(), [0, 1, 1]);
});

test('user list prints all users that are not deleted, without passwords, as a table or as JSON', async () => {
  await create('listed', 'listed@example.org', ['--super-admin', '--verified']);
  await create('gone', 'gone@example.org');
  await file.sql`update identity.users set deleted_at = now() where username = 'gone'`;
  await file.sql`update identity.users set enabled = false where username = 'listed'`;
  const table = await run(['user', 'list']);
  assert.deepEqual([table.code, table.stderr], [0, '']);
  const lines = table.stdout.trimEnd().split('\n');
  assert.match(lines[0] ?? '', /^ID +USERNAME +EMAIL +CREATED +FLAGS +GROUPS$/);
  assert.match(
    lines.find((line) => line.includes('listed@')) ?? '',
    /^[0-9a-f-]{36} +listed +listed@example\.org +\S+Z +super-admin,verified,disabled/,
  );
  const json = await run(['user', 'list', '--json']);
  const users: Array<Record<string, unknown>> = JSON.parse(json.stdout);
  assert.equal(users.length, lines.length - 1);
  const listed = users.find(({ username }) => username === 'listed');
  assert.deepEqual(Object.keys(listed ?? {}), [
    'id',
    'first_name',
    'last_name',
    'username',
    'email',
    'enabled',
    'verified',
    'super_admin',
    'groups',
    'created_at',
    'updated_at',
    'deleted_at',
  ]);
  assert.ok(!users.some(({ username }) => username === 'gone'));
  assert.ok(!`${table.stdout}${json.stdout}`.includes('scrypt'));
});

const post = (baseUrl: string, token: string) =>
  ask('POST', `${baseUrl}/webhook?token=${token}`, {
    body: { event: 'tested', data: { page_id: '1' } },
  });

test('a created token is accepted until it is revoked, and is never shown again', async (t) => {
  const { url } = await startGatehouse(t, ['webhook'], file.url);
  const created = await run(['token', 'create', '--name', 'sender one']);
  assert.equal(created.code, 0, created.stderr);
  assert.match(created.stdout, /^[A-Za-z0-9_-]{43}\n$/);
  const token = created.stdout.trim();
  const id =
    /^Created token "sender one" with id ([0-9a-f-]{36})\./.exec(created.stderr)?.[1] ?? '';
  assert.equal((await post(url.webhook, token)).status, 200);

  const table = await run(['token', 'list']);
  assert.match(
    table.stdout,
    new RegExp(`^${id} +sender one +sender +generic +\\S+Z +\\S+ +0 +– +default +– +active$`, 'm'),
  );
  const json = await run(['token', 'list', '--json']);
  const tokens: Array<Record<string, unknown>> = JSON.parse(json.stdout);
  const record = tokens.find((one) => one.id === id);
  const { last_used_at, created_at: _, ...rest } = record ?? assert.fail('it is listed');
  assert.ok(
    last_used_at === null || Date.parse(String(last_used_at)) > 0,
    'uses are noted every few seconds',
  );
  assert.deepEqual(rest, {
    id,
    name: 'sender one',
    role: 'sender',
    source: 'generic',
    custom: null,
    target: null,
    keep_signature: false,
    revoked_at: null,
    pending: false,
    refused: 0,
    last_refusal: null,
    last_refused_at: null,
  });
  assert.ok(!`${table.stdout}${json.stdout}`.includes(token));

  const revoked = await run(['token', 'revoke', id]);
  assert.deepEqual(
    [revoked.code, revoked.stdout, revoked.stderr],
    [0, '', `Revoked token ${id}.\n`],
  );
  assert.equal((await post(url.webhook, token)).status, 401);
  assert.match(
    (await run(['token', 'list'])).stdout,
    new RegExp(`^${id} +sender one +sender .* +default +– +revoked \\S+Z$`, 'm'),
  );
  const since = await file.sql`select revoked_at from webhook.tokens where id = ${id}`;
  assert.equal((await run(['token', 'revoke', id])).code, 0, 'a second time is no error');
  assert.deepEqual(
    await file.sql`select revoked_at from webhook.tokens where id = ${id}`,
    since,
    'the first time is kept',
  );
});

test('an unknown token cannot be revoked', async () => {
  assertRefused(
    await run(['token', 'revoke', '00000000-0000-4000-8000-000000000000']),
    1,
    /no token has this id; see: gatehouse token list/,
  );
});
