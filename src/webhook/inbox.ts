import { bearerOf, type Call, type Reply } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { dateTime, integer, list as listOf, nullable, object, type Infer, text, uuid, oneOf } from '../http/shape.ts';
import type { Database } from '../db/pool.ts';
import { Overloaded } from '../runtime/errors.ts';
import type { Inbox, WebhookService } from './service.ts';
import { type EventDetails, type EventFilter, type EventLine, findEvent, listEvents, recentEvents, redeliver, STATUSES } from './store/events.ts';
import type { Sender } from './store/tokens.ts';

type Ask<Path, Query> = Call<Sender, Path, Query, null>;

const count = integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
export const lineShape = object({
  id: uuid(),
  event: text(),
  source: text(),
  delivery_id: nullable(text()),
  received_at: dateTime(),
  status: oneOf(...STATUSES),
  attempts: count,
  last_error: nullable(text()),
});
const failureShape = object({ attempt: count, failed_at: dateTime(), error: text() });
export const detailsShape = object({
  event: lineShape,
  token_id: uuid(),
  ip: nullable(text()),
  headers: object({}),
  body: text({ description: 'As it came' }),
  failures: listOf(failureShape),
});
export const redeliveryShape = object({ id: uuid(), status: oneOf('waiting') });

export const viewLine = ({ received_at, ...line }: EventLine): Infer<typeof lineShape> => ({ ...line, received_at: received_at.toISOString() });

export function viewDetails({ token_id, ip, headers, body, failures, ...line }: EventDetails): Infer<typeof detailsShape> {
  const when = (time: string) => new Date(time).toISOString();
  const shown = failures.map((failure) => ({ ...failure, failed_at: when(failure.failed_at) }));
  return { event: viewLine(line), token_id, ip, headers, body: body.toString('utf8'), failures: shown };
}

const NO_EVENT = { message: 'There is no event with this id, or it is no longer kept.' };

/** These rows are there only where there is an inbox. */
function inboxOf({ inbox }: WebhookService): Inbox {
  if (!inbox) throw new Error('internal error: the plain variant has no inbox');
  return inbox;
}

/** Newest first; a page, and a Link header that leads to the next. */
export async function list({ query }: Ask<unknown, EventFilter & { limit: number }>, service: WebhookService): Promise<Reply<Array<Infer<typeof lineShape>>>> {
  const rows = await listEvents(inboxOf(service).database, query, query.limit + 1);
  const page = rows.slice(0, query.limit);
  const parameters = new URLSearchParams({ limit: String(query.limit), after: page.at(-1)?.id ?? '' });
  for (const name of ['status', 'event', 'source'] as const) if (query[name] !== undefined) parameters.set(name, query[name]);
  if (query.since) parameters.set('since', query.since.toISOString());
  return { data: page.map(viewLine), headers: rows.length > query.limit ? { Link: `</events?${parameters}>; rel="next"` } : {} };
}

export async function show({ path }: Ask<{ id: string }, unknown>, service: WebhookService): Promise<Reply<Infer<typeof detailsShape>> | Failure<'not_found'>> {
  const found = await findEvent(inboxOf(service).database, path.id);
  return found ? { data: viewDetails(found) } : new Failure('not_found', NO_EVENT);
}

/** Drives an event again, whatever became of it; one that waits for its next attempt gets that now. */
export async function again({ path }: Ask<{ id: string }, unknown>, service: WebhookService): Promise<Reply<Infer<typeof redeliveryShape>> | Failure<'not_found' | 'conflict'>> {
  const { database, notify } = inboxOf(service);
  if (!notify) return new Failure('conflict', { message: 'Nothing delivers events here: WEBHOOK_FORWARD_URL, WEBHOOK_COMMAND and WEBHOOK_HANDLER are not set.' });
  const count = await redeliver(database, [path.id]);
  // None was driven again by this: it is under way, or it is gone.
  if (count === 0 && !(await findEvent(database, path.id))) return new Failure('not_found', NO_EVENT);
  notify();
  return { data: { id: path.id, status: 'waiting' } };
}

const POLL_MS = 1_000;
/** More often than the listener cuts a connection on which nothing moves. */
const SIGN_OF_LIFE = 15;
const LOOK_BACK_SECONDS = 10;

/** Events from now on, as they come, until `isOver`; at most 1,000 in ten seconds. @returns some at a time, every second */
export async function* tail(database: Database, isOver: () => Promise<boolean>): AsyncGenerator<readonly EventLine[]> {
  let seen = new Set((await recentEvents(database, LOOK_BACK_SECONDS)).map(({ id }) => id));
  yield [];
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    if (await isOver()) return;
    const recent = await recentEvents(database, LOOK_BACK_SECONDS);
    const before = seen;
    seen = new Set(recent.map(({ id }) => id));
    yield recent.filter(({ id }) => !before.has(id));
  }
}

const MAX_STREAMS = 32;

/** Server-sent events (HTML Living Standard, 9.2), for as long as the token holds. */
export async function stream({ request }: Ask<unknown, unknown>, service: WebhookService): Promise<Reply<never>> {
  const { database, streams, isServing } = inboxOf(service);
  const isOver = async () => !isServing() || (await service.admit(bearerOf(request.headers.authorization)))?.role !== 'operator';
  async function* texts(): AsyncGenerator<string> {
    // Looked at and taken in one step, before the head goes out: many may come at once.
    if (streams.open >= MAX_STREAMS) throw new Overloaded('too many event streams are open');
    streams.open += 1;
    try {
      let greeting = ': events from now on\n\n';
      let quiet = 0;
      for await (const events of tail(database, isOver)) {
        quiet = events.length === 0 ? quiet + 1 : 0;
        const sign = quiet % SIGN_OF_LIFE === SIGN_OF_LIFE - 1 ? ': still here\n\n' : '';
        // Nothing is a piece too: at each the listener looks whether the client is still there.
        yield greeting + events.map((event) => `id: ${event.id}\nevent: received\ndata: ${JSON.stringify(viewLine(event))}\n\n`).join('') + sign;
        greeting = '';
      }
    } finally {
      streams.open -= 1;
    }
  }
  return { stream: texts(), contentType: 'text/event-stream' };
}
