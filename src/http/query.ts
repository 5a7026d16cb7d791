/** Query parameters as they came, decoded once; a name given twice keeps both values for the shapes to refuse. */
export type Query = ReadonlyMap<string, readonly string[]>;

const NO_QUERY: Query = new Map();

/**
 * Splits the target by hand: `new URL('//host/x', base)` would read a host where there is only a path.
 * @param target as in the request line
 * @returns `null` when it does not begin with exactly one `/`, or holds a malformed percent escape
 */
export function parseTarget(target: string): { path: string; segments: string[]; query: Query } | null {
  if (!target.startsWith('/') || target.startsWith('//')) return null;
  const mark = target.indexOf('?');
  const path = mark < 0 ? target : target.slice(0, mark);
  const segments = path.slice(1).split('/');
  // `/livez` and `/livez/` are the same place.
  if (segments.length > 1 && segments.at(-1) === '') segments.pop();
  try {
    return { path, segments: path.includes('%') ? segments.map(decodeURIComponent) : segments, query: mark < 0 ? NO_QUERY : parseQuery(target.slice(mark + 1)) };
  } catch {
    return null; // URIError: a malformed escape, or bytes that are not UTF-8
  }
}

function parseQuery(text: string): Query {
  const query = new Map<string, string[]>();
  for (const pair of text.split('&')) {
    if (pair === '') continue;
    const equals = pair.indexOf('=');
    const name = decode(equals < 0 ? pair : pair.slice(0, equals));
    const value = equals < 0 ? '' : decode(pair.slice(equals + 1));
    const values = query.get(name);
    if (values) values.push(value);
    else query.set(name, [value]);
  }
  return query;
}

const decode = (text: string) => decodeURIComponent(text.replaceAll('+', ' '));
