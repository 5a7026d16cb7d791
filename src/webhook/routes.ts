import { type Route, route, routeDefaults } from '../http/call.ts';
import { withBuiltIns } from '../http/probes.ts';
import {
  decimal, list, noInput, object, oneOf, optional, queryParameters, text, timestamp, uuid, withDefault, withoutNul,
} from '../http/shape.ts';
import type { Site } from '../runtime/context.ts';
import { operator, sender } from './guard.ts';
import * as inbox from './inbox.ts';
import { eventBody, receive } from './receive.ts';
import type { WebhookService } from './service.ts';
import { replyShape, SOURCES } from './sources.ts';
import { STATUSES } from './store/events.ts';

export const inputErrors = ['unauthorized', 'invalid_body', 'invalid_header'] as const;
/** The guard reads the token. Senders may add parameters of their own. */
export const webhook = {
  ...routeDefaults, method: 'POST', pattern: '/webhook', query: noInput, reply: replyShape,
} as const;

const name = (description: string) => optional(text({ min: 1, max: 1_024, check: withoutNul, description }));
const listQuery = queryParameters({
  status: optional(oneOf(...STATUSES)),
  event: name('The event name; * stands for any characters'),
  source: name("The source of the event's token"),
  since: optional(timestamp('Only events received at this time or later')),
  after: optional(uuid('The last id of the previous page')),
  limit: withDefault(decimal({ min: 1, max: 100 }), 20),
});
const eventPath = object({ id: uuid() });

const extended: ReadonlyArray<Route<WebhookService>> = [
  route({ ...webhook,
    summary: 'Accept an event; the reply is sent once it is stored',
    guard: sender, body: eventBody,
    maxBodyBytes: ({ source }, { maxSignedBytes }) => (SOURCES[source].scheme ? maxSignedBytes : undefined),
    errors: [...inputErrors, 'conflict', 'too_many_requests', 'key_unknown', 'unavailable'], handle: receive,
  }),
  route({ ...routeDefaults, method: 'GET', pattern: '/events',
    summary: 'List the events, newest first, in pages; the Link header has the next page',
    guard: operator, query: listQuery,
    reply: list(inbox.summaryShape), errors: ['unavailable'], handle: inbox.listPage,
  }),
  route({ ...routeDefaults, method: 'GET', pattern: '/events/stream',
    summary: 'Stream new events as server-sent events',
    guard: operator, reply: null, errors: ['unavailable'], handle: inbox.streamEvents,
  }),
  route({ ...routeDefaults, method: 'GET', pattern: '/events/{id}',
    summary: 'Show an event with its body, headers and failed attempts',
    guard: operator, path: eventPath,
    reply: inbox.detailsShape, errors: ['not_found', 'unavailable'], handle: inbox.showEvent,
  }),
  route({ ...routeDefaults, method: 'POST', pattern: '/events/{id}/redeliver',
    summary: 'Deliver an event again, whatever its status',
    guard: operator, path: eventPath,
    reply: inbox.redeliveryShape, errors: ['not_found', 'conflict', 'unavailable'], handle: inbox.redeliverEvent,
  }),
];

/** The page has no data of its own: its user enters an operator's token. */
async function pageRoutes(site: Site): Promise<ReadonlyArray<Route<WebhookService>>> {
  const { pageRows } = await import('../http/pages.ts');
  const page = { pattern: '/inbox', summary: 'Inbox page for operators', name: 'inbox.html' };
  const scripts = ['inbox.js', 'pattern.js'];
  return pageRows(site, new URL('pages/', import.meta.url), [page], scripts, 'Inbox page: scripts, style sheets, logo');
}

export const facts = {
  title: 'Gatehouse webhook', version: '0.1.0', envelope: 'bare',
  securitySchemes: {
    token: { type: 'apiKey', in: 'query', name: 'token' }, bearer: { type: 'http', scheme: 'bearer' },
  },
} as const;

/** @param site null without INBOX_PAGE */
export const createRoutes = async (site: Site | null) =>
  withBuiltIns([...extended, ...(site ? await pageRoutes(site) : [])], facts, 'unavailable');
