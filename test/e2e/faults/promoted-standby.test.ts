/**
 * A synchronous standby takes over: the replication stalls, the primary is killed, and the standby
 * is promoted. What was not on the standby must not have been acknowledged.
 */
import { appendFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { makeDirectory } from '../../support/directories.ts';
import { startProxy } from '../../support/proxy.ts';
import { startPostgres, withConnection } from '../../../scripts/postgres.ts';
import { expectFailures, scenario } from './scenario.ts';

/** Longer than any commit takes, shorter than the services wait. */
const STALLED_MS = 4_000;

scenario('a synchronous standby that is promoted', async (fault) => {
  const { t, database, load } = fault;
  // The embedded PostgreSQL has no pg_basebackup: the files are copied while the server is stopped.
  const directory = join(makeDirectory(t, 'faults'), 'standby');
  await database.copyTo(directory);
  const replication = await startProxy(t, database.url());
  const data = join(directory, 'postgres/data');
  const { port, username, password } = new URL(replication.url);
  const connection = `host=127.0.0.1 port=${port} user=${username} password=${password}`;
  appendFileSync(join(data, 'postgresql.auto.conf'), `primary_conninfo = '${connection}'\n`);
  writeFileSync(join(data, 'standby.signal'), '');
  const standby = await startPostgres({ directory, durable: true });
  t.after(() => standby.stop());

  await withConnection(database.url(), async (sql) => {
    const synchronous = async () => {
      const [row] = await sql`select from pg_stat_replication where sync_state = 'sync'`;
      return row !== undefined;
    };
    await sql`alter system set synchronous_standby_names = '*'`;
    await sql`select pg_reload_conf()`;
    while (!(await synchronous())) await sleep(50);
  });
  await load.progress(100);
  await expectFailures(fault, async () => {
    replication.stall();
    await sleep(STALLED_MS);
    await database.kill();
    await replication.cut();
    await withConnection(standby.url, (sql) => sql`select pg_promote()`);
    await database.moveTo(standby);
    await load.progress(50);
  });
});
