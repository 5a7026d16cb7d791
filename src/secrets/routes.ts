import { json } from '../http/json-body.ts';
import { type Route, route, routeDefaults } from '../http/route.ts';
import { withBuiltIns } from '../http/built-in-routes.ts';
import {
  dateTime,
  list as listOf,
  nullable,
  object,
  optional,
  queryParameters,
  text,
  uuid,
} from '../http/schema.ts';
import type { Site } from '../runtime/context.ts';
import { allow, ownOnly } from './guard.ts';
import {
  deleteAndReport,
  deletedSchema,
  encrypt,
  encryptRequestSchema,
  idMember,
  list,
  listedSchema,
  listQuery,
  options,
  optionsSchema,
  receipt,
} from './manage-secrets.ts';
import { decryptRequestSchema, OPEN_ERRORS, readSecret } from './read-secret.ts';
import type { SecretsService } from './service.ts';
import { type Limits, STYLE } from './settings.ts';
import { receiptSchema } from './store/secrets.ts';

const anyone = { ...routeDefaults, guard: allow('anyone') };
const bySender = {
  ...routeDefaults,
  guard: allow('sender'),
  pattern: '/api/store/{id}',
  path: object(idMember),
  errors: ['not_found', 'unavailable'],
} as const;
const operator = { ...routeDefaults, guard: allow('operator') };

/** Its body is limited by the settings. */
const encryptRoute = (limits: Limits) =>
  route({
    ...anyone,
    method: 'POST',
    pattern: '/api/store/encrypt',
    summary: 'Store a secret encrypted; return its id and its key',
    body: json(encryptRequestSchema(limits)),
    success: 201,
    reply: object({
      id: uuid(),
      secret: text({ description: 'The encryption key, returned only once' }),
      expires_at: nullable(dateTime()),
      receipt: optional(text({ description: 'The key of the receipt page, with SHARE_PAGES' })),
    }),
    maxBodyBytes: (_caller, { maxBodyBytes }) => maxBodyBytes,
    errors: ['too_many_requests', 'unavailable'],
    handle: encrypt,
  });

const ROUTES: ReadonlyArray<Route<SecretsService>> = [
  route({
    ...operator,
    method: 'POST',
    pattern: '/api/store/decrypt',
    summary: 'Open a secret with its id and its key',
    query: queryParameters(idMember),
    body: json(decryptRequestSchema),
    reply: object({ password: text() }),
    errors: OPEN_ERRORS,
    handle: ({ request, query, body }, service) => readSecret(service, request, query.id, body),
  }),
  route({
    ...operator,
    method: 'GET',
    pattern: '/api/store',
    summary:
      'List the secrets as id and encrypted text, all or by page; a Link header points to the next page',
    query: listQuery,
    reply: listOf(listedSchema),
    errors: ['unavailable'],
    handle: list,
  }),
  route({
    ...anyone,
    method: 'GET',
    pattern: '/api/store/options',
    summary: 'The limits and defaults for new secrets',
    reply: optionsSchema,
    handle: options,
  }),
  route({
    ...bySender,
    method: 'GET',
    summary: 'The receipt of a secret: its status, and when and how often it was read',
    reply: receiptSchema,
    handle: receipt,
  }),
  route({
    ...bySender,
    method: 'DELETE',
    summary: 'Delete a secret; its receipt is kept',
    reply: deletedSchema,
    handle: ({ path, caller, request }, service) =>
      deleteAndReport(service, path.id, ownOnly(caller), request),
  }),
];

export async function createRoutes(limits: Limits, site: Site | null) {
  const pages = site ? (await import('./request-routes.ts')).pageRoutes(limits, site) : [];
  return withBuiltIns([encryptRoute(limits), ...ROUTES, ...pages], {
    ...STYLE,
    title: 'Gatehouse secrets',
    version: '0.1.0',
    securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } },
    about: 'Stores texts encrypted, and returns them to holders of their key.',
  });
}
