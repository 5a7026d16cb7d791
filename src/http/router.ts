import { Failure } from './errors.ts';

/** A request target. `authority` is set in its absolute form, which every server must accept (RFC 9112, 3.2.2). */
type Target = {
  authority: string | null;
  path: string;
  segments: string[];
  query: URLSearchParams;
};

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
    return {
      authority,
      path,
      segments: splitPath(path).map(decodeURIComponent),
      query: parameters,
    };
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
export function createRouter<R extends { readonly method: string; readonly pattern: string }>(
  routes: readonly R[],
) {
  // U+FFFF sorts after any other character, so a static segment comes before a parameter.
  const rows = routes.map((route) => ({
    route,
    key: splitPath(route.pattern).join('/').replaceAll('{', '\uffff'),
  }));
  const byKey = new Map(
    rows
      .sort((one, other) => (one.key < other.key ? -1 : 1))
      .map(({ route, key }) => {
        const parts = splitPath(route.pattern);
        const names = parts.flatMap((part, at) =>
          part.startsWith('{') ? [[part.slice(1, -1), at] as const] : [],
        );
        const methods = new Map(
          rows.filter((row) => row.key === key).map((row) => [row.route.method, row.route]),
        );
        const get = methods.get('GET');
        if (get) methods.set('HEAD', get); // answered wherever GET is (RFC 9110, 9.3.2)
        return [key, { parts, names, methods }];
      }),
  );
  const paths = [...byKey.values()];
  return (method: string, segments: readonly string[]): Match<R> | Failure => {
    const fixed = byKey.get(segments.join('/')); // of the same length, unless a segment has an escaped slash
    const isFixed = fixed?.parts.length === segments.length;
    const path = isFixed ? fixed : paths.find(({ parts }) => isMatch(parts, segments));
    if (!path) return new Failure('no_such_path');
    const route = path.methods.get(method);
    if (!route) return new Failure('method_not_allowed', { headers: allow(path.methods) });
    return {
      route,
      parameters: Object.fromEntries(path.names.map(([name, at]) => [name, segments[at] ?? ''])),
    };
  };
}

const isMatch = (parts: readonly string[], segments: readonly string[]): boolean =>
  parts.length === segments.length &&
  parts.every((part, at) => (part.startsWith('{') ? segments[at] !== '' : part === segments[at]));

const allow = (methods: ReadonlyMap<string, unknown>) => ({
  Allow: [...methods.keys(), 'OPTIONS'].sort().join(', '),
});
