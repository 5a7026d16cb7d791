import type { Call, Guard, RequestInfo } from '../../http/route.ts';
import { Failure } from '../../http/errors.ts';
import { bearer, checkSession, cookieOf, createGuard, idsOf } from '../guard.ts';
import type { User } from '../model.ts';
import type { Caller } from '../policy.ts';
import type { PortalService } from '../service.ts';
import { cookieTokenFor } from '../token.ts';
import { HOST_COOKIE, isFromPortal, tokenDigest } from './browser.ts';
import {
  findByDomainToken,
  findByHostToken,
  type ProvenSession,
} from '../store/signin/sign-ins.ts';

/** A caller whose session says how it was proved. */
export type ProvenCaller = Caller & Readonly<{ session: ProvenSession | null }>;

/** For the API, where an administrator must have signed in recently. */
export const provenBearer = createGuard(bearer.security, () => null, findByHostToken);

/** A user who signed in here. `token`: of the cookie for the portal's own host. */
export type SignedInUser = Caller & Readonly<{ session: ProvenSession; user: User; token: string }>;
export type PortalCall<Query = unknown, Path = unknown, Body = unknown> = Call<
  SignedInUser,
  Path,
  Query,
  Body
>;

/** A form of the sign-in page: another site could otherwise sign a visitor in as another user. */
export const portalForm: Guard<PortalService, null> = {
  security: [],
  errors: ['forbidden'],
  async check({ headers }, { portal }) {
    if (isFromPortal(headers, portal)) return null;
    const { origin } = portal;
    return new Failure('forbidden', {
      message: `This form was not sent by the page at ${origin} itself. Open ${origin}/login and try again.`,
    });
  },
};

/**
 * For users who signed in here; others must sign in.
 * @param options `changes`: whether only a form of the portal's own page may be sent; `recent`:
 * whether users who signed in a while ago must do so again (ASVS 7.5)
 */
const signedInGuard = ({
  changes = false,
  recent = false,
}): Guard<PortalService, SignedInUser> => ({
  security: ['portal_cookie'],
  errors: ['signin_needed', 'forbidden', 'too_many_requests', 'service_failed'],
  idsOf,
  async check(request, service) {
    const refused = changes ? await portalForm.check(request, service) : null;
    if (refused) return refused;
    const user = await signedInUserOf(request, service);
    if (user instanceof Failure) {
      // The sign-in page would send the browser back here.
      if (user.code === 'too_many_requests') return user;
      return signInAgain(request, service, user);
    }
    return recent && !isRecent(user.session) ? signInAgain(request, service) : user;
  },
});

/** The first two are for pages, the others for forms. */
export const signedIn = signedInGuard({});
export const recentlySignedIn = signedInGuard({ recent: true });
export const userForm = signedInGuard({ changes: true });
export const recentUserForm = signedInGuard({ changes: true, recent: true });

/** How long after a sign-in sensitive pages open and links are made, in seconds (ASVS 7.5). */
export const RECENT_SECONDS = 600;

/** With all factors that the account has by now: the password alone must not bypass them. */
const isRecent = ({ age, has_factor, methods }: ProvenSession) =>
  age <= RECENT_SECONDS && !(has_factor && methods === 'password');

/** Leads back to the page, or to the page of the form. */
function signInAgain({ path, query }: RequestInfo, { portal }: PortalService, failure?: Failure) {
  const named = path.replace(/totp|recovery|passkeys/, 'factors');
  const given = /^\/account(\/(keys|audit|factors|users(\/[0-9a-f-]{36})?))?/.exec(named)?.[0];
  const page = new URL(given ?? '/account', portal.origin);
  page.search = String(query);
  const Location = `/login?again=on&${new URLSearchParams({ return_to: page.href })}`;
  return new Failure('signin_needed', { ...failure?.details, headers: { Location } });
}

export const signedInUserOf = (request: RequestInfo, service: PortalService) =>
  callerByCookie(HOST_COOKIE, request, service);

const finderFor = (cookie: string) =>
  cookie === HOST_COOKIE ? findByHostToken : findByDomainToken;

/** The session of a cookie of the portal. Wrong tokens do not count as guesses. */
export async function findByCookie(
  cookie: string,
  { headers }: RequestInfo,
  service: PortalService,
) {
  const digest = tokenDigest(cookieOf(headers, cookie) ?? '');
  return digest === null ? null : finderFor(cookie)(service, digest);
}

/** By the token of one of the portal's cookies. */
export async function callerByCookie(
  cookie: string,
  { headers, network }: RequestInfo,
  service: PortalService,
) {
  const token = cookieOf(headers, cookie);
  if (token === null) return new Failure('unauthorized');
  const digest = tokenDigest(token);
  const issued = cookieTokenFor(network, await service.throttleSecret(), token);
  if (digest !== null && tokenDigest(issued) === digest) service.acceptCredential(network, digest);
  const caller = await checkSession(digest, network, service, finderFor(cookie));
  return caller instanceof Failure ? caller : { ...caller, token };
}
