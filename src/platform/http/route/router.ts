import type { IncomingMessage } from 'node:http';
import { Failure } from './errors.ts';

/**
 * Splits a request target. `new URL('//host/x', base)` would read a host where there is only a
 * path.
 * @returns `authority` of the absolute form, which every server must accept (RFC 9112, 3.2.2), or
 * null; in place of all, null if the path does not start with exactly one `/`, or the target holds
 * a malformed percent escape
 */
export function parseTarget(given: string) {
  const [, authority = null, rest = given] = /^https?:\/\/([^/?#]+)(.*)$/is.exec(given) ?? [];
  const target = authority !== null && !rest.startsWith('/') ? `/${rest}` : rest;
  const [, path, query = ''] = /^(\/(?!\/)[^?]*)\??(.*)$/s.exec(target) ?? [];
  if (path === undefined) return null;
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

type Row = Readonly<{ method: string; pattern: string }>;
type Path<R> = Readonly<{ parts: readonly string[]; methods: Map<string, R> }>;

/**
 * A pattern is `/` and segments; `{name}` stands for one segment that is not empty. A static
 * segment wins over a parameter, whatever the order of the routes.
 * @returns finds a route; fails with `no_such_path`, or with `method_not_allowed` and the value of
 * `Allow`
 * @throws if two routes match the same requests: one of them would never be reached
 */
export function createRouter<R extends Row>(routes: readonly R[]) {
  const byShape = new Map<string, Path<R>>();
  for (const route of routes) addTo(byShape, route);
  const sorted = [...byShape].sort(([one], [other]) => (one < other ? -1 : 1));
  const paths = sorted.map(([, path]) => path);

  return (method: string, segments: readonly string[]) => {
    const path = paths.find(({ parts }) => isMatch(parts, segments));
    if (!path) return new Failure('no_such_path');
    const route = path.methods.get(method);
    if (route) return { route, parameters: parametersOf(path.parts, segments) };
    const allowed = [...path.methods.keys(), 'OPTIONS'].sort().join(', ');
    return new Failure('method_not_allowed', { headers: { Allow: allowed } });
  };
}

function addTo<R extends Row>(byShape: Map<string, Path<R>>, route: R) {
  const parts = splitPath(route.pattern);
  const shape = shapeOf(parts);
  const { methods, parts: present } = byShape.get(shape) ?? {
    parts,
    methods: new Map<string, R>(),
  };
  const isRenamed = present.join() !== parts.join();
  const rival = methods.get(route.method) ?? (isRenamed ? [...methods.values()][0] : undefined);
  if (rival) {
    const names = [rival, route].map(({ method, pattern }) => `${method} ${pattern}`);
    throw new Error(`internal error: ${names.join(' and ')} match the same requests`);
  }
  methods.set(route.method, route);
  // HEAD is answered wherever GET is (RFC 9110, 9.3.2).
  if (route.method === 'GET') methods.set('HEAD', route);
  byShape.set(shape, { parts, methods });
}

const isParameter = (part: string) => part.startsWith('{');

/** The names of the parameters of a pattern. */
export const parameterNames = (pattern: string): readonly string[] =>
  splitPath(pattern)
    .filter(isParameter)
    .map((part) => part.slice(1, -1));

/** Sorts a static segment before a parameter, for which the last character stands. */
const shapeOf = (parts: readonly string[]) =>
  parts.map((part) => (isParameter(part) ? '\uffff' : part)).join('/');

function isMatch(parts: readonly string[], segments: readonly string[]) {
  if (parts.length !== segments.length) return false;
  return parts.every((part, at) =>
    isParameter(part) ? segments[at] !== '' : part === segments[at],
  );
}

/** Not by assignment: a parameter named `__proto__` would change the prototype. */
function parametersOf(parts: readonly string[], segments: readonly string[]) {
  const parameters = new Map<string, string>();
  for (const [at, part] of parts.entries()) {
    if (isParameter(part)) parameters.set(part.slice(1, -1), segments[at] ?? '');
  }
  return Object.fromEntries(parameters);
}
