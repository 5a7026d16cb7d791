import { anonymous, bindRoutes, type Guard, type Route, route, routeDefaults } from './call.ts';
import { type ErrorCode, Failure } from './errors.ts';
import type { DocumentFacts } from './openapi.ts';
import { object, text } from './shape.ts';

export interface Probeable {
  /** The database answers within a second, its schema is current, and the process is not shutting down. */
  ready(): Promise<boolean>;
}

const anyone: Guard<unknown, null> = anonymous;
const bare = { ...routeDefaults, method: 'GET', guard: anyone } as const;

const status = object({ status: text() });

export const livez: Route<unknown> = route({
  ...bare,
  pattern: '/livez',
  summary: 'Whether the process answers',
  reply: status,
  handle: async () => ({ data: { status: 'alive' } }),
});

/** What a process can answer before anything of a service is loaded. */
export const EARLY_ROUTES = bindRoutes([livez], null);

/** The rows that every service has: the two probes, and the description of all rows, these included. */
export function withBuiltIns<Service extends Probeable>(
  rows: ReadonlyArray<Route<Service>>,
  facts: DocumentFacts,
  notReady: Extract<ErrorCode, 'service_failed' | 'unavailable'>,
): Array<Route<Service>> {
  let document: string | null = null;
  const all: Array<Route<Service>> = [
    ...rows,
    livez,
    route({
      ...bare,
      pattern: '/readyz',
      summary: 'Whether requests can be served: the database answers and its schema is current',
      reply: status,
      errors: [notReady],
      async handle(_call, service: Service) {
        if (await service.ready()) return { data: { status: 'ready' } };
        return new Failure(notReady, { message: 'The service is not ready: its database does not answer, its schema is not current, or it is shutting down.' });
      },
    }),
    route({
      ...bare,
      pattern: '/openapi.json',
      summary: 'This document',
      reply: null,
      async handle() {
        // Made at the first call: most processes are never asked.
        document ??= JSON.stringify((await import('./openapi.ts')).describe(all, facts));
        return { text: document, contentType: 'application/json; charset=utf-8' };
      },
    }),
  ];
  return all;
}
