/**
 * The database moves to another server while its name stays: the steps that docs/database.md
 * gives for a move by DNS, under load. Then the name changes although the former server still
 * answers: no process may use both.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { appendFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { unprivilegedUser } from '../../../scripts/binaries.ts';
import { withConnection } from '../../../scripts/postgres.ts';
import type { Supervised } from '../../../scripts/supervise.ts';
import { startLoad } from '../faults/load/load.ts';
import { SERVICES, startServices } from '../faults/system.ts';
import { freePort } from '../programs.ts';
import { createMachine, findPostgres, type Machine, until } from './cluster.ts';

const BIN = findPostgres() ?? assert.fail('PostgreSQL is not installed');
const PASSWORD = 'rehearsal';
const NAME = 'database.example.org';
const FORMER = '127.0.0.2';
const LATTER = '127.0.0.3';
const isRoot = process.getuid?.() === 0;

const urlAt = (host: string, port: number, role = 'gatehouse', database = 'gatehouse') =>
  `postgres://${role}:${PASSWORD}@${host}:${port}/${database}`;

interface Server {
  readonly host: string;
  /** Ends it as `pg_ctl stop --mode fast` does. */
  stop(): Promise<void>;
  start(): Promise<void>;
}

async function untilAnswering(host: string, port: number): Promise<void> {
  await until(`the server at ${host} answers`, () =>
    withConnection(urlAt(host, port, 'postgres', 'postgres'), (sql) => sql`select`).then(
      () => true,
      () => false,
    ),
  );
}

async function startServer(
  { run }: Machine,
  data: string,
  host: string,
  port: number,
): Promise<Server> {
  let running: Supervised | undefined;
  const settings = [`port=${port}`, `listen_addresses=${host}`, 'unix_socket_directories='];
  const words = ['-D', data, ...settings.flatMap((setting) => ['-c', setting])];
  const start = async () => {
    running = run(`postgres-${host}`, join(BIN, 'postgres'), words);
    await untilAnswering(host, port);
  };
  await start();
  return {
    host,
    start,
    async stop() {
      running?.tell('INT');
      await running?.ended;
    },
  };
}

/** @returns a server with a database, and a synchronous standby of it on the same port */
async function startServers(machine: Machine, port: number): Promise<readonly [Server, Server]> {
  const { home, write } = machine;
  const options = { ...unprivilegedUser(), cwd: home, env: { LC_ALL: 'C.UTF-8' } };
  const first = join(home, 'former');
  const words = write('words', PASSWORD);
  const how = ['-U', 'postgres', '-A', 'scram-sha-256', '--pwfile', words, '-E', 'UTF8'];
  execFileSync(join(BIN, 'initdb'), ['-D', first, ...how], options);
  const everyone = ['all', 'replication'].map(
    (what) => `host ${what} all 127.0.0.0/8 scram-sha-256\n`,
  );
  appendFileSync(join(first, 'pg_hba.conf'), everyone.join(''));
  const former = await startServer(machine, first, FORMER, port);
  const second = join(home, 'latter');
  const source = urlAt(FORMER, port, 'postgres', '');
  execFileSync(
    join(BIN, 'pg_basebackup'),
    ['--pgdata', second, '--dbname', source, '--write-recovery-conf', '--checkpoint', 'fast'],
    options,
  );
  const latter = await startServer(machine, second, LATTER, port);
  await withConnection(urlAt(FORMER, port, 'postgres', 'postgres'), async (sql) => {
    await sql`alter system set synchronous_standby_names = '*'`;
    await sql`select pg_reload_conf()`;
    await until('the standby is synchronous', async () => {
      const [row] = await sql`select from pg_stat_replication where sync_state = 'sync'`;
      return row !== undefined;
    });
    await sql.unsafe(`create role gatehouse login password '${PASSWORD}'`);
    await sql`create database gatehouse owner gatehouse`;
  });
  return [former, latter];
}

/** A Node for which the name leads where a file says, in a file system of its own. */
function nodeWithNames(file: string): readonly string[] {
  const script = `mount --bind ${file} /etc/hosts && exec "$@"`;
  return ['unshare', '--mount', 'sh', '-c', script, 'sh', process.execPath];
}

const connectionsAt = (host: string, port: number): Promise<number> =>
  withConnection(urlAt(host, port, 'postgres', 'postgres'), async (sql) => {
    const rows = await sql`
      select from pg_stat_activity
      where application_name like 'gatehouse-%' and usename = 'gatehouse'`;
    return rows.length;
  });

async function moveByDns(t: TestContext): Promise<void> {
  const machine = createMachine(t);
  const port = await freePort();
  const [former, latter] = await startServers(machine, port);
  let current = former;
  const names = machine.write('hosts', '');
  const lead = (server: Server) => writeFileSync(names, `${server.host} ${NAME}\n`);
  lead(former);
  const services = await startServices(t, urlAt(NAME, port), () => urlAt(current.host, port), {
    node: nodeWithNames(names),
  });
  const load = await startLoad(t, services);
  await load.progress(100);

  await former.stop();
  await withConnection(urlAt(LATTER, port, 'postgres', 'postgres'), async (sql) => {
    await sql`select pg_promote()`;
    await sql`alter system reset synchronous_standby_names`;
    await sql`select pg_reload_conf()`;
  });
  lead(latter);
  current = latter;
  await services.untilReady();
  await load.progress(100);
  await load.stop();
  t.diagnostic(await load.check());

  // Not as documented: both servers accept writes, and two connections are opened again.
  await former.start();
  await withConnection(urlAt(FORMER, port, 'postgres', 'postgres'), async (sql) => {
    await sql`alter system reset synchronous_standby_names`;
    await sql`select pg_reload_conf()`;
  });
  const before = await connectionsAt(LATTER, port);
  lead(former);
  await withConnection(
    urlAt(LATTER, port, 'postgres', 'postgres'),
    (sql) => sql`select pg_terminate_backend(pid) from pg_stat_activity
      where application_name like 'gatehouse-%' and usename = 'gatehouse' and datid is not null
      and pid in (select min(pid) from pg_stat_activity where application_name like 'gatehouse-%'
        and usename = 'gatehouse' group by application_name)`,
  );
  await services.untilReady();
  await until(
    'no connection leads to the other server',
    async () => (await connectionsAt(LATTER, port)) === 0,
  );
  const after = await connectionsAt(FORMER, port);
  t.diagnostic(`${before} connections, three of them cut: ${after} to one server, 0 to the other`);
  assert.ok(before > SERVICES.length && after > SERVICES.length);
  for (const service of SERVICES) services.running(service).signal('SIGTERM');
}

test(
  'a database that moves by DNS is followed by every connection, and nothing is lost',
  { timeout: 280_000, skip: isRoot ? false : 'only root can change where a name leads to' },
  moveByDns,
);
