/**
 * The database moves to another server while its name stays: the steps that docs/database.md
 * gives for a move by DNS, under load. Then the name changes although the former server still
 * answers: no process may use both.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { test, type TestContext } from 'node:test';
import { withConnection } from '../../../scripts/postgres.ts';
import { untilSql } from '../../support/connections.ts';
import { startLoad } from '../faults/load/load.ts';
import { SERVICES, startServices } from '../faults/system.ts';
import { freePort } from '../programs.ts';
import { createServer, PASSWORD, type Server } from '../servers.ts';
import { createMachine, findPostgres, type Machine } from './cluster.ts';

const BIN = findPostgres() ?? assert.fail('PostgreSQL is not installed');
const NAME = 'database.example.org';
const isRoot = process.getuid?.() === 0;

const run = (server: Server, ...statements: readonly string[]) =>
  withConnection(server.url('postgres', 'postgres'), async (sql) => {
    for (const statement of statements) await sql.unsafe(statement);
  });
const rowsOf = (server: Server, query: string) =>
  withConnection(
    server.url('postgres', 'postgres'),
    async (sql) => (await sql.unsafe(query)).length,
  );

const RELEASE = ['alter system reset synchronous_standby_names', 'select pg_reload_conf()'];
const CONNECTIONS = `select pid from pg_stat_activity
  where application_name like 'gatehouse-%' and usename = 'gatehouse'`;

/** @returns a server with a database, and a synchronous standby of it on the same port */
async function startServers(machine: Machine) {
  const port = await freePort();
  const former = await createServer(machine, BIN, 'former', [], { host: '127.0.0.2', port });
  await former.start();
  const primary = former.url('postgres', '');
  const latter = await createServer(machine, BIN, 'latter', [], {
    host: '127.0.0.3',
    port,
    primary,
  });
  await latter.start();
  await run(
    former,
    `alter system set synchronous_standby_names = '*'`,
    'select pg_reload_conf()',
    `create role gatehouse login password '${PASSWORD}'`,
    'create database gatehouse owner gatehouse',
  );
  const synchronous = `select from pg_stat_replication where sync_state = 'sync'`;
  await untilSql(async () => (await rowsOf(former, synchronous)) > 0, 'the standby is synchronous');
  return [former, latter] as const;
}

/** A Node for which the name leads where a file says, in a file system of its own. */
function nodeWithNames(file: string) {
  const script = `mount --bind ${file} /etc/hosts && exec "$@"`;
  return ['unshare', '--mount', 'sh', '-c', script, 'sh', process.execPath];
}

async function moveByDns(t: TestContext) {
  const machine = createMachine(t);
  const [former, latter] = await startServers(machine);
  let current = former;
  const names = machine.write('hosts', '');
  const lead = (server: Server) => writeFileSync(names, `${server.host} ${NAME}\n`);
  lead(former);
  const url = former.url('gatehouse', 'gatehouse').replace(former.host, NAME);
  const directUrl = () => current.url('gatehouse', 'gatehouse');
  const services = await startServices(t, url, directUrl, { node: nodeWithNames(names) });
  const load = await startLoad(t, services);
  await load.progress(100);

  await former.stop();
  await run(latter, 'select pg_promote()', ...RELEASE);
  lead(latter);
  current = latter;
  await services.untilReady();
  await load.progress(100);
  await load.stop();
  t.diagnostic(await load.check());

  // Not as documented: both servers accept writes, and one connection of each pool is opened again.
  await former.start();
  await run(former, ...RELEASE);
  const before = await rowsOf(latter, CONNECTIONS);
  lead(former);
  await run(
    latter,
    `select pg_terminate_backend(min(pid)) from pg_stat_activity
      where application_name like 'gatehouse-%' and usename = 'gatehouse' and datid is not null
      group by application_name`,
  );
  await services.untilReady();
  const isLeft = async () => (await rowsOf(latter, CONNECTIONS)) === 0;
  await untilSql(isLeft, 'no connection leads to the other server');
  const after = await rowsOf(former, CONNECTIONS);
  t.diagnostic(`${before} connections, three of them cut: ${after} to one server, 0 to the other`);
  assert.ok(before > SERVICES.length && after > SERVICES.length);
  for (const service of SERVICES) services.running(service).signal('SIGTERM');
}

test(
  'a database that moves by DNS is followed by every connection, and nothing is lost',
  { timeout: 280_000, skip: isRoot ? false : 'only root can change where a name leads to' },
  moveByDns,
);
