import type { RequestInfo } from '../http/call.ts';
import type { SecretsService } from './service.ts';

export type Event = 'stored' | 'read' | 'read failed' | 'deleted' | 'expired';

/** One log line and one count for what happens to a secret; its receipt is changed in the statement that does it. */
export function record(
  { log, countEvent }: SecretsService,
  event: Event,
  secret: { readonly id: string; readonly keyId: string | null },
  request: RequestInfo | null,
  reason?: string,
): void {
  countEvent([event.replace(' ', '_')]);
  log.info(`secret ${event}`, { secret_id: secret.id, key_id: secret.keyId, request_id: request?.requestId, ip: request?.address, reason });
}
