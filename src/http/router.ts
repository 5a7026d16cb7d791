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

/** What the router needs of a row; it carries the rest through untouched. */
interface Located {
  readonly method: string;
  readonly pattern: string;
}

export type Match<R> =
  | { readonly kind: 'found'; readonly route: R; readonly parameters: Readonly<Record<string, string>> }
  | { readonly kind: 'no_such_path' }
  /** The path is known, but not under this method. `allow` is the value of the Allow header. */
  | { readonly kind: 'method_not_allowed'; readonly allow: string };

interface Node<R> {
  readonly children: Map<string, Node<R>>;
  parameter: { readonly name: string; readonly node: Node<R> } | null;
  readonly methods: Map<string, R>;
}

/**
 * Builds the tree once, at start. A pattern is `/` and segments; `{name}` stands for one segment that is not empty.
 * A static segment wins over a parameter, whatever the order of the rows.
 * @throws when two rows cannot be told apart, or one place is named differently in two patterns
 */
export function createRouter<R extends Located>(rows: readonly R[]) {
  const root = createNode<R>();
  for (const row of rows) insert(root, row);
  return (method: string, segments: readonly string[]): Match<R> => {
    const found = find(root, segments, 0, []);
    if (!found) return { kind: 'no_such_path' };
    // HEAD is answered wherever GET is (RFC 9110, 9.3.2).
    const route = found.node.methods.get(method === 'HEAD' ? 'GET' : method);
    if (!route) return { kind: 'method_not_allowed', allow: allowed(found.node) };
    return { kind: 'found', route, parameters: found.parameters.length === 0 ? NO_PARAMETERS : Object.fromEntries(found.parameters) };
  };
}

const NO_PARAMETERS = {};
const createNode = <R>(): Node<R> => ({ children: new Map(), parameter: null, methods: new Map() });

export function segmentsOf(pattern: string): string[] {
  const segments = pattern.slice(1).split('/');
  if (segments.length > 1 && segments.at(-1) === '') segments.pop();
  return segments;
}

function insert<R extends Located>(root: Node<R>, row: R): void {
  if (!row.pattern.startsWith('/')) throw new Error(`route ${row.method} ${row.pattern}: a pattern begins with "/"`);
  let node = root;
  for (const segment of segmentsOf(row.pattern)) {
    const name = /^\{([a-z_]+)\}$/.exec(segment)?.[1];
    if (name === undefined) {
      if (/[{}]/.test(segment)) throw new Error(`route ${row.method} ${row.pattern}: a parameter is a whole segment such as {user_id}`);
      const next = node.children.get(segment) ?? createNode<R>();
      node.children.set(segment, next);
      node = next;
    } else {
      node.parameter ??= { name, node: createNode<R>() };
      if (node.parameter.name !== name) {
        throw new Error(`route ${row.method} ${row.pattern}: {${name}} is called {${node.parameter.name}} in another pattern`);
      }
      node = node.parameter.node;
    }
  }
  const taken = node.methods.get(row.method);
  if (taken) throw new Error(`route ${row.method} ${row.pattern} is the same as ${taken.method} ${taken.pattern}`);
  node.methods.set(row.method, row);
}

type Found<R> = { node: Node<R>; parameters: Array<[string, string]> };

function find<R>(node: Node<R>, segments: readonly string[], index: number, parameters: Array<[string, string]>): Found<R> | null {
  const segment = segments[index];
  if (segment === undefined) return node.methods.size > 0 ? { node, parameters } : null;
  const child = node.children.get(segment);
  const straight = child ? find(child, segments, index + 1, parameters) : null;
  if (straight || !node.parameter || segment === '') return straight;
  return find(node.parameter.node, segments, index + 1, [...parameters, [node.parameter.name, segment]]);
}

function allowed<R>(node: Node<R>): string {
  const methods = [...node.methods.keys()];
  return [...methods, ...(methods.includes('GET') ? ['HEAD'] : []), 'OPTIONS'].sort().join(', ');
}
