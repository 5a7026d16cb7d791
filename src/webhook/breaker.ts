import type { Database } from '../db/pool.ts';
import { describeError } from '../runtime/errors.ts';
import type { Log } from '../runtime/log.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { addFailures, clearFailures, findFailing, takeProbe } from './store/delivery.ts';

/** How old the state of the target may be. */
const REFRESH_MS = 1_000;

/**
 * A circuit breaker. A target that only fails is probed with one event at a time, from one replica,
 * until an attempt succeeds. The other events wait and use no attempt up. The state is in the
 * database: of ten replicas, each with a state of its own, ten would probe, and one that starts
 * would begin with a full load.
 */
export function createBreaker(database: Database, target: string, log: Log, metrics: Metrics) {
  /** Attempts that ended here since the state was last stored. */
  let recorded = { failures: 0, hasSucceeded: false };
  let state: Awaited<ReturnType<typeof findFailing>>;
  let refreshedAt = -Infinity;
  const help = 'Whether the target of deliveries fails, so that it is only probed: 1 or 0.';
  metrics.gauge('gatehouse_delivery_circuit_open', help, {}, () => (state?.is_open ? 1 : 0));

  async function refresh() {
    const wasOpen = state?.is_open ?? false;
    const sent = recorded;
    recorded = { failures: 0, hasSucceeded: false };
    try {
      if (sent.hasSucceeded && state) await clearFailures(database, target);
      if (sent.failures > 0) await addFailures(database, target, sent.failures);
      state = await findFailing(database, target);
    } catch (error) {
      // Kept for the next time, with what has happened meanwhile.
      recorded.failures += sent.failures;
      recorded.hasSucceeded ||= sent.hasSucceeded;
      log.debug('the state of the target could not be stored or read', describeError(error));
      return;
    }
    if (state?.is_open && !wasOpen) {
      const facts = { failures: state.failures, failing_since: state.failing_since.toISOString() };
      log.error('the target fails; it is only probed', facts);
    }
    if (!state?.is_open && wasOpen) log.info('the target works again; deliveries continue');
  }

  return {
    /** Counts an attempt that has ended. */
    record(isSuccess: boolean) {
      if (!isSuccess) {
        recorded.failures += 1;
        return;
      }
      recorded = { failures: 0, hasSucceeded: true };
      // The first success lets the waiting events through.
      if (state?.is_open) refreshedAt = -Infinity;
    },
    /**
     * What may be claimed now. A state that cannot be read changes nothing: the claim reports the
     * outage.
     */
    async admit(): Promise<'all' | 'probe' | 'none'> {
      const isOld = performance.now() - refreshedAt >= REFRESH_MS;
      if (isOld) {
        refreshedAt = performance.now();
        await refresh();
      }
      if (!state?.is_open) return 'all';
      return isOld && (await takeProbe(database, target)) ? 'probe' : 'none';
    },
  };
}
