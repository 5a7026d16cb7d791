import { json } from '../http/body.ts';
import { type Route, route, routeDefaults } from '../http/call.ts';
import { withBuiltIns } from '../http/probes.ts';
import {
  decimal,
  list,
  noInput,
  object,
  optional,
  queryParameters,
  uuid,
  withDefault,
} from '../http/shape.ts';
import type { Site } from '../runtime/context.ts';
import { operator, sender, withTokenChecked } from './guard.ts';
import * as inbox from './inbox.ts';
import { eventBody, receive } from './receive.ts';
import type { WebhookService } from './service.ts';
import { replyShape, SOURCES } from './sources.ts';
import { summaryShape } from './store/inbox.ts';

export const inputErrors = ['unauthorized', 'invalid_body', 'invalid_header'] as const;
/** The guard reads the token. Senders may add parameters of their own. */
export const webhook = {
  ...routeDefaults,
  method: 'POST',
  pattern: '/webhook',
  query: noInput,
  reply: replyShape,
} as const;

const listQuery = queryParameters({
  ...inbox.filterMembers,
  after: optional(uuid('The last id of the previous page')),
  limit: withDefault(decimal({ min: 1, max: 100 }), 20),
});
const eventPath = object({ id: uuid() });
const get = { ...routeDefaults, method: 'GET', guard: operator } as const;
const post = { ...get, method: 'POST' } as const;

const extended: ReadonlyArray<Route<WebhookService>> = [
  withTokenChecked(
    route({
      ...webhook,
      summary: 'Accept an event; the reply is sent once it is stored',
      guard: sender,
      body: eventBody,
      maxBodyBytes: ({ source }, { maxSignedBytes }) =>
        SOURCES[source].scheme ? maxSignedBytes : undefined,
      errors: [...inputErrors, 'conflict', 'too_many_requests', 'key_unknown', 'unavailable'],
      handle: receive,
    }),
  ),
  route({
    ...get,
    pattern: '/events',
    summary: 'List the events, newest first, in pages; the Link header has the next page',
    query: listQuery,
    reply: list(summaryShape),
    handle: inbox.listPage,
  }),
  route({
    ...get,
    pattern: '/events/stream',
    summary: 'Stream new events as server-sent events',
    reply: null,
    handle: inbox.streamEvents,
  }),
  route({
    ...get,
    pattern: '/events/delivery',
    summary:
      'Show the target, the retry schedule, and whether delivery is paused or the target fails',
    reply: inbox.deliveryShape,
    handle: inbox.showDelivery,
  }),
  route({
    ...get,
    pattern: '/events/counts',
    summary: 'Count the events by status, and over the last hour and day',
    reply: inbox.countsShape,
    handle: inbox.showCounts,
  }),
  route({
    ...post,
    pattern: '/events/redeliver',
    summary:
      'Deliver events again: by id, or up to 500 that a filter matches; dry_run only counts them',
    body: json(inbox.bulkShape),
    reply: inbox.bulkReplyShape,
    errors: ['conflict', 'invalid_body'],
    handle: inbox.redeliverMany,
  }),
  route({
    ...post,
    pattern: '/events/pause',
    summary: 'Begin no further attempt, on any replica, until delivery is resumed',
    reply: inbox.deliveryShape,
    handle: inbox.pause,
  }),
  route({
    ...post,
    pattern: '/events/resume',
    summary: 'Resume paused delivery',
    reply: inbox.deliveryShape,
    handle: inbox.resume,
  }),
  route({
    ...get,
    pattern: '/events/{id}',
    summary: 'Show an event with its body, headers and attempts',
    path: eventPath,
    reply: inbox.detailsShape,
    errors: ['not_found'],
    handle: inbox.showEvent,
  }),
  route({
    ...post,
    pattern: '/events/{id}/redeliver',
    summary: 'Deliver an event again, whatever its status',
    path: eventPath,
    reply: inbox.redeliveryShape,
    errors: ['conflict', 'not_found'],
    handle: inbox.redeliverEvent,
  }),
];

/** The page has no data of its own: its user enters an operator's token. */
async function pageRoutes(site: Site): Promise<ReadonlyArray<Route<WebhookService>>> {
  const { pageRows } = await import('../http/pages.ts');
  const page = { pattern: '/inbox', summary: 'Inbox page for operators', name: 'inbox.html' };
  const scripts = [
    'inbox.js',
    'inbox-api.js',
    'inbox-bulk.js',
    'inbox-chart.js',
    'inbox-event.js',
    'inbox-format.js',
    'inbox-list.js',
    'inbox-state.js',
    'inbox.css',
  ];
  return pageRows(
    site,
    new URL('pages/', import.meta.url),
    [page],
    scripts,
    'Inbox page: scripts, style sheets, logo',
  );
}

export const facts = {
  about: 'Accepts events of other programs, and delivers them.',
  title: 'Gatehouse webhook',
  version: '0.1.0',
  envelope: 'bare',
  securitySchemes: {
    token: { type: 'apiKey', in: 'query', name: 'token' },
    bearer: { type: 'http', scheme: 'bearer' },
  },
} as const;

/** @param site null without INBOX_PAGE */
export const createRoutes = async (site: Site | null) =>
  withBuiltIns([...extended, ...(site ? await pageRoutes(site) : [])], facts, 'unavailable');
