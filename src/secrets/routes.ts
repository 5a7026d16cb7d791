import type { Database } from '../platform/db/pool.ts';
import { json } from '../platform/http/route/json-body.ts';
import { Failure, type Route, route, routeDefaults } from '../platform/http/route/route.ts';
import { withBuiltIns } from '../platform/http/site/built-in-routes.ts';
import {
  boolean,
  dateTime,
  decimal,
  type Infer,
  integer,
  list,
  nullable,
  object,
  oneOf,
  optional,
  queryParameters,
  text,
  uuid,
} from '../platform/http/route/schema.ts';
import type { Site } from '../platform/runtime/context.ts';
import { allow, ownOnly } from './guard.ts';
import {
  deleteAndReport,
  deletedSchema,
  encrypt,
  encryptRequestSchema,
  idMember,
  limitVisitor,
  MIN_PASSPHRASE,
} from './manage-secrets.ts';
import { decryptRequestSchema, READ_ERRORS, readSecret } from './read-secret.ts';
import { receiptSchema } from './replies.ts';
import type { SecretsService } from './service.ts';
import { type Limits, STYLE } from './settings.ts';
import { findReceipt, listSecrets } from './store/secrets.ts';

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
    limit: limitVisitor,
    maxBodyBytes: (_caller, { maxBodyBytes }) => maxBodyBytes,
    errors: ['too_many_requests', 'unavailable'],
    handle: encrypt,
  });

const positive = integer({ min: 1, max: Number.MAX_SAFE_INTEGER });
const limitSchema = object({ default: nullable(positive), max: positive });

/** Rows per statement, so that memory does not grow with the number of secrets. */
const PAGE = 100;
const MAX_LISTED_BYTES = 8 * 1024 * 1024;
const NIL_UUID = '00000000-0000-0000-0000-000000000000';
const listedSchema = object({
  id: uuid(),
  secret: text({ description: 'The encrypted secret' }),
});

const NO_RECEIPT = 'There is no such secret, or its receipt is no longer kept.';

const ROUTES: ReadonlyArray<Route<SecretsService>> = [
  route({
    ...operator,
    method: 'POST',
    pattern: '/api/store/decrypt',
    summary: 'Open a secret with its id and its key',
    query: queryParameters(idMember),
    body: json(decryptRequestSchema),
    reply: object({ password: text() }),
    errors: READ_ERRORS,
    handle: ({ request, query, body }, service) => readSecret(service, request, query.id, body),
  }),
  route({
    ...operator,
    method: 'GET',
    pattern: '/api/store',
    summary:
      'List the secrets as id and encrypted text, all or by page; a Link header points to the next page',
    replyHeaders: ['Link'],
    query: queryParameters({
      limit: optional(
        decimal({
          min: 1,
          max: PAGE,
          description: 'Secrets per page; all of them without limit and after',
        }),
      ),
      after: optional(uuid('The last id of the previous page')),
    }),
    reply: list(listedSchema),
    errors: ['too_slow', 'unavailable'],
    /** Every readable secret: all of them as a stream, or one page. None of it is a key. */
    async handle({ query: { limit, after } }, { database, limits }) {
      const most = Math.min(PAGE, Math.ceil(MAX_LISTED_BYTES / limits.password.max_bytes));
      if (limit === undefined && after === undefined) return { items: listAll(database, most) };
      const count = Math.min(limit ?? PAGE, most);
      // One row more than the page has shows whether there is a next page.
      const found = await listSecrets(database, after ?? NIL_UUID, count + 1);
      const data = found.slice(0, count);
      const next = `</api/store?limit=${count}&after=${data.at(-1)?.id}>; rel="next"`;
      return { data, headers: found.length > count ? { Link: next } : {} };
    },
  }),
  route({
    ...anyone,
    method: 'GET',
    pattern: '/api/store/options',
    summary: 'The limits and defaults for new secrets',
    reply: object({
      expires_in: limitSchema,
      max_reads: limitSchema,
      share_pages: boolean(),
      passphrase: object({ min_length: positive }),
      password: object({ max_bytes: positive }),
      caller: object({
        role: oneOf('anyone', 'sender', 'operator'),
        user: nullable(text()),
      }),
    }),
    /** For clients that offer a form. */
    async handle({ caller: { role, user = null } }, { limits, sharePages }) {
      return {
        data: {
          ...limits,
          passphrase: { min_length: MIN_PASSPHRASE },
          share_pages: sharePages,
          caller: { role, user },
        },
      };
    },
  }),
  route({
    ...bySender,
    method: 'GET',
    summary: 'The receipt of a secret: its status, and when and how often it was read',
    reply: receiptSchema,
    async handle({ path, caller }, { database }) {
      const data = await findReceipt(database, path.id, ownOnly(caller));
      return data ? { data } : new Failure('not_found', { message: NO_RECEIPT });
    },
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

async function* listAll(database: Database, count: number) {
  let last: string | undefined = NIL_UUID;
  while (last !== undefined) {
    const items: Array<Infer<typeof listedSchema>> = await listSecrets(database, last, count);
    yield items;
    last = items[count - 1]?.id;
  }
}

export const FACTS = {
  ...STYLE,
  title: 'Gatehouse secrets',
  about: 'Stores texts encrypted, and returns them to holders of their key.',
} as const;

export async function createRoutes(limits: Limits, site: Site | null) {
  const pages = site ? (await import('./request-routes.ts')).pageRoutes(limits, site) : [];
  const name = site ? 'with-pages' : 'without-pages';
  const file = new URL(`openapi/${name}.json`, import.meta.url);
  const folder = site && new URL('pages/', import.meta.url);
  return withBuiltIns([encryptRoute(limits), ...ROUTES, ...pages], FACTS, file, folder);
}
