import { Overloaded } from './errors.ts';

export type Limiter = ReturnType<typeof createLimiter>;
/** Queues of its own for the slots of a limiter. */
export type LimiterShare = ReturnType<Limiter['share']>;

type Queue = Array<() => void>;
type Share = readonly [priority: Queue, others: Queue];

/**
 * Limits how much work runs at the same time and how much waits. Any more is rejected before it
 * starts.
 * @param what is waited for, as in "too many are waiting for a password hash"
 * @param maxWaitMs by default without a limit
 */
export function createLimiter(
  slots: number,
  queueLength: number,
  what: string,
  maxWaitMs: number | null = null,
) {
  let running = 0;
  const overloaded = () => new Overloaded(`too many are waiting for ${what}`);
  const shares: Share[] = [];
  const waitIn = (queue: Queue) =>
    new Promise<void>((resolve, reject) => {
      const start = () => {
        clearTimeout(timer);
        resolve();
      };
      const giveUp = () => {
        queue.splice(queue.indexOf(start), 1);
        reject(overloaded());
      };
      const timer = maxWaitMs === null ? undefined : setTimeout(giveUp, maxWaitMs);
      queue.push(start);
    });
  function release() {
    const start = takeNext(shares);
    // Finished work hands its slot over. `running` does not change: nothing else can take it.
    if (start) start();
    else running -= 1;
  }
  /** All shares are served in turn: none waits for all of another. */
  function share() {
    const queues: Share = [[], []];
    shares.push(queues);
    return {
      /**
       * Runs the work when a slot is free, first come, first served. Throws `Overloaded` at once if
       * the queue is full, and after too long a wait.
       * @param work gets whether it had to wait
       * @param hasPriority waits in a second queue of the same length that is served first
       */
      async run<T>(work: (hasWaited: boolean) => Promise<T>, hasPriority = false) {
        const queue = queues[hasPriority ? 0 : 1];
        const mustWait = running >= slots;
        if (!mustWait) running += 1;
        else if (queue.length >= queueLength) throw overloaded();
        else await waitIn(queue);
        try {
          return await work(mustWait);
        } finally {
          release();
        }
      },
    };
  }
  return {
    ...share(),
    share,
    running: () => running,
    waiting: () => shares.flat(2).length,
  };
}

/** Takes the first one that waits. @param shares the one that was served last is the last */
function takeNext(shares: Share[]) {
  for (const share of shares) {
    const [priority, others] = share;
    const start = priority.shift() ?? others.shift();
    if (!start) continue;
    shares.splice(shares.indexOf(share), 1);
    shares.push(share);
    return start;
  }
  return null;
}
