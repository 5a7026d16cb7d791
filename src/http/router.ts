/** Query parameters, decoded once. A name given twice keeps both values, so that the shapes can reject it. */
export type Query = ReadonlyMap<string, readonly string[]>;
const NO_QUERY: Query = new Map();

/** A request target. `authority` is set in its absolute form, which every server must accept (RFC 9112, 3.2.2). */
type Target = { authority: string | null; path: string; segments: string[]; query: Query };

/**
 * Splits a request target. `new URL('//host/x', base)` would read a host where there is only a path.
 * @returns null if the path does not start with exactly one `/`, or the target holds a malformed percent escape
 */
export function parseTarget(given: string): Target | null {
  const [, authority = null, rest = given] = /^https?:\/\/([^/?#]+)(.*)$/is.exec(given) ?? [];
  const target = authority !== null && !rest.startsWith('/') ? `/${rest}` : rest;
  if (!target.startsWith('/') || target.startsWith('//')) return null;
  const mark = target.indexOf('?');
  const path = mark < 0 ? target : target.slice(0, mark);
  try {
    const segments = splitPath(path).map(decodeURIComponent);
    return { authority, path, segments, query: mark < 0 ? NO_QUERY : parseQuery(target.slice(mark + 1)) };
  } catch {
    return null; // URIError: a malformed escape, or bytes that are not UTF-8
  }
}

/** One trailing slash does not matter. */
function splitPath(path: string): string[] {
  const segments = path.slice(1).split('/');
  if (segments.length > 1 && segments.at(-1) === '') segments.pop();
  return segments;
}

function parseQuery(text: string): Query {
  decodeURIComponent(text); // URLSearchParams accepts malformed escapes
  const query = new Map<string, string[]>();
  // The "&" protects a "?" at the start of the query.
  for (const [name, value] of new URLSearchParams(`&${text}`)) {
    const values = query.get(name);
    if (values) values.push(value);
    else query.set(name, [value]);
  }
  return query;
}

/** What the router needs to know of a route. */
interface Located {
  readonly method: string;
  readonly pattern: string;
}

export type Match<R> =
  | { readonly kind: 'found'; readonly route: R; readonly parameters: Readonly<Record<string, string>> }
  | { readonly kind: 'no_such_path' }
  /** The path exists, but not with this method. `allow` is the value of the Allow header. */
  | { readonly kind: 'method_not_allowed'; readonly allow: string };

/**
 * A pattern is `/` and segments; `{name}` stands for one segment that is not empty. A static segment wins over a
 * parameter, whatever the order of the routes.
 */
export function createRouter<R extends Located>(routes: readonly R[]) {
  type Path = { readonly key: string; readonly parts: readonly string[]; readonly methods: Map<string, R> };
  const byLength = new Map<number, Path[]>();
  for (const route of routes) {
    const parts = splitPath(route.pattern);
    // U+FFFF sorts after any other character, so a static segment comes before a parameter.
    const key = parts.join('/').replaceAll('{', '\uffff');
    const paths = byLength.get(parts.length) ?? [];
    const path = paths.find((one) => one.key === key) ?? { key, parts, methods: new Map<string, R>() };
    path.methods.set(route.method, route);
    if (!paths.includes(path)) paths.push(path);
    byLength.set(parts.length, paths.sort((one, other) => (one.key < other.key ? -1 : 1)));
  }
  return (method: string, segments: readonly string[]): Match<R> => {
    for (const { parts, methods } of byLength.get(segments.length) ?? []) {
      const parameters = parametersOf(parts, segments);
      if (!parameters) continue;
      // HEAD is answered wherever GET is (RFC 9110, 9.3.2).
      const route = methods.get(method === 'HEAD' ? 'GET' : method);
      return route ? { kind: 'found', route, parameters } : { kind: 'method_not_allowed', allow: allowed(methods) };
    }
    return { kind: 'no_such_path' };
  };
}

/** @returns null if the segments do not match the parts of a pattern with as many parts */
function parametersOf(parts: readonly string[], segments: readonly string[]): Record<string, string> | null {
  const parameters: Array<[string, string]> = [];
  for (const [at, part] of parts.entries()) {
    const segment = segments[at] ?? '';
    if (!part.startsWith('{')) {
      if (segment !== part) return null;
    } else if (segment === '') return null;
    else parameters.push([part.slice(1, -1), segment]);
  }
  return Object.fromEntries(parameters);
}

const allowed = (methods: ReadonlyMap<string, unknown>) =>
  [...methods.keys(), ...(methods.has('GET') ? ['HEAD'] : []), 'OPTIONS'].sort().join(', ');
