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
      segments: path.includes('%') ? splitPath(path).map(decodeURIComponent) : splitPath(path),
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
  { headers, rawHeaders, httpVersion }: IncomingMessage,
  authority: string | null,
) {
  const isHost = (text: string, at: number) => at % 2 === 0 && /^host$/i.test(text);
  const count = rawHeaders.filter(isHost).length;
  if (count > 1 || (count === 0 && httpVersion !== '1.0')) return null;
  const { host = '' } = headers;
  return AUTHORITY.test(host) && AUTHORITY.test(authority ?? '') ? (authority ?? host) : null;
}

/** One trailing slash does not matter. */
const splitPath = (path: string) => path.slice(1).replace(/\/$/, '').split('/');

type Row = Readonly<{ method: string; pattern: string; isProxyCheck?: boolean }>;

/** Behind every static segment, as the rows are sorted: the first one that matches is found. */
const PARAMETER = '\uffff';

/**
 * A pattern is `/` and segments; `{name}` stands for one segment that is not empty. A static
 * segment wins over a parameter, whatever the order of the routes.
 * @returns finds a route; fails with `no_such_path`, or with `method_not_allowed` and the value of
 * `Allow`
 * @throws if two routes match the same requests: one of them would never be reached
 */
export function createRouter<R extends Row>(routes: readonly R[]) {
  const rows = routes.map((route) => {
    const parts = splitPath(route.pattern);
    const shape = parts.join('/').replace(/\{[^/]*/g, PARAMETER);
    return {
      ...route,
      route,
      parts,
      shape,
    };
  });
  rows.forEach((row, at) => {
    const same = rows.slice(0, at).filter(({ shape }) => shape === row.shape);
    const rival = same.find(
      ({ method, parts }) => method === row.method || parts.join() !== row.parts.join(),
    );
    if (!rival) return;
    const names = [rival, row].map(({ method, pattern }) => `${method} ${pattern}`);
    throw new Error(`internal error: ${names.join(' and ')} match the same requests`);
  });
  const byLength = new Map<number, typeof rows>();
  for (const row of rows.sort((one, other) => (one.shape < other.shape ? -1 : 1))) {
    const { length } = row.parts;
    byLength.set(length, [...(byLength.get(length) ?? []), row]);
  }

  return (method: string, segments: readonly string[]) => {
    const candidates = byLength.get(segments.length) ?? [];
    const first = candidates.find(({ parts }) => matches(parts, segments));
    if (!first) return new Failure('no_such_path');
    const { parts, shape } = first;
    const same = candidates.filter((row) => row.shape === shape);
    // HEAD is answered wherever GET is (RFC 9110, 9.3.2).
    const wanted = method === 'HEAD' ? 'GET' : method;
    const found = same.find((row) => row.method === wanted);
    if (found) return { route: found.route, parameters: parametersOf(parts, segments) };
    const allowed = same.map((row) => row.method);
    if (allowed.includes('GET')) allowed.push('HEAD');
    if (!same.some((row) => row.isProxyCheck)) allowed.push('OPTIONS');
    return new Failure('method_not_allowed', { headers: { Allow: allowed.sort().join(', ') } });
  };
}

const matches = (parts: readonly string[], segments: readonly string[]) =>
  parts.every((part, at) => (isParameter(part) ? segments[at] !== '' : part === segments[at]));

const isParameter = (part: string) => part.startsWith('{');

/** The names of the parameters of a pattern. */
export const parameterNames = (pattern: string) =>
  Object.keys(parametersOf(splitPath(pattern), []));

/** Not by assignment: a parameter named `__proto__` would change the prototype. */
const parametersOf = (parts: readonly string[], segments: readonly string[]) =>
  Object.fromEntries(
    parts.flatMap((part, at) =>
      isParameter(part) ? [[part.slice(1, -1), segments[at] ?? ''] as const] : [],
    ),
  );
