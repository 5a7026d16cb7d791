import type { Site } from '../runtime/context.ts';
import {
  anonymous,
  bindRoutes,
  type DocumentFacts,
  type Route,
  route,
  routeDefaults,
} from './call.ts';
import { Failure } from './errors.ts';
import { noInput, object, text } from './shape.ts';

const status = object({ status: text() });
const probe = {
  ...routeDefaults,
  query: noInput,
  method: 'GET',
  guard: anonymous,
  reply: status,
} as const;

export const livez: Route<unknown> = route({
  ...probe,
  pattern: '/livez',
  summary: 'Whether the process answers',
  handle: async () => ({ data: { status: 'alive' } }),
});

/** What a process can answer before a service is loaded. */
export const EARLY_ROUTES = bindRoutes([livez], null);
export const PROBES: ReadonlySet<string> = new Set(['GET /livez', 'GET /readyz']);

interface Probed {
  readonly site: Site;
  isServing(): boolean;
  /** Answers within a second: null, or why requests cannot be served. */
  readiness(): Promise<string | null>;
}

/**
 * Adds the routes that every service has: the two probes, and the description of all routes. A service is ready if its
 * database can be read and written, its schema is current, and the process is neither starting nor shutting down.
 */
export function withBuiltIns<Service extends Probed>(
  rows: ReadonlyArray<Route<Service>>,
  facts: DocumentFacts,
  notReady: 'service_failed' | 'unavailable',
): Array<Route<Service>> {
  let document: Buffer | null = null; // bytes, which all replies share
  const readyz = route({
    ...probe,
    pattern: '/readyz',
    errors: [notReady],
    summary:
      'Whether requests can be served: the database can be read and written and its schema is current',
    async handle(_call, service: Service) {
      const problem = service.isServing()
        ? await service.readiness()
        : 'the process is starting or shutting down';
      if (problem !== null) return new Failure(notReady, { message: `Not ready: ${problem}.` });
      return { data: { status: 'ready' } };
    },
  });
  const openapi: Route<unknown> = route({
    ...probe,
    pattern: '/openapi.json',
    summary: 'This document',
    reply: null,
    async handle() {
      // Loaded and rendered on demand: most processes are never asked for it.
      document ??= Buffer.from(JSON.stringify((await import('./openapi.ts')).describe(all, facts)));
      return { text: document, contentType: 'application/json; charset=utf-8' };
    },
  });
  const patterns = [...rows.map(({ pattern }) => pattern), '/openapi.json'];
  const load = async (site: Site) =>
    (await import('./landing.ts')).createLanding(site, facts, patterns);
  let landing: ReturnType<typeof load> | null = null;
  const forBrowsers = (pattern: string) =>
    route({
      ...probe,
      pattern,
      path: pattern === '/' ? noInput : object({ file: text() }),
      reply: null,
      errors: ['no_such_path'],
      summary: 'For browsers: what this service is, and its pages',
      async handle({ request: { headers, parameters } }, { site }: Service) {
        if (pattern === '/' && !headers.accept?.includes('text/html'))
          return new Failure('no_such_path');
        return (
          (await (landing ??= load(site))).get(parameters.file ?? '') ?? new Failure('no_such_path')
        );
      },
    });
  const pages = ['/', '/pages/{file}'].filter((one) => !patterns.includes(one)).map(forBrowsers);
  const all: Array<Route<Service>> = [...rows, ...pages, livez, readyz, openapi];
  return all;
}
