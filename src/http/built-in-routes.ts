import type { Site } from '../runtime/context.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { render, sharedFiles, sitePage } from './pages.ts';
import { type ErrorCode, ERRORS, Failure } from './errors.ts';
import {
  bindRoutes,
  type DocumentFacts,
  publicRead,
  type ResponseStyle,
  type Route,
  route,
  routeDefaults,
  type Wrapping,
} from './route.ts';
import { type JsonSchema, list, noInput, object, optional, type Schema, text } from './schema.ts';

const probe = { ...publicRead, reply: object({ status: text() }) };

export const livez = route({
  ...probe,
  pattern: '/livez',
  summary: 'Whether the process answers',
  handle: async () => ({ data: { status: 'alive' } }),
});

export const PROBES: ReadonlySet<string> = new Set(['GET /livez', 'GET /readyz']);

/** The service behind METRICS_PORT. It stores nothing. */
export function startMetrics(metrics: Metrics) {
  const row = route({
    ...publicRead,
    query: routeDefaults.query,
    pattern: '/metrics',
    summary: 'Prometheus metrics',
    handle: async () => ({
      text: metrics.text(),
      contentType: 'text/plain; version=0.0.4; charset=utf-8',
    }),
  });
  return {
    routes: bindRoutes([row, livez], null),
    storage: null,
    jobs: [],
  };
}

/** What the routes of every service need of it. */
export interface AnyService {
  readonly site: Site;
  isServing(): boolean;
  /** Answers within a second: null, or why requests cannot be served. */
  readiness(): Promise<string | null>;
}

/** Adds the routes that every service has: two probes, its description, and a page at `/`. */
export function withBuiltIns<Service extends AnyService>(
  rows: ReadonlyArray<Route<Service>>,
  facts: DocumentFacts,
): ReadonlyArray<Route<Service>> {
  const all: Array<Route<Service>> = [...rows, ...landingRoutes(rows, facts)];
  all.push(livez, readyz(facts), openapi(all, facts));
  return all;
}

/**
 * A service is ready if its database can be read and written, its schema is current, and the
 * process is neither starting nor shutting down.
 */
const readyz = ({ unavailable }: ResponseStyle) =>
  route({
    ...probe,
    pattern: '/readyz',
    errors: [unavailable],
    summary:
      'Whether requests can be served: the database can be read and written and its schema is current',
    async handle(_call, service: AnyService) {
      const problem = service.isServing()
        ? await service.readiness()
        : 'the process is starting or shutting down';
      if (problem !== null) return new Failure(unavailable, { message: `Not ready: ${problem}.` });
      return { data: { status: 'ready' } };
    },
  });

/** Rendered on demand: most processes are never asked for it. */
function openapi(all: ReadonlyArray<Route<unknown>>, facts: DocumentFacts) {
  let document: Buffer | null = null; // bytes, which all replies share
  return route({
    ...publicRead,
    pattern: '/openapi.json',
    summary: 'This document',
    async handle() {
      document ??= Buffer.from(JSON.stringify(describe(all, facts)));
      return { text: document, contentType: 'application/json; charset=utf-8' };
    },
  });
}

/** Shown if the service has them. */
const LINKS = [
  { path: '/account', label: 'Your account' },
  { path: '/inbox', label: 'Inbox' },
  { path: '/openapi.json', label: 'Description of the interface (OpenAPI)' },
];

/** For browsers, unless the service has pages of its own there. */
function landingRoutes(rows: ReadonlyArray<Route<unknown>>, { title, about }: DocumentFacts) {
  const patterns = [...rows.map(({ pattern }) => pattern), '/openapi.json'];
  const links = LINKS.filter(({ path }) => patterns.includes(path)).map((link) =>
    render('landing-link', link),
  );
  // Read once, at the first request.
  let files: ReturnType<typeof sharedFiles> | null = null;
  const summary = 'For browsers: what this service is, and its pages';
  const defaults = { ...publicRead, summary, errors: ['no_such_path'] } as const;
  return [
    route({
      ...defaults,
      pattern: '/',
      async handle({ request }, { site }: AnyService) {
        if (!request.headers.accept?.includes('text/html')) return new Failure('no_such_path');
        return sitePage(site, 'landing', { title, about, links });
      },
    }),
    route({
      ...defaults,
      pattern: '/pages/{file}',
      path: object({ file: text() }),
      async handle({ path }, { site }: AnyService) {
        files ??= sharedFiles(site);
        return files.get(path.file) ?? new Failure('no_such_path');
      },
    }),
  ].filter(({ pattern }) => !patterns.includes(pattern));
}

const count: Schema<unknown> = { ...noInput, jsonSchema: { type: 'integer' } };
const pagination = object({
  page: count,
  limit: count,
  total: count,
  total_pages: count,
});
const links = object({
  first: text(),
  last: text(),
  prev: text(),
  next: text(),
});
const meta = object({ request_id: text() });
const failure = object({
  data: { ...noInput, jsonSchema: { nullable: true, enum: [null] } },
  error: object({
    code: text(),
    message: text(),
    fields: optional(list(object({ path: optional(text()), message: optional(text()) }))),
  }),
  _meta: meta,
});

const json = (schema: object) => ({ content: { 'application/json': { schema } } });

/** The OpenAPI 3.0.3 document, from the rows that also route, authenticate and validate. */
export function describe(
  routes: ReadonlyArray<Route<unknown>>,
  { title, version, wrapping, securitySchemes }: DocumentFacts,
) {
  const paths: Record<string, Record<string, object>> = {};
  for (const route of routes) {
    const method = route.method.toLowerCase();
    paths[route.pattern] = { ...paths[route.pattern], [method]: operation(route, wrapping) };
  }
  return {
    openapi: '3.0.3',
    info: { title, version },
    paths,
    components: { securitySchemes, schemas: { Error: failure.jsonSchema } },
  };
}

function operation(route: Route<unknown>, wrapping: Wrapping) {
  const { security, path, query, body, reply, paged } = route;
  const parameters = [
    ...parametersIn('path', path.jsonSchema),
    ...parametersIn('query', query.jsonSchema),
  ];
  const anyOf = security.map((name) => ({ [name]: [] }));
  const success = reply ? json(wrapped(reply, wrapping, paged).jsonSchema) : {};
  return {
    summary: route.summary,
    ...(parameters.length > 0 && { parameters }),
    ...(body.schema && { requestBody: { required: true, ...json(body.schema) } }),
    ...(security.length > 0 && { security: anyOf }),
    responses: {
      [route.success]: { description: 'Success', ...success },
      ...errorResponses(route.errors),
    },
  };
}

const parametersIn = (location: 'path' | 'query', { properties = {}, required }: JsonSchema) =>
  Object.entries(properties).map(([name, schema]) => ({
    name,
    in: location,
    required: required?.includes(name) ?? false,
    schema,
  }));

function wrapped(reply: Schema<unknown>, wrapping: Wrapping, paged: Route<unknown>['paged']) {
  if (wrapping === 'bare') return reply;
  if (paged === 'never') return object({ data: reply, _meta: meta });
  const isOptional = paged === 'if asked';
  return object({
    data: reply,
    _meta: object({
      request_id: text(),
      pagination: isOptional ? optional(pagination) : pagination,
    }),
    _links: isOptional ? optional(links) : links,
  });
}

function errorResponses(codes: readonly ErrorCode[]) {
  const responses: Record<string, object> = {};
  for (const code of codes) {
    const [status] = ERRORS[code];
    const names = codes.filter((one) => ERRORS[one][0] === status).sort();
    responses[status] = {
      description: names.join(', '),
      ...json({ $ref: '#/components/schemas/Error' }),
    };
  }
  return responses;
}
