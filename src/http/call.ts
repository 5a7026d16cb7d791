import type { IncomingHttpHeaders } from 'node:http';
import { type BodyRule, noBody } from './body.ts';
import { type ErrorCode, Failure, type FieldError, type TextReply } from './errors.ts';
import { createRouter } from './router.ts';
import { type JsonSchema, noInput, noQuery, type Shape, validate } from './shape.ts';

/** A request before its credential and input are checked. Plain data: no socket. */
export interface RequestInfo {
  readonly requestId: string;
  readonly path: string;
  /** The values of the pattern's parameters, percent-decoded. */
  readonly parameters: Readonly<Record<string, string>>;
  /** Decoded once. */
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  /** The client's address, which trusted proxies may have forwarded. */
  readonly address: string;
  readonly network: string; // of the address; throttles count by it
  /** Whether a trusted proxy sent the request, whose `X-Forwarded-` headers are believed. */
  readonly isFromProxy: boolean;
}

/** The credential of `Authorization: Bearer …` (RFC 6750, 2.1), or null. The scheme is case-insensitive. */
export const bearerOf = (authorization: string | undefined): string | null =>
  /^bearer +([^\s]+) *$/i.exec(authorization ?? '')?.[1] ?? null;

/** A request whose credential and input were checked. */
export interface Call<Caller, Path, Search, Body> {
  readonly request: RequestInfo;
  readonly caller: Caller;
  readonly path: Path;
  readonly query: Search;
  readonly body: Body;
}

type Headers = Readonly<Record<string, string>>;
type Pagination = Readonly<Record<'page' | 'limit' | 'total' | 'total_pages', number>>;

/** How a service wraps its successes: `{data, _meta}` or the bare data. */
export type Envelope = 'data' | 'bare';

/** A success. The service decides the envelope, the route the status. */
export type Reply<Data> =
  | {
      readonly data: Data;
      readonly pagination?: Pagination;
      readonly links?: Headers;
      readonly headers?: Headers;
    }
  /** A list of any length in batches, written as fast as the client reads. */
  | { readonly items: AsyncIterable<Data> }
  /** A stream continues until the client disconnects. */
  | TextReply<string | Uint8Array | AsyncIterable<string>>;

/** Turns a credential into a caller, before the body is read: an unauthenticated request must cost little. */
export interface Guard<Service, Caller> {
  /** OpenAPI security schemes, any one of which suffices; empty if no credential is needed. */
  readonly security: readonly string[];
  readonly errors: readonly ErrorCode[];
  check(request: RequestInfo, service: Service): Promise<Caller | Failure>;
  /** Ids for the log, never a credential (ASVS 16.2.1). */
  readonly idsOf?: (caller: Caller) => CallerIds;
}

export type CallerIds = Readonly<Record<string, string | undefined>>;

/** Needs no credential. */
export const anonymous: Guard<unknown, null> = {
  security: [],
  errors: [],
  check: async () => null,
};

/** What most routes share. A query is rejected unless a row takes parameters or, by `noInput`, ignores them. */
export const routeDefaults = {
  path: noInput,
  query: noQuery,
  body: noBody,
  success: 200,
  paged: 'never',
  errors: [],
} as const;

/** What routing and the OpenAPI document need to know of a route. */
interface RouteFacts {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** `/api/session/{session_id}/revoke`; a trailing slash does not matter. */
  readonly pattern: string;
  readonly summary: string;
  readonly success: 200 | 201;
  /** Whether the reply carries `_meta.pagination` and `_links`. */
  readonly paged: 'always' | 'if asked' | 'never';
  /** For a page: shows a failure to a person, as HTML. */
  readonly failurePage?: (failure: Failure) => TextReply;
}

/** One row of a route table, with its types. */
interface RouteDefinition<
  Service,
  Caller,
  Path,
  Search,
  Body,
  Data,
  Code extends ErrorCode,
> extends RouteFacts {
  readonly guard: Guard<Service, Caller>;
  readonly path: Shape<Path>;
  readonly query: Shape<Search>;
  readonly body: BodyRule<Body>;
  /** For callers that may send bodies of another size than MAX_BODY_BYTES. */
  readonly maxBodyBytes?: (caller: Caller, service: Service) => number | undefined;
  /** What `data` holds; null if the document does not describe it. */
  readonly reply: Shape<Data> | null;
  /** What the handler itself may return. The compiler rejects any other code. */
  readonly errors: readonly Code[];
  handle(
    call: Call<Caller, Path, Search, Body>,
    service: Service,
  ): Promise<Reply<Data> | Failure<NoInfer<Code>>>;
}

export interface Hooks {
  /** Called at most once, and only after the guard. */
  readonly readBody: (maxBytes?: number) => Promise<Buffer | Failure>;
  readonly identified: (ids: CallerIds) => void;
}

/** The same row without its types, so that different rows fit in one table. */
export interface Route<Service> extends RouteFacts {
  readonly security: readonly string[];
  readonly schemas: {
    path: JsonSchema;
    query: JsonSchema;
    body: JsonSchema | null;
    reply: JsonSchema | null;
  };
  /** Every error that the row may return. */
  readonly errors: readonly ErrorCode[];
  /** Guard, then body, then shapes, then handler. */
  answer(request: RequestInfo, service: Service, hooks: Hooks): Promise<Reply<unknown> | Failure>;
}

/** How old the result of the guard may be, in milliseconds, when the handler starts. */
const MAX_CALLER_AGE_MS = 500;
const NO_BYTES = Buffer.alloc(0);

export function route<Service, Caller, Path, Search, Body, Data, Code extends ErrorCode = never>(
  row: RouteDefinition<Service, Caller, Path, Search, Body, Data, Code>,
): Route<Service> {
  const { guard, path, query, body, reply } = row;
  const errors: ErrorCode[] = [
    ...guard.errors,
    ...body.errors,
    ...row.errors,
    'internal',
    'overloaded',
  ];
  if (row.method !== 'GET') errors.push('cross_site');
  if (path.schema !== noInput.schema) errors.push('invalid_path');
  if (query.schema !== noInput.schema) errors.push('invalid_query');
  return {
    ...row,
    security: guard.security,
    schemas: {
      path: path.schema,
      query: query.schema,
      body: body.schema,
      reply: reply?.schema ?? null,
    },
    errors: [...new Set(errors)],
    async answer(request, service, { readBody, identified }) {
      let caller = await guard.check(request, service);
      if (caller instanceof Failure) return caller;
      if (guard.idsOf) identified(guard.idsOf(caller));
      let raw: Buffer | Failure = NO_BYTES;
      if (body.schema) {
        const unacceptable = body.accepts(request.headers);
        if (unacceptable) return unacceptable;
        const checkedAt = performance.now();
        raw = await readBody(row.maxBodyBytes?.(caller, service));
        if (raw instanceof Failure) return raw;
        // A slow body gives the caller's rights time to end.
        if (performance.now() - checkedAt > MAX_CALLER_AGE_MS)
          caller = await guard.check(request, service);
        if (caller instanceof Failure) return caller;
      }
      const checkedPath = validate(path, request.parameters, '');
      if (!checkedPath.ok) return invalid('invalid_path', checkedPath.errors);
      const checkedQuery = validate(query, request.query, '');
      if (!checkedQuery.ok) return invalid('invalid_query', checkedQuery.errors);
      const parsed = body.parse(raw);
      if (!parsed.ok) return invalid('invalid_body', parsed.errors);
      const call = {
        request,
        caller,
        path: checkedPath.value,
        query: checkedQuery.value,
        body: parsed.value,
      };
      return row.handle(call, service);
    },
  };
}

const invalid = (code: ErrorCode, fields: readonly FieldError[]) => new Failure(code, { fields });

/** A router with its service bound, so that a listener does not need to know the type of the service. */
export const bindRoutes = <Service>(routes: ReadonlyArray<Route<Service>>, service: Service) =>
  createRouter(
    routes.map((row) => ({
      ...row,
      answer: (request: RequestInfo, hooks: Hooks) => row.answer(request, service, hooks),
    })),
  );

export type RouteMatcher = ReturnType<typeof bindRoutes>;

/** What the OpenAPI document says about a service, besides its routes. The version is that of the interface. */
export interface DocumentFacts extends Readonly<Record<'title' | 'about' | 'version', string>> {
  readonly envelope: Envelope;
  readonly securitySchemes: Readonly<Record<string, object>>;
}
