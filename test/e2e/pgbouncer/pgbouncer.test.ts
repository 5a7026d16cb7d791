/**
 * The services behind a real PgBouncer: its session mode works, and every other mode is rejected.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext } from 'node:test';
import postgres from 'postgres';
import {
  ask as askDatabase,
  openConnections,
  PURPOSES,
  untilSql,
} from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, startGatehouse, variables } from '../../support/gatehouse.ts';
import { buildProgram, runProgram, startProgram } from '../../support/process.ts';
import { test, until } from '../../support/until.ts';
import { startLoad } from '../faults/load/load.ts';
import { startTarget } from '../faults/load/webhook.ts';
import { SERVICES, settingsOf } from '../faults/system.ts';
import { pgbouncerSettings } from '../ha/cluster.ts';
import { findProgram, start } from '../programs.ts';

const program = findProgram('pgbouncer') ?? assert.fail('PgBouncer is not installed');
const REFUSED =
  /a connection pooler or proxy does not keep the settings of a connection; set its pool mode to session, or connect to PostgreSQL directly/;

type Pooler = Awaited<ReturnType<typeof startPooler>>;

/**
 * On a server whose commits do not wait: the services set what they need.
 * @param settings of PgBouncer
 */
async function startPooler(t: TestContext, mode: string, ...settings: readonly string[]) {
  const { url: databaseUrl, sql } = await createDatabase(t);
  const { username, password, port: serverPort, pathname } = new URL(databaseUrl);
  await sql.unsafe(`alter database ${pathname.slice(1)} set synchronous_commit to off`);
  const more = [`pool_mode = ${mode}`, `admin_users = ${username}`, ...settings];
  const { port } = await start(t, {
    name: 'pgbouncer',
    unprivileged: true,
    prepare(directory, free) {
      const users = join(directory, 'users');
      writeFileSync(users, `"${username}" "${password}"\n`, { mode: 0o644 });
      const file = join(directory, 'pgbouncer.ini');
      writeFileSync(file, pgbouncerSettings(free, serverPort, users, ...more));
      return { command: [program, file] };
    },
  });
  const url = Object.assign(new URL(databaseUrl), { port: String(port) }).href;
  return { databaseUrl, sql, url };
}

/** The services by way of a pooler, under load. */
async function startUnderLoad(t: TestContext, { url: pooled, databaseUrl }: Pooler) {
  // One that never fails: no delivery leaves an error in the log.
  const target = await startTarget(t, () => 1);
  const settings = { ...settingsOf(pooled, target), LOG_LEVEL: 'info' };
  const { url, log } = await startGatehouse(t, SERVICES, pooled, settings);
  const directUrl = () => databaseUrl;
  const load = await startLoad(t, { url: (service) => url[service], target, directUrl });
  await load.progress(100);
  assert.deepEqual([load.failed(), load.requests.problems], [0, []]);
  return { url, log, load };
}

const run = (t: TestContext, words: string[], url: string) =>
  runProgram(t, buildProgram(), words, variables(url));

test('session mode: all services under load, and no acknowledged write is lost', async (t) => {
  const swallowing = 'ignore_startup_parameters = synchronous_commit,statement_timeout';
  const pooler = await startPooler(t, 'session', swallowing);
  const { log, load } = await startUnderLoad(t, pooler);
  await load.stop();
  t.diagnostic(await load.check());
  assert.deepEqual(
    log().filter(({ error }) => error !== undefined),
    [],
  );
  const { stdout } = await run(t, ['check', 'secrets'], pooler.url);
  assert.match(stdout, /^ok +secrets pooler +one in session mode$/m);
  const database = openConnections(t, pooler.url, 'pooled');
  for (const purpose of PURPOSES) {
    const settings = `select current_setting('synchronous_commit') as commit,
      current_setting('statement_timeout') as statement`;
    const found = await askDatabase(database, purpose, settings);
    assert.deepEqual(found, { commit: 'on', statement: '10s' }, purpose);
  }
});

for (const [mode, ...more] of [
  ['transaction'],
  ['statement'],
  ['transaction', 'server_round_robin = 1'],
  ['transaction', 'default_pool_size = 1'],
  ['transaction', 'default_pool_size = 2', 'server_round_robin = 1'],
] as const) {
  test(`${[mode, ...more].join(', ')}: the start fails`, async (t) => {
    const { url } = await startPooler(t, mode, ...more);
    const commands = [['serve', ...SERVICES], ['migrate'], ['user', 'list'], ['check']];
    // Each of them opens its connections in the same way.
    for (const words of commands.slice(0, more.length === 0 ? 4 : 1)) {
      const { code, stdout, stderr } = await run(t, words, url);
      assert.equal(code, 1, stderr);
      assert.match(stdout + stderr, REFUSED);
    }
  });
}

test('transaction mode: a program emits events, and no setting is left behind', async (t) => {
  const { databaseUrl, sql, url } = await startPooler(t, 'transaction', 'default_pool_size = 2');
  await startGatehouse(t, ['webhook'], databaseUrl);
  await sql`
    insert into webhook.emitters (role, token_id)
    select current_user, id from webhook.tokens where name = 'first'`;
  const caller = postgres(url, { max: 8, ssl: false, fetch_types: false, prepare: false });
  t.after(() => caller.end());
  const turns = Array.from({ length: 60 });
  const emit = () => caller`select webhook.emit('first', 'numbered', '{}', page_id => 'one')`;
  await Promise.all(turns.map(emit));
  const stored = await sql`select from webhook.events where source = 'outbox'`;
  assert.equal(stored.length, turns.length);
  const show = () => caller`select current_setting('search_path') as path,
    current_setting('synchronous_commit') as commit`;
  for (const [row] of await Promise.all(turns.map(show)))
    assert.deepEqual({ ...row }, { path: '"$user", public', commit: 'off' });
});

test('a pooler without a free server connection for the check: the start waits and says why', async (t) => {
  const { url } = await startPooler(t, 'session', 'default_pool_size = 1');
  const running = startProgram(t, buildProgram(), ['serve', 'webhook'], variables(url));
  const line = await running.line(({ message }) => message === 'not ready yet, trying again');
  assert.match(String(line.error), /the connection pooler has too few .*; raise its pool size/);
});

test('the mode changes while the services serve: no false answer, and the log says what to do', async (t) => {
  const pooler = await startPooler(t, 'session');
  const console = pooler.url.replace(/[^/]+$/, 'pgbouncer');
  const admin = postgres(console, { max: 1, ssl: false, fetch_types: false });
  t.after(() => admin.end());
  const setMode = (mode: string) => admin.unsafe(`set pool_mode = '${mode}'`);
  const { url, log, load } = await startUnderLoad(t, pooler);
  const untilReadiness = (service: 'identity' | 'secrets' | 'webhook', status: number) =>
    untilSql(
      async () => (await ask('GET', `${url[service]}/readyz`)).status === status,
      `${service} is ${status}`,
    );
  await setMode('transaction');
  await until(
    () => log().some(({ error }) => REFUSED.test(String(error))),
    'the refusal in the log',
  );
  const failed = load.failed();
  await until(() => load.failed() >= failed + 40, 'further failures');
  assert.deepEqual(load.requests.problems, []);
  // Its logins fail. A service that sends nothing meanwhile has not met the new mode yet.
  await untilReadiness('identity', 500);
  await setMode('session');
  for (const service of SERVICES) await untilReadiness(service, 200);
});
