import { type BodyRule, noBody } from './json-body.ts';
import {
  type CallerIds,
  type ErrorCode,
  Failure,
  type FailurePage,
  type TextReply,
} from './errors.ts';
import { createRouter, parameterNames } from './router.ts';
import { noInput, queryParameters, type Schema, validate } from './schema.ts';
import type { ReceivedRequest } from '../wire/received.ts';

// So that a file with routes needs one import.
export { type ErrorCode, Failure, type TextReply };

/** A request that has a route. */
export interface RequestInfo extends ReceivedRequest {
  /** Whether a browser says that a page of this host sent the request. */
  readonly isFromOwnPage: boolean;
  readonly path: string;
  /** Decoded once. */
  readonly query: URLSearchParams;
  /** The values of the pattern's parameters, percent-decoded. */
  readonly parameters: Readonly<Record<string, string>>;
  /** Method and pattern of the route. Never the path, which may contain a credential. */
  readonly route: string;
}

/** A request whose credential and input were checked. */
export type Call<Caller, Path, Search, Body> = Readonly<{
  request: RequestInfo;
  caller: Caller;
  path: Path;
  query: Search;
  body: Body;
}>;

type Headers = Readonly<Record<string, string>>;

/** A success is `{data, _meta}`, or the bare data. */
export type Wrapping = 'data' | 'bare';

/** How the replies of a service differ from those of the others. */
export interface ResponseStyle {
  readonly wrapping: Wrapping;
  /** If a dependency fails: the specification requires 500 from identity; the others return 503. */
  readonly unavailable: 'service_failed' | 'unavailable';
}

/** A success. The service decides how it is wrapped, the route the status. */
export type Reply<Data> =
  | Readonly<{
      data: Data;
      pagination?: Readonly<Record<'page' | 'limit' | 'total' | 'total_pages', number>>;
      links?: Headers;
      headers?: Headers;
      /** Further ids for the line of the request in the log. */
      ids?: CallerIds;
    }>
  /** A list of any length in batches, written as fast as the client reads. */
  | { readonly items: AsyncIterable<Data> }
  /** A stream continues until the client disconnects. */
  | TextReply<string | Uint8Array | AsyncIterable<string>>;

/**
 * Turns a credential into a caller, before the body is read: an unauthenticated request must cost
 * little.
 */
export interface Guard<Service, Caller> {
  /** OpenAPI security schemes, any one of which suffices; empty if no credential is needed. */
  readonly security: readonly string[];
  readonly errors: readonly ErrorCode[];
  check(request: RequestInfo, service: Service): Promise<Caller | Failure>;
  /** Whether a caller that was let in sent no credential; by default, if none is asked for. */
  readonly isAnonymous?: (caller: Caller) => boolean;
  /** Ids for the log, never a credential (ASVS 16.2.1). */
  readonly idsOf?: (caller: Caller) => CallerIds;
}

/** Needs no credential. */
export const anonymous: Guard<unknown, null> = {
  security: [],
  errors: [],
  check: async () => null,
};

/**
 * What most routes share. A query is rejected unless a row takes parameters or, by `noInput`,
 * ignores them.
 */
export const routeDefaults = {
  path: noInput,
  query: queryParameters({}),
  body: noBody,
  success: 200,
  paged: 'never',
  errors: [],
} as const;

/** A page or a description that anyone may read. Programs that share a link may add parameters. */
export const publicRead = {
  ...routeDefaults,
  method: 'GET',
  guard: anonymous,
  query: noInput,
  reply: null,
} as const;

/** One row of a route table. */
type RouteDefinition<Service, Caller, Path, Search, Body, Data, Code extends ErrorCode> = Readonly<{
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** `/api/session/{session_id}/revoke`; a trailing slash does not matter. */
  pattern: string;
  summary: string;
  guard: Guard<Service, Caller>;
  path: Schema<Path>;
  query: Schema<Search>;
  body: BodyRule<Body>;
  /** Counts a call whose number is limited, once and before its body is read. */
  limit?: (
    caller: Caller,
    request: RequestInfo,
    service: Service,
  ) => Promise<null | Failure<NoInfer<Code>>>;
  /**
   * For callers that may send bodies of another size than MAX_BODY_BYTES. Not for a guard that asks
   * for no credential.
   */
  maxBodyBytes?: (caller: Caller, service: Service) => number | undefined;
  success: 200 | 201;
  /** Set if pages of other sites may send requests, which carry a credential of their own. */
  anySite?: boolean;
  /**
   * Any success admits a request at a proxy. Such a proxy may pass the client's method on, so
   * OPTIONS is refused.
   */
  isProxyCheck?: true;
  /** What `data` holds; null if the document does not describe it. */
  reply: Schema<Data> | null;
  /** Whether the reply carries `_meta.pagination` and `_links`. */
  paged: 'always' | 'if asked' | 'never';
  /** What the handler itself may return. The compiler rejects any other code. */
  errors: readonly Code[];
  /** For the document: content type of a text, headers, and what an empty reply says. */
  replyType?: string;
  replyHeaders?: readonly string[];
  emptyReply?: string;
  failurePage?: FailurePage;
  handle(
    call: Call<Caller, Path, Search, Body>,
    service: Service,
  ): Promise<Reply<Data> | Failure<NoInfer<Code>>>;
}>;

/** A row without the types of its input, so that all rows fit in one table. */
export interface Route<Service> extends Omit<
  RouteDefinition<Service, unknown, unknown, unknown, unknown, unknown, ErrorCode>,
  'guard' | 'limit' | 'maxBodyBytes' | 'handle'
> {
  readonly security: readonly string[];
  /** Whether it only helps a person who opens the address: not in the documents. */
  readonly isUnlisted?: boolean;
  /**
   * Guard, then body, then schemas, then handler. `errors` has what each of them may return.
   * @param readBody is called at most once, and only after the guard
   */
  answer(
    request: RequestInfo,
    service: Service,
    readBody: ReadBody,
  ): Promise<Reply<unknown> | Failure>;
}

type ReadBody = (
  isAnonymous: boolean,
  maxBytes?: number,
  leastBytes?: number,
) => Promise<Buffer | Failure>;

/** How old the result of the guard may be, in milliseconds, when the handler starts. */
const MAX_CALLER_AGE_MS = 500;
const NO_BYTES = Buffer.alloc(0);

/** @throws if a row contradicts itself: such a table does not load */
export function route<Service, Caller, Path, Search, Body, Data, Code extends ErrorCode = never>(
  row: RouteDefinition<Service, Caller, Path, Search, Body, Data, Code>,
): Route<Service> {
  const { guard, body, pattern } = row;
  const isOpen = guard.security.length === 0;
  const described = Object.keys(row.path.jsonSchema.properties ?? {}).join();
  if (parameterNames(pattern).join() !== described)
    throw new Error(
      `internal error: the path schema of ${pattern} has the parameters "${described}"`,
    );
  if (isOpen && row.maxBodyBytes)
    throw new Error(`internal error: ${pattern} reads a large body without a credential`);
  const errors: ErrorCode[] = [...guard.errors, ...body.errors, ...row.errors];
  errors.push('internal', 'overloaded');
  if (row.method !== 'GET' && !row.anySite) errors.push('cross_site');
  if (row.path !== noInput) errors.push('invalid_path');
  if (row.query !== noInput) errors.push('invalid_query');

  return {
    ...row,
    security: guard.security,
    errors: [...new Set(errors)],
    async answer(request, service, readBody) {
      const first = await guard.check(request, service);
      if (first instanceof Failure) return first;
      request.progress.callerIds = guard.idsOf?.(first);
      const checkedAt = performance.now();
      const unsupported = body.accepts(request.headers);
      if (unsupported) return unsupported;
      const limited = row.limit ? await row.limit(first, request, service) : null;
      if (limited) return limited;
      const isAnonymous = guard.isAnonymous?.(first) ?? isOpen;
      const maxBytes = row.maxBodyBytes?.(first, service);
      const raw = body.schema ? await readBody(isAnonymous, maxBytes, body.leastBytes) : NO_BYTES;
      if (raw instanceof Failure) return raw;
      // A slow body gives the caller's rights time to end.
      const isOld = performance.now() - checkedAt > MAX_CALLER_AGE_MS;
      const caller = isOld ? await guard.check(request, service) : first;
      if (caller instanceof Failure) return caller;
      const path = validate(row.path, request.parameters, 'invalid_path');
      if (path instanceof Failure) return path;
      const query = validate(row.query, request.query, 'invalid_query');
      if (query instanceof Failure) return query;
      const parsed = body.parse(raw);
      if (parsed instanceof Failure) return parsed;
      return row.handle(
        {
          request,
          caller,
          path,
          query,
          body: parsed,
        },
        service,
      );
    },
  };
}

/**
 * A router with its service bound, so that a listener does not need to know the type of the
 * service.
 */
export const bindRoutes = <Service>(routes: ReadonlyArray<Route<Service>>, service: Service) =>
  createRouter(
    routes.map((row) => ({
      ...row,
      answer: (request: RequestInfo, readBody: ReadBody) => row.answer(request, service, readBody),
    })),
  );

export type RouteMatcher = ReturnType<typeof bindRoutes>;

/** What a service says of itself to a person, and how it replies. */
export interface ServiceFacts extends ResponseStyle, Readonly<Record<'title' | 'about', string>> {}
