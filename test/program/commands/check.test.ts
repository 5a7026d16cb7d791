/** `check` with roles, clocks and processes. `transcripts/check.txt` has the rest. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { withConnection } from '../../../scripts/postgres.ts';
import { servedBy } from '../../../src/commands/check.ts';
import { runCommand } from '../../support/commands.ts';
import { createDatabase } from '../../support/database.ts';
import { startGatehouse, variables } from '../../support/gatehouse.ts';
import { root, runProgram } from '../../support/process.ts';

/** Without warnings. */
const settings = (url: string) => ({ ...variables(url), PASSWORD_SCRYPT: '' });

type Lines = Readonly<Record<string, readonly [state: string, detail: string]>>;

/** @returns the lines by what they check */
async function check(words: readonly string[], given: Readonly<Record<string, string>>) {
  const { code, stdout, stderr } = await runCommand(['check', '--json', ...words], given);
  const rows: Array<{ state: string; check: string; detail: string }> = JSON.parse(stdout);
  const lines: Lines = Object.fromEntries(rows.map((row) => [row.check, [row.state, row.detail]]));
  return { code, stderr, lines };
}

test('check names the rights that a role lacks', async (t) => {
  const { url, sql } = await createDatabase(t);
  const role = `app_${new URL(url).pathname.slice(6)}`;
  await sql.unsafe(`
    create role ${role} login password 'app';
    grant usage on schema secrets to ${role};
    grant select, insert, update, delete on all tables in schema secrets to ${role};
    revoke delete on secrets.secrets from ${role}`);
  const server = process.env.TEST_POSTGRES_URL ?? '';
  // The database is dropped before.
  t.after(() => withConnection(server, (other) => other.unsafe(`drop role ${role}`)));
  const restricted = Object.assign(new URL(url), { username: role, password: 'app' }).href;
  const lacking = await check(['secrets'], settings(restricted));
  assert.deepEqual([lacking.code, lacking.stderr], [1, 'gatehouse: 1 check failed\n']);
  assert.deepEqual(lacking.lines['secrets rights'], [
    'failed',
    `the role ${role} lacks delete on secrets.secrets`,
  ]);

  await sql.unsafe(`grant delete on secrets.secrets to ${role}`);
  assert.equal((await check(['secrets'], settings(restricted))).code, 0);

  const other = await check(['identity'], settings(restricted));
  assert.match(
    other.lines['identity rights']?.[1] ?? '',
    / lacks .*insert on identity\.users.*usage on schema identity$/,
  );

  await sql`drop schema webhook cascade`;
  const without = await check(['webhook'], settings(restricted));
  const owner = /; the role may not create it: run "gatehouse migrate" as the owner$/;
  assert.match(without.lines['webhook schema']?.[1] ?? '', owner);
});

test('check reports wrong settings as serve does, and exits 78', async (t) => {
  const given = { ...settings('postgres://x@127.0.0.1:1/y'), IDENTITY_PORT: 'x', SESION_TTL: '5' };
  const [checked, served] = await Promise.all(
    ['check', 'serve'].map((word) => runProgram(t, root, [word], given)),
  );
  assert.deepEqual([checked?.code, checked?.stdout, checked?.stderr], [78, '', served?.stderr]);
  assert.equal(checked?.stderr.split('\n').length, 3);
});

test('check lists warnings, and the listener of a running service', async (t) => {
  const { url } = await createDatabase(t);
  const running = await startGatehouse(t, ['secrets'], url);
  const given = {
    ...settings(url),
    ALLOW_WEAK_SECRETS: 'on',
    SECRETS_PORT: new URL(running.url.secrets).port,
  };
  const { code, lines } = await check(['secrets'], given);
  assert.equal(code, 0);
  assert.deepEqual(lines.settings, ['warning', 'ALLOW_WEAK_SECRETS is on: use it only for tests.']);
  assert.match(
    lines['secrets listener']?.[1] ?? '',
    / \(in use now, by a running Gatehouse or another program\)$/,
  );
});

/** Of this process, until the test ends. */
function shiftClock(t: TestContext, milliseconds: number): void {
  t.mock.restoreAll();
  const { now } = Date;
  t.mock.method(Date, 'now', () => now() + milliseconds);
}

test('check warns if the clocks of this machine and of the server differ', async (t) => {
  const { url } = await createDatabase(t);
  for (const [seconds, text] of [
    [-3_600, 'ahead of'],
    [60, 'behind'],
    [20, null],
  ] as const) {
    shiftClock(t, seconds * 1_000);
    const { code, lines } = await check(['secrets'], settings(url));
    assert.equal(code, 0);
    const [state, detail = ''] = lines['secrets clock'] ?? [];
    assert.equal(state, text === null ? 'ok' : 'warning', detail);
    if (text !== null)
      assert.match(detail, new RegExp(` ${text} this machine's clock .*; synchronize both$`));
  }
});

test('without a name, check takes the services that process 1 of a container serves', () => {
  const node = 'node\0/app/dist/cli.js';
  for (const [commandLine, services] of [
    [`${node}\0serve\0webhook\0`, ['webhook']],
    [`/sbin/docker-init\0--\0${node}\0serve\0secrets\0webhook\0`, ['secrets', 'webhook']],
    [`${node}\0serve\0`, []],
    [`${node}\0check\0`, []],
    ['/sbin/init\0', []],
    ['other\0serve\0webhook\0', []],
    ['', []],
  ] as const)
    assert.deepEqual(servedBy(commandLine), services, commandLine);
});
