import { randomUUID } from 'node:crypto';
import type { Job } from '../../platform/runtime/jobs.ts';
import { describeError } from '../../platform/runtime/errors.ts';
import type { IdentityService } from '../service.ts';
import { markTold, type Notice, takeNotices } from '../store/oidc/grants.ts';
import { type Keys, signToken } from './keys.ts';

/**
 * Tells programs that a session has ended (OpenID Connect Back-Channel Logout), so that they end
 * their own. The address was registered by an administrator.
 */

const TIMEOUT_MS = 5_000;
/** How long a program may take the token for new (2.4: at most two minutes). */
const TOKEN_SECONDS = 120;
const EVENT = 'http://schemas.openid.net/event/backchannel-logout';

export const noticeJob = (service: IdentityService, keys: Keys): Job => ({
  name: 'tell programs that a session has ended',
  everySeconds: 5,
  async batch() {
    const notices = await takeNotices(service);
    if (notices.length === 0) return false;
    await Promise.all(notices.map((notice) => tell(notice, service, keys)));
    return true;
  },
});

async function tell(notice: Notice, { database, portal, log }: IdentityService, keys: Keys) {
  const { id, client_id, user_id, address, now } = notice;
  try {
    const key = await keys.signing();
    if (!key) return;
    const claims = {
      iss: portal?.origin,
      aud: client_id,
      sub: user_id,
      sid: id,
      iat: now,
      exp: now + TOKEN_SECONDS,
      jti: randomUUID(),
      events: { [EVENT]: {} },
    };
    const { ok, status } = await fetch(address, {
      method: 'POST',
      body: new URLSearchParams({ logout_token: signToken(key, claims, 'logout+jwt') }),
      redirect: 'error',
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    if (ok) await markTold(database, id);
    else log.limited('a program did not accept that a session has ended', { client_id, status });
  } catch (error) {
    log.limited('a program could not be told that a session has ended', {
      client_id,
      ...describeError(error),
    });
  }
}
