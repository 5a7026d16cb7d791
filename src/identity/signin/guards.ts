import { digest } from '../../crypto/token.ts';
import type { Call, Guard, RequestInfo } from '../../http/call.ts';
import { Failure } from '../../http/errors.ts';
import { activeSession, bearerOrCookie, cookieOf, createGuard, sessionCookie } from '../guard.ts';
import type { User } from '../model.ts';
import type { Caller } from '../policy.ts';
import type { PortalService } from '../service.ts';
import { parseSessionToken } from '../token.ts';
import { DOMAIN_COOKIE, HOST_COOKIE, isFromPortal } from './browser.ts';
import { findByDomainToken, findByHostToken, type ProvenSession } from './store.ts';

/** A user who signed in here. `token`: of the cookie for the portal's own host. */
export type Person = Caller & Readonly<{ session: ProvenSession; user: User; token: string }>;
export type Visit<Body = unknown, Query = unknown, Path = unknown> = Call<Person, Path, Query, Body>;

const NOT_FROM_PORTAL = new Failure('forbidden', {
  message: 'This form was not sent by the sign-in page itself. Open the page and try again.',
});

/** A form of the sign-in page: another site could otherwise sign a visitor in as another user. */
export const portalForm: Guard<PortalService, null> = {
  security: [],
  errors: ['forbidden'],
  check: async ({ headers }, { portal }) => (isFromPortal(headers, portal) ? null : NOT_FROM_PORTAL),
};

const FRESH_SECONDS = 600;

/** People who are not signed in must sign in. @param isSensitive also those who have not done so just now (ASVS 7.5) */
export const signedIn = (kind: 'changes' | 'reads', isSensitive = false): Guard<PortalService, Person> => ({
  security: ['portal_cookie'],
  errors: ['signin_needed', 'forbidden', 'service_failed'],
  idsOf: ({ user, session }) => ({ user_id: user.id, session_id: session.id }),
  async check(request, service) {
    if (kind === 'changes' && !isFromPortal(request.headers, service.portal)) return NOT_FROM_PORTAL;
    const person = await personOf(request, service);
    if (!person) return new Failure('signin_needed', { headers: { Location: '/login' } });
    const { age, has_factor, methods } = person.session;
    // With all factors that the account has by now: the password alone must not bypass them.
    if (!isSensitive || (age <= FRESH_SECONDS && !(has_factor && methods === 'password'))) return person;
    const path = /^\/account\/(keys|users)/.test(request.path) ? request.path : '/account/factors';
    const onward = request.query.get('return_to');
    const query = onward === null ? '' : `?${new URLSearchParams({ return_to: onward })}`;
    const returnTo = encodeURIComponent(service.portal.origin + path + query);
    return new Failure('signin_needed', { headers: { Location: `/login?again=on&return_to=${returnTo}` } });
  },
});

/** An API key has no session. */
export type Visitor = Caller & { readonly session: ProvenSession | null };

const others = createGuard(bearerOrCookie.security, sessionCookie, findByHostToken);

/** Also by a cookie of the portal. Null in place of 401: the handler knows whether the proxy wants a redirect. */
export const portalVisitor: Guard<PortalService, Visitor | null> = {
  security: [...others.security, 'portal_cookie'],
  errors: others.errors,
  async check(request, service) {
    const { headers } = request;
    const name = service.portal.cookieDomain === null ? HOST_COOKIE : DOMAIN_COOKIE;
    // Other schemes of `Authorization` are for the program behind the proxy.
    const hasOther = /^bearer\b/i.test(headers.authorization ?? '') || headers['x-api-key'] !== undefined;
    const token = hasOther ? null : cookieOf(headers, name);
    if (token !== null) return callerOf(name, token, request, service);
    // A cookie that is sent twice may come from another host: no other cookie replaces it.
    if (!hasOther && headers.cookie?.includes(`${name}=`)) return null;
    const caller = await others.check(request, service);
    return caller instanceof Failure ? null : caller;
  },
};

export async function personOf(request: RequestInfo, service: PortalService): Promise<Person | null> {
  const token = cookieOf(request.headers, HOST_COOKIE);
  return token === null ? null : callerOf(HOST_COOKIE, token, request, service);
}

/** By the token of one of the portal's cookies. */
async function callerOf(cookie: string, token: string, { network }: RequestInfo, service: PortalService) {
  const session = cookie === HOST_COOKIE
    ? await activeSession(parseSessionToken(token), network, service, findByHostToken)
    : await activeSession(digest(token).toString('hex'), network, service, findByDomainToken);
  return session instanceof Failure ? null : { session, key: null, user: session.user, token };
}
