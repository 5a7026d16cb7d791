import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { sealSecret } from '../platform/crypto/service-secret.ts';
import { sha256 } from '../platform/crypto/token.ts';
import type { Database } from '../platform/db/pool.ts';
import { Failure } from '../platform/http/route/errors.ts';
import { nullable, text, validate } from '../platform/http/route/schema.ts';
import { Overloaded } from '../platform/runtime/errors.ts';
import { deliveryPlaces, isRepetition, readDeliveryId } from './delivery-id.ts';
import { jsonBody, parseContent } from './event-body.ts';
import { checkAgain } from './guard.ts';
import { isKeepable } from './header-names.ts';
import { COMMON_QUEUE } from './migrations.ts';
import { createSelector, type WebhookService } from './service.ts';
import { namesIn, type Verdicts } from './signatures.ts';
import {
  genericSchema,
  type JsonObject,
  readEventName,
  sourceOf,
  type Source,
  SOURCES,
} from './sources.ts';
import { findRepeated, insertEvent, type NewEvent, redeliver } from './store/events.ts';
import { insertPending } from './store/signing-secrets.ts';
import type { KnownToken } from './store/tokens.ts';
import {
  checkSignedTime,
  keyUnknown,
  type ReceiveCall,
  verifyWithinLimit,
} from './verification.ts';

/** Accepts an event, or replies to a handshake. An event is committed before the reply. */
export async function receive(call: ReceiveCall, service: WebhookService) {
  const waitSeconds = service.limitRate(call.caller.id);
  const verdicts: Verdicts = new Map();
  let current = call;
  for (;;) {
    const decision =
      waitSeconds > 0
        ? rateExceeded(waitSeconds)
        : await verifyAndDecide(current, service, verdicts);
    const reply = await answerOrStore(current, decision, service);
    if (reply !== null) return reply;
    const caller = await checkAgain(call.request, service);
    if (caller instanceof Failure) return caller;
    current = { ...call, caller };
  }
}

/**
 * @returns null if the token must be looked up first: the insert rejected it, or the token is
 * cached and the reply needs no insert
 */
async function answerOrStore(
  { caller }: ReceiveCall,
  decision: Awaited<ReturnType<typeof verifyAndDecide>>,
  service: WebhookService,
) {
  if (decision.kind === 'event') return storeEvent(decision.event, service);
  if (caller.isCached) return null;
  if (decision.kind === 'reply') return decision.reply;
  return keepPending(caller, decision.secret, service);
}

const replyWith = <R>(reply: R) => ({ kind: 'reply', reply }) as const;

/** Nothing of a signed body is parsed before its signature holds, except for a signing secret. */
async function verifyAndDecide(call: ReceiveCall, service: WebhookService, verdicts: Verdicts) {
  const source = sourceOf(call.caller);
  const secret = source.sendsSecret ? sentSecret(call.body) : null;
  if (secret !== null) return { kind: 'signing secret', secret } as const;
  const { scheme } = source;
  const secretId =
    scheme === null ? null : await verifyWithinLimit(scheme, call, service, verdicts);
  return secretId instanceof Failure ? replyWith(secretId) : decide(call, secretId, service);
}

/**
 * Not async: an async function would keep the parsed body in memory while the event waits for its
 * commit.
 * @param secretId of the signing secret that verified the signature; null if there is none
 * @returns the event to store, or the reply. Changes nothing.
 */
function decide(call: ReceiveCall, secretId: string | null, service: WebhookService) {
  const { caller } = call;
  const { headers } = call.request;
  const source = sourceOf(caller);
  const body = parseContent(source, headers, call.body);
  if (body instanceof Failure) return replyWith(body);
  const isGeneric = caller.source === 'generic';
  const valid = isGeneric ? validate(genericSchema, body, 'invalid_body') : body;
  if (valid instanceof Failure) return replyWith(valid);
  const tooOld = checkSignedTime(source, body);
  if (tooOld) return replyWith(tooOld);
  const handshake = source.handshake?.(headers, body);
  if (handshake) return replyWith({ data: source.isAnsweredEmpty ? undefined : handshake });

  const event = eventOf(call, body, secretId, service);
  return event instanceof Failure ? replyWith(event) : ({ kind: 'event', event } as const);
}

function eventOf(
  { request, caller, body: raw }: ReceiveCall,
  body: JsonObject,
  secretId: string | null,
  service: WebhookService,
) {
  const { headers, address, requestId } = request;
  const source = sourceOf(caller);
  const deliveryId = readDeliveryId(source, headers, body, raw);
  if (deliveryId instanceof Failure) return deliveryId;
  const name = readEventName(source, headers, body);
  if (name instanceof Failure) return name;
  const given: unknown = Object(body.data).page_id;
  const page = typeof given === 'string' ? given : null;
  const pageId = validate(pageIdSchema, page, 'invalid_body', '/data/page_id');
  if (pageId instanceof Failure) return pageId;
  const status = statusOf(name, caller, service);
  const isOrdered = service.delivery.isOrdered && status === 'waiting' && pageId !== null;
  return {
    id: uuidV7(),
    token_id: caller.id,
    token_digest: caller.digest,
    secret_id: secretId,
    source: caller.source,
    delivery_id: deliveryId,
    event: name,
    // With the id of this request, by which the event can be found in the log.
    headers: {
      ...keptHeaders(source, headers, caller.keep_signature),
      'x-request-id': requestId,
    },
    ip: address,
    body: raw,
    revision: caller.revision,
    status,
    // With the sender: another one may have another target. Hashed, because an index cannot hold a
    // text of any length.
    order_key: isOrdered ? sha256(`${caller.id} ${pageId}`).toString('base64url') : null,
    queue: caller.target ? caller.id : COMMON_QUEUE,
  } satisfies NewEvent;
}

/** Rejects lone surrogates, whose pages could not be told apart by their digest. */
const pageIdSchema = nullable(text());

/** Time-ordered (RFC 9562, version 7), so new rows go to the end of an index. Not secret. */
function uuidV7() {
  const time = Date.now().toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}

const rateExceeded = (retryAfterSeconds: number) =>
  replyWith(
    new Failure('too_many_requests', {
      message:
        'This token exceeds WEBHOOK_RATE requests per second. Nothing was stored. Send the request again after Retry-After.',
      retryAfterSeconds,
    }),
  );

const MAX_SECRET_BODY = 1_024;

/**
 * Notion sends its signing secret as the only member of its first, unsigned request.
 * @returns null for any other body
 */
export function sentSecret(raw: Buffer) {
  if (raw.length > MAX_SECRET_BODY) return null;
  const body = jsonBody.parse(raw);
  if (body instanceof Failure || Object.keys(body).length !== 1) return null;
  const { verification_token: secret } = body;
  return typeof secret === 'string' && /^[\x21-\x7e]{8,255}$/.test(secret) ? secret : null;
}

/**
 * Anyone with the token could send a secret. An operator must confirm it, and the active one stays
 * until then.
 */
async function keepPending(caller: KnownToken, secret: string, service: WebhookService) {
  const [signingKey] = service.signingKeys;
  if (!signingKey) return keyUnknown(caller, service);
  await insertPending(service.database, caller.id, sealSecret(signingKey, secret));
  service.log.warn(
    'signing secret received from a sender; confirm it with: gatehouse token confirm',
    { token_id: caller.id },
  );
  return { data: { status: 'pending' as const } };
}

/** None of these is a credential. */
const KEPT_HEADERS = ['content-type', 'user-agent', 'idempotency-key'];

/**
 * The headers that are kept with an event for its recipient.
 * @param isSignatureKept with the token's --keep-signature
 */
function keptHeaders(source: Source, headers: IncomingHttpHeaders, isSignatureKept: boolean) {
  const { event, kept = [], scheme } = source;
  const { header = '', time = '', id } = scheme ? namesIn(scheme, headers) : {};
  const names = [...KEPT_HEADERS, ...event, ...deliveryPlaces(source, headers), ...kept];
  if (isSignatureKept) names.push(header);
  // Its recipient needs the time to verify the signature, and to interpret a signed id.
  if (isSignatureKept || id !== undefined) names.push(time);
  const present = names.filter((name) => isKeepable(name) && typeof headers[name] === 'string');
  return Object.fromEntries(present.map((name) => [name, String(headers[name]).slice(0, 1_024)]));
}

/**
 * Without a target, an event is only stored. With one, it waits for delivery if its name is
 * selected.
 */
function statusOf(
  name: string,
  { target }: KnownToken,
  { commonTarget, delivery }: WebhookService,
) {
  if (!target && !commonTarget) return 'stored';
  const isWanted = createSelector(target?.events ?? delivery.events);
  return isWanted(name) ? 'waiting' : 'skipped';
}

const MAX_UNCOMMITTED_BYTES = 32 * 1024 * 1024;

async function storeEvent(event: NewEvent, service: WebhookService) {
  const bytes = event.body.length;
  if (service.uncommittedBytes + bytes > MAX_UNCOMMITTED_BYTES)
    throw new Overloaded('too many events wait for their commit');
  service.uncommittedBytes += bytes;
  const result = await accept(service.database, event).finally(() => {
    service.uncommittedBytes -= bytes;
  });
  if (result.status === 'rejected') return null;
  if (result.status === 'conflict') {
    service.log.warn('delivery id reused with another body', {
      request_id: event.headers['x-request-id'],
      token_id: event.token_id,
      delivery_id: event.delivery_id,
      ip: event.ip,
      body_sha256: sha256(event.body).toString('hex'),
    });
    return new Failure('conflict', {
      message: 'This delivery id was used with another body. Nothing was stored.',
    });
  }
  service.countReceived([event.source, result.status]);
  if (event.status === 'waiting') service.notifyWorker(event.queue);
  const ids = {
    event_id: result.id,
    delivery_id: event.delivery_id ?? undefined,
    outcome: result.status,
  };
  const source: Source = SOURCES[event.source];
  return { data: source.isAnsweredEmpty ? undefined : result, ids };
}

/**
 * Stores an event once. A repetition of a dead event delivers it again, because the sender repeated
 * it on request.
 * @returns `rejected` if the token or signing secret is not active, or the target has changed
 */
export async function accept(database: Database, event: NewEvent) {
  // Retention may remove the first event between two statements. Then the next round stores the
  // repetition.
  for (;;) {
    const inserted = await insertEvent(database, event);
    if (inserted === 'rejected') return { status: 'rejected' } as const;
    if (inserted === 'new') return { id: event.id, status: 'accepted' } as const;
    const first = await findRepeated(database, event);
    if (!first) continue;
    const { id, other_body: other } = first;
    const isSame = other === null || isRepetition(SOURCES[event.source], other, event.body);
    if (!isSame) return { status: 'conflict' } as const;
    // Without a target, it stays dead: no worker would claim it.
    const isDeliveredAgain = first.is_dead && event.status !== 'stored';
    if (isDeliveredAgain && (await redeliver(database, [id])) === 0) continue;
    return { id, status: 'duplicate' } as const;
  }
}
