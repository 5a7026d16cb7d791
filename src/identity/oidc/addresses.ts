/** Where browsers may be sent after a sign-in or a sign-out. */

/** Without a port, which a native program chooses anew each time (RFC 8252, 7.3). */
const withoutLoopbackPort = (address: string) =>
  address.replace(/^(http:\/\/(?:127\.0\.0\.1|\[::1\]|localhost)):\d{1,5}(?=[/?]|$)/, '$1');

const isLoopback = (address: string) =>
  /^http:\/\/(127\.0\.0\.1|\[::1\]|localhost)[:/?]/.test(`${address}/`);

/**
 * Whether a program may get its answer there: compared character by character (RFC 9700, 2.1), but
 * for the port of an address of the same machine.
 */
export function isRegistered(address: string, registered: readonly string[]) {
  const given = withoutLoopbackPort(address);
  return URL.canParse(address) && registered.some((one) => withoutLoopbackPort(one) === given);
}

/** @returns why an address cannot be registered as a place to return to, or null */
export function redirectProblem(address: string) {
  if (!/^[!-~]{1,2048}$/.test(address) || !URL.canParse(address))
    return 'must be an absolute address in ASCII of at most 2,048 characters';
  if (/[#*]/.test(address)) return 'must have neither "#" nor "*"';
  const { protocol, username, password } = new URL(address);
  if (username !== '' || password !== '') return 'must not have a user name';
  if (protocol === 'https:') return null;
  if (protocol === 'http:')
    return isLoopback(address) ? null : 'must begin with https://, unless it is of this machine';
  // A scheme of a native program (RFC 8252, 7.1), none that a browser runs or opens itself.
  return /^[a-z][a-z0-9+-]*(\.[a-z0-9+-]+)+:$/.test(protocol)
    ? null
    : 'must begin with https://, or a scheme of the program with a dot, such as app.example:/';
}

/** An address with more in its query. */
export function withQuery(address: string, values: Readonly<Record<string, string>>) {
  const query = String(new URLSearchParams(values));
  if (query === '') return address;
  return `${address}${address.includes('?') ? '&' : '?'}${query}`;
}
