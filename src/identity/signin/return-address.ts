import type { PortalService } from '../service.ts';
import type { Portal } from '../settings.ts';

/** Where a browser may return after a sign-in. */

/**
 * An absolute address, read by the algorithm that browsers use, or null. Characters that parsers
 * remove or read as a slash are rejected before.
 */
export function parseAddress(text: string, maxLength = 2_048) {
  if (text.length > maxLength || !/^https?:\/\/[^/\s\\\p{Cc}][^\s\\\p{Cc}]*$/u.test(text))
    return null;
  const hasUser = /^https?:\/\/[^/?#]*@/.test(text);
  return hasUser || !URL.canParse(text) ? null : new URL(text);
}

/**
 * Whether a browser may return to the origin. `*` stands for one label: `https://*.example.org`.
 */
export function isListed(url: URL, { origin, returnOrigins }: Portal) {
  const listed: readonly string[] = [origin, ...returnOrigins];
  const wildcard = url.origin.replace(/\/\/[^.]+\./, '//*.');
  return !url.origin.includes('*') && (listed.includes(url.origin) || listed.includes(wildcard));
}

/** An address of the portal itself may hold the whole request of a program. */
const MAX_OWN_ADDRESS = 4_096;

/** An address that the portal may return to, or another one that it can name, or null. */
export const parseReturn = (text: string, { origin }: Portal) =>
  parseAddress(text, text.startsWith(`${origin}/`) ? MAX_OWN_ADDRESS : undefined);

/** The address to return to, as the URL parser writes it, or null (ASVS 3.7.2). */
export function returnAddress(text: string, portal: Portal) {
  const url = parseReturn(text, portal);
  return url && isListed(url, portal) ? url.href : null;
}

/** Where the browser continues. */
export const destination = (return_to: string, { portal }: PortalService) =>
  returnAddress(return_to, portal) ?? `${portal.origin}/account`;
