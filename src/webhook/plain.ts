import { digest, sameDigest } from '../crypto/token.ts';
import { Failure } from '../http/errors.ts';
import type { ServiceContext } from '../runtime/context.ts';
import type { WebhookService } from './service.ts';

const ANYBODY = { id: 'anybody', role: 'sender', source: 'generic', secrets: [], last_seen_is_old: false } as const;

/**
 * The plain variant: no database, no memory. Each event becomes one JSON line.
 * @param token what senders must present, or null for an open door
 */
export function createPlain(token: string | null, appName: string, { log, print, isServing }: ServiceContext): WebhookService {
  const expected = token === null ? null : digest(token);
  return {
    log,
    inbox: null,
    secondsToWait: () => 0,
    openSecrets: () => [],
    keyMissing: () => new Failure('key_unknown'),
    keepPending: async () => null,
    async admit(presented) {
      if (expected === null) return ANYBODY;
      return presented !== null && sameDigest(digest(presented), expected) ? ANYBODY : null;
    },
    async accept(event, _pageId, requestId) {
      const facts = { time: new Date().toISOString(), app: appName, message: 'event', id: event.id, request_id: requestId, delivery_id: event.deliveryId };
      // The body's own text, which the row's shape has found to be JSON: parsed and printed again, long numbers would
      // change. A line break in JSON can only stand between two tokens.
      const body = event.body.toString('utf8').replace(/[\r\n]+/g, ' ');
      await print(`${JSON.stringify(facts).slice(0, -1)},"body":${body}}\n`);
      return { id: event.id, status: 'accepted' };
    },
    ready: async () => isServing(),
  };
}
