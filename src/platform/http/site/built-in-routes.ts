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
import type { Values } from './html.ts';
import { filesOf, framedPage, render, sitePage } from './pages.ts';

/** What the routes of every service need of it. */
type AnyService = Readonly<{
  site: Site;
  isServing(): boolean;
  /** Answers within a second: null, or why requests cannot be served. */
  readiness(): Promise<string | null>;
}>;

/**
 * Adds the routes that every service has: two probes, its description, the files that its pages
 * load, and a page at `/` unless it has one there.
 * @param description the file of its OpenAPI document, which `scripts/openapi.ts` writes
 * @param folder of its pages
 */
export const withBuiltIns = <Service extends AnyService>(
  rows: ReadonlyArray<Route<Service>>,
  facts: ServiceFacts,
  description: URL,
  folder: URL | null = null,
): ReadonlyArray<Route<Service>> => [
  ...rows,
  ...(rows.some(({ pattern }) => pattern === '/') ? [] : [landingPage(rows, facts)]),
  pageFiles(folder),
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
      document ??= readFileSync(file);
      return { text: document, contentType: 'application/json; charset=utf-8' };
    },
  });
}

/** The same for people, written beside the document. */
function openapiPage(file: URL) {
  let page: TextReply | null = null;
  return route({
    ...publicRead,
    pattern: '/openapi',
    summary: 'This document as a page',
    replyType: 'text/html',
    async handle(_call, { site }: AnyService) {
      const text = () => readFileSync(new URL(file.href.replace(/json$/, 'html')), 'utf8');
      page ??= framedPage(site, text());
      return page;
    },
  });
}

/** For browsers; other programs get the error of an unknown path. */
export function landing(
  { headers }: RequestInfo,
  site: Site,
  { title, about }: ServiceFacts,
  links: readonly Values[],
  state = '',
) {
  if (!headers.accept?.includes('text/html')) return new Failure('no_such_path');
  const buttons = links.map((link) => render('landing-link', link));
  return sitePage(site, 'landing', {
    title,
    about,
    state,
    buttons,
  });
}
export const landingRow = {
  ...publicRead,
  pattern: '/',
  summary: 'For browsers: what this service is, and its pages',
  replyType: 'text/html',
  errors: ['no_such_path'],
} as const;

function landingPage(rows: ReadonlyArray<Route<unknown>>, facts: ServiceFacts) {
  const hasInbox = rows.some(({ pattern }) => pattern === '/inbox');
  const links = hasInbox ? [{ path: '/inbox', label: 'Open the inbox' }] : [];
  return route({
    ...landingRow,
    handle: async ({ request }, { site }: AnyService) => landing(request, site, facts, links),
  });
}

/** What pages load. Read once, at the first request. */
function pageFiles(folder: URL | null) {
  let files: ReturnType<typeof filesOf> | null = null;
  return route({
    ...publicRead,
    pattern: '/pages/{file}',
    summary: 'For browsers: scripts, style sheets and the logo',
    replyType: '*/*',
    path: object({ file: text() }),
    errors: ['no_such_path'],
    async handle({ path }, { site }: AnyService) {
      files ??= filesOf(site, folder);
      return files.get(path.file) ?? new Failure('no_such_path');
    },
  });
}
