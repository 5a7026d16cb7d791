/** A durable PostgreSQL for one test, which kills it with `kill -9` and starts it again. */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Sql } from 'postgres';
import { startPostgres, withConnection } from '../../scripts/postgres.ts';
import { removeTemporary } from '../../scripts/temporary.ts';
import type { Owner } from './owner.ts';
import { startProxy } from './proxy.ts';

/** @param directory where its files are; removed with the server */
export async function startKillablePostgres(
  t: Owner,
  directory = mkdtempSync(join(tmpdir(), 'gatehouse-killable-')),
) {
  const launch = () => startPostgres({ directory, durable: true });
  let server = await launch();
  // In this order: a running server still writes files.
  t.after(async () => {
    await server.stop();
    removeTemporary(directory);
  });
  const proxy = await startProxy(t, server.url);
  /** Lets the proxy lead to another server. */
  const moveTo = async (other: typeof server) => {
    server = other;
    await proxy.restore(server.url);
  };
  return {
    /** A URL that stays the same after each restart, and after a move. */
    proxyUrl: proxy.url,
    proxy,
    /** Holds the server's files. */
    directory,
    server: () => server,
    query: <T>(work: (sql: Sql) => Promise<T>): Promise<T> => withConnection(server.url, work),
    /** Kills the server and its connections. */
    async kill() {
      process.kill(server.processId, 'SIGKILL');
      await server.ended;
      await proxy.cut();
    },
    /** Starts the server again, which has ended. */
    restart: async () => moveTo(await launch()),
    moveTo,
  };
}
