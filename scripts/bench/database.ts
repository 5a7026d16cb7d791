/** Shared by the benchmarks: a PostgreSQL with durable settings, removed afterwards. */
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

/** @param run gets the server and a temporary directory */
export async function withPostgres(
  run: (server: PostgresServer, directory: string) => Promise<void>,
): Promise<void> {
  const directory = makeTemporary(tmpdir(), 'gatehouse-bench');
  const server = await startPostgres({
    directory: join(directory, 'state'),
    durable: true,
    maxConnections: 300,
  });
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
