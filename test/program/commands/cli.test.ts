/** The command line as its users meet it: words in, exit code and one line out. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { assertRefused, runCommand } from '../../support/commands.ts';
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

/** Of a process, the list has `serve` before these. docs/commands.md has the help of each. */
const { stdout: list } = await runCommand(['help'], {});
const listed = [...list.matchAll(/^ {2}([a-z]+( [a-z]+)*) /gm)].map(([, name = '']) => name);
const COMMANDS = ['serve', ...listed];

test('--help, help and no word at all list every command, and need no configuration', async (t) => {
  for (const words of ['--help', '-h', '--help serve', 'help', '']) {
    const { code, stdout, stderr } = await run(t, words, {});
    assert.deepEqual([code, stderr], [0, '']);
    for (const command of COMMANDS)
      assert.match(stdout, new RegExp(`^  ${command} +\\S`, 'm'), words);
  }
});

test('each command has a --help, which is that of help COMMAND, and does nothing else', async (t) => {
  for (const command of COMMANDS) {
    const isServe = command === 'serve';
    const words = [...split(command), '--help'];
    const finished = isServe ? await run(t, words, {}) : await runCommand(words, {});
    const { code, stdout, stderr } = finished;
    assert.deepEqual([code, stderr], [0, ''], command);
    assert.match(stdout, new RegExp(`^Usage: gatehouse ${command} `));
    assert.match(stdout, /^ {2}--help +\S/m);
    if (isServe) continue;
    const help = await runCommand(split(`help ${command}`), {});
    assert.deepEqual([help.code, help.stdout], [0, stdout]);
  }
});

test('each command refuses what its usage does not have, before it reads a setting', async () => {
  for (const command of listed) {
    const { stdout: help } = await runCommand(split(`${command} --help`), {});
    const refuse = async (word: string, said: RegExp) => {
      const refused = await runCommand(split(`${command} ${word}`), {});
      assertRefused(refused, 2, said);
      assert.ok(refused.stderr.endsWith(` See: gatehouse ${command} --help\n`), refused.stderr);
    };
    await refuse('--nonsense', /Unknown option '--nonsense'/);
    for (const [, option = '', value] of help.matchAll(
      /^ {2}(--[a-z-]+)( [A-Z]\S*| \S+\|\S+)? /gm,
    )) {
      if (value === undefined) await refuse(`${option}=x`, /does not take an argument/);
      else await refuse(option, /argument missing/);
    }
    const [, taken = ''] = /^Usage: gatehouse [a-z -]+(.*)\[OPTION…\]$/m.exec(help) ?? [];
    if (!taken.includes('…')) await refuse('a b c d', /: takes (no argument; keys,|\[?[A-Z]+)/);
    if (/^[A-Z]/.test(taken)) await refuse('', /: takes [A-Z]+/);
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

test('wrong usage of serve is one line on standard error and exit 2', async (t) => {
  for (const [words, said] of [
    ['srve', /there is no command "srve"\./],
    ['serve letterbox', /serve: "letterbox" is not one of identity, secrets, webhook/],
    ['serve identity secrets webhook identity', /serve: takes \[SERVICE…\]/],
    ['serve --port 3000', /serve: Unknown option '--port'/],
  ] as const) {
    const finished = await run(t, words);
    assert.match(finished.stderr, said);
    assertFailure(finished, 2);
    assert.match(finished.stderr, /See: gatehouse( [a-z]+)* --help\n$/);
  }
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
    [
      away,
      /the connection to the database at 127\.0\.0\.1:1 failed \(ECONNREFUSED: no server listens there\)/,
    ],
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
