import { deriveKeys, KEY_BYTES } from '../crypto/envelope.ts';
import { fromBase64url } from '../crypto/text.ts';
import { equalDigests } from '../crypto/token.ts';
import { readThrottle, takeAttempt } from '../db/throttle.ts';
import { json } from '../http/json-body.ts';
import { anonymous, type Call, type Route, route, routeDefaults } from '../http/route.ts';
import { type ErrorCode, Failure } from '../http/errors.ts';
import { pageRows } from '../http/pages.ts';
import { dateTime, nullable, object, text } from '../http/schema.ts';
import type { Site } from '../runtime/context.ts';
import { deletedSchema, deleteAndReport, idMember } from './manage-secrets.ts';
import { SCHEMA } from './migrations.ts';
import {
  clientKeySchema,
  type DecryptRequest,
  decryptRequestSchema,
  OPEN_ERRORS,
  readSecret,
} from './read-secret.ts';
import { capabilityOf } from './sealing.ts';
import { limitOf, type SecretsService } from './service.ts';
import {
  count,
  findLink,
  findReceipt,
  linkSchema,
  type Receipt,
  receiptSchema,
} from './store/secrets.ts';

/** Loading a page reveals nothing, so mail scanners and link previews cannot use up a secret. */
const PAGES = [
  { pattern: '/', summary: 'Share pages: create a secret', name: 'make.html' },
  { pattern: '/s/{id}', summary: 'Share pages: reveal a secret on a click', name: 'reveal.html' },
  {
    pattern: '/r/{id}',
    summary: 'Share pages: the receipt of a secret, for its sender',
    name: 'receipt.html',
  },
];
const DIRECTORY = new URL('pages/', import.meta.url);
const SCRIPTS = ['make.js', 'reveal.js', 'receipt.js', 'envelope.js', 'form.js', 'qr.js'];

const byLink = {
  ...routeDefaults,
  method: 'POST',
  guard: anonymous,
  path: object(idMember),
  errors: ['not_found', 'too_many_requests', 'unavailable'],
} as const;
const key = text({
  min: 1,
  max: 256,
  description: 'The key of the receipt, or the delete_key of a read',
});
// A page of another site can send any other content type without a preflight, and could use up
// attempts.
const keyBody = json(object({ key }), 'required');

export const shareRoutes = (site: Site): ReadonlyArray<Route<SecretsService>> => [
  ...pageRows(site, DIRECTORY, PAGES, SCRIPTS, 'Share pages: scripts, style sheets, logo'),
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
    errors: OPEN_ERRORS,
    handle: limited(reveal),
  }),
  route({
    ...byLink,
    pattern: '/s/{id}/status',
    summary: 'Share pages: how often a link can be read, or how it ended; uses nothing up',
    body: json(object({ secret: clientKeySchema }), 'required'),
    reply: linkSchema,
    handle: limited(linkStatus),
  }),
  route({
    ...byLink,
    pattern: '/s/{id}/delete',
    summary: 'Share pages: delete a secret, by its sender or after reading it',
    body: keyBody,
    reply: deletedSchema,
    handle: limited(removeLink),
  }),
  route({
    ...byLink,
    pattern: '/r/{id}',
    summary: 'Share pages: read the receipt of a secret with its key, without a bearer token',
    body: keyBody,
    reply: receiptSchema,
    handle: limited(linkReceipt),
  }),
];

type LinkCall<Body> = Call<null, { id: string }, unknown, Body>;
type KeyCall = LinkCall<{ key: string }>;

/**
 * Only the holder of the key gets these. All others are possible guesses, or tell a client without
 * the key that the secret exists.
 */
const NOT_COUNTED: readonly ErrorCode[] = ['passphrase_needed', 'too_many_requests'];

/**
 * Id and key are the credential. Failures are counted afterwards: this only limits the cost of a
 * flood.
 */
function limited<Body, Reply>(
  handle: (call: LinkCall<Body>, service: SecretsService) => Promise<Reply>,
) {
  return async (call: LinkCall<Body>, service: SecretsService) => {
    const { serverKey, database } = service;
    const limit = limitOf(serverKey, 'link', call.request.network);
    const { wait } = await readThrottle(database, SCHEMA.name, [limit]);
    if (wait > 0) return new Failure('too_many_requests', { retryAfterSeconds: wait });
    const reply = await handle(call, service);
    const isCounted = reply instanceof Failure && !NOT_COUNTED.includes(reply.code);
    if (isCounted) await takeAttempt(database, SCHEMA.name, limit);
    return reply;
  };
}

/** The reply also says what is left. If that cannot be read, the text is sent all the same. */
async function reveal(
  { path: { id }, request, body }: LinkCall<DecryptRequest>,
  service: SecretsService,
) {
  const opened = await readSecret(service, request, id, body);
  if (opened instanceof Failure) return opened;
  const receipt = await findReceipt(service.database, id, null).catch(() => null);
  const reads_left = readsLeft(receipt);
  return {
    data: {
      ...opened.data,
      reads_left,
      expires_at: receipt?.expires_at ?? null,
      delete_key: reads_left === 0 ? null : capabilityOf(service.serverKey, 'delete', id),
    },
  };
}

/** @returns null if it can be read any number of times */
function readsLeft(receipt: Receipt | null): number | null {
  if (receipt?.status !== 'stored') return 0;
  return receipt.max_reads === null ? null : receipt.max_reads - receipt.reads;
}

const WRONG_LINK = new Failure('not_found', {
  message:
    'No secret belongs to this link, or it ended long ago. Check that you have the whole link.',
});
const WRONG_KEY = new Failure('not_found', {
  message: 'No receipt belongs to this address, or it is no longer kept.',
});

/**
 * Only holders of the key learn how a secret ended. The commitment recognizes the key even after
 * the end.
 */
async function linkStatus(
  { path: { id }, body }: LinkCall<{ secret: string }>,
  { database, openingKeys }: SecretsService,
) {
  const clientKey = fromBase64url(body.secret);
  if (clientKey?.length !== KEY_BYTES) return WRONG_LINK;
  const link = await findLink(database, id);
  if (!link) return WRONG_LINK;
  const { commitment, key_id, ...data } = link;
  const serverKey = openingKeys.find((key) => key.id === key_id);
  if (!serverKey) return WRONG_LINK;
  const keys = deriveKeys(serverKey, clientKey, id);
  return equalDigests(commitment, keys.commitment) ? { data } : WRONG_LINK;
}

/** Any of the server's keys: the secret may have been stored before a rotation. */
function isKeyTo(
  { openingKeys }: SecretsService,
  { path, body }: KeyCall,
  ...uses: Array<'receipt' | 'delete'>
) {
  const sent = Buffer.from(body.key);
  return openingKeys.some((key) =>
    uses.some((use) => equalDigests(sent, Buffer.from(capabilityOf(key, use, path.id)))),
  );
}

async function linkReceipt(call: KeyCall, service: SecretsService) {
  if (!isKeyTo(service, call, 'receipt')) return WRONG_KEY;
  const data = await findReceipt(service.database, call.path.id, null);
  return data ? { data } : WRONG_KEY;
}

async function removeLink(call: KeyCall, service: SecretsService) {
  if (!isKeyTo(service, call, 'receipt', 'delete')) return WRONG_KEY;
  return deleteAndReport(service, call.path.id, null, call.request);
}
