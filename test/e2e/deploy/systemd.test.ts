/** The units, as systemd reads them. systemd itself is not started. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { spawn } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createDatabase } from '../../support/database.ts';
import { unitValues, unitOf } from '../../support/deploy.ts';
import {
  ask,
  AUTH_TOKEN,
  logIn,
  ADMIN_PASSWORD,
  variables,
  WEBHOOK_TOKEN,
} from '../../support/gatehouse.ts';
import { buildProgram, root } from '../../support/process.ts';
import { SERVICES } from '../../support/settings.ts';
import { createLines } from '../../support/lines.ts';
import { until } from '../../support/until.ts';
import { findProgram } from '../programs.ts';
import { runTool } from '../tools.ts';

const database = await createDatabase();
const place = mkdtempSync(join(tmpdir(), 'gatehouse-systemd-'));
after(() => rmSync(place, { recursive: true }));
cpSync(join(root, 'deploy/systemd'), place, { recursive: true });
const unit = join(place, 'gatehouse@.service');
// The tool wants a program that exists.
writeFileSync(unit, readFileSync(unit, 'utf8').replace('/usr/local/bin/gatehouse', '/bin/true'));

test('systemd accepts the unit of every service without a remark', () => {
  const environment = { SYSTEMD_UNIT_PATH: `${place}:` };
  for (const service of SERVICES) {
    const words = ['verify', `gatehouse@${service}.service`];
    assert.equal(runTool('systemd-analyze', words, environment).output, '');
  }
});

test('systemd rates the exposure of the unit at 1.1 or better', () => {
  const words = ['security', '--offline=true', '--threshold=11', unit];
  const { code, output } = runTool('systemd-analyze', words);
  assert.equal(code, 0, output);
});

/** The system calls of a set, and of the sets in it. */
function systemCalls(set: string): Set<string> {
  const listed = runTool('systemd-analyze', ['syscall-filter', set])
    .stdout.split('\n')
    .slice(1)
    .map((line) => line.trim());
  const names = listed.filter((line) => line !== '' && !line.startsWith('#'));
  return new Set(names.flatMap((name) => (name.startsWith('@') ? [...systemCalls(name)] : [name])));
}

test('every system call of the program at work is allowed', async (t) => {
  const [allow = '', deny = ''] = unitValues(unitOf('identity'), 'SystemCallFilter');
  const allowed = new Set(allow.split(' ').flatMap((set) => [...systemCalls(set)]));
  for (const set of deny.replace(/^~/, '').split(' '))
    for (const name of systemCalls(set)) allowed.delete(name);
  assert.ok(allowed.size > 100 && !allowed.has('setuid') && !allowed.has('mount'));

  const trace = join(place, 'trace');
  const strace = ['--follow-forks', '--summary-only', '--output', trace];
  const program = [process.execPath, join(buildProgram(), 'dist/cli.js'), 'serve'];
  const command = JSON.stringify(['/bin/true']);
  const child = spawn(findProgram('strace') ?? 'strace', [...strace, ...program], {
    env: { ...variables(database.url), METRICS_PORT: '0', WEBHOOK_COMMAND: command },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'close');
  t.after(() => {
    child.kill('SIGKILL');
  });
  const lines = createLines((line): Array<Record<string, unknown>> => [JSON.parse(line)]);
  child.stdout.setEncoding('utf8').on('data', lines.write);
  const ready = (message: string) => lines.parsed().filter((line) => line.message === message);
  await until(() => ready('ready').length === SERVICES.length, 'the services are ready');
  const url = (service: string) =>
    `http://127.0.0.1:${String(ready('listening').find((line) => line.service === service)?.port)}`;
  await logIn(url('identity'), 'admin', ADMIN_PASSWORD);
  const body = { password: 'x' };
  assert.equal(
    (await ask('POST', `${url('secrets')}/api/store/encrypt`, { bearer: AUTH_TOKEN, body })).status,
    201,
  );
  const event = { event: 'tested', data: { page_id: '1' } };
  assert.equal(
    (await ask('POST', `${url('webhook')}/webhook`, { bearer: WEBHOOK_TOKEN, body: event })).status,
    200,
  );
  const metrics = async () => (await ask('GET', `${url('metrics')}/metrics`)).text;
  while (!(await metrics()).includes('gatehouse_delivery_attempts_total{outcome="done"} 1'))
    await sleep(50);
  // strace itself ignores it.
  process.kill(
    Number(readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8')),
    'SIGTERM',
  );
  assert.deepEqual(await ended, [0, null]);

  // % time, seconds, usecs/call, calls, errors, syscall
  const rows = readFileSync(trace, 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .filter((cells) => /^\d/.test(cells[0] ?? ''));
  const used = rows.map((cells) => cells.at(-1) ?? '').filter((name) => name !== 'total');
  assert.ok(used.includes('epoll_ctl') && used.includes('execve'), used.join());
  assert.deepEqual(
    used.filter((name) => !allowed.has(name)),
    [],
  );
});
