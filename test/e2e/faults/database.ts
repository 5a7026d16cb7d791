/** A durable PostgreSQL of webhook, which is killed with SIGKILL. */
import type { TestContext } from 'node:test';
import { connect, type PostgresServer, startPostgres } from '../../../scripts/postgres.ts';
import { startProxy } from '../../support/proxy.ts';
import { choose } from './random.ts';

export type Database = Awaited<ReturnType<typeof startDatabase>>;

/** PostgreSQL behind a fixed address: after each restart it listens on another port. */
export async function startDatabase(t: TestContext, directory: string) {
  let server: PostgresServer = await startPostgres({ directory, durable: true });
  t.after(() => server.stop());
  const proxy = await startProxy(t, server.url);
  return {
    url: proxy.url,
    directUrl: () => server.url,
    async kill() {
      process.kill(server.processId, 'SIGKILL');
      await server.ended;
      await proxy.cut();
      server = await startPostgres({ directory, durable: true });
      await proxy.restore(server.url);
    },
    /** Kills the server process of one connection. PostgreSQL then ends all others, too. */
    async killConnection(random: () => number) {
      const sql = connect(server.url);
      try {
        const rows = await sql`
          select pid from pg_stat_activity
          where application_name like 'gatehouse-webhook%' order by pid`;
        const victim = choose(random, rows);
        if (victim) process.kill(Number(victim.pid), 'SIGKILL');
        return victim !== undefined;
      } finally {
        await sql.end({ timeout: 1 }).catch(() => {});
      }
    },
  };
}
