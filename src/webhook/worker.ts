import { randomUUID } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../db/pool.ts';
import { describeError } from '../runtime/errors.ts';
import type { Log } from '../runtime/log.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { createBreaker } from './breaker.ts';
import type { WorkSettings } from './settings.ts';
import {
  claimWork,
  endDelivered,
  endWork,
  type LeasedEvent,
  renewLeases,
  type Result,
  returnWork,
} from './store/work.ts';

/** How an attempt ended, and for how many seconds the target asked to wait. */
export type DeliveryResult = Result & { readonly retryAfter?: number | null };

/** Where events are delivered. */
export interface DeliveryTarget {
  /** Resolves with null on success without an answer. Ends soon after `signal` aborts, which it does at the limit. */
  deliver(event: LeasedEvent, signal: AbortSignal): Promise<DeliveryResult | null>;
  close(): Promise<void>;
}

/** How long a silent worker keeps its events. A lease is renewed three times in this time. */
export const LEASE_SECONDS = 30;
/** How often the worker looks for retries, and for events that other processes have stored. */
const POLL_MS = 1_000;
/** How long attempts may continue after a shutdown begins, at most. */
const SHUTDOWN_MS = 5_000;
/** How long an aborted attempt may take to end. After that, its slot is reused. */
const ABORT_MS = 2_000;
/** How much of what a target asks for in Retry-After is honored. */
const MAX_RETRY_AFTER = 86_400;
/** Events that failed together are not retried together: a pause differs from its setting by up to this part of it. */
const JITTER = 0.2;
const NO_ATTEMPT_LEFT =
  'no attempt left: the last one ended with its process, or the retry schedule was shortened';

/**
 * Delivers events at least once, each under a lease. Only the holder of the lease can end or return the event.
 * @param targetId identifies the target for its breaker, which keeps the state of earlier targets
 * @returns `notify` ends the pause before the next claim. `stop` claims nothing more, lets attempts finish for a while,
 * and returns the rest.
 */
export function startWorker(
  database: Database,
  target: DeliveryTarget,
  settings: WorkSettings,
  log: Log,
  metrics: Metrics,
  targetId = '',
) {
  const breaker = createBreaker(database, targetId, log, metrics);
  const maxAttempts = settings.pauses.length + 1;
  const help = 'Attempts to deliver a webhook event, by outcome.';
  const countAttempt = metrics.counter('gatehouse_delivery_attempts_total', help, ['outcome']);
  const running = new Set<LeasedEvent>();
  const shutdown = new AbortController();
  setMaxListeners(0, shutdown.signal);
  let isStopping = false;
  /** Aborted by a notification since the last claim. */
  let pause = new AbortController();
  const notify = () => pause.abort();
  const warn =
    (message: string, facts = {}) =>
    (error: unknown) =>
      log.warn(message, { ...facts, ...describeError(error) });

  async function attempt(event: LeasedEvent): Promise<void> {
    if (event.attempt > maxAttempts) {
      return endWork(
        database,
        [{ ...event, result: { error: NO_ATTEMPT_LEFT }, wasAttempted: false }],
        'dead',
      );
    }
    const startedAt = performance.now();
    const { retryAfter = null, ...outcome } = (await deliver(event)) ?? { error: null };
    const isInterrupted = outcome.error !== null && shutdown.signal.aborted;
    countAttempt([outcome.error === null ? 'done' : 'failed']);
    if (isInterrupted) return returnWork(database, event, null, 0);
    breaker.record(outcome.error === null);
    const durationMs = Math.round(performance.now() - startedAt);
    const error = outcome.error === null ? null : errorLine(outcome.error);
    const result = {
      ...outcome,
      error,
      durationMs,
      answer: outcome.answer && answerText(outcome.answer),
    };
    if (error === null) return endDelivered(database, { ...event, result });
    const facts = { event_id: event.id, attempt: event.attempt, error };
    const pause = settings.pauses[event.attempt - 1];
    if (pause === undefined) {
      log.error('event moved to dead letters', facts);
      return endWork(database, [{ ...event, result }], 'dead');
    }
    log.warn('delivery failed; retrying', facts);
    const delay = delayOf(pause, retryAfter);
    await returnWork(database, event, result, delay);
    if (delay * 1000 < POLL_MS) setTimeout(notify, delay * 1000).unref();
  }

  async function deliver(event: LeasedEvent): Promise<DeliveryResult | null> {
    // Not AbortSignal.timeout or .any: a signal that nothing refers to may be collected together with its time limit.
    const limit = new AbortController();
    const abort = () => limit.abort();
    const timer = setTimeout(abort, settings.timeoutMs);
    shutdown.signal.addEventListener('abort', abort);
    const timedOut = { error: `no result within ${settings.timeoutMs / 1000} s`, retryAfter: null };
    const abandoned = new Promise<DeliveryResult>((resolve) =>
      limit.signal.addEventListener('abort', () => setTimeout(resolve, ABORT_MS, timedOut)),
    );
    try {
      const result = await Promise.race([target.deliver(event, limit.signal), abandoned]);
      return (result?.error ?? null) !== null && limit.signal.aborted ? timedOut : result;
    } catch (error) {
      return { error: `internal error: ${describeError(error).error}`, retryAfter: null };
    } finally {
      clearTimeout(timer);
      shutdown.signal.removeEventListener('abort', abort);
    }
  }

  async function run(event: LeasedEvent): Promise<void> {
    running.add(event);
    // If the outcome is not stored, the event is due again when its lease ends.
    await attempt(event).catch(
      warn('the outcome of an attempt could not be stored', { event_id: event.id }),
    );
    running.delete(event);
    if (running.size <= settings.concurrency / 2) notify();
  }

  async function claim(free: number): Promise<LeasedEvent[]> {
    const admitted = await breaker.admit();
    if (admitted === 'none') return [];
    const [limit, first] =
      admitted === 'probe' ? ([1, 'newest'] as const) : ([free, 'oldest'] as const);
    return claimWork(database, randomUUID(), LEASE_SECONDS, limit, first);
  }

  async function loop(): Promise<void> {
    const failed = warn('due events could not be claimed');
    while (!isStopping) {
      pause = new AbortController();
      const free = settings.concurrency - running.size;
      const events = (free > 0 && (await claim(free).catch(failed))) || [];
      for (const event of events) void run(event);
      if (events.length < free || free === 0)
        await sleep(POLL_MS, undefined, { signal: pause.signal }).catch(() => {});
    }
  }

  const renewal = setInterval(
    () => {
      const failed = warn('leases could not be renewed');
      if (running.size > 0) renewLeases(database, [...running], LEASE_SECONDS).catch(failed);
    },
    (LEASE_SECONDS * 1000) / 3,
  );
  const looping = loop();
  return {
    notify,
    async stop(graceMs = SHUTDOWN_MS): Promise<void> {
      isStopping = true;
      notify();
      const timer = setTimeout(() => shutdown.abort(), Math.min(graceMs, SHUTDOWN_MS));
      await looping;
      while (running.size > 0) await sleep(10);
      clearTimeout(timer);
      clearInterval(renewal);
      await target.close();
    },
  };
}

/** @param pause of the schedule  @param retryAfter what the target asked for, null if it did not  @returns seconds */
export const delayOf = (pause: number, retryAfter: number | null, random = Math.random()): number =>
  Math.max(pause * (1 - JITTER + 2 * JITTER * random), Math.min(MAX_RETRY_AFTER, retryAfter ?? 0));

/** One line of at most 1,000 characters, without control characters: the target controls this text. */
export const errorLine = (text: string): string =>
  text
    .replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ')
    .trim()
    .slice(0, 1_000);

/** The target controls this text, too. Line breaks stay; PostgreSQL's `text` cannot hold U+0000. */
const answerText = (text: string): string => text.replace(/[^\P{Cc}\n\t]|\p{Cf}/gu, ' ');
