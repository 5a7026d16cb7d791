import type { IncomingHttpHeaders } from 'node:http';
import {
  type Call,
  Failure,
  type Guard,
  type RequestInfo,
} from '../../platform/http/route/route.ts';
import { decimal, type Infer, oneOf, optional } from '../../platform/http/route/schema.ts';
import { cookiesOf, createGuard, ownCredential } from '../guard.ts';
import { forbidden, TEMPORARY_PASSWORD } from '../policy.ts';
import type { PortalService } from '../service.ts';
import { getsCookie, type Portal } from '../settings.ts';
import { callerHeaders, isAdmitted, percentEncoded, verifyParameters } from '../verify.ts';
import { findByHostToken } from '../store/signin/sign-ins.ts';
import { callerByCookie, DOMAIN_COOKIE, HOST_COOKIE, type ProvenCaller } from './browser.ts';
import { isListed, parseAddress } from './return-address.ts';
import { DAY_SECONDS } from '../../platform/runtime/duration.ts';
import { splitList } from '../../platform/runtime/env.ts';

export const verifyQuery = verifyParameters(['super_admin', 'second_factor'], {
  max_age: optional(
    decimal({ min: 1, max: 366 * DAY_SECONDS, description: 'Seconds since the person signed in' }),
  ),
  // The status with which the proxy sends browsers to the portal; nginx passes on only 401.
  redirect: optional(oneOf('302', '401')),
});

/**
 * Without the cookie `session`: it has no prefix, so a neighboring host, or an attacker in the
 * network, could set it and sign a person in as somebody else (ASVS 3.3.1, 3.3.3).
 */
const withoutPortal = createGuard(findByHostToken);

/** By a cookie of the portal, too. A browser without a session is sent to the sign-in page. */
export const portalVisitor: Guard<PortalService, ProvenCaller> = {
  ...withoutPortal,
  security: [...withoutPortal.security, 'portal_cookie'],
  async check(request, service) {
    const { headers } = request;
    const { portal } = service;
    const cookie = portal.cookieDomain === null ? HOST_COOKIE : DOMAIN_COOKIE;
    // A cookie that is sent twice may come from another host: no other cookie replaces it.
    const usesPortalCookie =
      ownCredential(headers) === null && cookiesOf(headers, cookie.name).length > 0;
    const caller = usesPortalCookie
      ? await callerByCookie(cookie, request, service)
      : await withoutPortal.check(request, service);
    const isUnauthorized = caller instanceof Failure && caller.code === 'unauthorized';
    return isUnauthorized ? signInFirst(request, service, 'unauthorized', caller.details) : caller;
  },
};

/**
 * Forward authentication with the portal: a browser that must sign in, or again, is sent to the
 * portal.
 */
export async function verifyOrSignIn(
  { caller, query, request }: Call<ProvenCaller, unknown, Infer<typeof verifyQuery>, null>,
  service: PortalService,
) {
  const { session } = caller;
  const { require, max_age: maxAge } = query;
  const needsFactor = require.includes('second_factor');
  // While the password is temporary, only a passkey alone passes. A login over the API with that
  // password and a code does not (ASVS 6.4.1).
  if (session?.hasTemporaryPassword && session.methods !== 'passkey') return TEMPORARY_PASSWORD;
  // The holder of an API key cannot sign in again.
  if (!session && (maxAge !== undefined || needsFactor)) return forbidden(caller);
  if (session && session.age > (maxAge ?? Infinity)) {
    return signInFirst(request, service, 'signin_too_old');
  }
  // A passkey alone has verified its user: two factors in one.
  if (session && needsFactor && session.methods === 'password') {
    const page = session.isProven ? '/account/factors' : '/login';
    return signInFirst(request, service, 'second_factor_needed', {}, page);
  }
  if (!isAdmitted(caller, query)) return forbidden(caller);
  const signIn = session && {
    methods: session.methods,
    time: String(Math.floor(session.at.getTime() / 1000)),
  };
  return { data: null, headers: callerHeaders(caller, signIn ?? undefined) };
}

/** Sends a browser to a page of the portal, if the proxy asks for that. */
function signInFirst(
  request: RequestInfo,
  service: PortalService,
  code: 'unauthorized' | 'signin_too_old' | 'second_factor_needed',
  details: Failure['details'] = {},
  page = '/login',
) {
  const { portal, log } = service;
  // The guard runs before the query is validated.
  const redirect = request.query.get('redirect') ?? '';
  const isWanted = /^(302|401)$/.test(redirect) && isNavigation(request.headers);
  if (!isWanted) return new Failure(code, details);
  const address = request.isFromProxy ? parseAddress(originalAddress(request.headers)) : null;
  const target = new URL(page, portal.origin);
  const problem = problemOf(address, request, portal);
  if (problem !== null) {
    const { ids, route, address: ip } = request;
    log.limited('a browser cannot return after signing in', { ...ids, route, ip, problem });
  }
  // The page says so of a program that is missing from the list.
  const isNamed = problem === null || getsCookie(address?.hostname ?? '', portal);
  if (address && isNamed) target.searchParams.set('return_to', address.href);
  if (code !== 'unauthorized' && page === '/login') target.searchParams.set('again', 'on');
  const headers = { Location: target.href };
  return new Failure(redirect === '302' ? 'signin_needed' : code, { ...details, headers });
}

/** Why a browser will not return to the address that a proxy names, or null. */
function problemOf(address: URL | null, { headers, isFromProxy }: RequestInfo, portal: Portal) {
  if (headers['x-forwarded-uri'] === undefined) return null;
  if (!isFromProxy) return 'the proxy is not in TRUSTED_PROXIES';
  if (address === null) {
    return 'X-Forwarded-Proto, -Host and -Uri are no address of at most 2,048 characters';
  }
  return isListed(address, portal) ? null : `${address.origin} is not in RETURN_ORIGINS`;
}

/**
 * Where a proxied request was going, or another text. Any client could send these headers
 * (GHSA-7x63-xv5r-3p2x, oauth2-proxy): they count only from a trusted proxy.
 */
export function originalAddress(headers: IncomingHttpHeaders) {
  // A path may contain commas.
  const path = /^\/.*?(?=, +\/|$)/.exec(forwarded(headers, 'uri'))?.[0] ?? '';
  // Browsers leave some characters as they are, and proxies pass them on byte by byte. Node reads
  // a byte as a character.
  const encoded = path.replace(/[^!-~]|[\\#]/g, (byte) => percentEncoded(byte.charCodeAt(0)));
  // To a host with a dot at its end, browsers send no cookie of the domain.
  const host = first(forwarded(headers, 'host')).replace(/\.(?=:|$)/, '');
  return path && `${first(forwarded(headers, 'proto')).toLowerCase()}://${host}${encoded}`;
}

const forwarded = (headers: IncomingHttpHeaders, name: string) =>
  String(headers[`x-forwarded-${name}`] ?? '');

/** What the proxy nearest to the browser says. Each further one may add a value. */
const first = (values: string) => splitList(values)[0] ?? '';

/** Whether a user opens a page: a program, `fetch` or a WebSocket must never be redirected. */
export function isNavigation(headers: IncomingHttpHeaders) {
  const { 'sec-fetch-mode': mode, 'sec-fetch-dest': target, accept = '' } = headers;
  if (!/^(GET|HEAD)?$/.test(first(forwarded(headers, 'method')))) return false;
  // Browsers send Fetch Metadata only to trustworthy addresses.
  if (mode === undefined && target === undefined) return /\btext\/html\b/i.test(accept);
  // A service worker passes a navigation on as `empty`, and that of Firefox in another mode, with
  // the Accept of the page.
  if (mode === 'same-origin' && target === 'empty') return /^text\/html\b/i.test(accept);
  // Scripts cannot make one (Fetch, 5.4).
  return mode === 'navigate' && /^(document|empty)$/.test(target ?? 'document');
}
