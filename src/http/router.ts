import { Failure } from './errors.ts';

/** A request target. `authority` is set in its absolute form, which every server must accept (RFC 9112, 3.2.2). */
type Target = { authority: string | null; path: string; segments: string[]; query: URLSearchParams };

/**
 * Splits a request target. `new URL('//host/x', base)` would read a host where there is only a path.
 * @returns null if the path does not start with exactly one `/`, or the target holds a malformed percent escape
 */
export function parseTarget(given: string): Target | null {
  const [, authority = null, rest = given] = /^https?:\/\/([^/?#]+)(.*)$/is.exec(given) ?? [];
  const target = authority !== null && !rest.startsWith('/') ? `/${rest}` : rest;
  const [, path, query = ''] = /^(\/(?!\/)[^?]*)\??(.*)$/s.exec(target) ?? [];
  if (path === undefined) return null;
  try {
    decodeURIComponent(query); // URLSearchParams accepts malformed escapes
    // The "&" protects a "?" at the start of the query.
    const parameters = new URLSearchParams(`&${query}`);
    return { authority, path, segments: splitPath(path).map(decodeURIComponent), query: parameters };
  } catch {
    return null; // URIError: a malformed escape, or bytes that are not UTF-8
  }
}

/** One trailing slash does not matter. */
const splitPath = (path: string): string[] => path.slice(1).replace(/\/$/, '').split('/');

type Match<R> = { readonly route: R; readonly parameters: Readonly<Record<string, string>> };

/**
 * A pattern is `/` and segments; `{name}` stands for one segment that is not empty. A static segment wins over a
 * parameter, whatever the order of the routes.
 * @returns finds a route; fails with `no_such_path`, or with `method_not_allowed` and the value of `Allow`
 */
export function createRouter<R extends { readonly method: string; readonly pattern: string }>(routes: readonly R[]) {
  const rows = routes.map((route) => {
    const parts = splitPath(route.pattern);
    // U+FFFF sorts after any other character, so a static segment comes before a parameter.
    return { route, parts, key: parts.join('/').replaceAll('{', '\uffff') };
  });
  rows.sort((one, other) => (one.key < other.key ? -1 : 1));
  const byKey = new Map(rows.map(({ key }) => [key, rows.filter((row) => row.key === key)]));
  const find = (wanted: readonly string[]) => rows.find(({ parts }) => isMatch(parts, wanted))?.key ?? '/'; // no key
  return (method: string, segments: readonly string[]): Match<R> | Failure => {
    const fixed = byKey.get(segments.join('/')); // of the same length, unless a segment has an escaped slash
    const path = (fixed?.[0]?.parts.length === segments.length ? fixed : byKey.get(find(segments))) ?? [];
    if (path.length === 0) return new Failure('no_such_path');
    // HEAD is answered wherever GET is (RFC 9110, 9.3.2).
    const found = path.find(({ route }) => route.method === (method === 'HEAD' ? 'GET' : method));
    if (!found) return new Failure('method_not_allowed', { headers: allow(path.map(({ route }) => route.method)) });
    const given = found.parts.map((part, at) => [part.slice(1, -1), segments[at] ?? ''] as const);
    const parameters = Object.fromEntries(given.filter((_, at) => found.parts[at]?.startsWith('{')));
    return { route: found.route, parameters };
  };
}

const isMatch = (parts: readonly string[], segments: readonly string[]): boolean =>
  parts.length === segments.length &&
  parts.every((part, at) => (part.startsWith('{') ? segments[at] !== '' : part === segments[at]));

const allow = (methods: readonly string[]) =>
  ({ Allow: [...methods, ...(methods.includes('GET') ? ['HEAD'] : []), 'OPTIONS'].sort().join(', ') });
