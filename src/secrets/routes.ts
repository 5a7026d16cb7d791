import { json } from '../http/body.ts';
import { type Route, route, routeDefaults } from '../http/call.ts';
import { withBuiltIns } from '../http/probes.ts';
import {
  dateTime,
  list as listOf,
  nullable,
  object,
  oneOf,
  optional,
  queryParameters,
  text,
  uuid,
} from '../http/shape.ts';
import type { Site } from '../runtime/context.ts';
import type { Role } from './caller.ts';
import { encrypt, encryptRequestShape, options, optionsShape } from './encrypt.ts';
import { allow } from './guard.ts';
import { decrypt, decryptRequestShape, OPEN_ERRORS, openedShape } from './open.ts';
import type { Limits, SecretsService } from './service.ts';
import { receiptShape } from './store.ts';
import { list, listedShape, listQuery, receipt, remove } from './stored.ts';

const id = uuid();
const byId = { id: uuid('The id that encrypt returned') };
const clientKey = text({ description: 'The encryption key, returned only once' });
const receiptKey = text({ description: 'The key of the receipt page, with SHARE_PAGES' });
const rowFor = (role: Role) => ({ ...routeDefaults, guard: allow(role) });
const [anyone, sender, operator] = [rowFor('anyone'), rowFor('sender'), rowFor('operator')];

const apiRoutes = (limits: Limits): ReadonlyArray<Route<SecretsService>> => [
  route({
    ...anyone,
    method: 'POST',
    pattern: '/api/store/encrypt',
    summary: 'Store a secret encrypted; return its id and its key',
    body: json(encryptRequestShape(limits)),
    success: 201,
    reply: object({
      id,
      secret: clientKey,
      expires_at: nullable(dateTime()),
      receipt: optional(receiptKey),
    }),
    maxBodyBytes: (_caller, { maxBodyBytes }) => maxBodyBytes,
    errors: ['too_many_requests', 'unavailable'],
    handle: encrypt,
  }),
  route({
    ...operator,
    method: 'POST',
    pattern: '/api/store/decrypt',
    summary: 'Open a secret with its id and its key',
    query: queryParameters(byId),
    body: json(decryptRequestShape),
    reply: openedShape,
    errors: OPEN_ERRORS,
    handle: decrypt,
  }),
  route({
    ...operator,
    method: 'GET',
    pattern: '/api/store',
    summary:
      'List the secrets as id and encrypted text, all or by page; a Link header points to the next page',
    query: listQuery,
    reply: listOf(listedShape),
    errors: ['unavailable'],
    handle: list,
  }),
  route({
    ...anyone,
    method: 'GET',
    pattern: '/api/store/options',
    summary: 'The limits and defaults for new secrets',
    reply: optionsShape,
    handle: options,
  }),
  route({
    ...sender,
    method: 'GET',
    pattern: '/api/store/{id}',
    summary: 'The receipt of a secret: its status, and when and how often it was read',
    path: object(byId),
    reply: receiptShape,
    errors: ['not_found', 'unavailable'],
    handle: receipt,
  }),
  route({
    ...sender,
    method: 'DELETE',
    pattern: '/api/store/{id}',
    summary: 'Delete a secret; its receipt is kept',
    path: object(byId),
    reply: object({ id, status: oneOf('deleted') }),
    errors: ['not_found', 'unavailable'],
    handle: remove,
  }),
];

export async function createRoutes(
  limits: Limits,
  site: Site | null,
): Promise<ReadonlyArray<Route<SecretsService>>> {
  const pages = site ? (await import('./share.ts')).shareRoutes(site) : [];
  const securitySchemes = { bearer: { type: 'http', scheme: 'bearer' } };
  const about = 'Stores texts encrypted, and returns them to holders of their key.';
  const facts = {
    title: 'Gatehouse secrets',
    version: '0.1.0',
    envelope: 'bare',
    securitySchemes,
    about,
  } as const;
  return withBuiltIns([...apiRoutes(limits), ...pages], facts, 'unavailable');
}
