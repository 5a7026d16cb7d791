import { setTimeout as sleep } from 'node:timers/promises';
import type { Call, Reply } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { dateTime, integer, list, nullable, object, oneOf, text, uuid } from '../http/shape.ts';
import type { Database } from '../db/pool.ts';
import { Overloaded } from '../runtime/errors.ts';
import { operator } from './guard.ts';
import type { WebhookService } from './service.ts';
import {
  type EventDetails, type EventFilter, type EventSummary, findEvent, listEvents, recentEvents, redeliver, STATUSES,
} from './store/events.ts';
import type { TokenCaller } from './store/tokens.ts';

const count = integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
export const summaryShape = object({
  id: uuid(), event: text(), source: text(), delivery_id: nullable(text()), received_at: dateTime(),
  status: oneOf(...STATUSES), attempts: count, last_error: nullable(text()),
});
export const detailsShape = object({
  event: summaryShape, token_id: uuid(), ip: nullable(text()), headers: object({}),
  body: text({ description: 'As received' }),
  failures: list(object({ attempt: count, failed_at: dateTime(), error: text() })),
});
export const redeliveryShape = object({ id: uuid(), status: oneOf('waiting') });

export function viewDetails({ token_id, ip, headers, body, failures, ...event }: EventDetails) {
  const shown = failures.map((one) => ({ ...one, failed_at: new Date(one.failed_at).toISOString() }));
  return { event, token_id, ip, headers, body: body.toString('utf8'), failures: shown };
}

const NO_EVENT = { message: 'There is no event with this id, or it is no longer kept.' };

type EventCall = Call<TokenCaller, { id: string }, unknown, null>;
type ListCall = Call<TokenCaller, unknown, EventFilter & { limit: number }, null>;

export async function listPage({ query }: ListCall, { database }: WebhookService) {
  const rows = await listEvents(database, query, query.limit + 1);
  const page = rows.slice(0, query.limit);
  const next = new URLSearchParams({ limit: String(query.limit), after: page.at(-1)?.id ?? '' });
  for (const name of ['status', 'event', 'source'] as const) if (query[name] !== undefined) next.set(name, query[name]);
  if (query.since) next.set('since', query.since.toISOString());
  const headers = rows.length > query.limit ? { Link: `</events?${next}>; rel="next"` } : {};
  return { data: page, headers };
}

export async function showEvent({ path }: EventCall, { database }: WebhookService) {
  const found = await findEvent(database, path.id);
  return found ? { data: viewDetails(found) } : new Failure('not_found', NO_EVENT);
}

const NO_TARGET = 'Events are not delivered. Set WEBHOOK_FORWARD_URL, WEBHOOK_COMMAND or WEBHOOK_HANDLER.';

/** An event that waits for its next attempt is due now. An event that is being delivered stays as it is. */
export async function redeliverEvent({ path }: EventCall, { database, delivery, notifyWorker }: WebhookService) {
  if (!delivery) return new Failure('conflict', { message: NO_TARGET });
  const count = await redeliver(database, [path.id]);
  if (count === 0 && !(await findEvent(database, path.id))) return new Failure('not_found', NO_EVENT);
  notifyWorker();
  return { data: { id: path.id, status: 'waiting' as const } };
}

const POLL_MS = 1_000;
/** An event may become visible this much later than its received_at: its transaction commits afterwards. */
const LOOK_BACK_SECONDS = 10;

/** New events until `isOver`, at most 1,000 in ten seconds. @returns a list every second, which may be empty */
export async function* tail(database: Database, isOver: () => Promise<boolean>): AsyncGenerator<EventSummary[]> {
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
export async function streamEvents({ request }: EventCall, service: WebhookService): Promise<Reply<never>> {
  const isOver = async () => !service.isServing() || (await operator.check(request, service)) instanceof Failure;
  async function* messages(): AsyncGenerator<string> {
    // Checked and counted without an await in between, before the head is sent.
    if (service.openStreams >= MAX_STREAMS) throw new Overloaded('too many event streams are open');
    service.openStreams += 1;
    try {
      for await (const events of tail(service.database, isOver)) yield events.map(message).join('') || COMMENT;
    } finally {
      service.openStreams -= 1;
    }
  }
  return { text: messages(), contentType: 'text/event-stream' };
}

const message = (event: EventSummary): string =>
  `id: ${event.id}\nevent: received\ndata: ${JSON.stringify(event)}\n\n`;
