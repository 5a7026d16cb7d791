/** Enough for a password hash that waits for others. */
const TIMEOUT_MS = 30_000;

type Options = RequestInit & { headers?: Record<string, string> };

/**
 * Sends a request. A redirect is not followed: it could send what is in it to another host.
 * @param token null: without one
 */
export const sendRequest = (url: string, token: string | null, options: Options = {}) =>
  fetch(url, {
    ...options,
    headers: {
      ...options.headers,
      // A server may close a kept connection just before the next request.
      connection: 'close',
      ...(token !== null && { authorization: `Bearer ${token}` }),
    },
    redirect: 'manual',
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
