import { digest, sameDigest } from '../crypto/token.ts';
import type { Surroundings } from '../runtime/surroundings.ts';
import type { WebhookService } from './service.ts';

const ANYBODY = 'anybody';

/**
 * The plain variant: no database, no memory. Each event becomes one JSON line.
 * @param token what senders must present, or null for an open door
 */
export function createPlain(token: string | null, appName: string, { print, isServing }: Surroundings): WebhookService {
  const expected = token === null ? null : digest(token);
  return {
    async admit(presented) {
      if (expected === null) return ANYBODY;
      return presented !== null && sameDigest(digest(presented), expected) ? ANYBODY : null;
    },
    async accept(event, requestId) {
      // The body has been parsed before, as the row's shape was checked; it is JSON.
      const body: unknown = JSON.parse(event.body.toString('utf8'));
      const facts = { time: new Date().toISOString(), app: appName, message: 'event', id: event.id, request_id: requestId };
      await print(`${JSON.stringify({ ...facts, delivery_id: event.deliveryId, body })}\n`);
      return { id: event.id, status: 'accepted' };
    },
    ready: async () => isServing(),
  };
}
