import { readThrottle, takeAttempt } from '../db/throttle.ts';
import type { RequestInfo } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { SCHEMA } from './migrations.ts';
import { limitOf } from './passphrase.ts';
import type { SecretsService } from './service.ts';

const MESSAGE = 'Too many secrets were stored from your network without a credential. Try again after Retry-After.';

/** With SHARE_ANYONE: counts a secret without a creator. @returns null if the network may store it */
export async function takeTurn({ database, serverKey }: SecretsService, { network }: RequestInfo) {
  const limit = limitOf(serverKey, 'anyone', network);
  if (await takeAttempt(database, SCHEMA, limit)) return null;
  const { wait } = await readThrottle(database, SCHEMA, [limit]);
  return new Failure('too_many_requests', { message: MESSAGE, retryAfterSeconds: wait });
}
