/** A PostgreSQL of a test's own, as it is shipped, that is killed with `kill -9` and started again. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { Sql } from 'postgres';
import { connect, startPostgres } from '../../scripts/postgres.ts';
import { startRelay } from './relay.ts';

export async function startDoomed(t: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-doomed-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const launch = async () => {
    const server = await startPostgres({ directory, durable: true });
    t.after(() => server.stop());
    return server;
  };
  let server = await launch();
  const relay = await startRelay(t, server.url);
  return {
    /** Where it is found again after each start. */
    relayUrl: relay.url,
    /** Where it listens now. */
    url: () => server.url,
    async query<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
      const sql = connect(server.url);
      try {
        return await work(sql);
      } finally {
        await sql.end();
      }
    },
    async kill(): Promise<void> {
      process.kill(server.processId, 'SIGKILL');
      await server.ended;
      await relay.cut();
    },
    async restart(): Promise<void> {
      server = await launch();
      await relay.mend(server.url);
    },
  };
}
