import { deriveKeys, KEY_BYTES } from '../platform/crypto/seal.ts';
import { fromBase64url } from '../platform/crypto/text.ts';
import { equalDigests } from '../platform/crypto/token.ts';
import { json } from '../platform/http/route/json-body.ts';
import {
  anonymous,
  type Call,
  Failure,
  type Route,
  route,
  routeDefaults,
} from '../platform/http/route/route.ts';
import { pageRows } from '../platform/http/site/pages.ts';
import { dateTime, nullable, object, text } from '../platform/http/route/schema.ts';
import type { Site } from '../platform/runtime/context.ts';
import { capabilityOf, isUnaltered, type ServerKey } from './envelope.ts';
import { deletedSchema, deleteAndReport, idMember } from './manage-secrets.ts';
import {
  clientKeySchema,
  type DecryptRequest,
  decryptRequestSchema,
  READ_ERRORS,
  readSecret,
} from './read-secret.ts';
import { count, linkSchema, receiptSchema } from './replies.ts';
import { countAttempt, type SecretsService, serverFailure } from './service.ts';
import { findKeyIds, findLink, findReceipt } from './store/secrets.ts';

/**
 * Loading a page reveals nothing, so programs that load a link, such as link previews, use nothing
 * up. Those that click the button do.
 */
const PAGES = [
  { pattern: '/', summary: 'Share pages: create a secret', name: 'make.html' },
  { pattern: '/s/{id}', summary: 'Share pages: reveal a secret on a click', name: 'reveal.html' },
  {
    pattern: '/r/{id}',
    summary: 'Share pages: the receipt of a secret, for its sender',
    name: 'receipt.html',
  },
  { pattern: '/request', summary: 'Share pages: ask someone for a secret', name: 'request.html' },
  {
    pattern: '/request/{id}',
    summary: 'Share pages: wait for the answer to a request and read it',
    name: 'kept-request.html',
  },
  { pattern: '/answer/{id}', summary: 'Share pages: answer a request', name: 'answer.html' },
  { pattern: '/links', summary: 'Share pages: the links of who is signed in', name: 'links.html' },
];

export const byLink = {
  ...routeDefaults,
  method: 'POST',
  guard: anonymous,
  path: object(idMember),
  errors: ['not_found', 'too_many_requests', 'key_unknown', 'secret_damaged', 'unavailable'],
} as const;
const key = text({
  min: 1,
  max: 256,
  description: 'The key of the receipt, or the delete_key of a read',
});
// Otherwise a page of another site could send it as text/plain, without a preflight, and use up
// attempts.
export const keyBody = json(object({ key }), 'required');

export type LinkCall<Body> = Call<null, { id: string }, unknown, Body>;
type KeyCall = LinkCall<{ key: string }>;

/**
 * Id and key are the credential. A wrong one is counted before `handle` runs, and without an
 * attempt left `handle` does not run, which limits what wrong ones cost. The right one always
 * passes, because others in its network must not lock it out (ASVS 6.1.1).
 * @param find what the key stands for; null or false if it is wrong; a failure if the service
 * cannot tell, which does not count
 * @param handle gets what was found, null or false included
 */
export function limitWrongKeys<Body, Found, Reply>(
  find: (
    call: LinkCall<Body>,
    service: SecretsService,
  ) => Promise<Found | Failure<'key_unknown' | 'secret_damaged' | 'not_found'>>,
  handle: (call: LinkCall<Body>, service: SecretsService, found: Found) => Promise<Reply>,
) {
  return async (call: LinkCall<Body>, service: SecretsService) => {
    const found = await find(call, service);
    if (found instanceof Failure) return found;
    if (found) return handle(call, service, found);
    const refused = await countAttempt(service, 'link', call.request.network);
    return refused ?? handle(call, service, found);
  };
}

/**
 * Only holders of the key learn how a secret ended. The commitment recognizes the key even after
 * the end. Until then, the tag says whether the row is as it was stored.
 */
async function findOwnLink(
  { path: { id }, body, request: { route } }: LinkCall<{ secret: string }>,
  service: SecretsService,
) {
  const { database, openingKeys } = service;
  const clientKey = fromBase64url(body.secret);
  if (clientKey?.length !== KEY_BYTES) return null;
  const commitmentOf = (key: ServerKey) => deriveKeys(key, clientKey, id).commitment;
  const link = await findLink(database, id, openingKeys.map(commitmentOf));
  if (!link) return null;
  const { commitment, key_id, blob, tag, ...data } = link;
  const own = openingKeys.find((key) => equalDigests(commitmentOf(key), commitment));
  if (!own) {
    if (openingKeys.some((key) => key.id === key_id)) return null;
    return data.status === 'stored'
      ? serverFailure(service, 'key_unknown', { id, key_id }, route)
      : WRONG_LINK;
  }
  const isIntact = own.id === key_id && (!blob || isUnaltered(own, { ...link, id, blob }));
  return isIntact ? data : serverFailure(service, 'secret_damaged', { id, key_id }, route);
}

/** The reply also says what is left. */
async function reveal(
  { path: { id }, request, body }: LinkCall<DecryptRequest>,
  service: SecretsService,
) {
  const opened = await readSecret(service, request, id, body);
  if (opened instanceof Failure) return opened;
  const { reads, max_reads, expires_at } = opened.used;
  const reads_left = max_reads === null ? null : max_reads - reads;
  const delete_key = reads_left === 0 ? null : capabilityOf(service.serverKey, 'delete', id);
  return {
    data: {
      ...opened.data,
      reads_left,
      expires_at,
      delete_key,
    },
  };
}

const WRONG_LINK = new Failure('not_found', {
  message:
    'No secret belongs to this link, or it ended long ago. Check that you have the whole link.',
});
const WRONG_KEY = new Failure('not_found', {
  message: 'No receipt belongs to this address, or it is no longer kept.',
});

/** Any of the server's keys: the secret may have been stored before a rotation. */
const isKeyTo =
  (...uses: Array<'receipt' | 'delete'>) =>
  async ({ path: { id }, body, request: { route } }: KeyCall, service: SecretsService) => {
    const { database, openingKeys } = service;
    const sent = Buffer.from(body.key);
    const isRight = openingKeys.some((key) =>
      uses.some((use) => equalDigests(sent, Buffer.from(capabilityOf(key, use, id)))),
    );
    if (isRight) return true;
    const rows = await findKeyIds(database, id);
    const missing = rows.find(({ key_id }) => openingKeys.every((key) => key.id !== key_id));
    if (!missing) return false;
    return missing.is_needed ? serverFailure(service, 'key_unknown', missing, route) : WRONG_KEY;
  };

export const shareRoutes = (site: Site): ReadonlyArray<Route<SecretsService>> => [
  ...pageRows(site, new URL('pages/', import.meta.url), PAGES),
  route({
    ...byLink,
    pattern: '/s/{id}',
    summary: 'Share pages: open a secret with its link, without a bearer token',
    body: json(decryptRequestSchema, 'required'),
    reply: object({
      password: text(),
      reads_left: nullable(count),
      expires_at: nullable(dateTime()),
      delete_key: nullable(text()),
    }),
    errors: READ_ERRORS,
    handle: limitWrongKeys(findOwnLink, reveal),
  }),
  route({
    ...byLink,
    pattern: '/s/{id}/status',
    summary: 'Share pages: how often a link can be opened, or how it ended; costs no read',
    body: json(object({ secret: clientKeySchema }), 'required'),
    reply: linkSchema,
    handle: limitWrongKeys(findOwnLink, async (_call, _service, data) =>
      data ? { data } : WRONG_LINK,
    ),
  }),
  route({
    ...byLink,
    pattern: '/s/{id}/delete',
    summary: 'Share pages: delete a secret, by its sender or after reading it',
    body: keyBody,
    reply: deletedSchema,
    handle: limitWrongKeys(
      isKeyTo('receipt', 'delete'),
      async ({ path, request }, service, isRight) =>
        isRight ? deleteAndReport(service, path.id, null, request) : WRONG_KEY,
    ),
  }),
  route({
    ...byLink,
    pattern: '/r/{id}',
    summary: 'Share pages: read the receipt of a secret with its key, without a bearer token',
    body: keyBody,
    reply: receiptSchema,
    handle: limitWrongKeys(isKeyTo('receipt'), async ({ path }, { database }, isRight) => {
      const data = isRight && (await findReceipt(database, path.id, null));
      return data ? { data } : WRONG_KEY;
    }),
  }),
];
