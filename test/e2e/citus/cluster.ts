/** A coordinator of Citus with two workers. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { Sql } from 'postgres';
import { withConnection } from '../../../scripts/postgres.ts';
import { root, runProgram } from '../../support/process.ts';
import { startGatehouse, variables } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';
import { createMachine, findPostgres } from '../ha/cluster.ts';
import type { Owner } from '../../support/owner.ts';
import { createServer, PASSWORD } from '../servers.ts';

/** Of the database of the services, which belongs to a role of this name. */
export const NAME = 'gatehouse';
const SHARDS = 8;

const SETTINGS = [
  'shared_preload_libraries=citus',
  'wal_level=logical',
  'max_connections=500',
  'max_prepared_transactions=500',
  'max_worker_processes=64',
  'citus.node_conninfo=sslmode=disable',
  // How soon a commit is resolved that a kill has interrupted. By default 60 s.
  'citus.recover_2pc_interval=1s',
  // A worker whose machine is gone holds up all statements behind it for so long. By default 30 s.
  'citus.node_connection_timeout=2s',
];

const MISSING =
  'PostgreSQL with Citus 12 or newer is missing. Get packages or the source at ' +
  'https://github.com/citusdata/citus. Then set CITUS_BIN to the folder of its pg_config.';

/** @returns the folder of a PostgreSQL with Citus: CITUS_BIN, or that of pg_config or the system */
function findCitus() {
  const folders = [process.env.CITUS_BIN, output('pg_config', '--bindir'), findPostgres()];
  const hasCitus = (bin: string) =>
    existsSync(join(output(join(bin, 'pg_config'), '--sharedir'), 'extension/citus.control'));
  return folders.find((folder) => folder && hasCitus(folder)) ?? null;
}

const output = (program: string, word: string) =>
  (spawnSync(program, [word], { encoding: 'utf8' }).stdout ?? '').trim();

export type Citus = Awaited<ReturnType<typeof startCitus>>;

export async function startCitus(t: Owner) {
  const bin = findCitus() ?? assert.fail(MISSING);
  const machine = createMachine(t);
  // With which the nodes connect to each other.
  machine.write('.pgpass', `*:*:*:*:${PASSWORD}\n`);
  const create = (name: string) => createServer(machine, bin, name, SETTINGS);
  const coordinator = await create('coordinator');
  const workers = [await create('worker1'), await create('worker2')] as const;
  const nodes = [...workers, coordinator];
  for (const node of nodes) await node.start();
  /** Runs a statement on each node. */
  const onAll = async (work: (sql: Sql) => Promise<unknown>, database = 'postgres') => {
    for (const node of nodes) await withConnection(node.url('postgres', database), work);
  };
  await onAll((sql) => sql.unsafe(`create role gatehouse login password '${PASSWORD}'`));
  return {
    coordinator,
    workers,
    onAll,
    /** A new database of the role gatehouse on each node, with the extension and both workers. */
    async createDatabase(name: string) {
      await onAll((sql) => sql`create database ${sql(name)} owner gatehouse`);
      await onAll((sql) => sql`create extension citus`, name);
      await withConnection(coordinator.url('postgres', name), async (sql) => {
        await sql`select citus_set_coordinator_host('127.0.0.1', ${coordinator.port})`;
        for (const { port } of workers) await sql`select citus_add_node('127.0.0.1', ${port})`;
      });
    },
  };
}

/** As docs/citus.md says. @returns what psql writes, and its exit status */
export function distribute(url: string) {
  const file = join(root, 'deploy/citus/distribute-secrets.sql');
  const words = ['--set', 'ON_ERROR_STOP=1', '--set', `shards=${SHARDS}`, '--file', file];
  return spawnSync('psql', [url, '--no-psqlrc', '--quiet', ...words], { encoding: 'utf8' });
}

/** Creates the schemas of all services. */
export async function migrate(t: Owner, url: string) {
  const { code, stderr } = await runProgram(t, root, ['migrate'], variables(url));
  assert.equal(code, 0, stderr);
}

/**
 * Starts a cluster with the schemas of all services, and distributes the secrets.
 * @returns also the address of the database for the services
 */
export async function startDistributed(t: Owner, database = NAME) {
  const citus = await startCitus(t);
  await citus.createDatabase(database);
  const url = citus.coordinator.url('gatehouse', database);
  await migrate(t, url);
  const { status, stderr } = distribute(url);
  assert.equal(status, 0, stderr);
  return { citus, url };
}

/** The same, with the secrets service. */
export async function startSecrets(t: TestContext) {
  const { citus, url } = await startDistributed(t);
  const { url: at, log } = await startGatehouse(t, ['secrets'], url);
  return { citus, url, base: at.secrets, client: secretsClient(at.secrets), log };
}

/** The port of the worker that has each secret, by the id of the secret. */
export async function portsOf(
  { coordinator }: Citus,
  secrets: ReadonlyArray<Readonly<{ id: string }>>,
) {
  const ids = secrets.map(({ id }) => id);
  const rows = await withConnection(
    coordinator.url('postgres', NAME),
    (sql) => sql<Array<{ id: string; port: number }>>`
      select id, nodeport as port from unnest(${ids}::uuid[]) as id
        join pg_dist_placement
          on shardid = get_shard_id_for_distribution_column('secrets.secrets', id)
        join pg_dist_node using (groupid)`,
  );
  return new Map(rows.map(({ id, port }) => [id, port]));
}

/** Commits in doubt on each worker. */
export const preparedOn = ({ workers }: Citus) =>
  Promise.all(
    workers.map((worker) =>
      withConnection(worker.url('postgres', NAME), async (sql) => {
        const rows = await sql`select from pg_prepared_xacts where database = ${NAME}`;
        return rows.length;
      }),
    ),
  );
