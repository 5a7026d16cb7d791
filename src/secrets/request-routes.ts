import { ECDH, randomUUID } from 'node:crypto';
import { KEY_BYTES } from '../crypto/envelope.ts';
import { fromBase64url } from '../crypto/text.ts';
import { equalDigests, sha256 } from '../crypto/token.ts';
import { Failure } from '../http/errors.ts';
import { json } from '../http/json-body.ts';
import { type Call, type Route, route, routeDefaults } from '../http/route.ts';
import { dateTime, type Infer, object, text, uuid, withoutNul } from '../http/schema.ts';
import type { Site } from '../runtime/context.ts';
import { allow, type Caller } from './guard.ts';
import { lifetimeMembers, limitVisitor, passwordSchema, sealRow } from './manage-secrets.ts';
import { capabilityOf } from './sealing.ts';
import { countAttempt, recordEvent, type SecretsService } from './service.ts';
import type { Limits } from './settings.ts';
import { byLink, keyBody, limited, type LinkCall, shareRoutes } from './share-routes.ts';
import {
  answerRequest,
  findRequest,
  insertRequest,
  kindSchema,
  requestSchema,
  type SecretRequest,
} from './store/requests.ts';
import { timeIn } from './store/secrets.ts';

const base64url = (what: string, isValid: (bytes: Buffer) => boolean) =>
  text({
    description: `${what}, in Base64url`,
    check(value) {
      const bytes = fromBase64url(value);
      return bytes && isValid(bytes) ? null : `must be ${what}, in Base64url`;
    },
  });
const bytes32 = base64url('32 bytes', ({ length }) => length === KEY_BYTES);
const publicKey = base64url('a point of P-256, uncompressed: 65 bytes', isPoint);

/** An invalid point could disclose a part of a private key, so none is passed on. */
function isPoint(bytes: Buffer) {
  try {
    return bytes[0] === 4 && ECDH.convertKey(bytes, 'prime256v1').length > 0;
  } catch {
    return false;
  }
}

const newRequestSchema = (limits: Limits) =>
  object(
    {
      title: text({ min: 1, max: 200, check: withoutNul }),
      kind: kindSchema,
      public_key: publicKey,
      digest: bytes32,
      ...lifetimeMembers(limits),
    },
    'rejected',
  );
const answerSchema = (limits: Limits) =>
  object({
    key: bytes32,
    public_key: publicKey,
    secret: bytes32,
    password: passwordSchema(limits),
  });
type NewRequestCall = Call<Caller, unknown, unknown, Infer<ReturnType<typeof newRequestSchema>>>;
type AnswerCall = LinkCall<Infer<ReturnType<typeof answerSchema>>>;

/** Everything that SHARE_PAGES adds. */
export const pageRoutes = (limits: Limits, site: Site): ReadonlyArray<Route<SecretsService>> => [
  ...shareRoutes(site),
  route({
    ...routeDefaults,
    method: 'POST',
    pattern: '/api/store/request',
    summary: 'Ask someone for a secret; return the id of the request and the key of its receipt',
    guard: allow('anyone'),
    body: json(newRequestSchema(limits)),
    success: 201,
    reply: object({ id: uuid(), expires_at: dateTime(), receipt: text() }),
    errors: ['too_many_requests', 'unavailable'],
    handle: ask,
  }),
  route({
    ...byLink,
    pattern: '/request/{id}',
    summary: 'Share pages: the state of a request, with a key of either link; changes nothing',
    body: keyBody,
    reply: requestSchema,
    handle: limited(findByKey, describe),
  }),
  route({
    ...byLink,
    pattern: '/answer/{id}',
    summary: 'Share pages: answer a request, without a bearer token',
    body: json(answerSchema(limits), 'required'),
    success: 201,
    reply: object({ id: uuid() }),
    maxBodyBytes: (_caller, { maxBodyBytes }: SecretsService) => maxBodyBytes,
    errors: [...byLink.errors, 'conflict'],
    handle: limited(findByKey, answer),
  }),
];

const NO_REQUEST = new Failure('not_found', {
  message:
    'No request belongs to this link, or it ended long ago. Check that you have the whole link.',
});
const NOT_OPEN = new Failure('conflict', {
  message: 'This request takes no answer any more: it has one, was withdrawn or has expired.',
});

/** The answer can be read once, unless the request allows more. */
async function ask({ body, caller, request }: NewRequestCall, service: SecretsService) {
  const refused = await limitVisitor(caller, request, service);
  if (refused) return refused;
  const { database, limits, serverKey } = service;
  const { expires_in, max_reads = 1, ...asked } = body;
  const seconds = expires_in ?? limits.expires_in.default ?? limits.expires_in.max;
  const expires_at = await timeIn(database, seconds);
  const id = randomUUID();
  const receipt = capabilityOf(serverKey, 'receipt', id);
  await insertRequest(database, {
    id,
    key_digest: sha256(receipt),
    max_reads,
    seconds,
    expires_at,
    creator: caller.creator,
    ...asked,
  });
  recordEvent(service, 'requested', { id, key_id: null }, request);
  return { data: { id, expires_at, receipt } };
}

/** By the digest in the link to send, or by the receipt's key in the link to keep. */
async function findByKey(
  { path, body: { key } }: LinkCall<{ key: string }>,
  { database }: SecretsService,
) {
  const found = await findRequest(database, path.id);
  if (!found) return null;
  const isSent = equalDigests(Buffer.from(key), Buffer.from(found.digest));
  return isSent || equalDigests(sha256(key), found.key_digest) ? found : null;
}

async function describe(_call: unknown, { limits }: SecretsService, found: SecretRequest | null) {
  if (!found) return NO_REQUEST;
  const { creator, digest, key_digest, max_reads, seconds, ...shown } = found;
  return { data: { ...shown, max_bytes: limits.password.max_bytes } };
}

/**
 * Stores the answer as a secret with the id of the request, sealed under a key that only the two
 * parties can derive.
 */
async function answer(
  { path: { id }, body, request }: AnswerCall,
  service: SecretsService,
  found: SecretRequest | null,
) {
  if (!found) return NO_REQUEST;
  if (found.status !== 'open') return NOT_OPEN;
  const refused = await countAttempt(service, 'answer', id, request.network);
  if (refused) return refused;
  const { database, serverKey } = service;
  const { max_reads, creator } = found;
  const terms = {
    id,
    expires_at: await timeIn(database, found.seconds),
    max_reads,
    creator,
  };
  const clientKey = Buffer.from(body.secret, 'base64url');
  const row = sealRow(serverKey, clientKey, terms, body.password, null);
  if (!(await answerRequest(database, row, body.public_key))) return NOT_OPEN;
  recordEvent(service, 'stored', row, request);
  return { data: { id } };
}
