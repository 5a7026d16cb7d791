/** kill -9 of a database connection, and of PostgreSQL as a whole. */
import { setTimeout as sleep } from 'node:timers/promises';
import { withConnection } from '../../../scripts/postgres.ts';
import { expectFailures, scenario } from './scenario.ts';

const KILLS = 3;

scenario('kill -9 of PostgreSQL and of its connections', async (fault) => {
  const { database, load, random } = fault;
  await expectFailures(fault, async () => {
    for (let kill = 0; kill < KILLS; kill += 1) {
      await sleep(random() * 500);
      const [victim] = await withConnection(
        database.server().url,
        (sql) => sql<Array<{ pid: number }>>`
        select pid from pg_stat_activity
        where application_name like 'gatehouse-%' order by random() limit 1`,
      );
      // PostgreSQL then ends all connections, and recovers.
      if (victim) process.kill(victim.pid, 'SIGKILL');
      await load.progress(20);
      await sleep(random() * 500);
      await database.kill();
      await sleep(random() * 500);
      await database.restart();
      await load.progress(20);
    }
  });
});
