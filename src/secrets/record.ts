import type { Visitor } from '../http/call.ts';
import type { SecretsService } from './service.ts';

export type Event = 'stored' | 'read' | 'read failed' | 'deleted' | 'expired';

/** One log line and one count for what happens to a secret; its receipt is changed in the statement that does it. */
export function record(
  { log, metrics }: SecretsService,
  event: Event,
  secret: { readonly id: string; readonly keyId: string | null },
  visitor: Visitor | null,
  reason?: string,
): void {
  metrics.count('gatehouse_secret_events_total', { event: event.replace(' ', '_') });
  log.info(`secret ${event}`, { secret_id: secret.id, key_id: secret.keyId, request_id: visitor?.requestId, ip: visitor?.address, reason });
}
