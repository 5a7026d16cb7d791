import type { IncomingMessage } from 'node:http';
import { Failure } from './errors.ts';

/** Origin, path and query. Every server must accept the absolute form (RFC 9112, 3.2.2). */
const TARGET = /^(?:https?:\/\/([^/?#]+))?(\/(?!\/)[^?]*)?(?:\?(.*))?$/is;

/**
 * Splits a request target. `new URL('//host/x', base)` would read a host where there is only a
 * path.
 * @returns `authority` of the absolute form, or null; in place of all, null if the path does not
 * start with exactly one `/`, or the target holds a malformed percent escape
 */
export function parseTarget(target: string) {
  const [, authority = null, given = null, query = ''] = TARGET.exec(target) ?? [];
  const path = given ?? (authority && '/');
  if (path === null) return null;
  try {
    decodeURIComponent(query); // URLSearchParams accepts malformed escapes
    return {
      authority,
      path,
      segments: splitPath(path).map(decodeURIComponent),
      // The "&" protects a "?" at the start of the query.
      query: new URLSearchParams(`&${query}`),
    };
  } catch {
    return null; // URIError: a malformed escape, or bytes that are not UTF-8
  }
}

/** A name or an address, and perhaps a port (RFC 3986, 3.2.2 and 3.2.3). */
const AUTHORITY = /^(\[[0-9a-f:.]+\]|([\w.~!$&'()*+,;=-]|%[0-9a-f]{2})*)(:[0-9]{0,5})?$/i;

/**
 * The host that a request is for. Of two Host headers, two programs might choose different ones
 * (RFC 9112, 3.2), so all of them are read.
 * @param authority of an absolute target, which then counts
 * @returns null unless there is exactly one Host, which HTTP/1.0 may omit, and it is valid
 */
export function hostOf(
  { headersDistinct, httpVersion }: IncomingMessage,
  authority: string | null,
) {
  const hosts = headersDistinct.host ?? [];
  if (hosts.length > 1 || (hosts.length === 0 && httpVersion !== '1.0')) return null;
  const host = hosts[0] ?? '';
  return AUTHORITY.test(host) && AUTHORITY.test(authority ?? '') ? (authority ?? host) : null;
}

/** One trailing slash does not matter. */
const splitPath = (path: string) => path.slice(1).replace(/\/$/, '').split('/');

type Row = Readonly<{ method: string; pattern: string; isProxyCheck?: boolean }>;

/** Where the segments of a path lead, one level for each. */
interface Level<R> {
  readonly next: Map<string, Level<R>>;
  readonly methods: Map<string, R>;
  parts: readonly string[]; // of the pattern that ends here
}
/** Leads to what follows a parameter. */
const PARAMETER = '{}';

const createLevel = <R>(): Level<R> => ({ next: new Map(), methods: new Map(), parts: [] });

/**
 * A pattern is `/` and segments; `{name}` stands for one segment that is not empty. A static
 * segment wins over a parameter, whatever the order of the routes.
 * @returns finds a route; fails with `no_such_path`, or with `method_not_allowed` and the value of
 * `Allow`
 * @throws if two routes match the same requests: one of them would never be reached
 */
export function createRouter<R extends Row>(routes: readonly R[]) {
  const root = createLevel<R>();
  for (const route of routes) addTo(root, route);

  return (method: string, segments: readonly string[]) => {
    const level = find(root, segments);
    if (!level) return new Failure('no_such_path');
    const route = level.methods.get(method);
    if (route) return { route, parameters: parametersOf(level.parts, segments) };
    const isProxyCheck = [...level.methods.values()].some((row) => row.isProxyCheck);
    const allowed = [...level.methods.keys(), ...(isProxyCheck ? [] : ['OPTIONS'])];
    const Allow = allowed.sort().join(', ');
    return new Failure('method_not_allowed', { headers: { Allow } });
  };
}

function addTo<R extends Row>(root: Level<R>, route: R) {
  const parts = splitPath(route.pattern);
  let level = root;
  for (const part of parts) {
    const key = isParameter(part) ? PARAMETER : part;
    const next = level.next.get(key) ?? createLevel<R>();
    level.next.set(key, next);
    level = next;
  }
  const isRenamed = level.parts.join() !== parts.join();
  const rival = [...level.methods.values()].find((row) => isRenamed || row.method === route.method);
  if (rival) {
    const names = [rival, route].map(({ method, pattern }) => `${method} ${pattern}`);
    throw new Error(`internal error: ${names.join(' and ')} match the same requests`);
  }
  level.parts = parts;
  level.methods.set(route.method, route);
  // HEAD is answered wherever GET is (RFC 9110, 9.3.2).
  if (route.method === 'GET') level.methods.set('HEAD', route);
}

function find<R>(level: Level<R>, segments: readonly string[], at = 0): Level<R> | null {
  const segment = segments[at];
  if (segment === undefined) return level.methods.size > 0 ? level : null;
  const named = level.next.get(segment);
  const found = named ? find(named, segments, at + 1) : null;
  if (found || segment === '') return found;
  const any = level.next.get(PARAMETER);
  return any ? find(any, segments, at + 1) : null;
}

const isParameter = (part: string) => part.startsWith('{');

/** The names of the parameters of a pattern. */
export const parameterNames = (pattern: string): readonly string[] =>
  splitPath(pattern)
    .filter(isParameter)
    .map((part) => part.slice(1, -1));

/** Not by assignment: a parameter named `__proto__` would change the prototype. */
const parametersOf = (parts: readonly string[], segments: readonly string[]) =>
  Object.fromEntries(
    parts.flatMap((part, at) =>
      isParameter(part) ? [[part.slice(1, -1), segments[at] ?? ''] as const] : [],
    ),
  );
