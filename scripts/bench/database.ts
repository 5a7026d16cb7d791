/** Shared by the benchmarks: a PostgreSQL with durable settings, removed afterwards. */
import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  connect,
  databaseUrl,
  type PostgresServer,
  startPostgres,
  withConnection,
} from '../postgres.ts';
import { makeTemporary, removeTemporary } from '../temporary.ts';

/** What the benchmarks need of a server: also its process, whose processor time they read. */
export type Server = Pick<PostgresServer, 'url' | 'processId'>;

/**
 * A server of this machine, for what the embedded one lacks, such as LZ4. Its settings stay as they
 * are.
 * @param run gets the server and a temporary directory
 */
export async function withPostgresAt(
  url: string,
  run: (server: Server, directory: string) => Promise<void>,
): Promise<void> {
  const directory = makeTemporary(tmpdir(), 'gatehouse-bench');
  try {
    const processId = await withConnection(url, async (sql) => {
      const [{ pid }] = await sql<[{ pid: number }]>`select pg_backend_pid() as pid`;
      return parentOf(pid);
    });
    await run({ url, processId }, directory);
  } finally {
    removeTemporary(directory);
  }
}

/** @returns 0 outside Linux */
function parentOf(processId: number): number {
  try {
    const status = readFileSync(`/proc/${processId}/status`, 'utf8');
    return Number(/^PPid:\s+(\d+)/m.exec(status)?.[1] ?? 0);
  } catch {
    return 0;
  }
}

/** @param run gets the server and a temporary directory */
export async function withPostgres(
  run: (server: PostgresServer, directory: string) => Promise<void>,
): Promise<void> {
  const directory = makeTemporary(tmpdir(), 'gatehouse-bench');
  const server = await startPostgres({ directory: join(directory, 'state'), durable: true });
  try {
    await run(server, directory);
  } finally {
    await server.stop();
    removeTemporary(directory);
  }
}

/** Creates an empty database. @returns its URL */
export async function createDatabase(server: string, name: string): Promise<string> {
  const sql = connect(server);
  await sql`create database ${sql(name)}`.finally(() => sql.end());
  return databaseUrl(server, name);
}

export const dropDatabase = (server: string, name: string): Promise<unknown> =>
  withConnection(server, (sql) => sql`drop database ${sql(name)} with (force)`);
