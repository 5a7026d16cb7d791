/** The command line as its users meet it: words in, exit code and one line out. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { createTerminal, runCommand as runOneOf } from '../../../src/commands/command.ts';
import { assertRefused, COMMANDS, runCommand } from '../../support/commands.ts';
import { createEmptyDatabase } from '../../support/database.ts';
import { ask, AUTH_TOKEN, launch, variables, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { freePorts, listenOn } from '../../support/ports.ts';
import { buildProgram, type Finished, runProgram, startProcess } from '../../support/process.ts';
import { createRelay } from '../../support/relay.ts';
import { test, until } from '../../support/until.ts';

const program = buildProgram();
const file = await createEmptyDatabase();
const environment = variables(file.url);
const split = (words: string) => words.split(' ').filter(Boolean);

/** In a process of its own, with the exit code that a shell sees. */
const run = (
  t: TestContext,
  words: string,
  given: Readonly<Record<string, string>> = environment,
) => runProgram(t, program, split(words), given);
const runHere = (words: string) => runCommand(split(words), {});

/** Nothing on standard output, and lines for people on the other, never a stack. */
function assertFailure({ code, stdout, stderr }: Finished, expected: number, lines = 1): void {
  assert.deepEqual([code, stdout], [expected, ''], stderr);
  assert.match(stderr, new RegExp(`^(gatehouse: \\S[^\n]*\n){${lines}}$`));
  assert.doesNotMatch(stderr, /^\s+at |\.js:\d+|node:internal/m);
}

const names = COMMANDS.map(({ name }) => name);

// That --help lists all, and commands.md has the help of each: test/repository/documents.test.ts.
test('help and no word at all need no configuration, and a group lists its own', async (t) => {
  const { code, stdout, stderr } = await run(t, '', {});
  assert.deepEqual([code, stderr], [0, '']);
  assert.match(stdout, /^ {2}serve +\S/m);
  const help = await runHere('--help');
  for (const words of ['', '-h', '--help serve', 'help'])
    assert.deepEqual(await runHere(words), help, words);
  for (const group of ['user', 'key', 'audit', 'token', 'event', 'restored']) {
    const listed = (await runHere(`${group} --help`)).stdout.match(/(?<=^ {2})[a-z]+( [a-z]+)+/gm);
    const own = names.filter((name) => name.startsWith(`${group} `));
    assert.deepEqual(listed, own);
  }
});

test('COMMAND --help is help COMMAND, and does nothing else', async (t) => {
  const served = await run(t, 'serve --help', {});
  assert.match(served.stdout, /^Usage: gatehouse serve [^]*^ {2}--help +\S/m);
  for (const name of names) {
    const help = await runHere(`${name} --help`);
    assert.deepEqual([help.code, help.stderr], [0, ''], name);
    assert.deepEqual(await runHere(`help ${name}`), help);
  }
});

test('each command refuses what its usage does not have, before it reads a setting', async () => {
  for (const { name } of COMMANDS) {
    const { stdout: help } = await runHere(`${name} --help`);
    const refuse = async (word: string, said: RegExp) => {
      const refused = await runHere(`${name} ${word}`);
      assertRefused(refused, 2, said);
      assert.ok(refused.stderr.endsWith(` See: gatehouse ${name} --help\n`), refused.stderr);
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
  const said = `gatehouse ${version} (Node ${process.versions.node})\n`;
  assert.equal((await run(t, '--version', {})).stdout, said);
  for (const words of ['version', '-v']) assert.equal((await runHere(words)).stdout, said);
});

test('wrong usage of serve is one line on standard error and exit 2', async (t) => {
  const assertRefused = async ([words, said]: readonly [string, RegExp]) => {
    const finished = await run(t, words);
    assertFailure(finished, 2);
    assert.match(finished.stderr, said);
    assert.match(finished.stderr, /See: gatehouse( [a-z]+)* --help\n$/);
  };
  const cases = [
    ['serve identity secrets webhook identity', /serve: takes \[SERVICE…\]/],
    ['serve --port 3000', /serve: Unknown option '--port'/],
  ] as const;
  await Promise.all(cases.map(assertRefused));
});

test('wrong configuration is reported at once, with a line for each problem, and exits 78', async (t) => {
  const wrong = { ...environment, LOG_LEVEL: 'loud', MIGRATE: 'no', IDENTITY_PORT: 'x' };
  assertFailure(await run(t, 'serve', wrong), 78, 3);
});

test('bytes that are no text are refused', async () => {
  const words = split('token create --source github --signing-secret-file -');
  const refused = await runCommand(words, environment, Buffer.alloc(32, 0xff));
  assertRefused(refused, 2, /--signing-secret-file is not UTF-8 text/);
});

test('a database that cannot be used is reported in one line and exits 1', async (t) => {
  const at = (change: Partial<URL>) => ({
    ...environment,
    DATABASE_URL: Object.assign(new URL(file.url), change).href,
  });
  const nowhere = at({ pathname: '/nowhere' });
  const users = split('user list');
  const restored = split('restored identity --confirm');
  const none = /3D000: the database in the database URL does not exist/;
  for (const words of [users, restored]) assertRefused(await runCommand(words, nowhere), 1, none);
  const denied = await runCommand(users, at({ password: 'marked-password' }));
  assertRefused(denied, 1, /28P01: the user or the password in the database URL is wrong/);
  assert.ok(!denied.stderr.includes('marked'));
  const away = await run(t, 'user list', at({ port: '1' }));
  assertFailure(away, 1);
  assert.match(away.stderr, /database at 127\.0\.0\.1:1 failed \(ECONNREFUSED: no server listens /);
  // Waiting for it would not help. The log of `serve` is on standard output.
  const finished = await run(t, 'serve identity', nowhere);
  assertFailure({ ...finished, stdout: '' }, 1);
  assert.match(finished.stderr, /: identity: the database returned an error \(SQLSTATE 3D000/);
});

test('a reader that closes the pipe early causes no stack trace and no message', async (t) => {
  const finished = await runProgram(t, program, ['--help'], {}, { deaf: true });
  assert.deepEqual([finished.code, finished.stderr], [0, '']);
});

/** Starts the program with streams that cannot be written, as on a full disk. */
const startFull = (t: TestContext, words: string, streams: string, given = {}) => {
  const command = [process.execPath, join(program, 'dist/cli.js'), ...split(words)];
  return startProcess(t, ['/bin/sh', '-c', `exec "$@" ${streams}`, 'sh', ...command], given);
};
const FULL = /^gatehouse: the output could not be written \(ENOSPC\)\n$/;

test(
  'output that cannot be written is said once, ends a command with 1, and stops no service',
  async (t) => {
    const help = startFull(t, '--help', '> /dev/full');
    assert.equal((await help.ended).code, 1);
    assert.match(help.stderr(), FULL);
    const silent = startFull(t, '--help', '> /dev/full 2>&1');
    assert.equal((await silent.ended).code, 1);

    const [port = ''] = await freePorts(1);
    const plain = { WEBHOOK_VARIANT: 'plain', WEBHOOK_TOKEN, HOST: '127.0.0.1' };
    const given = { ...plain, PORT: port };
    const serving = startFull(t, 'serve webhook', '> /dev/full', given);
    await until(() => serving.stderr() !== '', 'the loss is said');
    const body = { event: 'x', data: { page_id: 'p' } };
    const url = `http://127.0.0.1:${port}`;
    const sent = await ask('POST', `${url}/webhook`, { bearer: WEBHOOK_TOKEN, body });
    assert.equal(sent.status, 503, 'an event that is not printed is not accepted');
    assert.equal((await ask('GET', `${url}/livez`)).status, 200);
    serving.signal('SIGINT');
    assert.deepEqual(await serving.ended, { code: 1, signal: null });
    assert.match(serving.stderr(), FULL);

    const mute = startFull(t, 'serve webhook', '2> /dev/full', { ...plain, PORT: '0' });
    await mute.ready('webhook');
    // It has something to say about the first signal.
    for (const name of ['SIGHUP', 'SIGINT'] as const) mute.signal(name);
    assert.deepEqual(await mute.ended, { code: 1, signal: null });
    assert.ok(mute.log().some(({ message }) => message === 'shutting down'));
  },
  existsSync('/dev/full') ? false : 'this system has no /dev/full',
);

/** Runs `version` after this code. */
const runAfter = (t: TestContext, code: string) =>
  runProgram(t, program, ['version'], {
    NODE_OPTIONS: `--import "data:text/javascript,${encodeURIComponent(code)}"`,
  });

test('what nobody foresaw is one line with its place, without its text, which may hold a secret', async (t) => {
  const code = `process.stdout.write = () => { throw new TypeError(['sec', 'ret'].join('')); }`;
  const finished = await runAfter(t, code);
  assert.deepEqual([finished.code, finished.stdout], [1, '']);
  assert.match(finished.stderr, /^gatehouse: internal error: TypeError at [^\n]+\n$/);
  assert.doesNotMatch(finished.stderr, /secret/);
});

/** Runs the program as that version. */
const runAs = (t: TestContext, version: string) =>
  runAfter(
    t,
    `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } })`,
  );

test('a Node older than 20.11 is rejected in one sentence', async (t) => {
  for (const version of ['12.22.12', '20.10.0']) {
    const { code, stdout, stderr } = await runAs(t, version);
    const said = `gatehouse: Node ${version} is too old. Install Node 20.11 or newer.\n`;
    assert.deepEqual([code, stdout, stderr], [1, '', said]);
  }
  for (const version of ['20.11.0', '22.1.0'])
    assert.equal((await runAs(t, version)).code, 0, version);
});

test('the file that checks uses only syntax of Node 12, and imports nothing before the check', () => {
  const text = readFileSync(join(program, 'dist/cli.js'), 'utf8').replace(/^\s*\/\/.*$/gm, '');
  assert.match(text, /import\('\.\/main\.js'\)/);
  assert.doesNotMatch(text, /^import\b|\?\.|\?\?|\bawait\b|\|\|=|&&=|#[a-z]|static \{/m);
});

test('make reports it, too', () => {
  const makefile = readFileSync(join(program, 'Makefile'), 'utf8');
  assert.match(makefile, /^node_modules\/\.installed: .* \| supported-node$/m);
  assert.match(makefile, /^supported-node:\n\t@node -e 'var v = .*Install Node 20\.11 or newer\./m);
});

// Whatever the service and its operator do, they have only these bytes.
test('no command sends a text or a private key that is encrypted end to end', async (t) => {
  const { secrets } = await launch(['secrets'], { SHARE_PAGES: 'on' }, t);
  const sent: Buffer[] = [];
  const relay = createRelay(Number(new URL(secrets).port), (bytes) => {
    sent.push(bytes);
    return bytes;
  });
  const port = await listenOn(t, relay);
  const given = { GATEHOUSE_URL: `http://127.0.0.1:${port}`, AUTH_TOKEN };
  const asked = await runCommand(['secret', 'request', 'a title'], given);
  const [send = '', keep = ''] = asked.stdout.replaceAll(secrets, given.GATEHOUSE_URL).split('\n');
  const text = 'a text of the answer';
  await runCommand(['secret', 'answer'], {}, `${send}\n${text}`);
  const opened = await runCommand(['secret', 'get'], {}, keep);
  assert.equal(opened.stdout, `${text}\n`, opened.stderr);
  const [, key = ''] = /\.([\w-]{48})$/.exec(keep) ?? [];
  const scalar = Buffer.from(key, 'base64url').subarray(0, 32);
  const bytes = Buffer.concat(sent);
  const found = [Buffer.from('a title'), Buffer.from(text), scalar, Buffer.from(key.slice(0, 42))];
  assert.deepEqual(
    found.map((one) => bytes.includes(one)),
    [true, false, false, false],
  );
});

test('a command that reads nothing does not look at standard input, which others may read', async () => {
  let looks = 0;
  const { stdin, stdout, stderr } = process;
  const streams = {
    get stdin() {
      looks += 1;
      return stdin;
    },
    stdout,
    stderr,
  };
  const terminal = createTerminal(streams, {}, () => true);
  const command = { name: 'nothing', summary: 'Do nothing', run: async () => {} };
  assert.equal(await runOneOf([command], ['nothing'], terminal), 0);
  assert.equal(looks, 0);
});
