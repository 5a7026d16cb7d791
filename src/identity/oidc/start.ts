import { removalJob } from '../../platform/runtime/jobs.ts';
import type { IdentityService } from '../service.ts';
import { findClient } from '../store/oidc/clients.ts';
import { removeEndedTokens } from '../store/oidc/grants.ts';
import { removeOldKeys } from '../store/oidc/keys.ts';
import { createKeys } from './keys.ts';
import { noticeJob } from './notices.ts';
import { parseAuthorization } from './request.ts';

/**
 * Adds what the handlers of OpenID Connect need to the service.
 * @returns what happens before the service is ready, and in the background
 */
export function startOidc(service: IdentityService) {
  const { database, metrics } = service;
  const keys = createKeys(service);
  Object.assign(service, {
    keys,
    countOidc: metrics.counter(
      'gatehouse_oidc_events_total',
      'OpenID Connect, by event: code, token, refresh, refused.',
      ['event'],
    ),
    async programAt(address: URL) {
      const id = parseAuthorization(address)?.get('client_id') ?? '';
      return (await findClient(database, id))?.name ?? null;
    },
  });
  return {
    prepare: keys.prepare,
    // Grants are removed with their session.
    jobs: [
      removalJob(metrics, 'identity.oidc_tokens', 300, (max) => removeEndedTokens(database, max)),
      noticeJob(service, keys),
      removalJob(metrics, 'identity.oidc_keys', 3_600, () => removeOldKeys(database)),
    ],
  };
}
