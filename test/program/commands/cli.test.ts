/** The command line as its users meet it: words in, exit code and one line out. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { runCommand } from '../../support/commands.ts';
import { createEmptyDatabase } from '../../support/database.ts';
import { variables } from '../../support/gatehouse.ts';
import { buildProgram, type Finished, runProgram } from '../../support/process.ts';

const program = buildProgram();
const file = await createEmptyDatabase();
const environment = variables(file.url);

const split = (words: string | readonly string[]) =>
  typeof words === 'string' ? words.split(' ').filter(Boolean) : words;

/** In a process of its own, with the exit code that a shell sees. */
const run = (
  t: TestContext,
  words: string | readonly string[],
  given: Readonly<Record<string, string>> = environment,
) => runProgram(t, program, split(words), given);

/**
 * Wrong in whatever way: nothing on standard output, and lines for people on the other, never a
 * stack.
 */
function assertFailure(finished: Finished, code: number, lines = 1): void {
  assert.equal(finished.code, code, finished.stderr);
  assert.equal(finished.stdout, '');
  const said = finished.stderr.split('\n');
  assert.equal(said.pop(), '', 'the last line ends');
  assert.equal(said.length, lines, finished.stderr);
  for (const line of said) assert.match(line, /^gatehouse: \S/);
  assert.doesNotMatch(finished.stderr, /^\s+at |\.js:\d+|node:internal/m);
}

const COMMANDS = [
  'serve',
  'migrate',
  'check',
  'version',
  'user create',
  'user list',
  'user show',
  'user set',
  'user password',
  'user delete',
  'user factors remove',
  'key create',
  'key list',
  'key revoke',
  'audit list',
  'user unlock',
  'user invite',
  'user link',
  'user secure',
  'group list',
  'token create',
  'token list',
  'token rotate',
  'token revoke',
  'token target',
  'token test',
  'token confirm',
  'token reseal',
  'event list',
  'event show',
  'event redeliver',
  'event pause',
  'event resume',
  'event tail',
  'restored identity',
  'restored secrets',
  'restored webhook',
];

test('--help, help and no word at all list every command, and need no configuration', async (t) => {
  for (const words of ['--help', '-h', '--help serve', 'help', '']) {
    const { code, stdout, stderr } = await run(t, words, {});
    assert.deepEqual([code, stderr], [0, '']);
    for (const command of COMMANDS)
      assert.match(stdout, new RegExp(`^  ${command} +\\S`, 'm'), words);
  }
});

for (const command of COMMANDS) {
  test(`${command} --help lists its options, and does nothing else`, async (t) => {
    const words = `${command} --help`;
    const isServe = command === 'serve';
    const finished = isServe ? await run(t, words, {}) : await runCommand(split(words), {});
    const { code, stdout, stderr } = finished;
    assert.deepEqual([code, stderr], [0, '']);
    assert.match(stdout, new RegExp(`^Usage: gatehouse ${command} `));
    assert.match(stdout, /^ {2}--help +\S/m);
    if (command === 'user create') assert.match(stdout, /^ {2}--password-stdin +\S/m);
  });
}

test('help COMMAND is COMMAND --help', async () => {
  for (const command of ['user', 'user list', 'migrate']) {
    const help = await runCommand(split(`help ${command}`), {});
    const option = await runCommand(split(`${command} --help`), {});
    assert.deepEqual([help.code, help.stdout], [0, option.stdout]);
  }
});

test('version and --version print the version of the package', async (t) => {
  const { version }: { version: string } = JSON.parse(
    readFileSync(join(program, 'package.json'), 'utf8'),
  );
  for (const words of ['version', '--version', '-v']) {
    const { code, stdout } = await run(t, words, {});
    assert.deepEqual([code, stdout], [0, `gatehouse ${version} (Node ${process.versions.node})\n`]);
  }
});

test('the name of a group with --help lists its commands', async () => {
  for (const group of ['user', 'key', 'audit', 'token', 'event', 'restored']) {
    const { code, stdout } = await runCommand([group, '--help'], {});
    assert.equal(code, 0);
    assert.deepEqual(
      [...stdout.matchAll(/^ {2}([a-z]+( [a-z]+)+)/gm)].map(([, name]) => name),
      COMMANDS.filter((command) => command.startsWith(`${group} `)),
    );
  }
});

type Misuse = readonly [words: string | readonly string[], said: RegExp];

/** Of the program. */
const misuses: readonly Misuse[] = [
  ['srve', /there is no command "srve"\./],
  ['serve letterbox', /serve: "letterbox" is not one of identity, secrets, webhook/],
  ['serve identity secrets webhook identity', /serve takes \[SERVICE…\]/],
  ['serve --port 3000', /serve: Unknown option '--port'/],
];

/** Of a command, or of none. */
const commandMisuses: readonly Misuse[] = [
  ['usr list', /there is no command "usr list"\./],
  ['completion bash', /"completion" was removed; /],
  [
    'throttle list --json',
    /"throttle" was removed; use "audit list --event login\.failed" and "user unlock"\./,
  ],
  ['bogus', /there is no command "bogus"/],
  ['bogus --help', /there is no command "bogus"/],
  [
    'user',
    /"user" needs a subcommand: create, list, show, set, password, delete, factors remove, unlock, invite, link, secure\./,
  ],
  [
    'user remove',
    /"user" needs a subcommand: create, list, show, set, password, delete, factors remove, unlock, invite, link, secure\./,
  ],
  ['user list --jsno', /Unknown option '--jsno'\./],
  [
    'version one',
    /version: takes no argument; keys, passwords and texts are read from standard input/,
  ],
  ['migrate identity letterbox', /migrate: "letterbox" is not one of identity, secrets, webhook/],
  ['user create', /user create needs --username/],
  ['user create --username ada', /user create needs --email/],
  ['user create --email ada@example.org', /user create needs --username/],
  ['user create ada --username ada --email ada@example.org', /user create: /],
  ['user create --username', /user create: Option '--username <value>' argument missing/],
  [
    'user create --username --email ada@example.org',
    /user create: Option '--username' argument is ambiguous/,
  ],
  ['user create --username ada --email ada@example.org --verified=yes', /user create: /],
  ['user list --yaml', /user list: Unknown option '--yaml'/],
  ['token revoke', /token revoke takes ID/],
  ['token revoke one two', /token revoke takes ID/],
  ['token revoke not-an-id', /ID must be a UUID/],
  [['token', 'create', '--name', 'a\nb'], /at most 255 printable characters/],
  [['token', 'create', '--name', 'n'.repeat(256)], /at most 255 printable characters/],
];

function assertMisuse(finished: Finished, said: RegExp): void {
  assert.match(finished.stderr, said);
  assertFailure(finished, 2);
  assert.match(finished.stderr, /See: gatehouse( [a-z]+)* --help\n$/);
}

test('wrong usage is one line on standard error and exit 2', async (t) => {
  for (const [words, said] of misuses) assertMisuse(await run(t, words), said);
  for (const [words, said] of commandMisuses)
    assertMisuse(await runCommand(split(words), environment), said);
});

test('wrong configuration is reported at once, with a line for each problem, and exits 78', async (t) => {
  assertFailure(await run(t, 'serve', { DATABASE_URL: file.url }), 78, 2);
  assertFailure(
    await run(t, 'serve', { ...environment, LOG_LEVEL: 'loud', MIGRATE: 'no', IDENTITY_PORT: 'x' }),
    78,
    3,
  );
  assertFailure(await run(t, 'migrate secrets', {}), 78);
  assertFailure(await run(t, 'user list', { DATABASE_URL: 'mysql://marked@localhost/d' }), 78);
  assertFailure(await run(t, 'token list', { SERVER_SECRET: 'of no use here' }), 78);
});

test('a database that cannot be used is reported in one line and exits 1', async (t) => {
  const unknown = new URL(file.url);
  unknown.pathname = '/nowhere';
  const wrong = new URL(file.url);
  wrong.password = 'marked-password';
  const away = new URL(file.url);
  away.port = '1';
  const cases: ReadonlyArray<readonly [url: URL, said: RegExp]> = [
    [unknown, /3D000: the database in the database URL does not exist/],
    [wrong, /28P01: the user or the password in the database URL is wrong/],
    [away, /the connection to the database at 127\.0\.0\.1:1 failed \(ECONNREFUSED\)/],
  ];
  for (const [url, said] of cases) {
    const finished = await run(t, 'user list', { ...environment, DATABASE_URL: url.href });
    assertFailure(finished, 1);
    assert.match(finished.stderr, said);
    assert.ok(!finished.stderr.includes('marked'));
  }
});

test('serve ends with one line where waiting for the database would not help', async (t) => {
  const url = new URL(file.url);
  url.pathname = '/nowhere';
  const { code, stderr } = await run(t, 'serve identity', {
    ...environment,
    DATABASE_URL: url.href,
  });
  assert.equal(code, 1);
  assert.match(
    stderr,
    /^gatehouse: identity: the database returned an error \(SQLSTATE 3D000[^\n]*\n$/,
  );
});

test('on a database without the schema, every command says what to do', async () => {
  const id = '00000000-0000-4000-8000-000000000000';
  const users = [
    'user list',
    'user create --username ada --email ada@example.org',
    'user show ada',
    'user set ada --enabled false',
    'user password ada',
    'user delete ada',
  ];
  const keys = ['key create --without-user', 'key list', `key revoke ${id}`, 'audit list'];
  for (const words of [...users, ...keys, 'token list', 'token create', `token revoke ${id}`]) {
    const finished = await runCommand(words.split(' '), environment);
    assertFailure(finished, 1);
    assert.match(
      finished.stderr,
      /the schema "(identity|webhook)" is not up to date; run "gatehouse migrate"/,
    );
  }
});

test('migrate updates one service, several or all, any number of times, also concurrently', async (t) => {
  const { url, sql } = await createEmptyDatabase(t);
  const given = { DATABASE_URL: url };
  const schemas = async () =>
    (
      await sql`select nspname from pg_namespace where nspname in ('identity', 'secrets', 'webhook')
        order by 1`
    ).map(({ nspname }) => nspname);
  const one = await run(t, 'migrate secrets', given);
  assert.deepEqual([one.code, one.stderr], [0, '']);
  assert.match(one.stdout, /^secrets: applied \d+ steps?\n$/);
  assert.deepEqual(await schemas(), ['secrets']);
  const together = await Promise.all([1, 2, 3].map(() => run(t, 'migrate', given)));
  for (const finished of together) assert.deepEqual([finished.code, finished.stderr], [0, '']);
  const applied = together.flatMap(({ stdout }) =>
    [...stdout.matchAll(/applied (\d+) step/g)].map(([, steps]) => Number(steps)),
  );
  const [{ steps } = { steps: 0 }] = await sql<Array<{ steps: number }>>`
    select ((select count(*) from identity.migrations) + (select count(*)
      from webhook.migrations))::int as steps`;
  assert.equal(
    applied.reduce((sum, count) => sum + count, 0),
    steps,
    'each step was applied by one of them',
  );
  const again = await run(t, 'migrate', given);
  assert.equal(
    again.stdout,
    'identity: is up to date\nsecrets: is up to date\nwebhook: is up to date\n',
  );
  assert.equal(again.code, 0);
});

test('a reader that closes the pipe early causes no stack trace and no message', async (t) => {
  const finished = await runProgram(t, program, ['--help'], {}, { deaf: true });
  assert.equal(finished.stderr, '');
});
