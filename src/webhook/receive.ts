import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Call, Reply } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { WebhookService } from './service.ts';
import type { Acceptance } from './store.ts';

/** Accepts an event: 200 only once it is safe. */
export async function receive(
  { visitor, caller, body, raw }: Call<string, unknown, unknown, { event: string }>,
  service: WebhookService,
): Promise<Reply<Acceptance> | Failure<'invalid_header'>> {
  const deliveryId = deliveryIdOf(visitor.headers);
  if (deliveryId instanceof Failure) return deliveryId;
  const event = { id: randomUUID(), tokenId: caller, deliveryId, event: body.event, body: raw };
  return { data: await service.accept(event, visitor.requestId) };
}

/** The sender's own name for a delivery: Standard Webhooks' `webhook-id`, or `Idempotency-Key`. */
function deliveryIdOf(headers: IncomingHttpHeaders): string | null | Failure<'invalid_header'> {
  const [name, value] = headers['webhook-id'] === undefined ? ['idempotency-key', headers['idempotency-key']] : ['webhook-id', headers['webhook-id']];
  if (value === undefined) return null;
  if (typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value)) return value;
  return new Failure('invalid_header', { fields: [{ path: name, message: 'must have 1 to 255 visible ASCII characters' }] });
}
