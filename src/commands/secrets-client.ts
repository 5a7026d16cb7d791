import { OperationFailed, type Terminal, UsageError } from './command.ts';
import { isThisHost } from '../db/url.ts';
import { isObject } from '../http/schema.ts';

export type Reply = Readonly<Record<string, unknown>>;

export class PassphraseNeeded extends OperationFailed {}

const CHECK = 'check GATEHOUSE_URL or the link';
const UNEXPECTED = 'unexpected reply: is GATEHOUSE_URL, or the link, a Gatehouse secrets service?';
/** Enough for a password hash that waits for others. */
const TIMEOUT_MS = 30_000;

/**
 * @returns a function that sends one request. Redirects are not followed: they could send the key
 * to another host. It throws UsageError for an invalid value, PassphraseNeeded, and OperationFailed
 * for any other failure
 */
export function connect(base: string, token: string | null, note: Terminal['note']) {
  const { protocol, hostname, origin } = new URL(base);
  const isProtected = protocol === 'https:' || isThisHost(hostname.replace(/^\[(.*)\]$/, '$1'));
  if (!isProtected)
    note(`Warning: ${origin} does not use TLS. Others on the network can read what is sent.`);
  const headers = {
    'content-type': 'application/json',
    ...(token && { authorization: `Bearer ${token}` }),
  };
  return async (method: string, path: string, body?: object): Promise<Reply> => {
    const response = await fetch(base + path, {
      method,
      headers,
      redirect: 'manual',
      body: body ? JSON.stringify(body) : null,
      signal: AbortSignal.timeout(TIMEOUT_MS),
    }).catch((error: unknown) => {
      const cause = error instanceof Error && error.cause;
      const code = isObject(cause) && cause.code !== undefined ? ` (${String(cause.code)})` : '';
      throw new OperationFailed(`${origin} did not answer${code}; ${CHECK}`);
    });
    const reply: unknown = await response.json().catch(() => null);
    if (isObject(reply) && response.ok) return reply;
    throw errorOf(reply, response.headers.get('retry-after'), origin);
  };
}

/** @param wait the seconds of Retry-After */
function errorOf(reply: unknown, wait: string | null, origin: string): Error {
  const error = isObject(reply) && isObject(reply.error) ? reply.error : {};
  const { code } = error;
  if (typeof code !== 'string') return new OperationFailed(UNEXPECTED);
  if (code === 'no_such_path')
    return new OperationFailed(`no secrets service or share page at ${origin}; ${CHECK}`);
  if (code === 'unauthorized')
    return new OperationFailed(`AUTH_TOKEN is not the token of the service at ${origin}`);
  const fields: unknown[] = Array.isArray(error.fields) ? error.fields : [];
  const problems = fields
    .filter(isObject)
    .map(({ path, message }) => `${optionOf(String(path))} ${String(message)}`);
  const what = problems.join('; ') || String(error.message);
  const message = wait === null ? what : `${what} (try again after ${wait} s)`;
  if (code === 'invalid_body') return new UsageError(message);
  if (code === 'passphrase_needed') return new PassphraseNeeded(message);
  return new OperationFailed(message);
}

/** The option for a member of the request. What the service calls `password` is the secret here. */
const optionOf = (path: string) =>
  path === '/password' ? 'the secret' : path.replace(/^\//, '').replaceAll('_', '-');

/** @returns the member of this name. @throws OperationFailed unless it is a string */
export function textOf(reply: Reply, name: string) {
  const text = reply[name];
  if (typeof text === 'string') return text;
  throw new OperationFailed(UNEXPECTED);
}
