import type { RequestInfo } from '../http/call.ts';
import { trustedUser } from '../http/user.ts';
import type { Caller } from './caller.ts';
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
