import assert from 'node:assert/strict';
import childProcess, { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { StartupError } from '../../../src/platform/runtime/errors.ts';
import type { Command } from '../../../src/webhook/model.ts';
import { createCommandTarget } from '../../../src/webhook/targets/command.ts';
import { errorLine } from '../../../src/webhook/worker.ts';
import { runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, startGatehouse, variables, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { VARIABLES } from '../../support/settings.ts';
import { test, until } from '../../support/until.ts';
import { stateOf, leasedEvent, untilStatus } from '../../support/webhook-store.ts';

const directory = makeTemporary(tmpdir(), 'gatehouse-command');
after(() => removeTemporary(directory));
const COULD_NOT = 'the command could not be run';
const file = (name: string) => join(directory, name);
const PATH = process.env.PATH ?? '';
const { url: databaseUrl } = await createDatabase();

const deliver = (
  command: Command,
  { body = Buffer.from('{}'), signal = new AbortController().signal } = {},
) =>
  createCommandTarget(command, { PATH, DIRECTORY: directory }).deliver(
    leasedEvent({ body }),
    signal,
  );
type More = Parameters<typeof deliver>[1];
const run = async (command: Command, more?: More) => (await deliver(command, more)).error;
/** The shell is the test's program. Gatehouse does not use one. */
const shell = (script: string): Command => ['/bin/sh', '-c', script];
const sh = (script: string, more?: More) => run(shell(script), more);

/** Asks `ps`. A zombie does not count as running. */
function isRunning(processId: number): boolean {
  try {
    const words = ['-o', 'stat=', '-p', String(processId)];
    return !/^$|^Z/.test(execFileSync('ps', words, { encoding: 'utf8' }).trim());
  } catch {
    return false;
  }
}
const processesIn = (name: string) =>
  existsSync(file(name)) ? readFileSync(file(name), 'utf8').trim().split(/\s+/).map(Number) : [];

test('standard input has the body byte for byte; a program need not read it, and may close it', async () => {
  const large = randomBytes(1024 * 1024);
  const text = Buffer.from('{"event":"é\u2028","data":{"page_id":"p"}}\r\n');
  for (const body of [text, Buffer.alloc(0), large]) {
    assert.equal(await sh('cat > "$DIRECTORY/body"', { body }), null);
    assert.ok(readFileSync(file('body')).equals(body), `${body.length} bytes`);
  }
  assert.equal(await sh(':', { body: large }), null);
  assert.equal(await sh('exec 0<&-', { body: large }), null);
  assert.equal(await sh('exit 3', { body: large }), 'the command ended with status 3: ');
});

test('no shell interprets the command', async () => {
  const harm = ['$(touch "$DIRECTORY/harm")', '; touch "$DIRECTORY/harm"', '`id`', '*', '> out'];
  const words = [...harm, '', 'a b', '"', "'", '\\', 'ü\n'];
  const script =
    'require("node:fs").writeFileSync(process.env.DIRECTORY + "/words", JSON.stringify(process.argv.slice(1)))';
  assert.equal(await run([process.execPath, '-e', script, '--', ...words]), null);
  assert.deepEqual(JSON.parse(readFileSync(file('words'), 'utf8')), words);
  assert.equal(existsSync(file('harm')), false);
});

test('exit code 0 is success; any other is a failure with the end of the output', async () => {
  assert.equal(await sh('echo out; echo err >&2; exit 0'), null);
  for (const code of [1, 127, 255])
    assert.equal(
      await sh(`echo what went wrong >&2; exit ${code}`),
      `the command ended with status ${code}: what went wrong\n`,
    );
  assert.equal(await sh('kill -TERM $$'), 'the command ended with SIGTERM: ');
  const last = 'the reason, in the last line';
  const long = `head -c 300000 /dev/zero | tr "\\0" "x"; echo; echo "${last}" >&2; exit 1`;
  const error = (await sh(long)) ?? '';
  assert.ok(error.endsWith(`${last}\n`) && error.length < 3_000, error.slice(-100));
  assert.ok(errorLine(error).endsWith(last), 'as the worker stores it');
});

test('unlimited output on both streams is read and takes no memory', async () => {
  const before = process.resourceUsage().maxRSS;
  const MB = 1_000_000;
  const script = `head -c ${100 * MB} /dev/zero & head -c ${100 * MB} /dev/zero >&2; wait`;
  assert.equal(await sh(script), null);
  const grownBy = (process.resourceUsage().maxRSS - before) * 1024;
  assert.ok(grownBy < 100 * MB, `the most memory ever used grew by ${grownBy} bytes`);
  const endless = await run(['/usr/bin/env', 'yes'], { signal: AbortSignal.timeout(300) });
  assert.match(endless ?? '', /^the command ended with SIGKILL/);
});

test('a program that hangs is killed with its whole process group, even if it ignores signals', async () => {
  const child = `(trap '' TERM; sleep 1000 & echo $! >> "$DIRECTORY/hanging"; wait)`;
  const hanging = `trap '' TERM INT HUP; ${child} & echo $$ $! >> "$DIRECTORY/hanging"; while :; do sleep 1000; done`;
  const stop = new AbortController();
  const outcome = sh(hanging, { signal: stop.signal });
  await until(() => processesIn('hanging').length === 3, 'all three run');
  stop.abort();
  assert.match((await outcome) ?? '', /^the command ended with SIGKILL/);
  await until(() => !processesIn('hanging').some(isRunning), 'all three are gone');
});

test('processes that were left are killed; what has a session of its own goes on', async () => {
  for (const left of [
    'sleep 1000 & echo $!',
    'nohup sh -c "sleep 1000" >/dev/null 2>&1 & echo $!; exit 0',
  ]) {
    const { error, wereKilled, answer = '' } = await deliver(shell(left));
    assert.deepEqual([error, wereKilled], [null, true]);
    await until(() => !isRunning(Number(answer)), 'it is gone');
  }
  const ended = await deliver(shell('cat >/dev/null; (echo out) | cat'));
  assert.equal(ended.wereKilled, false);
  const own = await deliver(
    shell(
      'setsid sh -c "echo \\$\\$ > $DIRECTORY/own; exec sleep 1000" >/dev/null 2>&1 </dev/null &\n' +
        'while ! [ -s "$DIRECTORY/own" ]; do :; done',
    ),
  );
  assert.deepEqual([own.error, own.wereKilled], [null, false]);
  const [kept = 0] = processesIn('own');
  assert.equal(isRunning(kept), true);
  process.kill(kept);
});

test('a command that cannot be run fails with the reason, and runs once it can', async () => {
  const program = file('program');
  const target = createCommandTarget([program], { PATH });
  const outcome = async () =>
    (await target.deliver(leasedEvent(), new AbortController().signal)).error;
  const missing = `${COULD_NOT}: there is no such program (ENOENT)`;
  const denied = `${COULD_NOT}: this user may not run it (EACCES)`;
  assert.equal(await outcome(), missing);
  writeFileSync(program, '#!/bin/sh\nexit 0\n', { mode: 0o644 });
  assert.equal(await outcome(), denied);
  chmodSync(program, 0o755);
  assert.equal(await outcome(), null);
  assert.equal(await run(['no-such-program-anywhere']), missing);
  mkdirSync(file('folder'));
  assert.equal(await run([file('folder')]), denied);
  const long = (await run(['/bin/true', 'x'.repeat(4_000_000)])) ?? '';
  assert.match(long, RegExp(`^${COULD_NOT}: .*too long \\(E2BIG\\)$`));
});

test('a target that would fail every attempt stops the start, and no migration', async () => {
  writeFileSync(file('no-program'), '', { mode: 0o644 });
  const commandOf = (name: string) => JSON.stringify([file(name), 'x']);
  const WRONG: ReadonlyArray<readonly [name: string, value: string, said: RegExp]> = [
    ['COMMAND', commandOf('missing'), /^webhook: WEBHOOK_COMMAND names .* be run \(ENOENT\)\.$/],
    ['COMMAND', commandOf('no-program'), /^webhook: WEBHOOK_COMMAND names .* be run \(EACCES\)\.$/],
    ['HANDLER', file('missing.mjs'), /^webhook: WEBHOOK_HANDLER names .* be read \(ENOENT\)\.$/],
    ['FORWARD_URL', 'http://127.0.0.1:9/', /^webhook: WEBHOOK_FORWARD_URL: .* private address;/],
    ['FORWARD_URL', 'http://[::ffff:10.0.0.1]/', /^webhook: WEBHOOK_FORWARD_URL: .* private/],
  ];
  for (const [name, value, said] of WRONG) {
    const settings = { [`WEBHOOK_${name}`]: value };
    await assert.rejects(
      startGatehouse({ after: () => {} }, ['webhook'], databaseUrl, settings),
      (error) => error instanceof StartupError && said.test(error.message),
      name,
    );
    const given = { ...variables(databaseUrl), ...settings };
    assert.equal((await runCommand(['migrate', 'webhook'], given)).code, 0);
  }
});

/** What `env -0` wrote. */
const environmentIn = (name: string): Record<string, string> =>
  Object.fromEntries(
    readFileSync(file(name), 'utf8')
      .split('\0')
      .filter(Boolean)
      .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  );

test('the environment has the event and no Gatehouse variable; stored output is printable', async (t) => {
  const { url, sql } = await createDatabase(t);
  const secret = 'a secret that no program shall know';
  writeFileSync(file('webhook-secret'), secret);
  // Colors, bytes that are not UTF-8, a text direction mark, and a bell.
  const output = '\\033[31mred\\000nul\\377\\n\\342\\200\\256second line\\r\\007';
  const copy =
    'env -0 > "$DIRECTORY/env-$EVENT_ATTEMPT"; cp /proc/$PPID/environ "$DIRECTORY/parent"';
  const settings = {
    ...variables(url),
    WEBHOOK_SECRET_FILE: file('webhook-secret'),
    SERVER_SECRET_PREVIOUS: 'previous-secret-0123456789abcdefghijkl',
    PATH,
    DIRECTORY: directory,
    GREETING: 'for the program',
    WEBHOOK_COMMAND: JSON.stringify(shell(`${copy}; printf '${output}'; exit 9`)),
    WEBHOOK_RETRY_SCHEDULE: '1ms',
  };
  const program = startProgram(t, buildProgram(), ['serve', 'webhook'], settings);
  await program.ready('webhook');
  const event = 'né\nw "$(id)"';
  const { json } = await ask('POST', `${await program.url('webhook')}/webhook`, {
    bearer: WEBHOOK_TOKEN,
    body: { event, data: { page_id: 'p' } },
    headers: { 'webhook-id': 'd-42' },
  });
  await untilStatus(sql, json.id, 'dead');
  const [row] = await sql`select received_at from webhook.events where id = ${json.id}`;
  for (const attempt of ['1', '2']) {
    const given = environmentIn(`env-${attempt}`);
    // Without the variables that the shell adds, and Node while coverage is measured.
    const { EVENT_REQUEST_ID: _0, PWD: _1, SHLVL: _2, _: _3, OLDPWD: _4, ...rest } = given;
    const { NODE_V8_COVERAGE: _5, ...others } = rest;
    assert.deepEqual(others, {
      PATH,
      DIRECTORY: directory,
      GREETING: 'for the program',
      EVENT_ID: json.id,
      EVENT_NAME: event,
      EVENT_SOURCE: 'generic',
      EVENT_DELIVERY_ID: 'd-42',
      EVENT_ATTEMPT: attempt,
      EVENT_RECEIVED_AT: row?.received_at.toISOString(),
    });
    for (const name of Object.keys(VARIABLES))
      assert.ok(!(name in given) && !(`${name}_FILE` in given), name);
  }
  // A program can read the environment of the service. With X_FILE, that has no secret.
  if (existsSync('/proc/self/environ'))
    assert.ok(!readFileSync(file('parent'), 'utf8').includes(secret));
  const { errors = [] } = await stateOf(sql, json.id);
  assert.equal(errors[0], 'the command ended with status 9:  [31mred nul\ufffd second line');
  const logged = program.stdout().split('\n').filter(Boolean);
  const told = logged.map((line) => String(JSON.parse(line).error)).join('');
  assert.ok(told.includes('second line') && !/[\p{Cc}\p{Cf}]/u.test(told));
});

test('without free file descriptors a command has no pipes, and fails with EMFILE', async (t) => {
  const child = new EventEmitter();
  const spawn = t.mock.method(childProcess, 'spawn', () => {
    process.nextTick(() => child.emit('error', Object.assign(new Error(), { code: 'EMFILE' })));
    return child;
  });
  syncBuiltinESMExports();
  t.after(() => {
    spawn.mock.restore();
    syncBuiltinESMExports();
  });
  assert.equal(await run(['/bin/true']), `${COULD_NOT}: too many files are open (EMFILE)`);
  assert.equal(spawn.mock.callCount(), 1);
});
