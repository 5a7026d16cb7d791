import type { Call, Guard, RequestInfo } from '../../http/route.ts';
import { Failure } from '../../http/errors.ts';
import {
  bearerOrCookie,
  checkSession,
  cookieOf,
  cookiesOf,
  createGuard,
  idsOf,
  ownCredential,
  sessionCookie,
} from '../guard.ts';
import type { User } from '../model.ts';
import type { Caller } from '../policy.ts';
import type { PortalService } from '../service.ts';
import type { Portal } from '../settings.ts';
import { cookieTokenFor } from '../token.ts';
import { RECENT_SECONDS } from './links.ts';
import { DOMAIN_COOKIE, HOST_COOKIE, isFromPortal, tokenDigest } from './browser.ts';
import {
  findByDomainToken,
  findByHostToken,
  type ProvenSession,
} from '../store/signin/sign-ins.ts';

/** A user who signed in here. `token`: of the cookie for the portal's own host. */
export type SignedInUser = Caller & Readonly<{ session: ProvenSession; user: User; token: string }>;
export type PortalCall<Body = unknown, Query = unknown, Path = unknown> = Call<
  SignedInUser,
  Path,
  Query,
  Body
>;

/** What a page needs, also when it is shown after a form. */
export type PageInput<Query = unknown> = Pick<PortalCall<unknown, Query>, 'caller' | 'query'>;

const notFromPortal = ({ origin }: Portal) =>
  new Failure('forbidden', {
    message: `This form was not sent by the page at ${origin} itself. Open ${origin}/login and try again.`,
  });

/** A form of the sign-in page: another site could otherwise sign a visitor in as another user. */
export const portalForm: Guard<PortalService, null> = {
  security: [],
  errors: ['forbidden'],
  check: async ({ headers }, { portal }) =>
    isFromPortal(headers, portal) ? null : notFromPortal(portal),
};

/**
 * `changes`: whether only a form of the portal's own page may be sent; `recent`: whether users who
 * signed in a while ago must do so again (ASVS 7.5).
 */
type GuardOptions = Readonly<{ changes: boolean; recent: boolean }>;

/** For users who signed in here; others must sign in. */
const signedInGuard = ({ changes, recent }: GuardOptions): Guard<PortalService, SignedInUser> => ({
  security: ['portal_cookie'],
  errors: ['signin_needed', 'forbidden', 'too_many_requests', 'service_failed'],
  idsOf,
  async check(request, service) {
    const { portal } = service;
    if (changes && !isFromPortal(request.headers, portal)) return notFromPortal(portal);
    const user = await signedInUserOf(request, service);
    if (user instanceof Failure) {
      // The sign-in page would send the browser back here.
      if (user.code === 'too_many_requests') return user;
      return signInAgain(request, portal, user);
    }
    return recent && !isRecent(user.session) ? signInAgain(request, portal) : user;
  },
});

/** The first two are for pages, the others for forms. */
export const signedIn = signedInGuard({ changes: false, recent: false });
export const recentlySignedIn = signedInGuard({ changes: false, recent: true });
export const userForm = signedInGuard({ changes: true, recent: false });
export const recentUserForm = signedInGuard({ changes: true, recent: true });

/** With all factors that the account has by now: the password alone must not bypass them. */
const isRecent = ({ age, has_factor, methods }: ProvenSession) =>
  age <= RECENT_SECONDS && !(has_factor && methods === 'password');

/** Leads back to the page, or to the page of the form. */
function signInAgain({ path, query }: RequestInfo, portal: Portal, failure?: Failure) {
  const named = path.replace(/totp|recovery|passkeys/, 'factors');
  const given = /^\/account(\/(keys|audit|factors|users(\/[0-9a-f-]{36})?))?/.exec(named)?.[0];
  const page = new URL(given ?? '/account', portal.origin);
  page.search = String(query);
  const Location = `/login?again=on&${new URLSearchParams({ return_to: page.href })}`;
  return new Failure('signin_needed', { ...failure?.details, headers: { Location } });
}

/**
 * An API key has no session. `failure` is not the reply yet: the proxy may want a redirect in place
 * of 401.
 */
export type Visitor =
  | { readonly kind: 'caller'; readonly caller: Caller & { session: ProvenSession | null } }
  | { readonly kind: 'unauthorized'; readonly failure: Failure };

const withoutPortal = createGuard(bearerOrCookie.security, sessionCookie, findByHostToken);

/** Also by a cookie of the portal. */
export const portalVisitor: Guard<PortalService, Visitor> = {
  security: [...withoutPortal.security, 'portal_cookie'],
  errors: withoutPortal.errors,
  idsOf: (visitor) => (visitor.kind === 'caller' ? idsOf(visitor.caller) : {}),
  async check(request, service) {
    const { headers } = request;
    const name = service.portal.cookieDomain === null ? HOST_COOKIE : DOMAIN_COOKIE;
    // A cookie that is sent twice may come from another host: no other cookie replaces it.
    const hasPortalCookie = ownCredential(headers) === null && cookiesOf(headers, name).length > 0;
    const caller = hasPortalCookie
      ? await callerByCookie(name, request, service)
      : await withoutPortal.check(request, service);
    if (!(caller instanceof Failure)) return { kind: 'caller', caller };
    return caller.code === 'unauthorized' ? { kind: 'unauthorized', failure: caller } : caller;
  },
};

export const signedInUserOf = (request: RequestInfo, service: PortalService) =>
  callerByCookie(HOST_COOKIE, request, service);

/** By the token of one of the portal's cookies. */
async function callerByCookie(
  cookie: string,
  { headers, network }: RequestInfo,
  service: PortalService,
) {
  const token = cookieOf(headers, cookie);
  if (token === null) return new Failure('unauthorized');
  const find = cookie === HOST_COOKIE ? findByHostToken : findByDomainToken;
  const digest = tokenDigest(token);
  const issued = cookieTokenFor(network, await service.throttleSecret(), token);
  if (digest !== null && tokenDigest(issued) === digest) service.acceptCredential(network, digest);
  const caller = await checkSession(digest, network, service, find);
  return caller instanceof Failure ? caller : { ...caller, token };
}
