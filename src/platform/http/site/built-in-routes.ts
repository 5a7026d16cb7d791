import { readFileSync } from 'node:fs';
import type { Site } from '../../runtime/context.ts';
import {
  Failure,
  publicRead,
  type RequestInfo,
  type ResponseStyle,
  type Route,
  route,
  type ServiceFacts,
  type TextReply,
} from '../route/route.ts';
import { object, text } from '../route/schema.ts';
import { framedPage, render, sharedFiles, sitePage } from './pages.ts';

/** What the routes of every service need of it. */
type AnyService = Readonly<{
  site: Site;
  isServing(): boolean;
  /** Answers within a second: null, or why requests cannot be served. */
  readiness(): Promise<string | null>;
}>;

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
  openapiPage(description),
];

const probe = { ...publicRead, reply: object({ status: text() }) };

export const livez = route({
  ...probe,
  pattern: '/livez',
  summary: 'Whether the process answers',
  handle: async () => ({ data: { status: 'alive' } }),
});

/**
 * A service is ready if its database can be read and written, its schema is current, and the
 * process is neither starting, draining nor shutting down.
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
        : 'the process is starting, draining or shutting down';
      if (problem !== null) return new Failure(unavailable, { message: `Not ready: ${problem}.` });
      return { data: { status: 'ready' } };
    },
  });

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

/** The same for people, written beside the document. */
function openapiPage(file: URL) {
  const readPage = (site: Site) => {
    const text = readFileSync(new URL(file.href.replace(/json$/, 'html')), 'utf8');
    const framed = framedPage(site, text);
    return { ...framed, text: Buffer.from(framed.text) };
  };
  let page: TextReply<Buffer> | null = null;
  return route({
    ...publicRead,
    pattern: '/openapi',
    summary: 'This document as a page',
    replyType: 'text/html',
    async handle(_call, { site }: AnyService) {
      page ??= readPage(site);
      return page;
    },
  });
}

export type Link = Readonly<{ path: string; label: string }>;

/** For browsers; other programs get the error of an unknown path. */
export function landing(
  { headers }: RequestInfo,
  site: Site,
  { title, about }: ServiceFacts,
  links: readonly Link[],
  state = '',
) {
  if (!headers.accept?.includes('text/html')) return new Failure('no_such_path');
  const buttons = links.map((link) => render('landing-link', link));
  return sitePage(site, 'landing', { title, about, state, buttons });
}
export const landingRow = {
  ...publicRead,
  pattern: '/',
  summary: 'For browsers: what this service is, and its pages',
  replyType: 'text/html',
  errors: ['no_such_path'],
} as const;

/** Unless the service has pages of its own there. */
function landingRoutes(rows: ReadonlyArray<Route<unknown>>, facts: ServiceFacts) {
  const patterns = rows.map(({ pattern }) => pattern);
  const links = patterns.includes('/inbox') ? [{ path: '/inbox', label: 'Open the inbox' }] : [];
  // Read once, at the first request.
  let files: ReturnType<typeof sharedFiles> | null = null;
  return [
    route({
      ...landingRow,
      handle: async ({ request }, { site }: AnyService) => landing(request, site, facts, links),
    }),
    route({
      ...landingRow,
      pattern: '/pages/{file}',
      replyType: '*/*',
      path: object({ file: text() }),
      async handle({ path }, { site }: AnyService) {
        files ??= sharedFiles(site);
        return files.get(path.file) ?? new Failure('no_such_path');
      },
    }),
  ].filter(({ pattern }) => !patterns.includes(pattern));
}
