import { createHash, randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { openSecret, sealSecret } from '../crypto/sealed.ts';
import { digest } from '../crypto/token.ts';
import type { Database } from '../db/pool.ts';
import { type BodyRule, json } from '../http/body.ts';
import type { Call, RequestInfo } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { isObject, nullable, type Shape, text, validate } from '../http/shape.ts';
import { Overloaded } from '../runtime/errors.ts';
import { checkAgain } from './guard.ts';
import type { WebhookService } from './service.ts';
import { verify } from './signatures.ts';
import {
  genericShape,
  isRepetition,
  type JsonObject,
  readDeliveryId,
  type Source,
  SOURCES,
} from './sources.ts';
import { findRepeated, insertEvent, type NewEvent, redeliver } from './store/events.ts';
import { insertPending, type KnownToken } from './store/tokens.ts';

type ReceiveCall = Call<KnownToken, unknown, unknown, Buffer>;

const NOT_AN_OBJECT = 'must be a JSON object';
/** Unchanged. */
const anyObject: Shape<JsonObject> = {
  schema: {},
  read: (input, path, errors) =>
    isObject(input) ? input : void errors.push({ path, message: NOT_AN_OBJECT }),
};
const jsonBody = json(anyObject, 'required');

/** The raw bytes: their signature is verified before their content is used. The schema is the generic source's. */
export const eventBody: BodyRule<Buffer> = {
  ...jsonBody,
  schema: genericShape.schema,
  parse: (value) => ({ ok: true, value }),
};

/** Accepts an event, or replies to a handshake. An event is committed before the reply. */
export async function receive(call: ReceiveCall, service: WebhookService) {
  const wait = service.limitRate(call.caller.id);
  for (let current = call; ;) {
    const outcome = await verifyAndStore(current, wait, service);
    if (outcome !== null) return outcome;
    const caller = await checkAgain(call.request, service);
    if (caller instanceof Failure) return caller;
    current = { ...call, caller };
  }
}

/**
 * Not async: an async function would keep the parsed body in memory while the event waits for its commit.
 * @returns null if the token must be looked up first: the insert rejected it, or the reply needs no insert
 */
function verifyAndStore(call: ReceiveCall, wait: number, service: WebhookService) {
  const { caller, request } = call;
  const decision = wait > 0 ? rateExceeded(wait) : decide(call, service);
  if ('tokenId' in decision) return store(decision, request.requestId, service);
  if (caller.isKept) return null;
  return 'secret' in decision ? keepPending(caller, decision.secret, service) : decision;
}

/** @returns the event to store, the signing secret to keep, or the reply. Changes nothing. */
function decide({ request, caller, body: raw }: ReceiveCall, service: WebhookService) {
  const { headers, address } = request;
  const source: Source = SOURCES[caller.source];
  const parsed = jsonBody.parse(raw);
  const body = parsed.ok ? parsed.value : {};
  if (source.sendsSecret && isSecret(body)) return { secret: body.verification_token };

  const secretId = source.scheme && verifySignature(source.scheme, request, raw, caller, service);
  if (secretId instanceof Failure) return secretId;

  const shaped =
    parsed.ok && caller.source === 'generic' ? validate(genericShape, body, '') : parsed;
  if (!shaped.ok) return new Failure('invalid_body', { fields: shaped.errors });
  const handshake = source.handshake?.(headers, body);
  if (handshake) return { data: handshake };

  const deliveryId = readDeliveryId(source, headers, body);
  if (deliveryId instanceof Failure) return deliveryId;

  const name = source.event.read(headers, body);
  if (
    typeof name !== 'string' ||
    name === '' ||
    name.length > 1_024 ||
    name.includes('\0') ||
    !name.isWellFormed()
  ) {
    const length = 'in 1 to 1024 characters, without U+0000 and lone surrogates';
    const message = `must name the event ${source.event.at}, ${length}`;
    return new Failure('invalid_body', { fields: [{ path: '', message }] });
  }
  const given: unknown = Object(body.data).page_id;
  const pageId = validate(pageIdShape, typeof given === 'string' ? given : null, '/data/page_id');
  if (!pageId.ok) return new Failure('invalid_body', { fields: pageId.errors });
  return {
    id: risingUuid(),
    tokenId: caller.id,
    tokenDigest: caller.digest,
    secretId,
    source: caller.source,
    deliveryId,
    event: name,
    headers: safeHeaders(headers),
    ip: address,
    body: raw,
    ...initialState(name, pageId.value, service),
  };
}

const pageIdShape = nullable(text());

/** A UUID that rises with time (RFC 9562, version 7), so that new rows are at the end of an index. Not secret. */
function risingUuid(): string {
  const time = Date.now().toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}
const RATE_EXCEEDED =
  'This token exceeds WEBHOOK_RATE requests per second. Nothing was stored. Send the request again after Retry-After.';
const rateExceeded = (retryAfterSeconds: number) =>
  new Failure('too_many_requests', { message: RATE_EXCEEDED, retryAfterSeconds });

/** Notion sends its signing secret as the only member of its first, unsigned request. */
const isSecret = (body: JsonObject): body is { verification_token: string } =>
  typeof body.verification_token === 'string' &&
  /^[\x21-\x7e]{8,255}$/.test(body.verification_token) &&
  Object.keys(body).length === 1;

const NO_SECRET =
  'This token has no active signing secret. Confirm the secret of its sender: gatehouse token confirm';
const SIGNATURE_MESSAGES = {
  'no signature':
    "The request is not signed as the token's source signs. Check the source and the sender's secret.",
  'wrong signature':
    "The signature is wrong. Check that the sender's signing secret is the one given with the token.",
  'too old': "The signature's time differs by more than five minutes: a replay, or a wrong clock.",
} as const;

/** @returns the id of the signing secret that verifies the signature */
function verifySignature(
  scheme: NonNullable<Source['scheme']>,
  { headers }: RequestInfo,
  raw: Buffer,
  caller: KnownToken,
  service: WebhookService,
) {
  const opened = caller.secrets.flatMap((sealed) => {
    const secret = openSecret(service.signingKeys, sealed);
    return secret === null ? [] : [{ id: sealed.id, secret }];
  });
  const verdictOf = (secrets: readonly string[]) =>
    verify(scheme, headers, raw, secrets, Date.now() / 1000);
  let verdict = verdictOf([]);
  for (const { id, secret } of opened) {
    const own = verdictOf([secret]);
    if (own === 'valid') return id;
    if (own !== 'wrong signature') verdict = own;
  }
  // The signature may belong to a secret that cannot be opened. Then the sender made no mistake.
  if (verdict === 'wrong signature' && opened.length < caller.secrets.length)
    return keyUnknown(caller, service);
  const message =
    caller.secrets.length === 0 || verdict === 'valid' ? NO_SECRET : SIGNATURE_MESSAGES[verdict];
  return new Failure('unauthorized', { message, credential: 'signature' });
}

export const WRONG_SECRET =
  'WEBHOOK_SECRET is missing or wrong: signing secrets are sealed under another one';

function keyUnknown({ id, isKept }: KnownToken, { log }: WebhookService): Failure<'key_unknown'> {
  if (!isKept) log.error(WRONG_SECRET, { token_id: id });
  const message =
    "The server cannot open this sender's signing secret. Nothing was stored. Tell the operator.";
  return new Failure('key_unknown', { message });
}

/** Anyone with the token could send a secret. An operator must confirm it, and the active one stays until then. */
async function keepPending(caller: KnownToken, secret: string, service: WebhookService) {
  const {
    database,
    signingKeys: [signingKey],
    log,
  } = service;
  if (!signingKey) return keyUnknown(caller, service);
  await insertPending(database, caller.id, sealSecret(signingKey, secret));
  log.warn('signing secret received from a sender; confirm it with: gatehouse token confirm', {
    token_id: caller.id,
  });
  return { data: { status: 'pending' as const } };
}

/** Kept with the event for its recipient. None of these is a credential. */
const SAFE_HEADERS = [
  'content-type',
  'user-agent',
  'x-github-event',
  'x-github-delivery',
  'x-github-hook-id',
  'webhook-id',
  'webhook-timestamp',
  'svix-id',
  'svix-timestamp',
  'x-slack-retry-num',
  'x-slack-retry-reason',
  'idempotency-key',
] as const;

function safeHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  const present = SAFE_HEADERS.filter((name) => typeof headers[name] === 'string');
  return Object.fromEntries(present.map((name) => [name, String(headers[name]).slice(0, 1_024)]));
}

/** Without a target, events stay stored. With one, those that WEBHOOK_EVENTS selects wait for delivery. */
function initialState(name: string, pageId: string | null, { delivery }: WebhookService) {
  if (!delivery?.isSelected(name))
    return { status: delivery ? 'skipped' : 'stored', orderKey: null } as const;
  // Hashed, because an index cannot hold a text of any length.
  const orderKey =
    delivery.isOrdered && pageId !== null ? digest(pageId).toString('base64url') : null;
  return { status: 'waiting', orderKey } as const;
}

const MAX_UNCOMMITTED_BYTES = 32 * 1024 * 1024;

async function store(event: NewEvent, requestId: string, service: WebhookService) {
  const { tokenId, deliveryId, ip, body } = event;
  const bytes = service.uncommittedBytes + body.length;
  if (bytes > MAX_UNCOMMITTED_BYTES) throw new Overloaded('too many events wait for their commit');
  service.uncommittedBytes = bytes;
  const accepted = await accept(service.database, event).finally(
    () => (service.uncommittedBytes -= body.length),
  );
  if (accepted === null) return null;
  if (accepted === 'conflict') {
    const sha256 = createHash('sha256').update(body).digest('hex');
    const facts = {
      request_id: requestId,
      token_id: tokenId,
      delivery_id: deliveryId,
      ip,
      body_sha256: sha256,
    };
    service.log.warn('delivery id reused with another body', facts);
    return new Failure('conflict', {
      message: 'This delivery id was used with another body. Nothing was stored.',
    });
  }
  service.countReceived([event.source, accepted.status]);
  if (event.status === 'waiting') service.notifyWorker();
  return { data: accepted };
}

/**
 * Stores an event once. A repetition of a dead event delivers it again, because the sender repeated it on request.
 * @returns `conflict` if the delivery id belongs to another body; null if the token or signing secret is not active
 */
export async function accept(database: Database, event: NewEvent) {
  // Retention may remove the first event between two statements. Then the next round stores the repetition.
  for (;;) {
    const isNew = await insertEvent(database, event);
    if (isNew === 'rejected') return null;
    if (isNew) return { id: event.id, status: 'accepted' } as const;
    const first = await findRepeated(database, event);
    if (!first) continue;
    if (first.other_body && !isRepetition(SOURCES[event.source], first.other_body, event.body))
      return 'conflict';
    if (first.is_dead && (await redeliver(database, [first.id])) === 0) continue;
    return { id: first.id, status: 'duplicate' } as const;
  }
}
