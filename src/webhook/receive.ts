import { createHash, randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { json } from '../http/body.ts';
import type { Call, Reply } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { jsonObject, validate } from '../http/shape.ts';
import type { WebhookService } from './service.ts';
import { verify } from './signatures.ts';
import { genericShape, type Json, type Received, type Source, SOURCES } from './sources.ts';
import type { NewEvent } from './store/events.ts';
import type { Sender } from './store/tokens.ts';

type Refused = Failure<'invalid_body' | 'invalid_header' | 'unauthorized' | 'conflict' | 'too_many_requests' | 'key_unknown'>;
type Arrival = Call<Sender, unknown, unknown, Buffer>;

/** Accepts an event: 200 only once it is safe. */
export async function receive(call: Arrival, service: WebhookService): Promise<Reply<Received> | Refused> {
  const outcome = await judge(call, service);
  return outcome instanceof Failure ? outcome : { data: outcome };
}

/** The signature is judged over the raw bytes, before anything is done with what is in them. */
function judge({ request, caller, raw }: Arrival, service: WebhookService): Received | Refused | Promise<Received | Refused> {
  const { headers } = request;
  const wait = service.secondsToWait(caller.id);
  if (wait > 0) return new Failure('too_many_requests', { message: 'This token sends more than WEBHOOK_RATE requests a second. Nothing was stored. Send it again after Retry-After.', retryAfterSeconds: wait });
  const source: Source = SOURCES[caller.source];
  const parsed = json(jsonObject()).parse(raw);
  const body = parsed.ok ? parsed.value : {};
  if (source.scheme !== null) {
    if (source.handsOverKey && isKey(body)) return service.keepPending(caller.id, body.verification_token).then((refused) => refused ?? { status: 'pending' });
    const secrets = service.openSecrets(caller.secrets);
    const verdict = verify(source.scheme, headers, raw, secrets, Date.now() / 1000);
    // It may be signed with the one that cannot be opened: then it is not the sender's mistake.
    if (verdict === 'wrong signature' && secrets.length < caller.secrets.length) return service.keyMissing(caller.id);
    if (verdict !== 'valid') return new Failure('unauthorized', { message: caller.secrets.length === 0 ? NO_SECRET : SIGNATURES[verdict] });
  }
  const checked = parsed.ok && caller.source === 'generic' ? validate(genericShape, body, '') : parsed;
  if (!checked.ok) return new Failure('invalid_body', { fields: checked.errors });
  const handshake = source.handshake(headers, body);
  if (handshake) return handshake;
  const deliveryId = deliveryIdOf(source.deliveryId(headers, body), headers);
  if (deliveryId instanceof Failure) return deliveryId;
  const event = source.event(headers, body);
  if (typeof event !== 'string' || event === '' || event.length > 1_024 || event.includes('\0')) {
    return new Failure('invalid_body', { fields: [{ path: '', message: `the kind of event must be named ${source.named}` }] });
  }
  return keep({ id: randomUUID(), tokenId: caller.id, source: caller.source, deliveryId, event, headers: safeHeaders(headers), ip: request.address, body: raw }, pageIdOf(body), request.requestId, service);
}

/** Notion sends its key first, unsigned. It is kept aside for an operator to confirm; a key that is in force stays. */
const isKey = (body: Json): body is { verification_token: string } => typeof body.verification_token === 'string' && /^[\x21-\x7e]{8,255}$/.test(body.verification_token) && Object.keys(body).length === 1;

const NO_SECRET = 'No signing secret is in force for this token. Have the sender hand its own over, and put it in force with: gatehouse token confirm';
const SIGNATURES = {
  'no signature': "The request is not signed as this token's source signs. Check the token's source and the sender's signing secret.",
  'wrong signature': "The signature is not right. Check that the sender's signing secret is the one given with the token.",
  'too old': "The signature's time is more than five minutes from now: a replay, or a clock that is wrong.",
} as const;

async function keep(event: NewEvent, pageId: string | null, requestId: string, service: WebhookService): Promise<Received | Failure<'conflict'>> {
  const outcome = await service.accept(event, pageId, requestId);
  if (outcome !== 'another body') return outcome;
  const digest = createHash('sha256').update(event.body).digest('hex');
  service.log.warn('a delivery id came again with another body', { request_id: requestId, token_id: event.tokenId, delivery_id: event.deliveryId, ip: event.ip, body_sha256: digest });
  return new Failure('conflict', { message: 'This delivery id has been used for another body. Nothing was stored.' });
}

/** What events are kept in order by, where the operator wants that. */
function pageIdOf({ data }: Json): string | null {
  const pageId: unknown = Object(data).page_id;
  return typeof pageId === 'string' ? pageId : null;
}

/** The sender's own name for a delivery; it is what tells a repetition. */
function deliveryIdOf(value: unknown, headers: IncomingHttpHeaders): string | null | Failure<'invalid_header' | 'invalid_body'> {
  if (value === undefined) return null;
  if (typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value)) return value;
  const name = Object.keys(headers).find((header) => headers[header] === value);
  const fault = { path: name ?? '', message: name === undefined ? 'must have an id of 1 to 255 visible ASCII characters' : 'must have 1 to 255 visible ASCII characters' };
  return new Failure(name === undefined ? 'invalid_body' : 'invalid_header', { fields: [fault] });
}

/** Kept with an event, because whoever handles it may need them; none of these is a credential. */
const SAFE = [
  'content-type', 'user-agent', 'x-github-event', 'x-github-delivery', 'x-github-hook-id', 'webhook-id', 'webhook-timestamp',
  'svix-id', 'svix-timestamp', 'x-slack-retry-num', 'x-slack-retry-reason', 'idempotency-key',
] as const;

function safeHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  const safe: Record<string, string> = {};
  for (const name of SAFE) {
    const value = headers[name];
    if (typeof value === 'string') safe[name] = value.slice(0, 1_024);
  }
  return safe;
}
