import { json } from '../http/body.ts';
import { anonymous, type Route, route, routeDefaults } from '../http/call.ts';
import { withBuiltIns } from '../http/probes.ts';
import { dateTime, list as listOf, nullable, object, oneOf, queryParameters, text, uuid } from '../http/shape.ts';
import { encrypt, encryptRequestShape, options, optionsShape } from './encrypt.ts';
import { bearer } from './guard.ts';
import { list, listQuery } from './list.ts';
import { decrypt, decryptRequestShape, reveal } from './open.ts';
import { receipt, receiptShape, remove } from './receipts.ts';
import type { Limits, SecretsService } from './service.ts';

const id = uuid();
const byId = { id: uuid('The id that encrypt returned') };
const clientKey = text({ description: 'The encryption key, returned only once' });
const opened = object({ password: text() });
const OPEN_ERRORS = ['not_found', 'passphrase_needed', 'wrong_passphrase', 'too_many_requests', 'key_unknown',
  'secret_damaged', 'unavailable'] as const;
const authenticated = { ...routeDefaults, guard: bearer } as const;

const apiRoutes = (limits: Limits): ReadonlyArray<Route<SecretsService>> => [
  route({ ...authenticated, method: 'POST', pattern: '/api/store/encrypt',
    summary: 'Store a secret encrypted; return its id and its key',
    body: json(encryptRequestShape(limits)), success: 201,
    reply: object({ id, secret: clientKey, expires_at: nullable(dateTime()) }),
    errors: ['unavailable'], handle: encrypt }),
  route({ ...authenticated, method: 'POST', pattern: '/api/store/decrypt',
    summary: 'Open a secret with its id and its key',
    query: queryParameters(byId), body: json(decryptRequestShape),
    reply: opened, errors: OPEN_ERRORS, handle: decrypt }),
  route({ ...authenticated, method: 'GET', pattern: '/api/store',
    summary: 'List the secrets as id and encrypted text, all or by page; a Link header points to the next page',
    query: listQuery, reply: listOf(object({ id, secret: text({ description: 'The encrypted secret' }) })),
    errors: ['unavailable'], handle: list }),
  route({ ...authenticated, method: 'GET', pattern: '/api/store/options',
    summary: 'The limits and defaults for new secrets', reply: optionsShape, handle: options }),
  route({ ...authenticated, method: 'GET', pattern: '/api/store/{id}',
    summary: 'The receipt of a secret: its status, and when and how often it was read',
    path: object(byId), reply: receiptShape, errors: ['not_found', 'unavailable'], handle: receipt }),
  route({ ...authenticated, method: 'DELETE', pattern: '/api/store/{id}',
    summary: 'Delete a secret; its receipt is kept',
    path: object(byId), reply: object({ id, status: oneOf('deleted') }),
    errors: ['not_found', 'unavailable'], handle: remove }),
];

/** Loading a page reveals nothing, so mail scanners and link previews cannot use up a secret. */
const PAGES = [
  { pattern: '/', summary: 'Share pages: create a secret', name: 'make.html' },
  { pattern: '/s/{id}', summary: 'Share pages: reveal a secret on a click', name: 'reveal.html' },
];

/** Only with SHARE_PAGES. */
async function pageRoutes(): Promise<ReadonlyArray<Route<SecretsService>>> {
  const { pageRows } = await import('../http/pages.ts');
  const [directory, scripts] = [new URL('pages/', import.meta.url), ['make.js', 'reveal.js', 'qr.js']];
  return [
    ...pageRows<SecretsService>(directory, PAGES, scripts, 'Share pages: scripts, style sheet'),
    route({ ...routeDefaults, method: 'POST', pattern: '/s/{id}',
      summary: 'Share pages: open a secret with its link, without a bearer token',
      // A page of another site can send any other content type without a preflight, and could use up attempts.
      guard: anonymous, path: object(byId), body: json(decryptRequestShape, 'required'),
      reply: opened, errors: OPEN_ERRORS, handle: reveal }),
  ];
}

export async function createRoutes(limits: Limits, sharePages: boolean): Promise<ReadonlyArray<Route<SecretsService>>> {
  const rows = [...apiRoutes(limits), ...(sharePages ? await pageRoutes() : [])];
  const securitySchemes = { bearer: { type: 'http', scheme: 'bearer' } };
  const facts = { title: 'Gatehouse secrets', version: '0.1.0', envelope: 'bare', securitySchemes } as const;
  return withBuiltIns(rows, facts, 'unavailable');
}
