/**
 * `check` with clocks and processes. `transcripts/check.txt` has the rest, and
 * `documented-sql.test.ts` the rights of a role.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { servedBy } from '../../../src/commands/check.ts';
import { configure } from '../../../src/serve.ts';
import { runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { startGatehouse, variables } from '../../support/gatehouse.ts';

/** Without warnings. */
const settings = (url: string) => ({ ...variables(url), PASSWORD_SCRYPT: '' });

/** @returns how it ends, and state and detail of each line by what it checks */
async function check(service: string, given: Readonly<Record<string, string>>) {
  const { code, stdout } = await runCommand(['check', '--json', service], given);
  const rows: Array<{ state: string; check: string; detail: string }> = JSON.parse(stdout);
  const lines = rows.map((row) => [row.check, `${row.state}: ${row.detail}`] as const);
  return { code, lines: new Map(lines) };
}

test('check reports wrong settings as serve does, and exits 78', async () => {
  const given = { ...settings('postgres://x@127.0.0.1:1/y'), IDENTITY_PORT: 'x', SESION_TTL: '5' };
  const { code, stdout, stderr } = await runCommand(['check'], given);
  const problems = stderr
    .trim()
    .replaceAll(/^gatehouse: /gm, '')
    .split('\n');
  assert.deepEqual([code, stdout, problems.length], [78, '', 2]);
  await assert.rejects(configure([], 'serve', given), { problems });
});

test('check names the listener of a running service', async (t) => {
  const { url } = await createDatabase(t);
  const running = await startGatehouse(t, ['secrets'], url);
  const { port } = new URL(running.url.secrets);
  const { code, lines } = await check('secrets', { ...settings(url), SECRETS_PORT: port });
  assert.equal(code, 0);
  const used = / \(in use now, by a running Gatehouse or another program\)$/;
  assert.match(lines.get('secrets listener') ?? '', used);
});

test('check warns if the clocks of this machine and of the server differ', async (t) => {
  const { url } = await createDatabase(t);
  const { now } = Date;
  for (const [seconds, said] of [
    [-3_600, /^warning: .* ahead of this machine's clock .*; synchronize both$/],
    [60, /^warning: .* behind this machine's clock .*; synchronize both$/],
    [20, /^ok: /],
  ] as const) {
    t.mock.restoreAll();
    t.mock.method(Date, 'now', () => now() + seconds * 1_000);
    const { code, lines } = await check('secrets', settings(url));
    assert.equal(code, 0);
    assert.match(lines.get('secrets clock') ?? '', said);
  }
});

test('without a name, check takes the services that process 1 of a container serves', () => {
  const node = 'node\0/app/dist/cli.js';
  for (const [commandLine, ...services] of [
    [`${node}\0serve\0webhook\0`, 'webhook'],
    [`/sbin/docker-init\0--\0${node}\0serve\0secrets\0webhook\0`, 'secrets', 'webhook'],
    [`${node}\0serve\0`],
    [`${node}\0check\0`],
    ['/sbin/init\0'],
    ['other\0serve\0webhook\0'],
    [''],
  ] as const)
    assert.deepEqual(servedBy(commandLine), services, commandLine);
});
