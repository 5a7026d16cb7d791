import type { IncomingHttpHeaders } from 'node:http';
import { sha256Hex } from '../../platform/crypto/token.ts';
import {
  type Call,
  Failure,
  type Guard,
  type RequestInfo,
} from '../../platform/http/route/route.ts';
import { checkSession, cookieOf, idsOf } from '../guard.ts';
import { type Caller, isRecent } from '../policy.ts';
import type { PortalService } from '../service.ts';
import type { Portal } from '../settings.ts';
import { actorOf } from '../store/audit.ts';
import { logOutSession } from '../store/session-ends.ts';
import { cookieTokenFor } from '../token.ts';
import {
  findByDomainToken,
  findByHostToken,
  moveGrants,
  type ProvenSession,
  replaceToken,
  type Tokens,
} from '../store/signin/sign-ins.ts';
import type { PageCall } from './templates.ts';

/**
 * Whether a form was sent by the portal's own page. Fails closed: with neither header, it was not.
 * `same-site` is rejected, too, because the programs behind the proxy are neighbors of the portal
 * (ASVS 3.5.1).
 */
export function isFromPortal(headers: IncomingHttpHeaders, { origin }: Portal) {
  const { 'sec-fetch-site': site, origin: given } = headers;
  if (given !== undefined && given !== origin) return false;
  return site === undefined ? given !== undefined : site === 'same-origin';
}

/**
 * Whether a person opens the page. Another host can load it as a picture or in a frame, with the
 * portal's cookies if it is a neighbor, and browsers load pages ahead (Fetch Metadata; Sec-Purpose
 * of the Fetch standard). Such a request must not change what the browser keeps.
 */
export function isOpened({
  'sec-fetch-dest': target,
  'sec-purpose': purpose,
}: IncomingHttpHeaders) {
  const isPage = target === undefined || target === 'document';
  return isPage && !String(purpose).includes('prefetch');
}

/**
 * Whether the browser shows the portal under another name. A proxy may leave out the port. Many
 * replace `Host` by the address of this process, which then says nothing.
 */
export function isElsewhere(headers: IncomingHttpHeaders, { origin }: Portal) {
  const { host = '', 'x-forwarded-for': forwarded } = headers;
  if (forwarded !== undefined) return false;
  const own = new URL(origin);
  const address = `${own.protocol}//${host}`;
  // Without its default port, and in lower case.
  const shown = URL.canParse(address) ? new URL(address).host : host;
  return ![own.host, own.hostname].includes(shown);
}

/**
 * Authenticates to the portal. Because of `__Host-`, other hosts neither receive nor set it (ASVS
 * 3.3.3).
 */
export const HOST_COOKIE = { name: '__Host-gatehouse', find: findByHostToken };
/** Authenticates only to `verify`, because every host of the domain receives it. */
export const DOMAIN_COOKIE = { name: '__Secure-gatehouse', find: findByDomainToken };
type SessionCookie = typeof HOST_COOKIE;
/** A sign-in that waits for its next step. */
export const PENDING_COOKIE = '__Host-gatehouse-pending';
/** Binds a passkey's challenge to the browser that asked for it. */
export const BROWSER_COOKIE = '__Host-gatehouse-browser';

const ATTRIBUTES = 'Path=/; Secure; HttpOnly; SameSite=Lax';

/**
 * @param value empty to remove the cookie
 * @param domain an attribute, such as `Domain=example.org; `; empty for this host alone
 * @param seconds for which the browser keeps it; 0: until it is closed
 */
export function cookieText(name: string, value: string, domain = '', seconds = 0) {
  const cookie = `${name}=${value}; ${domain}${ATTRIBUTES}`;
  if (value === '') return `${cookie}; Max-Age=0`;
  return seconds > 0 ? `${cookie}; Max-Age=${seconds}` : cookie;
}

/** Removes the cookie of a sign-in that waits. */
export const NO_PENDING = cookieText(PENDING_COOKIE, '');

/** @returns the digest under which a token is stored, in hexadecimal, or null for another form */
export const tokenDigest = (token: string) =>
  /^[A-Za-z0-9_-]{43}$/.test(token) ? sha256Hex(token) : null;

/**
 * Empty tokens remove the cookies: with the attributes they were set with, or they would stay.
 * @param stays whether the browser keeps them, because the person chose to stay signed in
 */
export function setCookies(
  { host, domain }: Tokens,
  { cookieDomain, staySeconds }: Portal,
  stays = false,
) {
  const seconds = stays ? staySeconds : 0;
  const cookies = [cookieText(HOST_COOKIE.name, host, '', seconds)];
  if (cookieDomain !== null) {
    const attribute = `Domain=${cookieDomain}; `;
    cookies.push(cookieText(DOMAIN_COOKIE.name, domain, attribute, seconds));
  }
  return cookies;
}

/**
 * Neither is a session token of the API: it would get past a repeated sign-in (ASVS 7.5.1).
 * @param token of the session, which the new cookies replace
 * @param factor that the user has just added
 */
export async function createCookies(
  service: PortalService,
  { network }: RequestInfo,
  token: string,
  factor: 'totp' | 'passkey' | null = null,
) {
  const secret = await service.throttleSecret();
  const tokens = {
    host: cookieTokenFor(network, secret),
    domain: cookieTokenFor(network, secret),
  };
  const session = await replaceToken(service.database, token, tokens, factor);
  return setCookies(tokens, service.portal, session?.stays);
}

// --- Guards

/** A caller whose session says how it was proved. */
export type ProvenCaller = Caller & Readonly<{ session: ProvenSession | null }>;

/** A user who signed in here. `token`: of the cookie for the portal's own host. */
export type SignedInUser = Caller &
  Readonly<{ session: ProvenSession; user: ProvenSession['user']; token: string }>;
export type PortalCall<Query = unknown, Path = unknown, Body = unknown> = PageCall &
  Call<SignedInUser, Path, Query, Body>;

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
  errors: [
    'signin_needed',
    'too_many_requests',
    'service_failed',
    ...(changes ? portalForm.errors : []),
  ],
  idsOf,
  async check(request, service) {
    const refused = changes ? await portalForm.check(request, service) : null;
    if (refused) return refused;
    const user = await signedInUserOf(request, service);
    if (user instanceof Failure) {
      // The cookie was not checked: its session may be active.
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

const PAGE =
  /^\/(login|account(\/(keys|audit|factors|program-keys|programs(\/(?!end$)[\w.-]+)?|users(\/[0-9a-f-]{36})?))?)/;

/** The page that has the form of this address. */
export const pageOf = (path: string) =>
  PAGE.exec(path.replace(/totp|recovery|passkeys/, 'factors'))?.[0] ?? '/account';

/** Leads back to the page, or to the page of the form. */
export function signInAgain(
  { path, query }: RequestInfo,
  { portal }: PortalService,
  failure?: Failure,
) {
  const page = new URL(pageOf(path), portal.origin);
  page.search = String(query);
  const Location = `/login?again=on&${new URLSearchParams({ return_to: page.href })}`;
  return new Failure('signin_needed', { ...failure?.details, headers: { Location } });
}

export const signedInUserOf = (request: RequestInfo, service: PortalService) =>
  callerByCookie(HOST_COOKIE, request, service);

/** By the cookie of the domain, too, if there is one. */
export async function isSignedIn(request: RequestInfo, service: PortalService) {
  const user = await signedInUserOf(request, service);
  if (user instanceof Failure) return false;
  if (service.portal.cookieDomain === null) return true;
  // Without the cookie for the domain, `verify` would send the browser back here, in a loop.
  const session = await findByCookie(DOMAIN_COOKIE, request, service);
  return session?.id === user.session.id;
}

/** Whether the browser sends a cookie: each page of the sign-in with a form has set one. */
export const keepsCookies = ({ headers }: RequestInfo) =>
  String(headers.cookie).includes(HOST_COOKIE.name);

/** The session of a cookie of the portal. Wrong tokens do not count as guesses. */
export async function findByCookie(
  { name, find }: SessionCookie,
  { headers }: RequestInfo,
  service: PortalService,
) {
  const digest = tokenDigest(cookieOf(headers, name) ?? '');
  return digest === null ? null : find(service, digest);
}

/**
 * Not limited by wrong credentials of the network: a sign-out must end the session (ASVS 7.4.1).
 * Looked up first, because invented tokens must not cost a write.
 * @param successor the token of a new session of the browser, at which its programs stay signed in
 */
export async function endCurrentSession(
  request: RequestInfo,
  service: PortalService,
  successor: string | null = null,
) {
  const session = await findByCookie(HOST_COOKIE, request, service);
  if (!session || session.ended) return;
  if (successor !== null) {
    await service.database.write((sql) => moveGrants(sql, session, successor));
  }
  // No rights are needed: the session may have ended by now.
  const actor = { ...actorOf({ session, key: null, user: session.user }, request), caller: null };
  await logOutSession(service.database, actor, session.id);
}

/** By the token of one of the portal's cookies. */
export async function callerByCookie(
  { name, find }: SessionCookie,
  { headers, network }: RequestInfo,
  service: PortalService,
) {
  const token = cookieOf(headers, name);
  if (token === null) return new Failure('unauthorized');
  const digest = tokenDigest(token);
  // A token that was issued to this network is no guess.
  const expected = cookieTokenFor(network, await service.throttleSecret(), token);
  if (digest !== null && tokenDigest(expected) === digest)
    service.acceptCredential(network, digest);
  const caller = await checkSession(digest, network, service, find);
  return caller instanceof Failure ? caller : { ...caller, token };
}
