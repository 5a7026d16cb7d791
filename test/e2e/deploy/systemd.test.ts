/** The units, as systemd reads them. systemd itself is not started. */
import assert from 'node:assert/strict';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createDatabase } from '../../support/database.ts';
import { makeDirectory } from '../../support/directories.ts';
import { unitValues, unitOf } from '../../support/deploy.ts';
import {
  ask,
  AUTH_TOKEN,
  logIn,
  ADMIN_PASSWORD,
  variables,
  WEBHOOK_TOKEN,
} from '../../support/gatehouse.ts';
import { buildProgram, root, startProgram } from '../../support/process.ts';
import { SERVICES } from '../../support/settings.ts';
import { findProgram } from '../programs.ts';
import { runTool } from '../tools.ts';

const database = await createDatabase();
const place = makeDirectory({ after }, 'systemd');
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
  const strace = [findProgram('strace') ?? 'strace', '--follow-forks', '--summary-only'];
  const environment = {
    ...variables(database.url),
    METRICS_PORT: '0',
    WEBHOOK_COMMAND: JSON.stringify(['/bin/true']),
  };
  const options = { node: [...strace, '--output', trace, process.execPath] };
  const running = startProgram(t, buildProgram(), ['serve'], environment, options);
  await running.ready(...SERVICES);
  const post = async (service: string, path: string, bearer: string, body: object) =>
    (await ask('POST', (await running.url(service)) + path, { bearer, body })).status;
  await logIn(await running.url('identity'), 'admin', ADMIN_PASSWORD);
  const event = { event: 'tested', data: { page_id: '1' } };
  assert.equal(await post('secrets', '/api/store/encrypt', AUTH_TOKEN, { password: 'x' }), 201);
  assert.equal(await post('webhook', '/webhook', WEBHOOK_TOKEN, event), 200);
  const metrics = `${await running.url('metrics')}/metrics`;
  const done = 'gatehouse_delivery_attempts_total{outcome="done"} 1';
  while (!(await ask('GET', metrics)).text.includes(done)) await sleep(50);
  // strace itself ignores it.
  const { pid } = running;
  const child = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  process.kill(Number(child), 'SIGTERM');
  assert.deepEqual(await running.ended, { code: 0, signal: null });

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
