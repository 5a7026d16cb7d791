import type { RequestInfo } from './call.ts';

/**
 * The user whom a proxy has authenticated, by a header that it sets (TRUSTED_USER_HEADER). It is believed only from
 * TRUSTED_PROXIES. A proxy also adds it to requests that a page of another site causes (CSRF), so the request must
 * also show that a page of this host sent it. The listener has already rejected a foreign `Origin`.
 * @param names the only ones that count; with `*`, all do
 * @returns finds the name; null if there is none
 */
export const trustedUser =
  (header: string, names = ['*']) =>
  ({ headers, isFromProxy }: RequestInfo) => {
    const { 'sec-fetch-site': site, origin, [header.toLowerCase()]: name } = headers;
    const isFromOwnPage = site === undefined ? origin !== undefined : site === 'same-origin';
    // A comma joins a second header, which the client may have sent.
    const isOneName =
      typeof name === 'string' && /^[\x20-\x2b\x2d-\x7e\xa0-\xff]{1,255}$/.test(name);
    const isBelieved = isFromProxy && isFromOwnPage && isOneName;
    return isBelieved && (names.includes('*') || names.includes(name)) ? name : null;
  };
