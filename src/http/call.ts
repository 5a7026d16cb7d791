import type { IncomingHttpHeaders } from 'node:http';
import { type BodyRule, noBody } from './body.ts';
import { type ErrorCode, Failure, type FieldError } from './errors.ts';
import { createRouter, type Query } from './router.ts';
import { type JsonSchema, noInput, type Shape, validate } from './shape.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
export type SuccessStatus = 200 | 201;

/** Who is at the door and what was asked, before anything about them is known. Plain data: no socket. */
export interface RequestInfo {
  readonly requestId: string;
  readonly path: string;
  /** The values of the pattern's parameters, percent-decoded. */
  readonly parameters: Readonly<Record<string, string>>;
  readonly query: Query;
  readonly headers: IncomingHttpHeaders;
  /** The client's address, behind trusted proxies where there are any. */
  readonly address: string;
}

/** A request whose credential and input have been checked. */
export interface Call<Caller, Path, Search, Body> {
  readonly request: RequestInfo;
  readonly caller: Caller;
  readonly path: Path;
  readonly query: Search;
  readonly body: Body;
  /** The body as it came, byte for byte. */
  readonly raw: Buffer;
}

export interface Pagination {
  readonly page: number;
  readonly limit: number;
  readonly total: number;
  readonly total_pages: number;
}

/** A success. How it is wrapped is the service's envelope; the status is the row's. */
export type Reply<Data> =
  | {
      readonly data: Data;
      readonly pagination?: Pagination;
      readonly links?: Readonly<Record<string, string>>;
      readonly headers?: Readonly<Record<string, string>>;
    }
  /** The items of a list that may be long, some at a time, written as fast as the client reads. */
  | { readonly items: AsyncIterable<Data> }
  /** Text that goes on for as long as the client stays. */
  | { readonly stream: AsyncIterable<string>; readonly contentType: string }
  | { readonly text: string; readonly contentType: string; readonly headers?: Readonly<Record<string, string>> };

/** Turns a request's credential into a caller. Runs before the body is read, so that a stranger costs little. */
export interface Guard<Service, Caller> {
  /** OpenAPI security schemes, any one of which suffices; none for an open door. */
  readonly security: readonly string[];
  readonly errors: readonly ErrorCode[];
  check(request: RequestInfo, service: Service): Promise<Caller | Failure>;
}

/** No credential is asked for. */
export const anonymous: Guard<unknown, null> = { security: [], errors: [], check: async () => null };

/** What most rows have in common; a row spreads it first and names what is different. */
export const routeDefaults = { path: noInput, query: noInput, body: noBody, success: 200, errors: [] } as const;

/** One row of a route table, with its types. */
export interface RouteDefinition<Service, Caller, Path, Search, Body, Data, Code extends ErrorCode> {
  readonly method: Method;
  /** `/api/session/{session_id}/revoke`; a trailing slash does not matter when matching. */
  readonly pattern: string;
  readonly summary: string;
  readonly guard: Guard<Service, Caller>;
  readonly path: Shape<Path>;
  readonly query: Shape<Search>;
  readonly body: BodyRule<Body>;
  readonly success: SuccessStatus;
  /** What `data` holds; `null` where no body is described. */
  readonly reply: Shape<Data> | null;
  /** Whether the reply carries `_meta.pagination` and `_links`. */
  readonly paged?: 'always' | 'if asked';
  /** Those that the handler itself may answer; the compiler refuses any other. */
  readonly errors: readonly Code[];
  handle(call: Call<Caller, Path, Search, Body>, service: Service): Promise<Reply<Data> | Failure<NoInfer<Code>>>;
}

/** The same row with its types folded in, so that rows of different types fit one table. */
export interface Route<Service> {
  readonly method: Method;
  readonly pattern: string;
  readonly summary: string;
  readonly success: SuccessStatus;
  readonly security: readonly string[];
  readonly paged: 'always' | 'if asked' | 'never';
  readonly schemas: { path: JsonSchema; query: JsonSchema; body: JsonSchema | null; reply: JsonSchema | null };
  /** Everything this row may answer but a success. */
  readonly errors: readonly ErrorCode[];
  /** Guard, then body, then shapes, then handler. `readBody` is called at most once, and only for an admitted request. */
  answer(request: RequestInfo, service: Service, readBody: () => Promise<Buffer | Failure>): Promise<Reply<unknown> | Failure>;
}

export function route<Service, Caller, Path, Search, Body, Data, Code extends ErrorCode = never>(
  row: RouteDefinition<Service, Caller, Path, Search, Body, Data, Code>,
): Route<Service> {
  return {
    method: row.method,
    pattern: row.pattern,
    summary: row.summary,
    success: row.success,
    security: row.guard.security,
    paged: row.paged ?? 'never',
    schemas: { path: row.path.schema, query: row.query.schema, body: row.body.schema, reply: row.reply?.schema ?? null },
    errors: possibleErrors(row),
    async answer(request, service, readBody) {
      let caller = await row.guard.check(request, service);
      if (caller instanceof Failure) return caller;
      const refused = row.body.accepts(request.headers);
      if (refused) return refused;
      if (!row.body.schema) return handle(row, request, caller, NO_BYTES, service);
      const checkedAt = performance.now();
      const raw = await readBody();
      if (raw instanceof Failure) return raw;
      // A body may take its time, and the caller's rights may have ended meanwhile.
      if (performance.now() - checkedAt > RIGHTS_MS) caller = await row.guard.check(request, service);
      return caller instanceof Failure ? caller : handle(row, request, caller, raw, service);
    },
  };
}

/** Apart from what waits, because V8 keeps all that an async function may ever need for as long as it waits. */
function handle<Service, Caller, Path, Search, Body, Data, Code extends ErrorCode>(
  row: RouteDefinition<Service, Caller, Path, Search, Body, Data, Code>,
  request: RequestInfo,
  caller: Caller,
  raw: Buffer,
  service: Service,
): Failure | Promise<Reply<Data> | Failure> {
  const path = validate(row.path, request.parameters, '');
  if (!path.ok) return invalid('invalid_path', path.errors);
  const query = validate(row.query, request.query, '');
  if (!query.ok) return invalid('invalid_query', query.errors);
  const body = row.body.parse(raw);
  if (!body.ok) return invalid('invalid_body', body.errors);
  return row.handle({ request, caller, path: path.value, query: query.value, body: body.value, raw }, service);
}

/** How long ago a caller may have been looked up when the handler begins. */
const RIGHTS_MS = 500;
const NO_BYTES = Buffer.alloc(0);
const invalid = (code: ErrorCode, fields: readonly FieldError[]) => new Failure(code, { fields });

function possibleErrors(row: {
  guard: { errors: readonly ErrorCode[] };
  path: { schema: JsonSchema };
  query: { schema: JsonSchema };
  body: { schema: JsonSchema | null; errors: readonly ErrorCode[] };
  errors: readonly ErrorCode[];
}): ErrorCode[] {
  const asks = (schema: JsonSchema) => Object.keys(schema.properties ?? {}).length > 0;
  const errors: ErrorCode[] = [...row.guard.errors, ...row.body.errors, ...row.errors, 'internal', 'overloaded'];
  if (asks(row.path.schema)) errors.push('invalid_path');
  if (asks(row.query.schema)) errors.push('invalid_query');
  return [...new Set(errors)];
}

/** Finds the row for a method and a path. */
export type RouteMatcher = ReturnType<typeof createRouter<BoundRoute>>;

/** A row with its service folded in, so that a listener need not know what kind of service that is. */
interface BoundRoute extends Pick<Route<unknown>, 'method' | 'pattern' | 'success'> {
  /** Method and pattern, as log and metrics name it. */
  readonly name: string;
  answer(request: RequestInfo, readBody: () => Promise<Buffer | Failure>): Promise<Reply<unknown> | Failure>;
}

export const bindRoutes = <Service>(routes: ReadonlyArray<Route<Service>>, service: Service): RouteMatcher =>
  createRouter(
    routes.map(({ method, pattern, success, answer }) => ({
      name: `${method} ${pattern}`,
      method,
      pattern,
      success,
      answer: (request, readBody) => answer(request, service, readBody),
    })),
  );
