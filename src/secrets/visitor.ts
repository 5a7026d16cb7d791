import { takeAttempt } from '../db/attempts.ts';
import { readThrottle } from '../db/throttle.ts';
import type { RequestInfo } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { trustedUser } from '../http/user.ts';
import type { Caller } from './caller.ts';
import { limitOf } from './passphrase.ts';
import { SCHEMA } from './schema.ts';
import type { SecretsService } from './service.ts';
import type { SecretsSettings } from './settings.ts';

/** Loaded with TRUSTED_USER_HEADER or SHARE_ANYONE. @returns who sends a request without a token */
export function createVisitor({ userHeader, anyone }: NonNullable<SecretsSettings['visitors']>) {
  const userOf = userHeader === null ? () => null : trustedUser(userHeader);
  return (request: RequestInfo): Caller | null => {
    const user = userOf(request);
    if (user !== null) return { role: 'sender', creator: `user:${user}` };
    return anyone ? { role: 'anyone', creator: 'anyone' } : null;
  };
}

const MESSAGE =
  'Too many secrets were stored from your network without a credential. Try again after Retry-After.';

/** With SHARE_ANYONE: counts a secret without a creator. @returns null if the network may store it */
export async function takeTurn({ database, serverKey }: SecretsService, { network }: RequestInfo) {
  const limit = limitOf(serverKey, 'anyone', network);
  if (await takeAttempt(database, SCHEMA.name, limit)) return null;
  const { wait } = await readThrottle(database, SCHEMA.name, [limit]);
  return new Failure('too_many_requests', { message: MESSAGE, retryAfterSeconds: wait });
}
