import { setTimeout as sleep } from 'node:timers/promises';
import type { Call, Reply } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import {
  boolean,
  dateTime,
  type Infer,
  list,
  nullable,
  object,
  oneOf,
  optional,
  text,
  timestamp,
  uuid,
  withDefault,
  withoutNul,
} from '../http/shape.ts';
import type { Database } from '../db/pool.ts';
import { Overloaded } from '../runtime/errors.ts';
import { type Operator, operator } from './guard.ts';
import { formatPause } from './schedule.ts';
import type { WebhookService } from './service.ts';
import { findFailing, findPause, pauseDelivery, resumeDelivery } from './store/delivery.ts';
import { redeliver, STATUSES } from './store/events.ts';
import {
  attemptShape,
  count,
  type EventDetails,
  type EventFilter,
  type EventSummary,
  findEvent,
  listEvents,
  recentEvents,
  summaryShape,
} from './store/inbox.ts';

const name = (description: string) =>
  optional(text({ min: 1, max: 1_024, check: withoutNul, description }));
export const filterMembers = {
  status: optional(oneOf(...STATUSES)),
  event: name('The event name; * stands for any characters'),
  source: name("The source of the event's token"),
  text: name('A text in the body, as it was sent'),
  delivery_id: name("The sender's id of the delivery"),
  since: optional(timestamp('Only events received at this time or later')),
  until: optional(timestamp('Only events received at this time or earlier')),
};
export const bulkShape = object(
  {
    ids: optional(list(uuid())),
    filter: optional(object(filterMembers, 'rejected')),
    after: optional(uuid('With "filter": the "next" of the last reply')),
    dry_run: withDefault(boolean(), false),
  },
  'rejected',
);

export const detailsShape = object({
  event: summaryShape,
  token_id: uuid(),
  ip: nullable(text()),
  headers: object({}),
  body: text({ description: 'As received' }),
  attempts: list(attemptShape),
});
export const redeliveryShape = object({ id: uuid(), status: oneOf('waiting') });

export function viewDetails({ token_id, ip, headers, body, tries, ...event }: EventDetails) {
  const attempts = tries.map((one) => ({ ...one, ended_at: new Date(one.ended_at).toISOString() }));
  return { event, token_id, ip, headers, body: body.toString('utf8'), attempts };
}

const NO_EVENT = { message: 'There is no event with this id, or it is no longer kept.' };

type EventCall = Call<Operator, { id: string }, unknown, null>;
type ListCall = Call<Operator, unknown, EventFilter & { limit: number }, null>;

export async function listPage({ query }: ListCall, { database }: WebhookService) {
  const { events, next } = await listEvents(database, query, query.limit);
  if (next === null) return { data: events };
  const link = new URLSearchParams({ limit: String(query.limit), after: next });
  const names = ['status', 'event', 'source', 'text', 'delivery_id'] as const;
  for (const name of names) if (query[name] !== undefined) link.set(name, query[name]);
  for (const name of ['since', 'until'] as const)
    if (query[name]) link.set(name, query[name].toISOString());
  return { data: events, headers: { Link: `</events?${link}>; rel="next"` } };
}

export async function showEvent({ path }: EventCall, { database }: WebhookService) {
  const found = await findEvent(database, path.id);
  return found ? { data: viewDetails(found) } : new Failure('not_found', NO_EVENT);
}

const NO_TARGET =
  'Events are not delivered. Set WEBHOOK_FORWARD_URL, WEBHOOK_COMMAND or WEBHOOK_HANDLER.';

/** An event that waits for its next attempt is due now. An event that is being delivered stays as it is. */
export async function redeliverEvent(
  { path }: EventCall,
  { database, delivery, notifyWorker }: WebhookService,
) {
  if (!delivery) return new Failure('conflict', { message: NO_TARGET });
  const count = await redeliver(database, [path.id]);
  if (count === 0 && !(await findEvent(database, path.id)))
    return new Failure('not_found', NO_EVENT);
  notifyWorker();
  return { data: { id: path.id, status: 'waiting' as const } };
}

/** How many events of a filter one request redelivers, or counts, at most. */
const BATCH = 500;

type BulkCall = Call<Operator, unknown, unknown, Infer<typeof bulkShape>>;

export const bulkReplyShape = object({
  matched: count,
  redelivered: count,
  next: nullable(uuid('The "after" of the next request; null if this was the last')),
});

/** Redelivers, or only counts, the events with these ids or the events that match a filter, in batches. */
export async function redeliverMany(
  { body: { ids, filter, after, dry_run } }: BulkCall,
  service: WebhookService,
) {
  const { database, delivery, notifyWorker } = service;
  if (!delivery) return new Failure('conflict', { message: NO_TARGET });
  if ((ids === undefined) === (filter === undefined)) {
    return new Failure('invalid_body', {
      fields: [{ path: '', message: 'must have either "ids" or "filter"' }],
    });
  }
  const found = filter && (await listEvents(database, { ...filter, after }, BATCH));
  const wanted = found?.events.map(({ id }) => id) ?? ids ?? [];
  const redelivered = dry_run || wanted.length === 0 ? 0 : await redeliver(database, wanted);
  if (redelivered > 0) notifyWorker();
  return { data: { matched: wanted.length, redelivered, next: found?.next ?? null } };
}

export const deliveryShape = object({
  target: nullable(
    text({ description: 'Kind and origin, program or module; null without a target' }),
  ),
  schedule: list(text({ description: 'A pause before another attempt, as 30s or 2h' })),
  paused_at: nullable(dateTime()),
  paused_by: nullable(text()),
  failures: count,
  failing_since: nullable(dateTime()),
  next_probe_at: nullable(dateTime('Set if the target fails, so that it is only probed')),
});

/** Where events go, when failed attempts are repeated, and what holds deliveries back. */
export async function showDelivery(_call: unknown, { database, delivery }: WebhookService) {
  const failing = delivery && (await findFailing(database, delivery.targetKey));
  const { paused_at = null, paused_by = null } = (await findPause(database)) ?? {};
  return {
    data: {
      target: delivery?.target ?? null,
      schedule: (delivery?.pauses ?? []).map(formatPause),
      paused_at,
      paused_by,
      failures: failing?.failures ?? 0,
      failing_since: failing?.failing_since ?? null,
      next_probe_at: failing?.is_open ? failing.probe_at : null,
    },
  };
}

/** Idempotent: a second pause keeps the time of the first one. */
export async function pause(
  { caller, request }: Call<Operator, unknown, unknown, null>,
  service: WebhookService,
) {
  const facts = { request_id: request.requestId, by: caller.id };
  if (await pauseDelivery(service.database, caller.id)) service.log.warn('delivery paused', facts);
  return showDelivery(null, service);
}

export async function resume(
  { caller, request }: Call<Operator, unknown, unknown, null>,
  service: WebhookService,
) {
  const facts = { request_id: request.requestId, by: caller.id };
  if (await resumeDelivery(service.database)) service.log.warn('delivery resumed', facts);
  service.notifyWorker();
  return showDelivery(null, service);
}

const bars = list(object({ from: dateTime(), received: count, dead: count }));
export const countsShape = object({
  counts: object({ stored: count, waiting: count, done: count, dead: count, skipped: count }),
  minutes: bars,
  hours: bars,
});
export const showCounts = async (_call: unknown, { countEvents }: WebhookService) => ({
  data: await countEvents(),
});

const POLL_MS = 1_000;
/** An event may become visible this much later than its received_at: its transaction commits afterwards. */
const LOOK_BACK_SECONDS = 10;

/** New events until `isOver`, at most 1,000 in ten seconds. @returns a list every second, which may be empty */
export async function* tail(
  database: Database,
  isOver: () => Promise<boolean>,
): AsyncGenerator<EventSummary[]> {
  let seen: ReadonlySet<string> | null = null;
  do {
    const recent = await recentEvents(database, LOOK_BACK_SECONDS);
    const before: ReadonlySet<string> | null = seen;
    seen = new Set(recent.map(({ id }) => id));
    yield recent.filter(({ id }) => before?.has(id) === false);
    await sleep(POLL_MS);
  } while (!(await isOver()));
}

const MAX_STREAMS = 32;
/** Sent while there is no event: the listener closes connections without traffic. */
const COMMENT = ': new events follow\n\n';

/** Server-sent events (HTML Living Standard, 9.2) until the operator's token ends. */
export async function streamEvents(
  { request }: EventCall,
  service: WebhookService,
): Promise<Reply<never>> {
  const isOver = async () =>
    !service.isServing() || (await operator.check(request, service)) instanceof Failure;
  async function* messages(): AsyncGenerator<string> {
    // Checked and counted without an await in between, before the head is sent.
    if (service.openStreams >= MAX_STREAMS) throw new Overloaded('too many event streams are open');
    service.openStreams += 1;
    try {
      for await (const events of tail(service.database, isOver))
        yield events.map(message).join('') || COMMENT;
    } finally {
      service.openStreams -= 1;
    }
  }
  return { text: messages(), contentType: 'text/event-stream' };
}

const message = (event: EventSummary): string =>
  `id: ${event.id}\nevent: received\ndata: ${JSON.stringify(event)}\n\n`;
