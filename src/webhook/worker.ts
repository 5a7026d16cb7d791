import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../platform/db/pool.ts';
import { DAY_SECONDS } from '../platform/runtime/duration.ts';
import { describeError } from '../platform/runtime/errors.ts';
import type { Log } from '../platform/runtime/log.ts';
import type { Metrics } from '../platform/runtime/metrics.ts';
import { toOneLine } from '../platform/runtime/text.ts';
import { createBreaker } from './breaker.ts';
import { type Deliverer, type LeasedEvent, OUTBOX, type Result } from './model.ts';
import { receivedCounter } from './service.ts';
import type { WorkSettings } from './settings.ts';
import { claimProbes } from './store/probes.ts';
import type { Queue } from './store/queue.ts';
import {
  claimWork,
  endDelivered,
  endWork,
  LEASE_SECONDS,
  releaseWork,
  renewLeases,
} from './store/work.ts';

/** A lease survives one failed renewal. After two in a row, the third may come too late. */
const RENEWAL_MS = (LEASE_SECONDS * 1_000) / 3;
/** How often the worker looks for retries, and for events that other processes have stored. */
const POLL_MS = 1_000;
/** How long attempts may continue after a shutdown begins, at most. */
const SHUTDOWN_MS = 5_000;

/** How long an aborted attempt may take to end. After that, its slot is reused. */
const ABORT_MS = 2_000;
/**
 * Events that failed together are not retried together: a pause differs from its setting by up to
 * this part of it.
 */
const JITTER = 0.2;

/** Seconds: from an idle target to the end of the retries. */
const DELAYS = [0.01, 0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 3_600, 21_600, 86_400, 259_200];

type Parts = Readonly<{
  database: Database;
  deliverer: Deliverer;
  settings: WorkSettings;
  log: Log;
  metrics: Metrics;
  /** `key` identifies it in `failing_targets`, which outlives the process. */
  target: Readonly<{ key: string; name: string }>;
  queue: Queue;
}>;
type Worker = ReturnType<typeof createWorker>;

const createWorker = (parts: Parts) => ({
  ...parts,
  countReceived: receivedCounter(parts.metrics),
  breaker: createBreaker(parts.database, parts.target.key, parts.queue.id, parts.log),
  countAttempt: parts.metrics.counter(
    'gatehouse_delivery_attempts_total',
    'Attempts to deliver a webhook event, by outcome.',
    ['outcome'],
  ),
  observeDuration: parts.metrics.histogram(
    'gatehouse_delivery_duration_seconds',
    'Duration of an attempt.',
    ['outcome'],
  ),
  observeDelay: parts.metrics.histogram(
    'gatehouse_delivery_delay_seconds',
    'From the acceptance of an event to its delivery.',
    ['attempt'],
    DELAYS,
  ),
  running: new Set<LeasedEvent>(),
  /** The sender whose turn it is; null for the first one. */
  nextSender: null as string | null,
  /** Aborts the attempts that a shutdown does not wait for. */
  shutdown: new AbortController(),
  /** Ends the wait before the next claim. */
  wake: new AbortController(),
  isStopping: false,
});

/**
 * Delivers events at least once, each under a lease. Only the holder of the lease can end or
 * release it.
 * @returns `notify` ends the wait before the next claim. `stop` claims nothing more, lets attempts
 * finish for a while, and releases the rest.
 */
export function startWorker(parts: Parts) {
  const { database, deliverer, log, queue } = parts;
  const worker = createWorker(parts);
  const { running, shutdown } = worker;
  setMaxListeners(0, shutdown.signal);
  const renewal = setInterval(() => {
    if (running.size === 0) return;
    void renewLeases(database, [...running], LEASE_SECONDS).catch((error: unknown) =>
      log.warn('leases could not be renewed', describeError(error)),
    );
  }, RENEWAL_MS);
  const looping = loop(worker);
  return {
    queue,
    notify: () => worker.wake.abort(),
    isFailing: worker.breaker.isOpen,
    async stop(graceMs = SHUTDOWN_MS) {
      worker.isStopping = true;
      worker.wake.abort();
      const timer = setTimeout(() => shutdown.abort(), Math.min(graceMs, SHUTDOWN_MS));
      await looping;
      while (running.size > 0) await sleep(10);
      clearTimeout(timer);
      clearInterval(renewal);
      await deliverer.close();
    },
  };
}

async function loop(worker: Worker) {
  const { settings, running, log } = worker;
  while (!worker.isStopping) {
    worker.wake = new AbortController();
    const free = settings.concurrency - running.size;
    const isWithinRound = worker.nextSender !== null;
    const events = await claim(worker, free).catch((error: unknown) => {
      log.warn('due events could not be claimed', describeError(error));
      return [];
    });
    for (const event of events) void run(worker, event);
    // If one sender had less than its share, or the round ended, others may have more.
    const isShared = new Set(events.map(({ token_id }) => token_id)).size > 1;
    const isAll = events.length < free && !isShared && !isWithinRound;
    const mustWait = events.length === 0 || isAll;
    if (mustWait) await sleep(POLL_MS, undefined, { signal: worker.wake.signal }).catch(() => {});
  }
}

async function claim(worker: Worker, free: number) {
  const { database, breaker, queue } = worker;
  if (free === 0) return [];
  const admitted = await breaker.admit();
  if (admitted === 'none') return [];
  if (admitted === 'all') {
    const events = await claimWork(database, free, queue, worker.nextSender);
    if (events[0]) worker.nextSender = events[0].next_sender;
    return events;
  }
  return claimProbes(database, Math.min(free, admitted.limit), admitted.except, queue);
}

/** Replies of a target that works, about this event (RFC 9110, 15.5 and RFC 6585, 5). */
const REJECTED = new Set([400, 409, 413, 415, 422, 431]);

async function run(worker: Worker, event: LeasedEvent) {
  const { running, settings, log } = worker;
  running.add(event);
  // If the outcome is not stored, the event is due again when its lease ends.
  await attempt(worker, event).catch((error: unknown) => {
    const facts = { event_id: event.id, ...describeError(error) };
    log.warn('the outcome of an attempt could not be stored', facts);
  });
  running.delete(event);
  // Claims several events at once, instead of one for each free slot.
  if (running.size <= settings.concurrency / 2) worker.wake.abort();
}

async function attempt(worker: Worker, event: LeasedEvent) {
  const { database, deliverer, settings, breaker, shutdown, target } = worker;
  const { signal } = shutdown;
  // The claim ended too late: the event is due again at once, and this was no attempt.
  if (signal.aborted) return releaseWork(database, event, null, 0);
  // This was no attempt either.
  if (event.attempt > settings.pausesMs.length + 1)
    return endWork(database, [{ ...event, result: { error: NONE_LEFT }, unused: 1 }], 'dead');
  // No process has accepted it.
  if (event.source === OUTBOX && event.attempt === 1) worker.countReceived([OUTBOX, 'accepted']);
  const result = await attemptOnce(deliverer, event, settings.timeoutMs, signal);
  const { error, duration_ms, answer_status = 0 } = result;
  if (error !== null && signal.aborted) return releaseWork(database, event, null, 0);
  const outcome = error === null ? 'done' : 'failed';
  worker.countAttempt([outcome]);
  worker.observeDuration([outcome], duration_ms / 1_000);
  const isRejected = error !== null && REJECTED.has(answer_status);
  if (!isRejected) breaker.record(error === null, event.token_id);
  return conclude(worker, event, { ...result, target: target.name });
}

/** @param shutdown ends the attempt, as its time limit does */
export async function attemptOnce(
  deliverer: Deliverer,
  event: LeasedEvent,
  timeoutMs: number,
  shutdown: AbortSignal,
) {
  const startedAt = performance.now();
  // Not AbortSignal.timeout or .any: a signal that nothing refers to may be collected together
  // with its time limit.
  const limit = new AbortController();
  const abort = () => limit.abort();
  const timer = setTimeout(abort, timeoutMs);
  shutdown.addEventListener('abort', abort);
  const abandoned = new Promise<Result>((resolve) => {
    limit.signal.addEventListener('abort', () => setTimeout(resolve, ABORT_MS, { error: '' }));
  });
  const delivery = await Promise.race([deliverer.deliver(event, limit.signal), abandoned]).catch(
    (error: unknown): Result => ({ error: `internal error: ${describeError(error).error}` }),
  );
  clearTimeout(timer);
  shutdown.removeEventListener('abort', abort);
  const { unfinished } = delivery;
  const isLate = delivery.error !== null && limit.signal.aborted;
  const late = `no result within ${timeoutMs / 1_000} s${unfinished ? `: ${unfinished}` : ''}`;
  const error = isLate ? late : delivery.error;
  return {
    ...delivery,
    error: error && errorLine(error),
    duration_ms: Math.round(performance.now() - startedAt),
    // The target controls this text. Line breaks stay. PostgreSQL's `text` cannot hold U+0000.
    answer: delivery.answer?.replace(/(?![\n\t])[\p{Cc}\p{Cf}]/gu, ' '),
  };
}

const NONE_LEFT =
  'no attempt left: the last one ended with its process, or the retry schedule was shortened';

/** Stores and logs the end of an attempt: delivered, to be retried, or moved to dead letters. */
async function conclude(worker: Worker, event: LeasedEvent, result: Result) {
  const { database, settings, log } = worker;
  const { error, duration_ms, retryAfter, wereKilled } = result;
  const { id: event_id, headers, attempt } = event;
  const request_id = headers['x-request-id'];
  const facts = { event_id, request_id, attempt, duration_ms, error: error ?? undefined };
  if (wereKilled) log.warn('processes that a command had left running were killed', facts);
  if (error === null) {
    log.info('event delivered', facts);
    const delayMs = Math.max(0, Date.now() - Number(event.received_at));
    worker.observeDelay([attempt === 1 ? 'first' : 'later'], delayMs / 1_000);
    return endDelivered(database, { ...event, result });
  }
  const pauseMs = settings.pausesMs[attempt - 1];
  if (pauseMs === undefined) {
    log.error('event moved to dead letters', facts);
    return endWork(database, [{ ...event, result }], 'dead');
  }
  log.warn('delivery failed; retrying', facts);
  const delayMs = delayOf(pauseMs, retryAfter);
  await releaseWork(database, event, result, delayMs / 1_000);
  if (delayMs < POLL_MS) setTimeout(() => worker.wake.abort(), delayMs).unref();
}

/** One line of at most 1,000 characters, without control characters. */
export const errorLine = (text: string) => toOneLine(text).trim().slice(0, 1_000);

/**
 * @param pauseMs of the schedule
 * @param retryAfter the seconds that the target asked for, of which a day is honored at most
 * @returns milliseconds
 */
export function delayOf(
  pauseMs: number,
  retryAfter: number | null | undefined,
  random = Math.random(),
) {
  const leastMs = Math.min(DAY_SECONDS, retryAfter ?? 0) * 1_000;
  return Math.max(pauseMs * (1 - JITTER + 2 * JITTER * random), leastMs);
}
