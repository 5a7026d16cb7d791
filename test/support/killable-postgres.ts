/** A durable PostgreSQL for one test, which kills it with `kill -9` and starts it again. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { Sql } from 'postgres';
import { startPostgres, withConnection } from '../../scripts/postgres.ts';
import { startProxy } from './proxy.ts';

export async function startKillablePostgres(t: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-killable-'));
  const launch = () => startPostgres({ directory, durable: true });
  let server = await launch();
  // In this order: a running server still writes files.
  t.after(async () => {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  });
  const proxy = await startProxy(t, server.url);
  return {
    /** A URL that stays the same after each restart. */
    proxyUrl: proxy.url,
    /** The present URL of the server itself. */
    url: () => server.url,
    query: <T>(work: (sql: Sql) => Promise<T>): Promise<T> => withConnection(server.url, work),
    async kill(): Promise<void> {
      process.kill(server.processId, 'SIGKILL');
      await server.ended;
      await proxy.cut();
    },
    async restart(): Promise<void> {
      server = await launch();
      await proxy.restore(server.url);
    },
  };
}
