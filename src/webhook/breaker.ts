import type { Database } from '../platform/db/pool.ts';
import { describeError } from '../platform/runtime/errors.ts';
import type { Log } from '../platform/runtime/log.ts';
import {
  addFailures,
  clearFailures,
  type Failing,
  findFailing,
  takeProbe,
} from './store/delivery.ts';

/** How old the state of the target may be. */
const REFRESH_MS = 1_000;

/**
 * A circuit breaker. A target that only fails is probed: one replica begins one attempt at a time,
 * until an attempt succeeds. A slow one may overlap the next. The other events wait and use no
 * attempt up. If all failures were of events of one sender, those of the others do not wait:
 * perhaps not the target fails, but these events. The state is in the database: of ten replicas,
 * each with a state of its own, ten would probe, and one that starts would begin with a full load.
 */
export function createBreaker(database: Database, target: string, queue: string, log: Log) {
  /** Attempts that ended here since the state was stored: null, or the sender if it failed. */
  const ended: Array<string | null> = [];
  let state: Failing | undefined;
  let refreshedAt = -Infinity;
  const isOpen = () => state?.is_open ?? false;

  async function refresh() {
    const wasOpen = isOpen();
    const stored = [...ended];
    const failed = stored.slice(stored.lastIndexOf(null) + 1);
    const [token = null, ...others] = new Set(failed);
    try {
      if (state && stored.includes(null)) await clearFailures(database, target);
      const onlyToken = others.length === 0 ? token : null;
      if (failed.length > 0) await addFailures(database, target, failed.length, onlyToken);
      state = await findFailing(database, target);
      // After a failure, they are kept for the next time, with what has happened since.
      ended.splice(0, stored.length);
    } catch (error) {
      log.debug('the state of the target could not be stored or read', describeError(error));
      return;
    }
    if (isOpen() !== wasOpen) logState(log, state);
  }

  return {
    isOpen,
    /** Counts an attempt that has ended. @param tokenId of the event's sender */
    record(isSuccess: boolean, tokenId: string) {
      ended.push(isSuccess ? null : tokenId);
      // The first success lets the waiting events through.
      if (isSuccess && isOpen()) refreshedAt = -Infinity;
    },
    /**
     * What may be claimed now. A state that cannot be read changes nothing: the claim reports the
     * outage.
     * @returns `except`: the sender whose events fail; null for a probe
     */
    async admit() {
      const isOld = performance.now() - refreshedAt >= REFRESH_MS;
      if (isOld) {
        refreshedAt = performance.now();
        await refresh();
      }
      if (!state?.is_open) return 'all';
      if (!isOld) return 'none';
      if (await takeProbe(database, target, queue)) return { limit: 1, except: null };
      const { token_id: except } = state;
      return except === null ? 'none' : { limit: Infinity, except };
    },
  };
}

function logState(log: Log, state: Failing | undefined) {
  if (!state?.is_open) return log.info('the target works again; deliveries continue');
  const { failures, failing_since, token_id } = state;
  const facts = { failures, failing_since: failing_since.toISOString(), token_id };
  log.error('the target fails; it is only probed', facts);
}
