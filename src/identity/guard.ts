import { bearerOf } from '../crypto/token.ts';
import type { Guard } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { Caller } from './policy.ts';
import { isActive } from './rules.ts';
import type { IdentityService } from './service.ts';
import { findSessionByToken } from './store.ts';
import { parseSessionToken } from './token.ts';

/** A session token as bearer. A stranger costs one parse, and a well-formed guess one digest and one indexed query. */
export const bearer: Guard<IdentityService, Caller> = {
  security: ['bearer'],
  errors: ['unauthorized', 'service_failed'],
  async check(visitor, service) {
    const token = parseSessionToken(bearerOf(visitor.headers.authorization) ?? '');
    const session = token && (await findSessionByToken(service.database, token));
    if (!session || !isActive(session)) {
      return new Failure('unauthorized', { message: 'Log in, and send the session token as "Authorization: Bearer session:…".' });
    }
    return { session, user: session.user };
  },
};
