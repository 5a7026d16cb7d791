import { json, noBody } from '../platform/http/route/json-body.ts';
import { anonymous, type Route, route, routeDefaults } from '../platform/http/route/route.ts';
import { withBuiltIns } from '../platform/http/site/built-in-routes.ts';
import { pageRows } from '../platform/http/site/pages.ts';
import {
  decimal,
  list,
  noInput,
  object,
  optional,
  queryParameters,
  uuid,
  withDefault,
} from '../platform/http/route/schema.ts';
import type { Site } from '../platform/runtime/context.ts';
import { operator, sender, withRefusalsCounted } from './guard.ts';
import * as inbox from './inbox.ts';
import { checkAddress, receive } from './accept.ts';
import { eventBody } from './body.ts';
import type { WebhookService } from './service.ts';
import * as schemas from './schemas.ts';
import * as senders from './senders.ts';
import { STYLE } from './settings.ts';
import { inputErrors, replySchema } from './reply.ts';
import { listRefusals } from './store/unstored.ts';

/** The guard reads the token. Senders may add parameters of their own. */
export const webhook = {
  ...routeDefaults,
  method: 'POST',
  pattern: '/webhook',
  query: noInput,
  reply: optional(replySchema),
} as const;
/** The same address, checked before it is used. */
export const check = {
  ...webhook,
  method: 'GET',
  summary: 'Check the address, as some senders do before they use it',
  body: noBody,
} as const;

const idSchema = object({ id: uuid() });
const get = { ...routeDefaults, method: 'GET', guard: operator } as const;
const post = { ...get, method: 'POST' } as const;
const ofToken = { ...post, path: idSchema } as const;

const extended: ReadonlyArray<Route<WebhookService>> = [
  withRefusalsCounted(
    route({
      ...webhook,
      summary: 'Accept an event; the reply is sent once it is stored',
      emptyReply: 'The same, for sources that expect no body',
      anySite: true,
      guard: sender,
      body: eventBody,
      maxBodyBytes: ({ format }, { maxSignedBytes }) =>
        format.scheme ? maxSignedBytes : undefined,
      errors: [
        ...inputErrors,
        'unsupported_media_type',
        'conflict',
        'too_many_requests',
        'key_unknown',
      ],
      handle: receive,
    }),
  ),
  withRefusalsCounted(
    route({
      ...check,
      guard: sender,
      errors: ['unauthorized', 'too_many_requests'],
      handle: checkAddress,
    }),
  ),
  route({
    ...get,
    pattern: '/events',
    summary: 'List the events, newest first, in pages; the Link header has the next page',
    replyHeaders: ['Link'],
    query: queryParameters({
      ...schemas.filterMembers,
      after: optional(uuid('The last id of the previous page')),
      limit: withDefault(decimal({ min: 1, max: 100 }), 20),
    }),
    reply: list(schemas.summarySchema),
    errors: ['too_slow'],
    handle: inbox.listPage,
  }),
  route({
    ...get,
    pattern: '/events/stream',
    summary: 'Stream new events as server-sent events',
    reply: null,
    replyType: 'text/event-stream',
    handle: inbox.streamEvents,
  }),
  route({
    ...get,
    pattern: '/events/delivery',
    summary:
      'Show the target, the retry schedule, and whether delivery is paused or the target fails',
    reply: schemas.deliverySchema,
    handle: inbox.showDelivery,
  }),
  route({
    ...get,
    pattern: '/events/refused',
    summary: 'List refused requests of the last 24 hours, by token and reason',
    reply: list(schemas.refusedSchema),
    errors: ['too_slow'],
    handle: async (_call, { database }) => ({ data: await listRefusals(database) }),
  }),
  route({
    ...get,
    pattern: '/tokens',
    summary: 'List the active sender tokens with their targets and refused requests',
    reply: list(schemas.senderSchema),
    errors: ['too_slow'],
    handle: senders.listSenders,
  }),
  route({
    ...post,
    pattern: '/tokens',
    summary: 'Create a token for a sender, which is shown only in this reply',
    body: json(schemas.newSenderSchema),
    success: 201,
    reply: schemas.newTokenSchema,
    errors: ['invalid_body'],
    handle: senders.createSender,
  }),
  route({
    ...ofToken,
    method: 'PATCH',
    pattern: '/tokens/{id}',
    summary: 'Change the name or the order of the token of a sender; what is left out stays',
    body: json(schemas.changeSchema),
    reply: idSchema,
    errors: ['invalid_body', 'not_found', 'too_slow'],
    handle: senders.change,
  }),
  route({
    ...ofToken,
    pattern: '/tokens/{id}/rotate',
    summary:
      'Replace the token of a sender, or its signing secret; the old one stays valid for a while',
    body: json(schemas.rotateSchema),
    reply: schemas.newTokenSchema,
    errors: ['invalid_body', 'not_found', 'too_slow'],
    handle: senders.rotate,
  }),
  route({
    ...ofToken,
    pattern: '/tokens/{id}/revoke',
    summary: 'Revoke the token of a sender at once, on every replica',
    reply: idSchema,
    errors: ['not_found', 'too_slow'],
    handle: senders.revoke,
  }),
  route({
    ...ofToken,
    method: 'GET',
    pattern: '/tokens/{id}/pending',
    summary: 'Show the signing secret that a sender sent, which waits for its confirmation',
    reply: schemas.pendingSchema,
    errors: ['key_unknown', 'not_found', 'too_slow'],
    handle: senders.showPending,
  }),
  route({
    ...ofToken,
    pattern: '/tokens/{id}/confirm',
    summary: 'Activate the pending signing secret with this fingerprint',
    body: json(schemas.confirmSchema),
    reply: idSchema,
    errors: ['conflict', 'not_found', 'too_slow'],
    handle: senders.confirm,
  }),
  route({
    ...ofToken,
    pattern: '/tokens/{id}/test',
    summary:
      'Send a test event, which is not stored, to the target of a token, and show the answer',
    reply: schemas.testReplySchema,
    errors: ['conflict', 'not_found', 'too_slow'],
    handle: senders.testTarget,
  }),
  route({
    ...ofToken,
    method: 'PATCH',
    pattern: '/tokens/{id}/target',
    summary:
      'Set or change the URL for the events of a token, waiting events included; members that are left out keep their values, and null removes one',
    body: json(schemas.targetSchema),
    reply: idSchema,
    errors: ['invalid_body', 'not_found', 'too_slow'],
    handle: senders.patchTarget,
  }),
  route({
    ...ofToken,
    method: 'DELETE',
    pattern: '/tokens/{id}/target',
    summary: 'Deliver the events of a token to the target of the process again',
    reply: idSchema,
    errors: ['not_found', 'too_slow'],
    handle: senders.removeTarget,
  }),
  route({
    ...get,
    pattern: '/events/counts',
    summary: 'Count the events by status, and over the last hour and day',
    reply: schemas.countsSchema,
    handle: async (_call, { countEvents }) => ({ data: await countEvents() }),
  }),
  route({
    ...post,
    pattern: '/events/redeliver',
    summary:
      'Deliver events again: by id, or up to 500 that a filter matches; dry_run only counts them',
    body: json(schemas.bulkSchema),
    reply: schemas.bulkReplySchema,
    errors: ['conflict', 'invalid_body'],
    handle: inbox.redeliverMany,
  }),
  route({
    ...post,
    pattern: '/events/pause',
    summary: 'Begin no further attempt, on any replica, until delivery is resumed',
    reply: schemas.deliverySchema,
    handle: inbox.pause,
  }),
  route({
    ...post,
    pattern: '/events/resume',
    summary: 'Resume paused delivery',
    reply: schemas.deliverySchema,
    handle: inbox.resume,
  }),
  route({
    ...get,
    pattern: '/events/{id}',
    summary: 'Show an event with its body, headers and attempts',
    path: idSchema,
    reply: schemas.detailsSchema,
    errors: ['not_found'],
    handle: inbox.showEvent,
  }),
  route({
    ...post,
    pattern: '/events/{id}/redeliver',
    summary: 'Deliver an event again, whatever its status',
    path: idSchema,
    reply: schemas.redeliverySchema,
    errors: ['conflict', 'not_found'],
    handle: inbox.redeliverEvent,
  }),
];

/** The page has no data of its own: its user enters an operator's token. */
function pageRoutes(site: Site, folder: URL) {
  const visitor = route({
    ...get,
    guard: anonymous,
    pattern: '/inbox/user',
    summary: 'Say who is signed in, and whether they may use the inbox page',
    reply: schemas.visitorSchema,
    errors: ['too_many_requests', 'unavailable'],
    handle: inbox.showVisitor,
  });
  const page = { pattern: '/inbox', summary: 'Inbox page for operators', name: 'inbox.html' };
  return [visitor, ...pageRows(site, folder, [page])];
}

export const FACTS = {
  ...STYLE,
  title: 'Gatehouse webhook',
  about: 'Receives webhooks, stores them, and delivers them to your program.',
} as const;

/** @param site null without INBOX_PAGE */
export function createRoutes(site: Site | null) {
  const name = site ? 'with-pages' : 'without-pages';
  const file = new URL(`openapi/${name}.json`, import.meta.url);
  const folder = new URL('pages/', import.meta.url);
  const pages = site ? pageRoutes(site, folder) : [];
  return withBuiltIns([...extended, ...pages], FACTS, file, site && folder);
}
