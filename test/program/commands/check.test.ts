/** `check`, which changes nothing. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { withConnection } from '../../../scripts/postgres.ts';
import { servedBy } from '../../../src/commands/check.ts';
import { runCommand } from '../../support/commands.ts';
import { createDatabase, createEmptyDatabase } from '../../support/database.ts';
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

const statesOf = (lines: Lines) =>
  Object.fromEntries(Object.entries(lines).map(([name, [state]]) => [name, state]));

test('check reports each setting, database, schema, right, clock, pooler and listener in a line', async (t) => {
  const { url } = await createDatabase(t);
  const { code, stdout, stderr } = await runCommand(['check'], {
    ...settings(url),
    METRICS_PORT: '1',
  });
  assert.deepEqual([code, stderr], [0, '']);
  const [head, ...lines] = stdout.trimEnd().split('\n');
  assert.match(head ?? '', /^STATE +CHECK +DETAIL$/);
  assert.equal(lines.shift(), 'ok     settings           valid');
  assert.equal(lines.pop(), 'ok     metrics            127.0.0.1:1');
  for (const service of ['identity', 'secrets', 'webhook']) {
    const expected = [
      `database +PostgreSQL \\d\\S*, database test_[0-9a-f]+, role gatehouse, not encrypted`,
      'pooler +none',
      'rights +all that serve needs',
      `schema +${service} is up to date \\(\\d steps?\\)`,
      "clock +the server's clock is \\d+ ms (ahead of|behind) this machine's clock \\(±\\d+ ms\\)",
      'listener +127\\.0\\.0\\.1:0',
    ];
    for (const line of expected)
      assert.match(lines.shift() ?? '', new RegExp(`^ok +${service} ${line}$`));
  }
  assert.deepEqual(lines, []);
});

test('check changes nothing in an empty database, and says what serve would do', async (t) => {
  const { url, sql } = await createEmptyDatabase(t);
  const { code, lines } = await check(['secrets'], settings(url));
  assert.equal(code, 0);
  assert.match(
    lines['secrets schema']?.[1] ?? '',
    /^secrets lacks \d steps?: \S.*; serve applies it at startup$/,
  );
  assert.deepEqual(
    [...(await sql`select nspname from pg_namespace where nspname = 'secrets'`)],
    [],
  );

  const off = await check(['secrets'], { ...settings(url), MIGRATE: 'off' });
  assert.deepEqual([off.code, off.stderr], [1, 'gatehouse: 1 check failed\n']);
  assert.match(off.lines['secrets schema']?.[1] ?? '', /; MIGRATE=off: run "gatehouse migrate"$/);
});

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

test('check reports a database that cannot be used, and exits 1', async () => {
  const { code, stderr, lines } = await check(
    ['identity'],
    settings('postgres://gatehouse:x@127.0.0.1:1/nowhere'),
  );
  assert.deepEqual([code, stderr], [1, 'gatehouse: 1 check failed\n']);
  const states = { settings: 'ok', 'identity database': 'failed', 'identity listener': 'ok' };
  assert.deepEqual(statesOf(lines), states);
  assert.match(
    lines['identity database']?.[1] ?? '',
    /^the connection to the database at 127\.0\.0\.1:1 failed \(ECONNREFUSED/,
  );
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

test('check reports a target of webhook events that serve would not start with', async (t) => {
  const { url } = await createDatabase(t);
  const given = (name: string, value: string) =>
    check(['webhook'], { ...settings(url), [name]: value });
  const missing = await given('WEBHOOK_HANDLER', '/nowhere/handler.mjs');
  assert.deepEqual([missing.code, missing.stderr], [1, 'gatehouse: 1 check failed\n']);
  const [state, detail = ''] = missing.lines['webhook delivery'] ?? [];
  assert.equal(state, 'failed');
  assert.match(detail, /WEBHOOK_HANDLER names a module that cannot be read/);
  assert.equal((await given('WEBHOOK_FORWARD_URL', 'http://127.0.0.1/')).code, 1);
  const right = await given('WEBHOOK_COMMAND', JSON.stringify([process.execPath, '--version']));
  assert.deepEqual(
    [right.code, right.lines['webhook delivery']],
    [0, ['ok', 'the target can be used']],
  );
});

test('check of the plain webhook receiver needs no database', async () => {
  const given = {
    WEBHOOK_VARIANT: 'plain',
    WEBHOOK_TOKEN: 'a-webhook-token-of-32-characters',
    PORT: '0',
  };
  const { code, lines } = await check(['webhook'], given);
  assert.deepEqual([code, lines['webhook database']], [0, ['ok', 'none is needed']]);
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

test('without the settings of all services, check says how to check one', async (t) => {
  const { url } = await createEmptyDatabase(t);
  const { code, stderr } = await runCommand(['check'], { DATABASE_URL: url });
  assert.equal(code, 78);
  assert.match(stderr, /AUTH_TOKEN must be set/);
  assert.match(stderr, /To check one, name it, as in "check webhook"\.\n$/);
  assert.equal((await runCommand(['check', 'webhook'], { DATABASE_URL: url })).code, 0);
});
