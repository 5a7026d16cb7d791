import type { IncomingHttpHeaders } from 'node:http';
import { sha256 } from '../../crypto/token.ts';
import { recordProof, type Tokens } from '../store/signin/sign-ins.ts';
import type { RequestInfo } from '../../http/route.ts';
import type { PortalService } from '../service.ts';
import type { Portal } from '../settings.ts';
import { cookieTokenFor } from '../token.ts';

/**
 * The address to return to, as the URL parser writes it, or null (ASVS 3.7.2). Origins are compared
 * after parsing, by the algorithm that browsers use. Characters that parsers remove or read as a
 * slash are rejected before.
 */
export function returnAddress(text: string, { origin, returnOrigins }: Portal) {
  if (text.length > 2_048 || !/^https?:\/\/[^/\s\\\p{Cc}][^\s\\\p{Cc}]*$/u.test(text)) return null;
  if (!URL.canParse(text)) return null;
  const url = new URL(text);
  const isPlain = url.username === '' && url.password === '' && !/^https?:\/\/[^/?#]*@/.test(text);
  return isPlain && [origin, ...returnOrigins].includes(url.origin) ? url.href : null;
}

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
 * Whether the browser shows the portal under another name. A proxy may leave out the port. Many
 * replace `Host` by the address of this process, which then says nothing.
 */
export function isElsewhere(headers: IncomingHttpHeaders, { origin }: Portal) {
  const { host = '', 'x-forwarded-for': forwarded } = headers;
  if (forwarded !== undefined) return false;
  const own = new URL(origin);
  return ![own.host, own.hostname].includes(host.toLowerCase());
}

/**
 * Authenticates to the portal. Because of `__Host-`, other hosts neither receive nor set it (ASVS
 * 3.3.3).
 */
export const HOST_COOKIE = '__Host-gatehouse';
/** Authenticates only to `verify`, because every host of the domain receives it. */
export const DOMAIN_COOKIE = '__Secure-gatehouse';
/** A right password that waits for the second factor. */
export const PENDING_COOKIE = '__Host-gatehouse-pending';
/** Binds a passkey's challenge to the browser that asked for it. */
export const BROWSER_COOKIE = '__Host-gatehouse-browser';

const ATTRIBUTES = 'Path=/; Secure; HttpOnly; SameSite=Lax';

/** @param value empty to remove the cookie */
export const hostCookie = (name: string, value: string, domain = '') =>
  `${name}=${value}; ${domain}${ATTRIBUTES}${value === '' ? '; Max-Age=0' : ''}`;

/** Ends the wait for a second factor in the browser. */
export const NO_PENDING = hostCookie(PENDING_COOKIE, '');

/** Neither is a session token of the API: it would get past a repeated sign-in (ASVS 7.5.1). */
export async function createTokens({ throttleSecret }: PortalService, { network }: RequestInfo) {
  const secret = await throttleSecret();
  return { host: cookieTokenFor(network, secret), domain: cookieTokenFor(network, secret) };
}

/** @returns the digest under which a token is stored, in hexadecimal, or null for another form */
export const tokenDigest = (token: string) =>
  /^[A-Za-z0-9_-]{43}$/.test(token) ? sha256(token).toString('hex') : null;

/** Empty tokens remove the cookies: with the attributes they were set with, or they would stay. */
export function setCookies({ host, domain }: Tokens, { cookieDomain }: Portal) {
  const cookies = [hostCookie(HOST_COOKIE, host)];
  if (cookieDomain !== null) {
    cookies.push(hostCookie(DOMAIN_COOKIE, domain, `Domain=${cookieDomain}; `));
  }
  return cookies;
}

/**
 * @param token of the session, which the new cookies replace
 * @param at the time of the proof; if omitted, when the session began
 */
export async function createCookies(
  service: PortalService,
  request: RequestInfo,
  token: string,
  methods: string,
  at: Date | null = null,
) {
  const tokens = await createTokens(service, request);
  await service.database.write((sql) => recordProof(sql, tokens, methods, at, token));
  return setCookies(tokens, service.portal);
}
