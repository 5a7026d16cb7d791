import { EventEmitter, once } from 'node:events';
import { createCounts } from '../../runtime/counts.ts';
import { Failure } from '../route/errors.ts';

/** What one network may have of a budget. */
const SHARE = 1 / 4;
/** How long a body may wait for others to be complete. */
const MAX_WAIT_MS = 2_000;

const ALL_TAKEN = new Failure('overloaded', {
  message: 'Too many request bodies are being received. Nothing was stored. Try again soon.',
});
const SHARE_TAKEN = new Failure('overloaded', {
  message:
    'Too many request bodies of your network are being received. Complete some, then try again.',
});

export type Budget = ReturnType<typeof createBudget>;
/** The memory of one body. */
export type Reservation = ReturnType<Budget['open']>;

/** Bounds the memory of bodies in a process, and of those of one network to a quarter of it. */
export function createBudget(size: number) {
  let maxBytes = size;
  let used = 0;
  const usedBy = createCounts<string>();
  const released = new EventEmitter().setMaxListeners(0);

  function add(network: string, bytes: number) {
    used += bytes;
    usedBy.add(network, bytes);
  }

  /**
   * Resolves once enough memory was released, or after `ms`. Who has waited longest looks first.
   */
  async function waitUntil(isEnough: () => boolean, ms: number) {
    if (isEnough()) return;
    const signal = AbortSignal.timeout(ms);
    do {
      await once(released, 'memory', { signal }).catch(() => {});
    } while (!isEnough() && !signal.aborted);
  }

  return {
    waitUntil,
    /** How much of its share a network has left. */
    leftFor: (network: string) => maxBytes * SHARE - usedBy.of(network),
    /** @param limit of the body: the budget has room for two of them, and every share for one */
    open(network: string, limit: number) {
      maxBytes = Math.max(maxBytes, 2 * limit);
      let reserved = 0;
      /** @param bytes of the body in all  @returns a failure if there is no room for them */
      const growTo = (bytes: number) => {
        const more = bytes - reserved;
        if (more <= 0) return null;
        if (used + more > maxBytes) return ALL_TAKEN;
        if (usedBy.of(network) + more > Math.max(maxBytes * SHARE, limit)) return SHARE_TAKEN;
        add(network, more);
        reserved = bytes;
        return null;
      };
      return {
        growTo,
        /** Waits for a moment if there is no room. */
        async growSoon(bytes: number) {
          await waitUntil(() => growTo(bytes) === null, MAX_WAIT_MS);
          return growTo(bytes);
        },
        release() {
          add(network, -reserved);
          reserved = 0;
          released.emit('memory');
        },
      };
    },
  };
}
