/**
 * The three services on a synchronous cluster whose leader is killed five times under load: nothing
 * that was acknowledged is lost, no right credential is called wrong, and the services are back
 * soon after each promotion.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withConnection } from '../../../scripts/postgres.ts';
import { startLoad } from '../faults/load/load.ts';
import { SERVICES, startServices } from '../faults/system.ts';
import { startCluster, until } from './cluster.ts';

const KILLS = 5;
const BACK_MS = 5_000;
const TIMEOUT_MS = 290_000;

/** @param way how the services reach the leader */
export function rehearse(way: 'hosts' | 'haproxy' | 'pgbouncer'): void {
  test(
    `the leader is killed ${KILLS} times under load, by way of ${way}`,
    { timeout: TIMEOUT_MS },
    async (t) => {
      const cluster = await startCluster(t);
      const { [way]: url } = await cluster.createDatabase('gatehouse');
      let leader = await cluster.leader();
      const services = await startServices(t, url, () => cluster.urlOn(leader, 'gatehouse'));
      const load = await startLoad(t, services);
      for (let kill = 1; kill <= KILLS; kill += 1) {
        await cluster.untilSynchronous();
        await load.progress(50);
        const old = await cluster.leader();
        const failed = load.failed();
        // The last time as if the machine was gone. Before, Patroni sees PostgreSQL die.
        const isWholeNode = kill === KILLS;
        if (isWholeNode) await old.killAll();
        else old.killPostgres();
        const killed = Date.now();
        leader = cluster.nodes.find((node) => node !== old) ?? assert.fail('there are two nodes');
        await until('the other node leads', async () => (await leader.status('/primary')) === 200);
        const promoted = Date.now();
        await services.untilReady();
        await load.progress(1);
        const backMs = Date.now() - promoted;
        t.diagnostic(
          `kill ${kill}${isWholeNode ? ', with Patroni' : ''}: promoted after ${promoted - killed} ms, back ${backMs} ms later`,
        );
        assert.ok(backMs <= BACK_MS, `back ${backMs} ms after the promotion`);
        assert.ok(load.failed() > failed, 'the kill made no request fail');
        if (isWholeNode) old.start();
      }
      await cluster.untilSynchronous();
      await load.progress(50);
      await load.stop();
      t.diagnostic(await load.check());
      const standby =
        cluster.nodes.find((node) => node !== leader) ?? assert.fail('there are two nodes');
      const left = await withConnection(
        cluster.urlOn(standby, 'gatehouse'),
        (sql) => sql`
      select application_name from pg_stat_activity where application_name like 'gatehouse-%'`,
      );
      assert.deepEqual([...left], [], 'no connection leads to the standby');
      for (const service of SERVICES) services.running(service).signal('SIGTERM');
    },
  );
}
