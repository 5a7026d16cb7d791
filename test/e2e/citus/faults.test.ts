/**
 * Workers of Citus are killed, and shards are moved, under the load of all three services. Nothing
 * that was acknowledged is lost, nothing for one reader is read twice.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { withConnection } from '../../../scripts/postgres.ts';
import { startLoad } from '../faults/load/load.ts';
import { choose, createRandom, SEED } from '../faults/random.ts';
import { startServices } from '../faults/system.ts';
import { type Citus, NAME, preparedOn, startDistributed } from './cluster.ts';

const FAULTS = Number(process.env.FAULTS || 20);
/** For how long a worker stays away. */
const AWAY_MS = 500;

type Move = Readonly<{ shard: string; from: number; to: number }>;

/** Moves one shard to the other worker. */
async function moveShard(citus: Citus, random: () => number): Promise<void> {
  await withConnection(citus.coordinator.url('postgres', NAME), async (sql) => {
    const moves = await sql<Move[]>`
      select shardid as shard, nodeport as "from", (
        select nodeport from pg_dist_node other
        where other.groupid <> 0 and other.groupid <> node.groupid) as to
      from pg_dist_shard join pg_dist_placement using (shardid)
        join pg_dist_node node using (groupid)
      where logicalrelid = 'secrets.secrets'::regclass order by 1`;
    const { shard, from, to } = choose(random, moves) ?? assert.fail('there are no shards');
    await sql`select citus_move_shard_placement(
      ${shard}, '127.0.0.1', ${from}, '127.0.0.1', ${to}, 'force_logical')`;
  });
}

test(
  `${FAULTS} kills of workers and moves of shards under load: nothing is lost or read twice`,
  { timeout: 120_000 + FAULTS * 30_000 },
  async (t) => {
    const { citus, url } = await startDistributed(t);
    const services = await startServices(t, url, () => url);
    const load = await startLoad(t, services);
    await load.progress(50);
    const random = createRandom(SEED);
    let kills = 0;
    let failedInMoves = 0;
    for (let fault = 0; fault < FAULTS; fault += 1) {
      // The moves come first: after a kill, single calls still fail at connections to that worker.
      if (fault < FAULTS / 2) {
        const failed = load.failed();
        await moveShard(citus, random);
        failedInMoves += load.failed() - failed;
      } else {
        const worker = choose(random, citus.workers) ?? assert.fail();
        await worker.kill();
        await sleep(AWAY_MS);
        await worker.start();
        kills += 1;
      }
      await services.untilReady();
      await load.progress(20);
    }
    await load.stop();
    t.diagnostic(await load.check());
    while ((await preparedOn(citus)).some((count) => count > 0)) await sleep(100);
    assert.equal(failedInMoves, 0, 'a move made requests fail');
    assert.ok(load.requests.counts.secrets.failed > 0, 'no kill made a request fail');
    assert.equal(load.requests.counts.identity.failed, 0);
    assert.equal(load.requests.counts.webhook.failed, 0);
    t.diagnostic(
      `${kills} kills, in which ${load.requests.counts.secrets.failed} requests failed, and ${FAULTS - kills} moves, in which none did`,
    );
  },
);
