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
import { startLoad } from '../../support/load.ts';
import { buildProgram, runProgram, startProgram } from '../../support/process.ts';
import { test, until } from '../../support/until.ts';
import { findProgram, start } from '../programs.ts';

const program = findProgram('pgbouncer') ?? assert.fail('PgBouncer is not installed');
const SERVICES = ['identity', 'secrets', 'webhook'] as const;
const REFUSED =
  /a connection pooler or proxy does not keep the settings of a connection; set its pool mode to session, or connect to PostgreSQL directly/;

interface Pooler {
  readonly url: string;
  /** Runs a command of the administration console. */
  command(text: string): Promise<void>;
}

/** @param more further settings of PgBouncer */
async function startPooler(
  t: TestContext,
  databaseUrl: string,
  mode: string,
  ...more: readonly string[]
): Promise<Pooler> {
  const { username, password, port: serverPort } = new URL(databaseUrl);
  const { port } = await start(
    { after: async (stop) => t.after(stop) },
    {
      name: 'pgbouncer',
      unprivileged: true,
      prepare(directory, free) {
        const users = join(directory, 'users');
        writeFileSync(users, `"${username}" "${password}"\n`, { mode: 0o644 });
        const file = join(directory, 'pgbouncer.ini');
        writeFileSync(
          file,
          [
            '[databases]',
            `* = host=127.0.0.1 port=${serverPort}`,
            '[pgbouncer]',
            'listen_addr = 127.0.0.1',
            `listen_port = ${free}`,
            'unix_socket_dir =',
            'auth_type = scram-sha-256',
            `auth_file = ${users}`,
            `admin_users = ${username}`,
            `pool_mode = ${mode}`,
            'default_pool_size = 60',
            'max_client_conn = 300',
            ...more,
            '',
          ].join('\n'),
        );
        return { command: [program, file] };
      },
    },
  );
  const url = new URL(databaseUrl);
  url.port = String(port);
  const admin = new URL(url);
  admin.pathname = '/pgbouncer';
  const command = async (text: string) => {
    const sql = postgres(admin.href, { max: 1, ssl: false, fetch_types: false });
    await sql.unsafe(text).finally(() => sql.end());
  };
  return { url: url.href, command };
}

test('session mode: all services under load, and no acknowledged write is lost', async (t) => {
  const { url: databaseUrl, sql } = await createDatabase(t);
  // As of a server whose commits do not wait: the services set what they need.
  await sql.unsafe(
    `alter database "${new URL(databaseUrl).pathname.slice(1)}" set synchronous_commit to off`,
  );
  const pooler = await startPooler(t, databaseUrl, 'session');
  const { url, log } = await startGatehouse(t, SERVICES, pooler.url);
  const load = await startLoad(url, 8);
  await until(() => load.rounds() >= 48, '48 rounds');
  assert.deepEqual(load.problems(), {});
  await load.stopAndCompare(sql);
  assert.deepEqual(
    log().filter(({ error }) => error !== undefined),
    [],
  );
  const { stdout } = await runProgram(
    t,
    buildProgram(),
    ['check', 'secrets'],
    variables(pooler.url),
  );
  assert.match(stdout, /^ok +secrets pooler +one in session mode$/m);
});

test('session mode: every connection has its settings', async (t) => {
  const { url: databaseUrl, sql } = await createDatabase(t);
  await sql.unsafe(
    `alter database "${new URL(databaseUrl).pathname.slice(1)}" set synchronous_commit to off`,
  );
  const pooler = await startPooler(
    t,
    databaseUrl,
    'session',
    'ignore_startup_parameters = synchronous_commit,statement_timeout',
  );
  const database = openConnections(t, pooler.url, 'pooled');
  for (const purpose of PURPOSES) {
    const settings = `select current_setting('synchronous_commit') as commit, current_setting('statement_timeout') as statement`;
    assert.deepEqual(
      await askDatabase(database, purpose, settings),
      { commit: 'on', statement: '10s' },
      purpose,
    );
  }
});

const MODES: ReadonlyArray<readonly [mode: string, ...more: string[]]> = [
  ['transaction'],
  ['statement'],
  ['transaction', 'server_round_robin = 1'],
  ['transaction', 'default_pool_size = 1'],
  ['transaction', 'default_pool_size = 2', 'server_round_robin = 1'],
];
for (const [mode, ...more] of MODES) {
  test(`${[mode, ...more].join(', ')}: the start fails`, async (t) => {
    const { url: databaseUrl } = await createDatabase(t);
    const pooler = await startPooler(t, databaseUrl, mode, ...more);
    for (const words of [['serve', ...SERVICES], ['migrate'], ['user', 'list']]) {
      const { code, stderr } = await runProgram(t, buildProgram(), words, variables(pooler.url));
      assert.equal(code, 1, stderr);
      assert.match(stderr, REFUSED);
    }
    const { code, stdout } = await runProgram(
      t,
      buildProgram(),
      ['check', 'secrets'],
      variables(pooler.url),
    );
    assert.deepEqual([code, REFUSED.test(stdout)], [1, true], stdout);
  });
}

test('transaction mode: a program emits events in its own transactions', async (t) => {
  const { url: databaseUrl, sql } = await createDatabase(t);
  await startGatehouse(t, ['webhook'], databaseUrl);
  await sql`
    insert into webhook.emitters (role, token_id)
    select current_user, id from webhook.tokens where name = 'first'`;
  const pooler = await startPooler(t, databaseUrl, 'transaction', 'default_pool_size = 2');
  const caller = postgres(pooler.url, { max: 8, ssl: false, fetch_types: false, prepare: false });
  t.after(() => caller.end());
  const emit = (n: number) =>
    caller.begin(async (inner) => {
      await inner`set local synchronous_commit to off`;
      await inner`
        select webhook.emit('first', 'numbered', ${JSON.stringify({ n })}::text::jsonb,
          page_id => 'one')`;
      if (n % 3 === 0) throw new Error('rolled back');
    });
  const numbers = Array.from({ length: 60 }, (_, n) => n);
  await Promise.allSettled(numbers.map(emit));
  const stored = await sql<Array<{ n: number }>>`
    select (convert_from(body, 'UTF8')::jsonb -> 'data' ->> 'n')::int4 as n
    from webhook.events where source = 'outbox' order by 1`;
  assert.deepEqual(
    stored.map(({ n }) => n),
    numbers.filter((n) => n % 3 !== 0),
  );
  const settings = await Promise.all(
    numbers.map(
      () => caller`
      select current_setting('search_path') as path,
        current_setting('synchronous_commit') as commit`,
    ),
  );
  for (const [row] of settings)
    assert.deepEqual({ ...row }, { path: '"$user", public', commit: 'on' });
});

test('a pooler without a free server connection for the check: the start waits and says why', async (t) => {
  const { url: databaseUrl } = await createDatabase(t);
  const pooler = await startPooler(t, databaseUrl, 'session', 'default_pool_size = 1');
  const running = startProgram(t, buildProgram(), ['serve', 'webhook'], variables(pooler.url));
  const line = await running.line(({ message }) => message === 'not ready yet, trying again');
  assert.match(String(line.error), /pool/);
});

test('the mode changes while the services serve: no false answer, and the log says what to do', async (t) => {
  const { url: databaseUrl } = await createDatabase(t);
  const pooler = await startPooler(t, databaseUrl, 'session');
  const { url, log } = await startGatehouse(t, SERVICES, pooler.url);
  const load = await startLoad(url, 8);
  await until(() => load.rounds() >= 16, '16 rounds');
  assert.deepEqual(load.problems(), {});
  await pooler.command(`set pool_mode = 'transaction'`);
  await until(
    () => log().some(({ error }) => REFUSED.test(String(error))),
    'the refusal in the log',
  );
  const rounds = load.rounds() + 40;
  await until(() => load.rounds() >= rounds, 'further rounds');
  const problems = Object.entries(load.problems());
  assert.notDeepEqual(problems, []);
  for (const [problem] of problems) assert.match(problem, /: (500|503) /);
  // Its logins fail. A service that sends nothing meanwhile has not met the new mode yet.
  await untilSql(
    async () => (await ask('GET', `${url.identity}/readyz`)).status === 500,
    'identity is not ready',
  );
  await pooler.command(`set pool_mode = 'session'`);
  for (const service of SERVICES)
    await untilSql(
      async () => (await ask('GET', `${url[service]}/readyz`)).status === 200,
      `${service} is ready`,
    );
});
