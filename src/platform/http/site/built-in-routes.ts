import { readFileSync } from 'node:fs';
import type { Site } from '../../runtime/context.ts';
import { publicRead, type Route, route, type ServiceFacts } from '../route/route.ts';
import { landingRoutes } from './landing.ts';
import { livez, type Readiness, readyz } from './probes.ts';

/** What the routes of every service need of it. */
export type AnyService = Readiness & Readonly<{ site: Site }>;

/**
 * Adds the routes that every service has: two probes, its description, and a page at `/`.
 * @param description the file of its OpenAPI document, which `scripts/openapi.ts` writes
 */
export const withBuiltIns = <Service extends AnyService>(
  rows: ReadonlyArray<Route<Service>>,
  facts: ServiceFacts,
  description: URL,
): ReadonlyArray<Route<Service>> => [
  ...rows,
  ...landingRoutes(rows, facts),
  livez,
  readyz(facts),
  openapi(description),
];

/** Read on demand: most processes are never asked for it. */
function openapi(file: URL) {
  let document: Buffer | null = null; // bytes, which all replies share
  return route({
    ...publicRead,
    pattern: '/openapi.json',
    summary: 'This document',
    async handle() {
      // Without the line breaks that serve a reviewer.
      document ??= Buffer.from(JSON.stringify(JSON.parse(readFileSync(file, 'utf8'))));
      return { text: document, contentType: 'application/json; charset=utf-8' };
    },
  });
}
