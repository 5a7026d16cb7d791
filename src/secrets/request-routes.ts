import { ECDH, randomUUID } from 'node:crypto';
import { sha256 } from '../platform/crypto/token.ts';
import { json } from '../platform/http/route/json-body.ts';
import {
  type Call,
  Failure,
  type Guard,
  type RequestInfo,
  type Route,
  route,
  routeDefaults,
} from '../platform/http/route/route.ts';
import {
  dateTime,
  type Infer,
  list,
  object,
  oneLine,
  text,
  uuid,
  validate,
} from '../platform/http/route/schema.ts';
import type { Site } from '../platform/runtime/context.ts';
import { capabilityOf, sealText } from './envelope.ts';
import { allow, type Caller } from './guard.ts';
import { idMember, lifetimeMembers, limitVisitor, passwordSchema } from './manage-secrets.ts';
import { kindSchema, ownLinkSchema, requestSchema } from './replies.ts';
import { judgeRequest, requestTagOf } from './request-tag.ts';
import { countAttempt, recordEvent, type SecretsService, serverFailure } from './service.ts';
import type { Limits } from './settings.ts';
import { byLink, keyBody, limitWrongKeys, type LinkCall, shareRoutes } from './share-routes.ts';
import { answerRequest, findRequest, insertRequest, type SecretRequest } from './store/requests.ts';
import { listOwn, timeIn } from './store/secrets.ts';

/** @param form ends with a character whose two spare bits are zero: each value has one encoding */
const base64url = (what: string, form: RegExp, check?: (text: string) => string | null) =>
  text({
    description: `${what}, in Base64url`,
    pattern: { form, problem: `must be ${what}, in Base64url` },
    ...(check && { check }),
  });
const bytes32 = base64url('32 bytes', /^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$/);
const POINT = 'a point of P-256, uncompressed: 65 bytes';
const publicKey = base64url(POINT, /^B[A-P][A-Za-z0-9_-]{84}[AEIMQUYcgkosw048]$/, pointError);

/** An invalid point could disclose a part of a private key, so none is passed on. */
function pointError(value: string) {
  try {
    ECDH.convertKey(value, 'prime256v1', 'base64url');
    return null;
  } catch {
    return `must be ${POINT}, in Base64url`;
  }
}

/** A title tells the person who answers what is asked for. */
const blankError = (title: string) =>
  /[^\s\p{C}]/u.test(title) ? null : 'must have a visible character';

const newRequestSchema = (limits: Limits) =>
  object(
    {
      title: text({ min: 1, max: 200, pattern: oneLine, check: blankError }),
      kind: kindSchema,
      public_key: publicKey,
      digest: bytes32,
      ...lifetimeMembers(limits),
    },
    'rejected',
  );
const answerSchema = (limits: Limits) =>
  object({
    public_key: publicKey,
    secret: bytes32,
    password: passwordSchema(limits),
  });
type NewRequestCall = Call<Caller, unknown, unknown, Infer<ReturnType<typeof newRequestSchema>>>;
type AnswerCall = Call<SecretRequest, unknown, unknown, Infer<ReturnType<typeof answerSchema>>>;

/**
 * A request that takes an answer, by the key of its link. The body may be large, so the key is in
 * the head. Not in `Authorization`, which a proxy in front of the service may need, and where a
 * wrong key would count as a wrong token.
 */
const openRequest: Guard<SecretsService, SecretRequest> = {
  security: ['link_key'],
  errors: ['invalid_path', 'invalid_header', 'conflict', ...byLink.errors],
  async check(request, service) {
    const { headers, parameters, network } = request;
    const path = validate(object(idMember), parameters, 'invalid_path');
    if (path instanceof Failure) return path;
    const key = validate(bytes32, headers['x-link-key'] ?? '', 'invalid_header', 'X-Link-Key');
    if (key instanceof Failure) return key;
    const found = await findByKey(service, path.id, key, request);
    if (found instanceof Failure) return found;
    if (!found) return (await countAttempt(service, 'link', network)) ?? NO_REQUEST;
    return found.status === 'open' ? found : NOT_OPEN;
  },
};

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
    limit: limitVisitor,
    errors: ['too_many_requests', 'unavailable'],
    handle: ask,
  }),
  route({
    ...routeDefaults,
    method: 'GET',
    pattern: '/api/store/links',
    summary: 'The newest 100 links of the signed-in user, none of which can be opened with this',
    guard: allow('sender'),
    reply: list(ownLinkSchema),
    errors: ['forbidden', 'unavailable'],
    async handle({ caller: { creator } }, { database }) {
      return creator?.startsWith('id:') ? { data: await listOwn(database, creator, 100) } : NO_USER;
    },
  }),
  route({
    ...byLink,
    pattern: '/request/{id}',
    summary: 'Share pages: the state of a request, with a key of either link; changes nothing',
    body: keyBody,
    reply: requestSchema,
    handle: limitWrongKeys(findByBody, describe),
  }),
  route({
    ...byLink,
    pattern: '/answer/{id}',
    summary: 'Share pages: answer a request, with the key of its link in X-Link-Key',
    guard: openRequest,
    body: json(answerSchema(limits), 'required'),
    success: 201,
    reply: object({ id: uuid() }),
    limit: ({ id }, { network }, service) => countAttempt(service, 'answer', id, network),
    maxBodyBytes: (_caller, { maxBodyBytes }) => maxBodyBytes,
    errors: [...byLink.errors, 'conflict'],
    handle: answer,
  }),
];

const NO_USER = new Failure('forbidden', {
  message: 'Only users who have signed in, with an id, have a list of their links.',
});
const NO_REQUEST = new Failure('not_found', {
  message:
    'No request belongs to this link, or it ended long ago. Check that you have the whole link.',
});
const NOT_OPEN = new Failure('conflict', {
  message: 'This request takes no answer any more: it has one, was withdrawn or has expired.',
});

/** The answer can be read once, unless the request allows more. */
async function ask({ body, caller, request }: NewRequestCall, service: SecretsService) {
  const { database, limits, serverKey } = service;
  const { expires_in, max_reads = 1, ...asked } = body;
  const seconds = expires_in ?? limits.expires_in.default ?? limits.expires_in.max;
  const expires_at = await timeIn(database, seconds);
  const id = randomUUID();
  const receipt = capabilityOf(serverKey, 'receipt', id);
  const terms = {
    id,
    creator: caller.creator,
    asker: caller.user ?? null,
    key_digest: sha256(receipt),
    max_reads,
    seconds,
    answer_key: null,
    expires_at,
    ...asked,
  };
  const tag = requestTagOf(serverKey, terms);
  await insertRequest(database, { ...terms, key_id: serverKey.id, tag });
  recordEvent(service, 'requested', { id, key_id: null }, request);
  return { data: { id, expires_at, receipt } };
}

/** @returns null for an unknown request or a wrong key */
async function findByKey(service: SecretsService, id: string, key: string, { route }: RequestInfo) {
  const found = await findRequest(service.database, id);
  if (!found) return null;
  switch (judgeRequest(found, service.openingKeys, key)) {
    case 'right':
      return found;
    case 'wrong key':
      return null;
    case 'ended':
      return NO_REQUEST;
    case 'altered':
      return serverFailure(service, 'secret_damaged', found, route);
    case 'key unknown':
      return serverFailure(service, 'key_unknown', found, route);
  }
}

const findByBody = ({ path, body, request }: LinkCall<{ key: string }>, service: SecretsService) =>
  findByKey(service, path.id, body.key, request);

async function describe(_call: unknown, { limits }: SecretsService, found: SecretRequest | null) {
  if (!found) return NO_REQUEST;
  const { status, kind, title, asker, public_key, answer_key, expires_at } = found;
  const max_bytes = limits.password.max_bytes;
  return { data: { status, kind, title, asker, public_key, answer_key, max_bytes, expires_at } };
}

/**
 * Stores the answer as a secret with the id of the request, sealed under a key that only the two
 * parties can derive.
 */
async function answer({ caller, body, request }: AnswerCall, service: SecretsService) {
  const { database, serverKey, openingKeys } = service;
  const { id, seconds, max_reads, creator } = caller;
  const expires_at = await timeIn(database, seconds);
  const terms = {
    id,
    expires_at,
    max_reads,
    creator,
  };
  const clientKey = Buffer.from(body.secret, 'base64url');
  const row = sealText(serverKey, clientKey, terms, Buffer.from(body.password), null);
  const answered = {
    ...caller,
    answer_key: body.public_key,
    expires_at,
  };
  // Under the same key as before, from which the key of the receipt is derived.
  const tagKey = openingKeys.find((key) => key.id === caller.key_id) ?? serverKey;
  const tag = requestTagOf(tagKey, answered);
  if (!(await answerRequest(database, row, { ...answered, tag }))) return NOT_OPEN;
  recordEvent(service, 'stored', row, request);
  return { data: { id } };
}
