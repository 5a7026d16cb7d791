/** Several processes write into one pipe, as a container's log driver reads it: whole lines, and all of them. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { closeSync, constants, mkdtempSync, openSync, rmSync } from 'node:fs';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createDatabase } from './support/database.ts';
import { ask, variables, WEBHOOK_TOKEN } from './support/gatehouse.ts';
import { untilSql } from './support/lanes.ts';
import { buildProgram } from './support/process.ts';
import { connectTo, headOf } from './support/socket.ts';
import { bounded, until } from './support/until.ts';
import { startWorkers } from './support/workers.ts';

const program = buildProgram();
const file = await createDatabase();

interface Piped {
  text(): string;
  lines(): Array<Record<string, unknown>>;
  readonly reader: Socket;
  url(service: string): Promise<string>;
  end(): Promise<number | null>;
}

/** Starts the program with a pipe, which is not what `spawn` makes of `pipe`, for its output. */
async function startPiped(t: TestContext, services: readonly string[], environment: Readonly<Record<string, string>>): Promise<Piped> {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-pipe-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const path = join(directory, 'pipe');
  execFileSync('mkfifo', [path]);
  const reading = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const writing = openSync(path, constants.O_WRONLY);
  const reader = new Socket({ fd: reading, readable: true, writable: false });
  t.after(() => void reader.destroy());
  let written = '';
  reader.setEncoding('utf8').on('data', (text: string) => (written += text));
  const child = spawn(process.execPath, [join(program, 'dist/cli.js'), 'serve', ...services], { env: environment, cwd: program, stdio: ['ignore', writing, 'inherit'] });
  closeSync(writing);
  // Closed when nobody holds the other end any more: neither the first process nor any worker.
  const ended = Promise.all([new Promise<number | null>((resolve) => child.on('exit', resolve)), new Promise((resolve) => reader.on('close', resolve))]);
  t.after(async () => {
    child.kill('SIGKILL');
    reader.resume();
    await ended;
  });
  const lines = () => written.split('\n').slice(0, -1).map((line): Record<string, unknown> => JSON.parse(line));
  await until(() => written.includes('every worker is ready'));
  return {
    text: () => written,
    lines,
    reader,
    url: async (service) => `http://127.0.0.1:${String(lines().find((line) => line.message === 'listening' && line.service === service)?.port)}`,
    async end() {
      child.kill('SIGTERM');
      return (await ended)[0];
    },
  };
}

const CONNECTIONS = 24;
const EACH = 60;
const idOf = (connection: number, request: number) => `${connection}-${request}-`.padEnd(128, 'x');
const allIds = Array.from({ length: CONNECTIONS }, (_, connection) => Array.from({ length: EACH }, (_, request) => idOf(connection, request))).flat().sort();

/** Each of the requests is answered before this resolves; together their lines are five times what a pipe holds. */
async function ply(url: string): Promise<void> {
  const work = Array.from({ length: CONNECTIONS }, async (_, connection) => {
    const client = await connectTo(url);
    const heads = Array.from({ length: EACH }, (_, request) => headOf(['GET /livez HTTP/1.1', 'Host: x', `X-Request-Id: ${idOf(connection, request)}`]));
    client.send(heads.join(''));
    for (let request = 0; request < EACH; request += 1) assert.equal((await client.answer()).status, 200);
    client.leave();
  });
  await Promise.all(work);
}

const idsIn = (lines: ReadonlyArray<Record<string, unknown>>) => lines.filter(({ message }) => message === 'request').map(({ request_id }) => String(request_id)).sort();
const busy = { ...variables(file.url), WORKERS: '3' };

test('what several workers say under load is whole lines, one for each request', bounded, async (t) => {
  const house = await startWorkers(t, program, busy);
  await ply(house.services.identity);
  await until(() => idsIn(house.log()).length >= allIds.length);
  // Lines that are torn may still begin with a brace; those that are not would be left out of `log`.
  for (const line of house.stdout().split('\n').slice(0, -1)) assert.doesNotThrow(() => JSON.parse(line), line);
  assert.deepEqual(idsIn(house.log()), allIds);
});

test('lines stay whole when their reader falls behind and then catches up', bounded, async (t) => {
  const house = await startPiped(t, ['identity'], busy);
  const url = await house.url('identity');
  house.reader.pause();
  await ply(url);
  house.reader.resume();
  await until(() => house.text().split('"message":"request"').length > allIds.length);
  for (const line of house.text().split('\n').slice(0, -1)) assert.doesNotThrow(() => JSON.parse(line), `torn: ${line}`);
  assert.deepEqual(idsIn(house.lines()), allIds);
});

test('at the end every line reaches a reader that has fallen behind', bounded, async (t) => {
  const house = await startPiped(t, ['identity'], busy);
  const url = await house.url('identity');
  house.reader.pause();
  await ply(url);
  const ended = house.end();
  await untilSql(
    async () => (await file.sql`select from pg_stat_activity where datname = current_database() and application_name like 'gatehouse-%'`).length === 0,
    'the workers have nothing more to do but to end',
  );
  // Time for a process to end that would not wait for its reader.
  await sleep(300);
  house.reader.resume();
  assert.equal(await ended, 0);
  const ids = [...house.text().matchAll(/"request_id":"([^"]{128})"/g)].map(([, id]) => id).sort();
  assert.equal(ids.length, allIds.length, `${allIds.length - ids.length} lines were lost`);
});

test('events that several workers of the plain receiver print are whole lines, however long', bounded, async (t) => {
  const house = await startPiped(t, ['webhook'], { WEBHOOK_VARIANT: 'plain', HOST: '127.0.0.1', PORT: '0', WEBHOOK_TOKEN, WORKERS: '3' });
  const url = await house.url('webhook');
  const filling = 'x'.repeat(50_000);
  const events = Array.from({ length: 200 }, (_, number) => `event-${number}`);
  const answers = await Promise.all(events.map((event) => ask('POST', `${url}/webhook`, { bearer: WEBHOOK_TOKEN, body: { event, data: { page_id: filling } } })));
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
  await until(() => house.text().split('"message":"event"').length > events.length);
  for (const line of house.text().split('\n').slice(0, -1)) assert.doesNotThrow(() => JSON.parse(line), `torn: ${line.slice(0, 200)}…`);
});
