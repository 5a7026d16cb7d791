import { capabilityOf, commitmentOf } from '../crypto/box.ts';
import { fromBase64url } from '../crypto/text.ts';
import { sameDigest } from '../crypto/token.ts';
import { takeAttempt } from '../db/attempts.ts';
import { readThrottle } from '../db/throttle.ts';
import { json } from '../http/body.ts';
import { anonymous, type Call, type Route, route, routeDefaults } from '../http/call.ts';
import { type ErrorCode, Failure } from '../http/errors.ts';
import { pageRows } from '../http/pages.ts';
import { dateTime, type Infer, nullable, object, oneOf, text, uuid } from '../http/shape.ts';
import type { Site } from '../runtime/context.ts';
import {
  clientKey,
  type DecryptRequest,
  decryptRequestShape,
  OPEN_ERRORS,
  openSecret,
} from './open.ts';
import { limitOf } from './passphrase.ts';
import { SCHEMA } from './schema.ts';
import type { SecretsService } from './service.ts';
import { count, findReceipt, receiptShape } from './store.ts';
import { findLink, linkShape } from './store/links.ts';
import { deleteAndReport } from './stored.ts';

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

const key = text({
  min: 1,
  max: 256,
  description: 'The key of the receipt, or the delete_key of a read',
});
const revealedShape = object({
  password: text(),
  reads_left: nullable(count),
  expires_at: nullable(dateTime()),
  delete_key: nullable(text()),
});
const keyShape = object({ key });

// A page of another site can send any other content type without a preflight, and could use up attempts.
const byLink = {
  ...routeDefaults,
  method: 'POST',
  guard: anonymous,
  path: object({ id: uuid('The id that encrypt returned') }),
} as const;
const LINK_ERRORS = ['not_found', 'too_many_requests', 'unavailable'] as const;

export const shareRoutes = (site: Site): ReadonlyArray<Route<SecretsService>> => [
  ...pageRows<SecretsService>(
    site,
    DIRECTORY,
    PAGES,
    SCRIPTS,
    'Share pages: scripts, style sheets, logo',
  ),
  route({
    ...byLink,
    pattern: '/s/{id}',
    summary: 'Share pages: open a secret with its link, without a bearer token',
    body: json(decryptRequestShape, 'required'),
    reply: revealedShape,
    errors: OPEN_ERRORS,
    handle: reveal,
  }),
  route({
    ...byLink,
    pattern: '/s/{id}/status',
    summary: 'Share pages: how often a link can be read, or how it ended; uses nothing up',
    body: json(object({ secret: clientKey }), 'required'),
    reply: linkShape,
    errors: LINK_ERRORS,
    handle: linkStatus,
  }),
  route({
    ...byLink,
    pattern: '/s/{id}/delete',
    summary: 'Share pages: delete a secret, by its sender or after reading it',
    body: json(keyShape, 'required'),
    reply: object({ id: uuid(), status: oneOf('deleted') }),
    errors: LINK_ERRORS,
    handle: removeLink,
  }),
  route({
    ...byLink,
    pattern: '/r/{id}',
    summary: 'Share pages: read the receipt of a secret with its key, without a bearer token',
    body: json(keyShape, 'required'),
    reply: receiptShape,
    errors: LINK_ERRORS,
    handle: linkReceipt,
  }),
];

type LinkCall<Body> = Call<null, { id: string }, unknown, Body>;
type KeyCall = LinkCall<Infer<typeof keyShape>>;

/** Possible guesses, and failures that tell a client without the key that the secret exists. */
const COUNTED: readonly ErrorCode[] = [
  'not_found',
  'wrong_passphrase',
  'secret_damaged',
  'key_unknown',
];

/** Id and key are the credential. Failures are counted afterwards: this only limits the cost of a flood. */
async function limited<Reply>(
  { request }: LinkCall<unknown>,
  { serverKey, database }: SecretsService,
  work: () => Promise<Reply>,
) {
  const limit = limitOf(serverKey, 'link', request.network);
  const { wait } = await readThrottle(database, SCHEMA.name, [limit]);
  if (wait > 0) return new Failure('too_many_requests', { retryAfterSeconds: wait });
  const reply = await work();
  if (reply instanceof Failure && COUNTED.includes(reply.code))
    await takeAttempt(database, SCHEMA.name, limit);
  return reply;
}

/** The reply also says what is left. If that cannot be read, the text is sent all the same. */
const reveal = (call: LinkCall<DecryptRequest>, service: SecretsService) =>
  limited(call, service, async () => {
    const { id } = call.path;
    const opened = await openSecret(service, call.request, id, call.body);
    if (opened instanceof Failure) return opened;
    const row = await findReceipt(service.database, id, null).catch(() => null);
    const reads_left =
      row?.status !== 'stored' ? 0 : row.max_reads === null ? null : row.max_reads - row.reads;
    const delete_key =
      reads_left === 0 ? null : capabilityOf(service.serverKey, 'delete', id).toString('base64url');
    return {
      data: { ...opened.data, reads_left, expires_at: row?.expires_at ?? null, delete_key },
    };
  });

const WRONG_LINK =
  'No secret belongs to this link, or it ended long ago. Check that you have the whole link.';
const WRONG_KEY = 'No receipt belongs to this address, or it is no longer kept.';

/** Only holders of the key learn how a secret ended. The commitment recognizes the key even after the end. */
const linkStatus = (call: LinkCall<{ secret: string }>, service: SecretsService) =>
  limited(call, service, async () => {
    const { id } = call.path;
    const sent = fromBase64url(call.body.secret);
    const found = sent && (await findLink(service.database, id));
    const { commitment = null, key_id, ...data } = found || {};
    const isRight =
      commitment &&
      sent &&
      service.openingKeys.some(
        (one) => one.id === key_id && sameDigest(commitment, commitmentOf(one, sent, id)),
      );
    return isRight ? { data } : new Failure('not_found', { message: WRONG_LINK });
  });

/** Any of the server's keys: the secret may have been stored before a rotation. */
function isKeyTo(
  service: SecretsService,
  uses: ReadonlyArray<'receipt' | 'delete'>,
  { path, body }: KeyCall,
) {
  const sent = fromBase64url(body.key);
  return (
    sent !== null &&
    service.openingKeys.some((serverKey) =>
      uses.some((use) => sameDigest(sent, capabilityOf(serverKey, use, path.id))),
    )
  );
}

const linkReceipt = (call: KeyCall, service: SecretsService) =>
  limited(call, service, async () => {
    const data =
      isKeyTo(service, ['receipt'], call) &&
      (await findReceipt(service.database, call.path.id, null));
    return data ? { data } : new Failure('not_found', { message: WRONG_KEY });
  });

const removeLink = (call: KeyCall, service: SecretsService) =>
  limited(call, service, async () => {
    if (!isKeyTo(service, ['receipt', 'delete'], call))
      return new Failure('not_found', { message: WRONG_KEY });
    return deleteAndReport(service, call.path.id, null, call.request);
  });
