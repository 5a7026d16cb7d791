import { randomUUID } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import type { Database } from '../db/pool.ts';
import type { Log } from '../runtime/log.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { describeError } from '../runtime/errors.ts';
import { delayAfter, errorLine, LEASE_SECONDS } from './rules.ts';
import { claimWork, endWork, type Held, renewLeases, returnWork, type Task } from './store/work.ts';

/** What went wrong, and after how many seconds the target wants to be asked again. */
export interface Failed {
  readonly error: string;
  readonly retryAfter: number | null;
}

/** Where events go. */
export interface Delivery {
  /** Resolves with null when the event has been dealt with. It must end when told to: its time is up. */
  deliver(task: Task, stop: AbortSignal): Promise<Failed | null>;
  close(): Promise<void>;
}

export interface WorkSettings {
  readonly concurrency: number;
  readonly timeoutMs: number;
  readonly maxAttempts: number;
  /** Seconds. */
  readonly backoffBase: number;
}

export interface Worker {
  /** There is something new. */
  notify(): void;
  /** Takes nothing more, lets what is under way finish for a while, and gives the rest back. */
  stop(): Promise<void>;
}

/** How often it is looked for work that another process has stored, or that has become due. */
const POLL_MS = 1_000;
const LAST_CHANCE_MS = 5_000;
/** How long a delivery that was told to end may take for it; then it is left to itself. */
const ENDING_MS = 2_000;

/** At least once: work is taken under a lease that is renewed while it is being done, and ended or given back only by who holds it. */
export function startWorker(database: Database, delivery: Delivery, settings: WorkSettings, log: Log, metrics: Metrics): Worker {
  const countAttempt = metrics.counter('gatehouse_delivery_attempts_total', 'Attempts to deliver a webhook event, by outcome.', ['outcome']);
  const running = new Set<Held>();
  const done: Held[] = [];
  const end = new AbortController();
  setMaxListeners(0, end.signal);
  let stopping = false;
  let flushing: Promise<void> | null = null;
  let endPause = () => {};
  let isNotified = false;
  const notify = () => {
    isNotified = true;
    endPause();
  };

  const pause = () =>
    new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, POLL_MS);
      endPause = () => {
        clearTimeout(timer);
        resolve();
      };
      if (isNotified || stopping) endPause();
    });

  /** What ends at about the same time is written in one statement. What cannot be written is done again after its lease. */
  async function flush(): Promise<void> {
    while (done.length > 0) {
      const batch = done.splice(0, 500);
      await endWork(database, batch, 'done', null).catch((error) => log.warn('finished work could not be noted and will be done again', describeError(error)));
    }
    flushing = null;
  }

  async function attempt(task: Task): Promise<void> {
    // Its process ended during its last attempt, or there were to be more of them once.
    if (task.attempt > settings.maxAttempts) return endWork(database, [task], 'dead', 'no attempt is left: the last one ended with its process, or WEBHOOK_MAX_ATTEMPTS has been lowered', 1);
    const outcome = await deliverSafely(task);
    countAttempt([outcome === null ? 'done' : 'failed']);
    if (outcome === null) {
      done.push(task);
      return (flushing ??= Promise.resolve().then(flush));
    }
    if (end.signal.aborted) return returnWork(database, task, null, 0);
    const error = errorLine(outcome.error);
    const facts = { event_id: task.id, attempt: task.attempt, error };
    if (task.attempt >= settings.maxAttempts) {
      log.error('an event is dead: every attempt has failed', facts);
      return endWork(database, [task], 'dead', error);
    }
    log.warn('a delivery failed and will be tried again', facts);
    const delay = delayAfter(task.attempt, settings.backoffBase, outcome.retryAfter);
    await returnWork(database, task, error, delay);
    if (delay * 1000 < POLL_MS) setTimeout(notify, delay * 1000).unref();
  }

  async function deliverSafely(task: Task): Promise<Failed | null> {
    // Held here by name until it is over: a signal that nobody holds is collected, and its time limit with it.
    const limit = new AbortController();
    const stop = () => limit.abort();
    const timer = setTimeout(stop, settings.timeoutMs);
    end.signal.addEventListener('abort', stop);
    const tooLate = { error: `it did not end within ${settings.timeoutMs / 1000} s`, retryAfter: null };
    const left = new Promise<Failed>((resolve) => limit.signal.addEventListener('abort', () => setTimeout(resolve, ENDING_MS, tooLate)));
    try {
      const outcome = await Promise.race([delivery.deliver(task, limit.signal), left]);
      return outcome !== null && limit.signal.aborted ? tooLate : outcome;
    } catch (error) {
      return { error: `internal error: ${describeError(error).error}`, retryAfter: null };
    } finally {
      clearTimeout(timer);
      end.signal.removeEventListener('abort', stop);
    }
  }

  async function run(task: Task): Promise<void> {
    running.add(task);
    try {
      await attempt(task);
    } catch (error) {
      // The lease ends by itself, and then it is tried again.
      log.warn('the outcome of a delivery could not be noted', { event_id: task.id, ...describeError(error) });
    } finally {
      running.delete(task);
      if (running.size <= settings.concurrency / 2) notify();
    }
  }

  async function loop(): Promise<void> {
    while (!stopping) {
      isNotified = false;
      const free = settings.concurrency - running.size;
      let taken = 0;
      try {
        const tasks = free > 0 ? await claimWork(database, randomUUID(), LEASE_SECONDS, free) : [];
        taken = tasks.length;
        for (const task of tasks) void run(task);
      } catch (error) {
        log.warn('work could not be fetched', describeError(error));
      }
      if (taken < free || free === 0) await pause();
    }
  }

  const heartbeat = setInterval(() => {
    if (running.size > 0) renewLeases(database, [...running], LEASE_SECONDS).catch((error) => log.warn('leases could not be renewed', describeError(error)));
  }, (LEASE_SECONDS * 1000) / 3);
  const looping = loop();
  return {
    notify,
    async stop() {
      stopping = true;
      notify();
      await looping;
      const ending = setTimeout(() => end.abort(), LAST_CHANCE_MS);
      while (running.size > 0) await new Promise((resolve) => setTimeout(resolve, 10));
      clearTimeout(ending);
      await flushing;
      clearInterval(heartbeat);
      await delivery.close();
    },
  };
}
