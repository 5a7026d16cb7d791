import type { Database } from '../db/pool.ts';
import { describeError } from '../runtime/errors.ts';
import type { Log } from '../runtime/log.ts';
import type { Metrics } from '../runtime/metrics.ts';
import {
  addFailures,
  clearFailures,
  findFailing,
  takeProbe,
  type FailingTarget,
} from './store/delivery.ts';

/** How old the state of the target may be. */
const REFRESH_MS = 1_000;

/**
 * A circuit breaker. A target that only fails is probed with one event at a time, from one replica, until an attempt
 * succeeds. The other events wait and use no attempt up. The state is in the database: of ten replicas, each with a
 * state of its own, ten would probe, and one that starts would begin with a full load.
 */
export function createBreaker(database: Database, target: string, log: Log, metrics: Metrics) {
  let [failures, succeeded] = [0, false];
  let row: FailingTarget | null = null;
  let refreshedAt = -Infinity;
  const help = 'Whether the target of deliveries fails, so that it is only probed: 1 or 0.';
  metrics.gauge('gatehouse_delivery_circuit_open', help, {}, () => (row?.is_open ? 1 : 0));

  /** Stores what has happened here since the last time, and reads the state. */
  async function refresh(): Promise<void> {
    const [added, cleared, wasOpen] = [failures, succeeded, row?.is_open ?? false];
    [failures, succeeded] = [0, false];
    try {
      if (cleared && row) await clearFailures(database, target);
      row =
        added > 0
          ? await addFailures(database, target, added)
          : await findFailing(database, target);
    } catch (error) {
      [failures, succeeded] = [failures + added, succeeded || cleared];
      throw error;
    }
    if (row?.is_open && !wasOpen) log.error('the target fails; it is only probed', factsOf(row));
    if (!row?.is_open && wasOpen) log.info('the target works again; deliveries continue');
  }

  return {
    /** Counts an attempt that has ended. */
    record(isSuccess: boolean): void {
      if (isSuccess) [failures, succeeded] = [0, true];
      else failures += 1;
      // The first success lets the waiting events through.
      if (isSuccess && row?.is_open) refreshedAt = -Infinity;
    },
    /** What may be claimed now. A state that cannot be read changes nothing: the claim reports the outage. */
    async admit(): Promise<'all' | 'probe' | 'none'> {
      const isOld = performance.now() - refreshedAt >= REFRESH_MS;
      if (isOld) {
        refreshedAt = performance.now();
        await refresh().catch((error: unknown) => {
          log.debug('the state of the target could not be stored or read', describeError(error));
        });
      }
      if (!row?.is_open) return 'all';
      return isOld && (await takeProbe(database, target)) ? 'probe' : 'none';
    },
  };
}

const factsOf = ({ failures, failing_since }: FailingTarget) => ({
  failures,
  failing_since: failing_since.toISOString(),
});
