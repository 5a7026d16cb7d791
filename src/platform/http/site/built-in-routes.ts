import type { Site } from '../../runtime/context.ts';
import { type DocumentFacts, publicRead, type Route, route } from '../route/route.ts';
import { landingRoutes } from './landing.ts';
import { describe } from './openapi.ts';
import { livez, type Readiness, readyz } from './probes.ts';

/** What the routes of every service need of it. */
export type AnyService = Readiness & Readonly<{ site: Site }>;

/** Adds the routes that every service has: two probes, its description, and a page at `/`. */
export function withBuiltIns<Service extends AnyService>(
  rows: ReadonlyArray<Route<Service>>,
  facts: DocumentFacts,
): ReadonlyArray<Route<Service>> {
  const all: Array<Route<Service>> = [...rows, ...landingRoutes(rows, facts)];
  all.push(livez, readyz(facts), openapi(all, facts));
  return all;
}

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
