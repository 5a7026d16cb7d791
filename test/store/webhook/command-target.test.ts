import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { VARIABLES } from '../../support/settings.ts';
import { createCommandTarget } from '../../../src/webhook/targets/command.ts';
import { errorLine } from '../../../src/webhook/worker.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, startGatehouse, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { test, until } from '../../support/until.ts';
import {
  deliverOnce,
  stateOf,
  leasedEvent,
  untilStatus,
  sendEvent,
} from '../../support/webhook-store.ts';

const directory = mkdtempSync(join(tmpdir(), 'gatehouse-command-'));
after(() => rmSync(directory, { recursive: true, force: true }));
const COULD_NOT = 'the command could not be run';
const file = (name: string) => join(directory, name);
const PATH = process.env.PATH ?? '';

/** The shell is the test's program. Gatehouse does not use one. */
const run = (
  command: readonly [string, ...string[]],
  more: { timeoutMs?: number; body?: Buffer } = {},
) =>
  deliverOnce(
    createCommandTarget(command, { PATH, DIRECTORY: directory }),
    leasedEvent(more.body ? { body: more.body } : {}),
    more.timeoutMs ?? 30_000,
  );
const sh = (script: string, more: Parameters<typeof run>[1] = {}) =>
  run(['/bin/sh', '-c', script], more);

/** Asks `ps`. A zombie does not count as running. */
function isRunning(processId: number): boolean {
  try {
    return !/^$|^Z/.test(
      execFileSync('ps', ['-o', 'stat=', '-p', String(processId)], { encoding: 'utf8' }).trim(),
    );
  } catch {
    return false;
  }
}
const processesIn = (name: string) =>
  existsSync(file(name)) ? readFileSync(file(name), 'utf8').trim().split(/\s+/).map(Number) : [];

test('standard input has the body byte for byte', async () => {
  for (const body of [
    Buffer.from('{"event":"é\u2028","data":{"page_id":"p"}}\r\n'),
    Buffer.alloc(0),
    randomBytes(1024 * 1024),
  ]) {
    assert.equal(await sh('cat > "$DIRECTORY/body"', { body }), null);
    assert.ok(readFileSync(file('body')).equals(body), `${body.length} bytes`);
  }
});

test('no shell interprets the command', async () => {
  const words = [
    '$(touch "$DIRECTORY/harm")',
    '; touch "$DIRECTORY/harm"',
    '`id`',
    '*',
    '> out',
    '',
    'a b',
    '"',
    "'",
    '\\',
    'ü\n',
  ];
  const script =
    'require("node:fs").writeFileSync(process.env.DIRECTORY + "/words", JSON.stringify(process.argv.slice(1)))';
  assert.equal(await run([process.execPath, '-e', script, '--', ...words]), null);
  assert.deepEqual(JSON.parse(readFileSync(file('words'), 'utf8')), words);
  assert.equal(existsSync(file('harm')), false);
});

test('exit code 0 is success; any other is a failure with the last output', async () => {
  assert.equal(await sh('echo out; echo err >&2; exit 0'), null);
  for (const code of [1, 2, 64, 127, 255])
    assert.equal(
      await sh(`echo what went wrong >&2; exit ${code}`),
      `the command ended with status ${code}: what went wrong\n`,
    );
  assert.equal(await sh('kill -TERM $$'), 'the command ended with SIGTERM: ');
  assert.match((await sh('kill -SEGV $$')) ?? '', /^the command ended with SIGSEGV/);
});

test('the error has the end of a long output', async () => {
  const error =
    (await sh(
      'head -c 300000 /dev/zero | tr "\\0" "x"; echo; echo "the reason, in the last line" >&2; exit 1',
    )) ?? '';
  assert.ok(error.endsWith('the reason, in the last line\n'), error.slice(-100));
  assert.ok(error.length < 3_000, `${error.length} characters`);
  // As the worker stores it.
  assert.ok(
    errorLine(error).endsWith('the reason, in the last line'),
    `what is written down ends with ${errorLine(error).slice(-40)}`,
  );
});

test('unlimited output on both streams is read and takes no memory', async () => {
  const before = process.resourceUsage().maxRSS;
  const MB = 1_000_000;
  assert.equal(
    await sh(`head -c ${100 * MB} /dev/zero & head -c ${100 * MB} /dev/urandom >&2; wait`),
    null,
  );
  const grownBy = (process.resourceUsage().maxRSS - before) * 1024;
  assert.ok(grownBy < 100 * MB, `the most memory ever used grew by ${grownBy} bytes`);
  // Endless output ends at the time limit.
  assert.match(
    (await run(['/usr/bin/env', 'yes'], { timeoutMs: 300 })) ?? '',
    /^the command ended with SIGKILL/,
  );
});

test('a program need not read its input, and may close it', async () => {
  const body = randomBytes(1024 * 1024);
  assert.equal(await run(['/bin/sh', '-c', ':'], { body }), null);
  assert.equal(await sh('exec 0<&-', { body }), null);
  assert.match((await sh('exit 3', { body })) ?? '', /^the command ended with status 3/);
});

test('a program that hangs is killed with its whole process group, even if it ignores signals', async () => {
  const child = `(trap '' TERM; sleep 1000 & echo $! >> "$DIRECTORY/hanging"; wait)`;
  const hanging = `trap '' TERM INT HUP; ${child} & echo $$ $! >> "$DIRECTORY/hanging"; while :; do sleep 1000; done`;
  const stop = new AbortController();
  const target = createCommandTarget(['/bin/sh', '-c', hanging], { PATH, DIRECTORY: directory });
  const outcome = target.deliver(leasedEvent(), stop.signal);
  await until(() => processesIn('hanging').length === 3, 'all three run');
  stop.abort();
  assert.match(String((await outcome).error), /^the command ended with SIGKILL/);
  await until(() => !processesIn('hanging').some(isRunning), 'all three are gone');
});

test('processes that a program leaves running are killed and do not delay its result', async () => {
  assert.equal(await sh('sleep 1000 & echo $! > "$DIRECTORY/left"'), null);
  await until(() => !processesIn('left').some(isRunning), 'it is gone');
});

test('the result says whether processes were left, and what has a session of its own goes on', async () => {
  const resultOf = (script: string) =>
    createCommandTarget(['/bin/sh', '-c', script], { PATH, DIRECTORY: directory }).deliver(
      leasedEvent(),
      new AbortController().signal,
    );
  const left = 'nohup sh -c "sleep 1000" >/dev/null 2>&1 & echo $!; exit 0';
  const { error, wereKilled, answer = '' } = await resultOf(left);
  assert.deepEqual([error, wereKilled], [null, true]);
  await until(() => !isRunning(Number(answer)), 'it is gone');
  assert.equal((await resultOf('cat >/dev/null; (echo out) | cat')).wereKilled, false);
  const own = await resultOf(
    'setsid sh -c "echo \\$\\$ > $DIRECTORY/own; exec sleep 1000" >/dev/null 2>&1 </dev/null &\n' +
      'while ! [ -s "$DIRECTORY/own" ]; do :; done',
  );
  assert.deepEqual([own.error, own.wereKilled], [null, false]);
  const [kept = 0] = processesIn('own');
  assert.equal(isRunning(kept), true);
  process.kill(kept);
});

test('the log says so, and the event is done', async (t) => {
  const { url, sql } = await createDatabase(t);
  const gatehouse = await startGatehouse(t, ['webhook'], url, {
    WEBHOOK_COMMAND: '["/bin/sh", "-c", "nohup sleep 1000 >/dev/null 2>&1 & exit 0"]',
  });
  const id = await sendEvent(gatehouse.url.webhook);
  await untilStatus(sql, id, 'done');
  assert.match(
    gatehouse.stdout(),
    /"level":"warn"[^\n]*"message":"processes that a command had left running were killed","event_id":"[0-9a-f-]{36}"/,
  );
});

test('a shutdown kills a program in progress', async () => {
  const stop = new AbortController();
  const program = createCommandTarget(
    ['/bin/sh', '-c', 'echo $$ > "$DIRECTORY/stopped"; exec sleep 1000'],
    {
      PATH,
      DIRECTORY: directory,
    },
  );
  const outcome = program.deliver(leasedEvent(), stop.signal);
  await until(() => processesIn('stopped').some(isRunning), 'it runs');
  stop.abort();
  assert.notEqual(await outcome, null);
  assert.equal(processesIn('stopped').some(isRunning), false);
});

test('a command that cannot be run fails with the reason', async () => {
  writeFileSync(file('plain'), 'no program', { mode: 0o644 });
  mkdirSync(file('folder'));
  assert.equal(await run([file('missing')]), `${COULD_NOT}: there is no such program (ENOENT)`);
  assert.equal(
    await run(['no-such-program-anywhere']),
    `${COULD_NOT}: there is no such program (ENOENT)`,
  );
  for (const name of ['plain', 'folder'])
    assert.equal(await run([file(name)]), `${COULD_NOT}: this user may not run it (EACCES)`, name);
});

/** For printf: colors, bytes that are not UTF-8, a text direction mark, and a bell. */
/** What `env -0` wrote. */
const environmentIn = (name: string): Record<string, string> =>
  Object.fromEntries(
    readFileSync(file(name), 'utf8')
      .split('\0')
      .filter(Boolean)
      .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  );

const OUTPUT = '\\033[31mred\\000nul\\377\\n\\342\\200\\256second line\\r\\007';
test('the environment has the event and no Gatehouse variable; stored output is printable', async (t) => {
  const { url, sql } = await createDatabase(t);
  // Gatehouse's variables in both forms, and another one.
  const secretFile = file('webhook-secret');
  writeFileSync(secretFile, 'a secret that no program shall know');
  const ours = {
    WEBHOOK_SECRET_FILE: secretFile,
    SERVER_SECRET_PREVIOUS: 'previous-secret-0123456789abcdefghijkl',
  };
  const gatehouse = await startGatehouse(t, ['webhook'], url, {
    ...ours,
    PATH,
    DIRECTORY: directory,
    GREETING: 'for the program',
    WEBHOOK_COMMAND: JSON.stringify([
      '/bin/sh',
      '-c',
      `env -0 > "$DIRECTORY/env-$EVENT_ATTEMPT"; printf '${OUTPUT}'; exit 9`,
    ]),
    WEBHOOK_RETRY_SCHEDULE: '1ms',
  });
  const answer = await ask('POST', `${gatehouse.url.webhook}/webhook`, {
    bearer: WEBHOOK_TOKEN,
    body: { event: 'né\nw "$(id)"', data: { page_id: 'p' } },
    headers: { 'webhook-id': 'd-42' },
  });
  assert.equal(answer.status, 200);
  const id: string = answer.json.id;
  await untilStatus(sql, id, 'dead');

  const [row] = await sql<[{ received_at: Date }]>`
      select received_at from webhook.events where id = ${id}`;
  for (const attempt of ['1', '2']) {
    const given = environmentIn(`env-${attempt}`);
    const facts = {
      EVENT_ID: id,
      EVENT_NAME: 'né\nw "$(id)"',
      EVENT_SOURCE: 'generic',
      EVENT_DELIVERY_ID: 'd-42',
      EVENT_ATTEMPT: attempt,
      EVENT_RECEIVED_AT: row.received_at.toISOString(),
    };
    // Without the variables that the shell adds.
    const { EVENT_REQUEST_ID: _0, PWD: _1, SHLVL: _2, _: _3, OLDPWD: _4, ...others } = given;
    assert.deepEqual(others, {
      PATH,
      DIRECTORY: directory,
      GREETING: 'for the program',
      ...facts,
    });
    for (const name of Object.keys(VARIABLES))
      assert.ok(!(name in given) && !(`${name}_FILE` in given), name);
  }
  const { errors } = await stateOf(sql, id);
  assert.equal(errors.length, 2);
  assert.equal(errors[0], 'the command ended with status 9:  [31mred nul\ufffd second line');
  // No control character of the program reaches the log.
  const logged = gatehouse.log().map((line) => String(line.error));
  assert.ok(!/[\p{Cc}\p{Cf}]/u.test(logged.join('')));
});

test(
  'a program can read the environment of the service: with X_FILE, it has no secret',
  async (t) => {
    const secret = 'a secret that was given as a variable 0123456789';
    for (const isFile of [false, true]) {
      const { url } = await createDatabase(t);
      const secretFile = file('secret-of-webhook');
      rmSync(secretFile, { force: true });
      writeFileSync(secretFile, secret, { mode: 0o400 });
      const read = file(`environ-${isFile}`);
      const script = `cat /proc/$PPID/environ "$SECRET" > ${read}.part; mv ${read}.part ${read}`;
      const environment = {
        DATABASE_URL: url,
        WEBHOOK_PORT: '0',
        WEBHOOK_TOKEN,
        SECRET: secretFile,
        PATH,
        WEBHOOK_COMMAND: JSON.stringify(['/bin/sh', '-c', script]),
        ...(isFile ? { WEBHOOK_SECRET_FILE: secretFile } : { WEBHOOK_SECRET: secret }),
      };
      const program = startProgram(t, buildProgram(), ['serve', 'webhook'], environment);
      await program.ready('webhook');
      await sendEvent(await program.url('webhook'));
      await until(() => existsSync(read), 'the program has run');
      const parts = readFileSync(read, 'latin1').split('\0');
      assert.equal(parts.includes(`WEBHOOK_SECRET=${secret}`), !isFile);
      assert.equal(parts.at(-1), secret, 'the file can be read by the same user');
    }
  },
  existsSync('/proc/self/environ') ? false : 'needs /proc',
);
