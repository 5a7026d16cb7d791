import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { sealSecret } from '../platform/crypto/service-secret.ts';
import { sha256, sha256Hex } from '../platform/crypto/token.ts';
import type { Database } from '../platform/db/pool.ts';
import { Failure } from '../platform/http/route/errors.ts';
import { Overloaded } from '../platform/runtime/errors.ts';
import { isForm, sentSecret } from './body.ts';
import { echoOf } from './challenges.ts';
import { deliveryPlaces, isRepetition, readContent } from './content.ts';
import { isSelected } from './event-names.ts';
import { lookUpSender } from './guard.ts';
import { isKeepable, isPointer } from './places.ts';
import { COMMON_QUEUE } from './migrations.ts';
import type { NewEvent } from './model.ts';
import type { Sender, WebhookService } from './service.ts';
import { isInWindow, namesIn, type Verdicts } from './signatures.ts';
import { PONG, type ReceiveReply } from './reply.ts';
import { type Source, SOURCES } from './sources.ts';
import { findRepeated, insertEvent, redeliver } from './store/events.ts';
import { insertPending } from './store/signing-secrets.ts';
import { HANDSHAKE } from './store/unstored.ts';
import { type ReceiveCall, TOO_OLD, UNKNOWN_KEY, verifySignature } from './verification.ts';

/**
 * Accepts an event, or replies to a handshake. An event is committed before the reply. The caller
 * may be cached: the insert checks the token. Any other reply is for a token looked up for it.
 */
export async function receive(call: ReceiveCall, service: WebhookService) {
  const waitSeconds = service.limitRate(call.caller.id);
  const verdicts: Verdicts = new Map();
  let current = call;
  for (let isLookedUp = false; ; isLookedUp = true) {
    const decision =
      waitSeconds > 0 ? rateExceeded(waitSeconds) : decide(current, service, verdicts);
    if (decision.kind === 'event') {
      const reply = await storeEvent(decision.event, current, service);
      if (reply !== 'rejected') return reply;
    } else if (isLookedUp) {
      return answer(decision, current, service);
    }
    const caller = await lookUpSender(call.request, service);
    if (caller instanceof Failure) return caller;
    current = { ...call, caller };
  }
}

type Decision = ReturnType<typeof decide>;

/** Changes what a request without an event changes, and replies to it. */
function answer(
  decision: Exclude<Decision, { kind: 'event' }>,
  call: ReceiveCall,
  service: WebhookService,
) {
  const { caller, request } = call;
  if (decision.kind === 'invalid') return decision.failure;
  if (decision.kind === 'handshake') {
    service.unstored.add(caller, HANDSHAKE, decision.name, request.address);
    return replyTo(call, decision.reply);
  }
  if (decision.kind === 'signing secret') return keepPending(call, decision.secret, service);
  if (decision.kind === 'key unknown') return keyUnknown(caller, service);
  // Counts as a guess of the network.
  return service.checkCredential<never>(request.network, {
    kind: 'signature',
    key: `signature by ${caller.id}`,
    message: decision.message,
    find: async () => null,
  });
}

const invalid = <F extends Failure>(failure: F) => ({ kind: 'invalid', failure }) as const;

/**
 * Decides without changing anything. Nothing of a signed body is parsed before its signature holds,
 * except for a signing secret. Not async: an async function would keep the parsed body in memory
 * while the event waits for its commit.
 */
function decide(call: ReceiveCall, service: WebhookService, verdicts: Verdicts) {
  const { caller, request, body } = call;
  const { headers } = request;
  const { format } = caller;
  const secret = sentSecret(format, headers, body);
  if (secret !== null) return { kind: 'signing secret', secret } as const;
  const signed = verifySignature(call, service, verdicts);
  if (signed.kind !== 'valid') return signed;
  const echoed = echoOf(request.query, format.echoed);
  if (echoed !== null) return { kind: 'handshake', name: 'challenge', reply: echoed } as const;
  const content = readContent(format, headers, body, signed.secret);
  if (content instanceof Failure) return invalid(content);
  const { signedAt, found } = content;
  const isOld = signedAt !== undefined && !isInWindow(signedAt, Date.now() / 1_000, format.maxAge);
  if (isOld) return { kind: 'refused', message: TOO_OLD } as const;
  if (found instanceof Failure) return invalid(found);
  if (found.kind === 'handshake') return found;
  const { name, deliveryId, bodyDigest, page } = found;

  const status = statusOf(name, caller, service);
  const hasOrder = format.order !== undefined || service.delivery.isOrdered;
  const isOrdered = hasOrder && status === 'waiting' && page !== null;
  const event: NewEvent = {
    id: uuidV7(),
    token_id: caller.id,
    token_digest: caller.digest,
    secret_id: signed.secretId,
    source: caller.source,
    delivery_id: deliveryId,
    body_digest: bodyDigest,
    event: name,
    // With the id of this request, by which the event can be found in the log.
    headers: Object.assign(keptHeaders(format, headers, caller.keep_signature), {
      'x-request-id': request.requestId,
    }),
    ip: request.address,
    body,
    revision: caller.revision,
    status,
    // With the sender: another one may have another target. Hashed, because an index cannot hold a
    // text of any length.
    order_key: isOrdered ? sha256(`${caller.id} ${page}`).toString('base64url') : null,
    queue: caller.target ? caller.id : COMMON_QUEUE,
  };
  return { kind: 'event', event } as const;
}

/** Time-ordered (RFC 9562, version 7), so new rows go to the end of an index. Not secret. */
function uuidV7() {
  const time = Date.now().toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}

const rateExceeded = (retryAfterSeconds: number) =>
  invalid(
    new Failure('too_many_requests', {
      message:
        'This token exceeds WEBHOOK_RATE requests per second. Nothing was stored. Send the request again after Retry-After.',
      retryAfterSeconds,
    }),
  );

/**
 * Anyone with the token could send a secret. An operator must confirm it, and the active one stays
 * until then.
 */
async function keepPending(
  { caller, request: { address } }: ReceiveCall,
  secret: string,
  service: WebhookService,
) {
  const [signingKey] = service.signingKeys;
  if (!signingKey) return keyUnknown(caller, service);
  await insertPending(service.database, caller.id, sealSecret(signingKey, secret));
  service.unstored.add(caller, HANDSHAKE, 'signing secret', address);
  service.log.warn(
    'signing secret received from a sender; confirm it with: gatehouse token confirm',
    { token_id: caller.id },
  );
  const { sendsSecret: place = '' } = caller.format;
  const headers = isPointer(place) ? {} : { [place]: secret };
  return { data: { status: 'pending' as const }, headers };
}

function keyUnknown({ id }: Sender, { log }: WebhookService) {
  log.error(UNKNOWN_KEY, { token_id: id });
  return new Failure('key_unknown', {
    message:
      "The server cannot open this sender's signing secret. Nothing was stored. Tell the operator.",
  });
}

/** None of these is a credential. */
const KEPT_HEADERS = ['content-type', 'user-agent', 'idempotency-key'];

/**
 * The headers that are kept with an event for its recipient.
 * @param isSignatureKept with the token's --keep-signature
 */
function keptHeaders(source: Source, headers: IncomingHttpHeaders, isSignatureKept: boolean) {
  const { event, kept = [], keptPrefixes = [], scheme } = source;
  const { header = '', time = '', id } = scheme ? namesIn(scheme, headers) : {};
  const names = [...KEPT_HEADERS, ...event, ...deliveryPlaces(source, headers), ...kept];
  for (const prefix of keptPrefixes)
    names.push(...Object.keys(headers).filter((name) => name.startsWith(prefix)));
  if (isSignatureKept) names.push(header);
  // Its recipient needs the time to verify the signature, and to interpret a signed id.
  if (isSignatureKept || id !== undefined) names.push(time);
  const present = names.filter((name) => typeof headers[name] === 'string' && isKeepable(name));
  return Object.fromEntries(present.map((name) => [name, String(headers[name]).slice(0, 1_024)]));
}

/**
 * Without a target, an event is only stored. With one, it waits for delivery if its name is
 * selected.
 */
function statusOf(name: string, { target }: Sender, { commonTarget, delivery }: WebhookService) {
  if (!target && !commonTarget) return 'stored';
  return isSelected(target?.events ?? delivery.events, name) ? 'waiting' : 'skipped';
}

const MAX_UNCOMMITTED_BYTES = 32 * 1024 * 1024;

async function storeEvent(event: NewEvent, call: ReceiveCall, service: WebhookService) {
  const bytes = event.body.length;
  if (service.uncommittedBytes + bytes > MAX_UNCOMMITTED_BYTES)
    throw new Overloaded('too many events wait for their commit');
  service.uncommittedBytes += bytes;
  const result = await accept(service.database, event).finally(() => {
    service.uncommittedBytes -= bytes;
  });
  if (result.status === 'rejected') return result.status;
  const { id } = result;
  const { token_id, delivery_id, headers, ip } = event;
  if (result.status === 'conflict' || result.status === 'altered') {
    service.log.warn('delivery id reused with another body', {
      request_id: headers['x-request-id'],
      token_id,
      delivery_id,
      event_id: id,
      ip,
      body_sha256: sha256Hex(event.body),
    });
  }
  if (result.status === 'conflict') {
    return new Failure('conflict', {
      message: 'This delivery id was used with another body. Nothing was stored.',
    });
  }
  const status = result.status === 'altered' ? 'duplicate' : result.status;
  service.countReceived([event.source, status]);
  if (event.status === 'waiting') service.notifyWorker(event.queue);
  const ids = { event_id: id, delivery_id: delivery_id ?? undefined, outcome: status };
  return Object.assign(replyTo(call, { id, status }), { ids });
}

/** In the form that the sender expects. */
function replyTo({ caller, request, body }: ReceiveCall, reply: ReceiveReply | string) {
  const { emptyReply } = caller.format;
  if (emptyReply === 'always') return { data: undefined };
  const isEmpty = emptyReply === 'to forms' && isForm(request.headers, body);
  const text = isEmpty ? '' : reply;
  if (typeof text !== 'string') return { data: text };
  return { text, contentType: 'text/plain; charset=utf-8' };
}

/** Some senders send GET or HEAD before they use an address. */
export async function checkAddress(
  { request }: Pick<ReceiveCall, 'request'>,
  service: WebhookService,
) {
  const caller = await lookUpSender(request, service);
  if (caller instanceof Failure) return caller;
  service.unstored.add(caller, HANDSHAKE, `${request.method} request`, request.address);
  const { echoed, handshake } = caller.format;
  const answer = echoOf(request.query, echoed) ?? handshake?.(request.headers, {}, null);
  const call = { request, caller, path: null, query: null, body: Buffer.alloc(0) };
  return replyTo(call, answer ?? PONG);
}

/**
 * Stores an event once. A repetition of a dead event delivers it again, because the sender repeated
 * it on request.
 * @returns `rejected` if the token or signing secret is not active, or the target has changed;
 * otherwise the id of the stored event. With another body, a repetition is `altered` if it is
 * signed, because its sender says that it is the same event, and otherwise a `conflict`.
 */
export async function accept(database: Database, event: NewEvent) {
  // Retention may remove the first event between two statements. Then the next round stores the
  // repetition.
  for (;;) {
    const inserted = await insertEvent(database, event);
    if (inserted === 'rejected') return { status: inserted } as const;
    if (inserted === 'new') return { id: event.id, status: 'accepted' } as const;
    const first = await findRepeated(database, event);
    if (!first) continue;
    const { id, body, is_dead } = first;
    const isSame = isRepetition(SOURCES[event.source], body, event.body);
    if (!isSame && event.secret_id === null) return { id, status: 'conflict' } as const;
    // Without a target, it stays dead: no worker would claim it.
    const isDeliveredAgain = is_dead && event.status !== 'stored';
    if (isDeliveredAgain && (await redeliver(database, [id], true, 'dead')) === 0) continue;
    return { id, status: isSame ? 'duplicate' : 'altered' } as const;
  }
}
