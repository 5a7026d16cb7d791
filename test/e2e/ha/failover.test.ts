/**
 * The three services on a synchronous cluster whose leader is killed five times under load: nothing
 * that was acknowledged is lost, no right credential is called wrong, and the services are back
 * soon after each promotion.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withConnection } from '../../../scripts/postgres.ts';
import { untilSql } from '../../support/connections.ts';
import { startLoad } from '../faults/load/load.ts';
import { SERVICES, startServices } from '../faults/system.ts';
import { startCluster } from './cluster.ts';

const KILLS = 5;
const BACK_MS = 5_000;

/** By way of a database URL that names both nodes, or of HAProxy, which asks for the leader. */
for (const way of ['hosts', 'haproxy', 'pgbouncer'] as const) {
  const name = `the leader is killed ${KILLS} times under load, by way of ${way}`;
  test(name, { timeout: 290_000 }, async (t) => {
    const { leader, otherThan, untilSynchronous, urls } = await startCluster(t);
    let current = await leader();
    const services = await startServices(t, urls[way], () => current.url('gatehouse'));
    const load = await startLoad(t, services);
    for (let kill = 1; kill <= KILLS; kill += 1) {
      await untilSynchronous();
      await load.progress(50);
      const old = await leader();
      const failed = load.failed();
      // The last time as if the machine was gone. Before, Patroni sees PostgreSQL die.
      if (kill === KILLS) await old.killAll();
      else old.killPostgres();
      const killed = Date.now();
      current = otherThan(old);
      await untilSql(
        async () => (await current.status('/primary')) === 200,
        'the other node leads',
      );
      const promoted = Date.now();
      await services.untilReady();
      await load.progress(1);
      const backMs = Date.now() - promoted;
      t.diagnostic(`kill ${kill}: promoted after ${promoted - killed} ms, back ${backMs} ms later`);
      assert.ok(backMs <= BACK_MS, `back ${backMs} ms after the promotion`);
      assert.ok(load.failed() > failed, 'the kill made no request fail');
      if (kill === KILLS) old.start();
    }
    await untilSynchronous();
    await load.progress(50);
    await load.stop();
    t.diagnostic(await load.check());
    const left = await withConnection(
      otherThan(current).url('gatehouse'),
      (sql) => sql`
        select application_name from pg_stat_activity where application_name like 'gatehouse-%'`,
    );
    assert.deepEqual([...left], [], 'no connection leads to the standby');
    for (const service of SERVICES) services.running(service).signal('SIGTERM');
  });
}
