import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';

/** A name or an address, and perhaps a port (RFC 3986, 3.2.2 and 3.2.3). */
const AUTHORITY = /^(\[[0-9a-f:.]+\]|([\w.~!$&'()*+,;=-]|%[0-9a-f]{2})*)(:[0-9]{0,5})?$/i;

/**
 * The host that a request is for. Of two Host headers, two programs might choose different ones (RFC 9112, 3.2). Only
 * `rawHeaders` has all of them, also beyond `maxHeadersCount`.
 * @param authority of an absolute target, which then counts
 * @returns null unless there is exactly one Host, which HTTP/1.0 may omit, and it is valid
 */
export function hostOf(
  { rawHeaders, httpVersion }: IncomingMessage,
  authority: string | null,
): string | null {
  let [host, count] = ['', 0];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    if (rawHeaders[at]?.toLowerCase() === 'host')
      [host, count] = [rawHeaders[at + 1] ?? '', count + 1];
  }
  if (count > 1 || (count === 0 && httpVersion !== '1.0')) return null;
  return AUTHORITY.test(host) && AUTHORITY.test(authority ?? '') ? (authority ?? host) : null;
}

/**
 * Whether a page of another site sent the request, by the headers of browsers. Other clients send neither header.
 * @param hosts under which this listener is known to the browser
 */
export function isCrossSite(headers: IncomingHttpHeaders, hosts: readonly string[]): boolean {
  const { 'sec-fetch-site': site, origin } = headers;
  if (site !== undefined) return site !== 'same-origin' && site !== 'none';
  if (origin === undefined) return false;
  // A proxy that terminates TLS changes the scheme, but the origin's scheme determines the default port.
  const hostIn = (url: string) => (URL.canParse(url) ? new URL(url).host : null);
  const [own, scheme] = [hostIn(origin), origin.split('//', 1)[0]];
  return own === null || !hosts.some((host) => hostIn(`${scheme}//${host.trim()}`) === own);
}
