import { setTimeout as sleep } from 'node:timers/promises';
import { Failure } from '../platform/http/route/errors.ts';
import { invalidBody } from '../platform/http/route/json-body.ts';
import type { Infer } from '../platform/http/route/schema.ts';
import type { Database } from '../platform/db/pool.ts';
import { Overloaded } from '../platform/runtime/errors.ts';
import { findUser } from '../platform/http/credentials/trusted-user.ts';
import { notAllowed, operator, type OperatorCall } from './guard.ts';
import { formatPause } from './settings.ts';
import type { bulkSchema, EventFilter, EventSummary } from './schemas.ts';
import type { WebhookService } from './service.ts';
import {
  type Failing,
  findFailing,
  findPause,
  pauseDelivery,
  resumeDelivery,
} from './store/delivery.ts';
import { redeliver } from './store/events.ts';
import { listTargets } from './store/tokens.ts';
import { describeTarget } from './target.ts';
import { findEvent, listEvents, recentEvents } from './store/inbox.ts';

const NO_EVENT = { message: 'There is no event with this id, or it is no longer kept.' };

type EventCall = OperatorCall<{ id: string }>;

export async function listPage(
  { request, query }: OperatorCall<unknown, null, EventFilter & { limit: number }>,
  { database }: WebhookService,
) {
  const { events, next } = await listEvents(database, query, query.limit);
  if (next === null) return { data: events };
  const link = new URLSearchParams(request.query);
  link.set('after', next);
  return { data: events, headers: { Link: `</events?${link}>; rel="next"` } };
}

export async function showEvent({ path }: EventCall, { database }: WebhookService) {
  const found = await findEvent(database, path.id);
  return found ? { data: found } : new Failure('not_found', NO_EVENT);
}

export const NO_TARGET =
  'Events are not delivered. Set a target for their token, or WEBHOOK_FORWARD_URL, WEBHOOK_COMMAND or WEBHOOK_HANDLER.';

/**
 * An event that waits for its next attempt is due now. An event that is being delivered stays as it
 * is.
 */
export async function redeliverEvent(
  { path }: EventCall,
  { database, commonTarget, notifyWorker }: WebhookService,
) {
  const count = await redeliver(database, [path.id], commonTarget !== null);
  const found = await findEvent(database, path.id);
  if (!found) return new Failure('not_found', NO_EVENT);
  const own = await listTargets(database);
  // If it was redelivered, it had a target then.
  const hasTarget = count > 0 || commonTarget || own.some(({ id }) => id === found.token_id);
  if (!hasTarget) return new Failure('conflict', { message: NO_TARGET });
  notifyWorker();
  return { data: { id: path.id, status: 'waiting' as const } };
}

/** How many events of a filter one request redelivers, or counts, at most. */
const BATCH = 500;

/**
 * Redelivers, or only counts, the events with these ids or the events that match a filter, in
 * batches.
 */
export async function redeliverMany(
  { body: { ids, filter, after, dry_run } }: OperatorCall<unknown, Infer<typeof bulkSchema>>,
  { database, commonTarget, notifyWorker }: WebhookService,
) {
  const hasTarget = commonTarget !== null || (await listTargets(database)).length > 0;
  if (!hasTarget) return new Failure('conflict', { message: NO_TARGET });
  if ((ids === undefined) === (filter === undefined))
    return invalidBody('must have either "ids" or "filter"');
  const found = filter && (await listEvents(database, { ...filter, after }, BATCH));
  const wanted = found?.events.map(({ id }) => id) ?? ids ?? [];
  const redelivered = dry_run ? 0 : await redeliver(database, wanted, commonTarget !== null);
  if (redelivered > 0) notifyWorker();
  return { data: { matched: wanted.length, redelivered, next: found?.next ?? null } };
}

/** What is shown of the failures of a target. */
export const stateOf = (failing?: Failing | null) => ({
  failures: failing?.failures ?? 0,
  next_probe_at: failing?.is_open ? failing.probe_at : null,
});

/** Where events go, when failed attempts are repeated, and what holds deliveries back. */
export async function showDelivery(
  { caller }: OperatorCall,
  { database, commonTarget, delivery }: WebhookService,
) {
  const target = commonTarget && describeTarget(commonTarget);
  const failing = target && (await findFailing(database, target.key));
  return {
    data: {
      target: target?.name ?? null,
      own_targets: (await listTargets(database)).length,
      schedule: delivery.pausesMs.map(formatPause),
      ...(await findPause(database)),
      user: caller.user ?? null,
      failing_since: failing?.failing_since ?? null,
      ...stateOf(failing),
    },
  };
}

/**
 * Who opens the page, so that it need not try a request that would be refused.
 * @returns `problem` for a user who may not use the inbox
 */
export async function showVisitor(
  { request }: Pick<OperatorCall, 'request'>,
  service: WebhookService,
) {
  const { names, source } = service.inboxUsers;
  const found = await findUser(request, source, names);
  if (found instanceof Failure) {
    if (found.code === 'too_many_requests') return found;
    const { Location: sign_in = null } = found.details.headers ?? {};
    return { data: { user: null, problem: null, sign_in } };
  }
  const problem = found && !found.isAllowed ? notAllowed(found.name) : null;
  return { data: { user: found?.name ?? null, problem, sign_in: null } };
}

const operatorOf = ({ caller, request }: OperatorCall) => ({
  request_id: request.requestId,
  by: caller.id,
});

/** Idempotent: a second pause keeps the time of the first one. */
export async function pause(call: OperatorCall, service: WebhookService) {
  const isNew = await pauseDelivery(service.database, call.caller.id);
  if (isNew) service.log.warn('delivery paused', operatorOf(call));
  return showDelivery(call, service);
}

export async function resume(call: OperatorCall, service: WebhookService) {
  const isNew = await resumeDelivery(service.database);
  if (isNew) service.log.warn('delivery resumed', operatorOf(call));
  service.notifyWorker();
  return showDelivery(call, service);
}

const POLL_MS = 1_000;
/**
 * An event may become visible this much later than its received_at: its transaction commits
 * afterwards.
 */
const LOOK_BACK_SECONDS = 10;

/**
 * New events until `isOver`, at most 1,000 in ten seconds.
 * @returns a list every second, which may be empty
 */
export async function* tail(database: Database, isOver: () => Promise<boolean>) {
  let seen = new Set<string>();
  for (let isFirst = true; ; isFirst = false) {
    const recent = await recentEvents(database, LOOK_BACK_SECONDS);
    yield isFirst ? [] : recent.filter(({ id }) => !seen.has(id));
    seen = new Set(recent.map(({ id }) => id));
    await sleep(POLL_MS);
    if (await isOver()) return;
  }
}

const MAX_STREAMS = 32;
/** Sent while there is no event: the listener closes connections without traffic. */
const COMMENT = ': new events follow\n\n';

/** Server-sent events (HTML Living Standard, 9.2) until the operator's token ends. */
export async function streamEvents({ request }: OperatorCall, service: WebhookService) {
  const isOver = async () =>
    !service.isServing() || (await operator.check(request, service)) instanceof Failure;
  async function* messages() {
    // Checked and counted without an await in between, before the head is sent.
    if (service.openStreams >= MAX_STREAMS) throw new Overloaded('too many event streams are open');
    service.openStreams += 1;
    try {
      for await (const events of tail(service.database, isOver))
        yield events.map(messageOf).join('') || COMMENT;
    } finally {
      service.openStreams -= 1;
    }
  }
  // Otherwise nginx would keep events back until its buffer is full.
  const headers = { 'X-Accel-Buffering': 'no' };
  return { text: messages(), contentType: 'text/event-stream', headers };
}

const messageOf = (event: EventSummary) =>
  `id: ${event.id}\nevent: received\ndata: ${JSON.stringify(event)}\n\n`;
