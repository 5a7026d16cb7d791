import { json } from '../http/body.ts';
import { withBuiltIns } from '../http/probes.ts';
import { anonymous, routeDefaults, type Route, route } from '../http/call.ts';
import { decimal, object, optional, queryParameters, text, uuid } from '../http/shape.ts';
import { bearer } from './guard.ts';
import { sharePages } from './pages.ts';
import { decrypt, encrypt, list, options, receipt, remove, reveal } from './secrets.ts';
import type { Limits, SecretsService } from './service.ts';
import { deletionShape, decryptRequestShape, listShape, encryptReplyShape, optionsShape, receiptShape, encryptRequestShape } from './shapes.ts';

const secretPath = object({ id: uuid('The identifier that encrypt returned') });
const opened = object({ password: text() });
const refusals = ['not_found', 'passphrase_needed', 'wrong_passphrase', 'too_many_requests', 'key_unknown', 'secret_damaged', 'unavailable'] as const;
const pageQuery = queryParameters({
  limit: optional(decimal({ min: 1, max: 100, description: 'How many; without limit and after, all of them' })),
  after: optional(uuid('The last id of the page before')),
}, 'refused');

const rows = (limits: Limits): ReadonlyArray<Route<SecretsService>> => [
  route({ ...routeDefaults, method: 'POST', pattern: '/api/store/encrypt',
    summary: 'Store a secret encrypted; hand back its identifier and its key',
    guard: bearer, body: json(encryptRequestShape(limits)), success: 201,
    reply: encryptReplyShape, errors: ['unavailable'], handle: encrypt,
  }),
  route({ ...routeDefaults, method: 'POST', pattern: '/api/store/decrypt',
    summary: 'Open a secret with its identifier and its key',
    guard: bearer, query: queryParameters({ id: uuid('The identifier that encrypt returned') }), body: json(decryptRequestShape),
    reply: opened, errors: refusals, handle: decrypt,
  }),
  route({ ...routeDefaults, method: 'GET', pattern: '/api/store',
    summary: 'The secrets as identifier and encrypted text, all or a page; a Link header leads to the next',
    guard: bearer, query: pageQuery,
    reply: listShape, errors: ['unavailable'], handle: list,
  }),
  route({ ...routeDefaults, method: 'GET', pattern: '/api/store/options',
    summary: 'What may be asked of a new secret here, and what holds if nothing is asked',
    guard: bearer,
    reply: optionsShape, handle: options,
  }),
  route({ ...routeDefaults, method: 'GET', pattern: '/api/store/{id}',
    summary: 'The receipt of a secret: whether, when and how often it was read',
    guard: bearer, path: secretPath,
    reply: receiptShape, errors: ['not_found', 'unavailable'], handle: receipt,
  }),
  route({ ...routeDefaults, method: 'DELETE', pattern: '/api/store/{id}',
    summary: 'Delete a secret; its receipt stays',
    guard: bearer, path: secretPath,
    reply: deletionShape, errors: ['not_found', 'unavailable'], handle: remove,
  }),
];

/** Only with SHARE_PAGES. */
const shareRows = (): ReadonlyArray<Route<SecretsService>> => [
  ...sharePages(),
  route({ ...routeDefaults, method: 'POST', pattern: '/s/{id}',
    summary: 'Share pages: open a secret with its link, without a bearer token',
    // Other sites' pages can send any other content type without asking, and could use up a request's tries.
    guard: anonymous, path: secretPath, body: json(decryptRequestShape, 'required'),
    reply: opened, errors: refusals, handle: reveal,
  }),
];

export const createRoutes = (limits: Limits, withPages: boolean): ReadonlyArray<Route<SecretsService>> =>
  withBuiltIns(
    [...rows(limits), ...(withPages ? shareRows() : [])],
    {
      title: 'Gatehouse secrets',
      version: '0.1.0',
      envelope: 'bare',
      securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } },
    },
    'unavailable',
  );
