import { randomUUID } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../db/pool.ts';
import { describeError } from '../runtime/errors.ts';
import type { Log } from '../runtime/log.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { WorkSettings } from './settings.ts';
import { claimWork, endDelivered, endWork, type LeasedEvent, renewLeases, returnWork } from './store/work.ts';

/** Why an attempt failed, and for how many seconds the target asked to wait. */
export type DeliveryFailure = { readonly error: string; readonly retryAfter: number | null };

/** Where events are delivered. */
export interface DeliveryTarget {
  /** Resolves with null on success. Ends soon after `signal` aborts, which it does at the time limit. */
  deliver(event: LeasedEvent, signal: AbortSignal): Promise<DeliveryFailure | null>;
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
const MAX_DELAY_SECONDS = 3_600;
const NO_ATTEMPT_LEFT = 'no attempt left: the last one ended with its process, or WEBHOOK_MAX_ATTEMPTS was lowered';

/**
 * Delivers events at least once, each under a lease. Only the holder of the lease can end or return the event.
 * @returns `notify` ends the pause before the next claim. `stop` claims nothing more, lets attempts finish for a while,
 * and returns the rest.
 */
export function startWorker(
  database: Database, target: DeliveryTarget, settings: WorkSettings, log: Log, metrics: Metrics,
) {
  const help = 'Attempts to deliver a webhook event, by outcome.';
  const countAttempt = metrics.counter('gatehouse_delivery_attempts_total', help, ['outcome']);
  const running = new Set<LeasedEvent>();
  const shutdown = new AbortController();
  setMaxListeners(0, shutdown.signal);
  let isStopping = false;
  /** Aborted by a notification since the last claim. */
  let pause = new AbortController();
  const notify = () => pause.abort();
  const warn = (message: string, facts = {}) => (error: unknown) =>
    log.warn(message, { ...facts, ...describeError(error) });

  async function attempt(event: LeasedEvent): Promise<void> {
    if (event.attempt > settings.maxAttempts) return endWork(database, [event], 'dead', NO_ATTEMPT_LEFT, 1);
    const failure = await deliver(event);
    countAttempt([failure === null ? 'done' : 'failed']);
    if (failure === null) return endDelivered(database, event);
    if (shutdown.signal.aborted) return returnWork(database, event, null, 0);
    const error = errorLine(failure.error);
    const facts = { event_id: event.id, attempt: event.attempt, error };
    if (event.attempt >= settings.maxAttempts) {
      log.error('event moved to dead letters', facts);
      return endWork(database, [event], 'dead', error);
    }
    log.warn('delivery failed; retrying', facts);
    const delay = backoff(event.attempt, settings.backoffBase, failure.retryAfter);
    await returnWork(database, event, error, delay);
    if (delay * 1000 < POLL_MS) setTimeout(notify, delay * 1000).unref();
  }

  async function deliver(event: LeasedEvent): Promise<DeliveryFailure | null> {
    // Not AbortSignal.timeout or .any: a signal that nothing refers to may be collected together with its time limit.
    const limit = new AbortController();
    const abort = () => limit.abort();
    const timer = setTimeout(abort, settings.timeoutMs);
    shutdown.signal.addEventListener('abort', abort);
    const timedOut = { error: `no result within ${settings.timeoutMs / 1000} s`, retryAfter: null };
    const abandoned = new Promise<DeliveryFailure>((resolve) =>
      limit.signal.addEventListener('abort', () => setTimeout(resolve, ABORT_MS, timedOut)));
    try {
      const failure = await Promise.race([target.deliver(event, limit.signal), abandoned]);
      return failure !== null && limit.signal.aborted ? timedOut : failure;
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
    await attempt(event).catch(warn('the outcome of an attempt could not be stored', { event_id: event.id }));
    running.delete(event);
    if (running.size <= settings.concurrency / 2) notify();
  }

  async function loop(): Promise<void> {
    const failed = warn('due events could not be claimed');
    while (!isStopping) {
      pause = new AbortController();
      const free = settings.concurrency - running.size;
      const claim = free > 0 ? claimWork(database, randomUUID(), LEASE_SECONDS, free).catch(failed) : null;
      const events = (await claim) ?? [];
      for (const event of events) void run(event);
      if (events.length < free || free === 0) await sleep(POLL_MS, undefined, { signal: pause.signal }).catch(() => {});
    }
  }

  const renewal = setInterval(() => {
    const failed = warn('leases could not be renewed');
    if (running.size > 0) renewLeases(database, [...running], LEASE_SECONDS).catch(failed);
  }, (LEASE_SECONDS * 1000) / 3);
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

/**
 * Exponential backoff with full jitter: events that failed together are not retried together.
 * @param attempt the failed one, from 1  @param base the largest delay after the first attempt
 * @param retryAfter what the target asked for, honored up to the largest delay  @returns seconds
 */
export function backoff(attempt: number, base: number, retryAfter: number | null, random = Math.random()): number {
  const jittered = random * Math.min(MAX_DELAY_SECONDS, base * 2 ** (attempt - 1));
  return Math.min(MAX_DELAY_SECONDS, Math.max(jittered, retryAfter ?? 0));
}

/** One line of at most 1,000 characters, without control characters: the target controls this text. */
export const errorLine = (text: string): string =>
  text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ').trim().slice(0, 1_000);
