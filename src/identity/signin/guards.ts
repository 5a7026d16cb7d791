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
export type Visit<Body = unknown, Query = unknown, Path = unknown> = Call<
  Person,
  Path,
  Query,
  Body
>;

const NOT_FROM_PORTAL = new Failure('forbidden', {
  message: 'This form was not sent by the sign-in page itself. Open the page and try again.',
});

/** A form of the sign-in page: another site could otherwise sign a visitor in as another user. */
export const portalForm: Guard<PortalService, null> = {
  security: [],
  errors: ['forbidden'],
  check: async ({ headers }, { portal }) =>
    isFromPortal(headers, portal) ? null : NOT_FROM_PORTAL,
};

const FRESH_SECONDS = 600;

/** People who are not signed in must sign in. @param isSensitive also those who have not done so just now (ASVS 7.5) */
export const signedIn = (
  kind: 'changes' | 'reads',
  isSensitive = false,
): Guard<PortalService, Person> => ({
  security: ['portal_cookie'],
  errors: ['signin_needed', 'forbidden', 'service_failed'],
  idsOf: ({ user, session }) => ({ user_id: user.id, session_id: session.id }),
  async check(request, service) {
    if (kind === 'changes' && !isFromPortal(request.headers, service.portal))
      return NOT_FROM_PORTAL;
    const person = await personOf(request, service);
    const headers = { Location: '/login' };
    if (person instanceof Failure)
      return new Failure('signin_needed', { ...person.details, headers });
    const { age, has_factor, methods } = person.session;
    // With all factors that the account has by now: the password alone must not bypass them.
    if (!isSensitive || (age <= FRESH_SECONDS && !(has_factor && methods === 'password')))
      return person;
    const path = /^\/account\/(keys|users)/.test(request.path) ? request.path : '/account/factors';
    const onward = request.query.get('return_to');
    const query = onward === null ? '' : `?${new URLSearchParams({ return_to: onward })}`;
    const returnTo = encodeURIComponent(service.portal.origin + path + query);
    return new Failure('signin_needed', {
      headers: { Location: `/login?again=on&return_to=${returnTo}` },
    });
  },
});

/** An API key has no session. `refused` is not the reply yet: the proxy may want a redirect in place of 401. */
export type Visitor =
  (Caller & { readonly session: ProvenSession | null }) | { readonly refused: Failure };

const others = createGuard(bearerOrCookie.security, sessionCookie, findByHostToken);

/** Also by a cookie of the portal. */
export const portalVisitor: Guard<PortalService, Visitor> = {
  security: [...others.security, 'portal_cookie'],
  errors: others.errors,
  idsOf: (caller) => ('refused' in caller ? {} : (others.idsOf?.(caller) ?? {})),
  async check(request, service) {
    const { headers } = request;
    const name = service.portal.cookieDomain === null ? HOST_COOKIE : DOMAIN_COOKIE;
    // Other schemes of `Authorization` are for the program behind the proxy.
    const hasOther =
      /^bearer\b/i.test(headers.authorization ?? '') || headers['x-api-key'] !== undefined;
    // A cookie that is sent twice may come from another host: no other cookie replaces it.
    const isOwn = !hasOther && headers.cookie?.includes(`${name}=`);
    const caller = isOwn
      ? await callerOf(name, request, service)
      : await others.check(request, service);
    return caller instanceof Failure && caller.code === 'unauthorized'
      ? { refused: caller }
      : caller;
  },
};

export const personOf = (request: RequestInfo, service: PortalService) =>
  callerOf(HOST_COOKIE, request, service);

/** By the token of one of the portal's cookies. */
async function callerOf(cookie: string, { headers, network }: RequestInfo, service: PortalService) {
  const token = cookieOf(headers, cookie);
  if (token === null) return new Failure('unauthorized');
  const session =
    cookie === HOST_COOKIE
      ? await activeSession(parseSessionToken(token), network, service, findByHostToken)
      : await activeSession(digest(token).toString('hex'), network, service, findByDomainToken);
  return session instanceof Failure ? session : { session, key: null, user: session.user, token };
}
