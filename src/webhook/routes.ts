import { type BodyRule, json } from '../http/body.ts';
import { withBuiltIns } from '../http/probes.ts';
import { routeDefaults, type Route, route } from '../http/call.ts';
import { pageRows } from '../http/pages.ts';
import { decimal, list, timestamp, object, optional, withDefault, queryParameters, text, uuid, withoutNul, oneOf } from '../http/shape.ts';
import { operator, token } from './guard.ts';
import * as inboxHandlers from './inbox.ts';
import { detailsShape, lineShape, redeliveryShape } from './inbox.ts';
import { receive } from './receive.ts';
import type { WebhookService } from './service.ts';
import { genericShape } from './sources.ts';
import { STATUSES } from './store/events.ts';

/** What is read depends on the token's source; this is what the generic one insists on. */
const event: BodyRule<Buffer> = { ...json(genericShape, 'required'), parse: (raw) => ({ ok: true, value: raw }) };
const received = object({
  id: optional(uuid()),
  status: optional(oneOf('accepted', 'duplicate', 'pong', 'pending')),
  challenge: optional(text({ description: "The answer to a sender's handshake" })),
});

const arrivals: ReadonlyArray<Route<WebhookService>> = [
  route({ ...routeDefaults, method: 'POST', pattern: '/webhook',
    summary: 'Accept an event: answered once it is stored',
    guard: token, body: event,
    reply: received, errors: ['unauthorized', 'invalid_body', 'invalid_header', 'conflict', 'too_many_requests', 'key_unknown', 'unavailable'], handle: receive,
  }),
];

const name = (description: string) => optional(text({ min: 1, max: 1_024, check: withoutNul, description }));
const filter = {
  status: optional(oneOf(...STATUSES)),
  event: name('The name of events; * stands for anything'),
  source: name('The source of their token'),
  since: optional(timestamp('Only what was received from then on')),
};
const eventPath = object({ id: uuid() });

/** For operators, where there is an inbox. */
const inbox: ReadonlyArray<Route<WebhookService>> = [
  route({ ...routeDefaults, method: 'GET', pattern: '/events',
    summary: 'The events, newest first, a page at a time; a Link header leads to the next',
    guard: operator, query: queryParameters({ ...filter, after: optional(uuid('The last id of the page before')), limit: withDefault(decimal({ min: 1, max: 100 }), 20) }, 'refused'),
    reply: list(lineShape), errors: ['unavailable'], handle: inboxHandlers.list,
  }),
  route({ ...routeDefaults, method: 'GET', pattern: '/events/stream',
    summary: 'The events as they come, as server-sent events',
    guard: operator, query: queryParameters({}, 'refused'),
    reply: null, errors: ['unavailable'], handle: inboxHandlers.stream,
  }),
  route({ ...routeDefaults, method: 'GET', pattern: '/events/{id}',
    summary: 'One event: its body, its headers, and what became of it',
    guard: operator, path: eventPath,
    reply: detailsShape, errors: ['not_found', 'unavailable'], handle: inboxHandlers.show,
  }),
  route({ ...routeDefaults, method: 'POST', pattern: '/events/{id}/redeliver',
    summary: 'Deliver an event again, whatever became of it',
    guard: operator, path: eventPath,
    reply: redeliveryShape, errors: ['not_found', 'conflict', 'unavailable'], handle: inboxHandlers.again,
  }),
];

/** Only with INBOX_PAGE. Loading it shows nothing: whoever uses it enters an operator's token. */
const inboxPage = (): ReadonlyArray<Route<WebhookService>> =>
  pageRows(new URL('pages/', import.meta.url), [{ pattern: '/inbox', summary: 'Inbox page: the events, for operators', name: 'inbox.html' }], ['inbox.js'], 'Inbox page: its script and its style');

export const createRoutes = (variant: 'extended' | 'plain', withPage = false): ReadonlyArray<Route<WebhookService>> =>
  withBuiltIns(
    [...arrivals, ...(variant === 'plain' ? [] : inbox), ...(withPage ? inboxPage() : [])],
    {
      title: 'Gatehouse webhook',
      version: '0.1.0',
      envelope: 'bare',
      securitySchemes: {
        token: { type: 'apiKey', in: 'query', name: 'token' },
        bearer: { type: 'http', scheme: 'bearer' },
      },
    },
    'unavailable',
  );
