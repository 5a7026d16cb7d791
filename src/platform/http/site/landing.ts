import type { Site } from '../../runtime/context.ts';
import { Failure } from '../route/errors.ts';
import { publicRead, type Route, route, type ServiceFacts } from '../route/route.ts';
import { object, text } from '../route/schema.ts';
import { render, sharedFiles, sitePage } from './pages.ts';

/** Shown if the service has them. */
const LINKS = [
  { path: '/account', label: 'Your account' },
  { path: '/inbox', label: 'Inbox' },
  { path: '/openapi.json', label: 'Description of the interface (OpenAPI)' },
];

type WithSite = Readonly<{ site: Site }>;

/** For browsers, unless the service has pages of its own there. */
export function landingRoutes(rows: ReadonlyArray<Route<unknown>>, { title, about }: ServiceFacts) {
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
      replyType: 'text/html',
      async handle({ request }, { site }: WithSite) {
        if (!request.headers.accept?.includes('text/html')) return new Failure('no_such_path');
        return sitePage(site, 'landing', { title, about, links });
      },
    }),
    route({
      ...defaults,
      pattern: '/pages/{file}',
      replyType: '*/*',
      path: object({ file: text() }),
      async handle({ path }, { site }: WithSite) {
        files ??= sharedFiles(site);
        return files.get(path.file) ?? new Failure('no_such_path');
      },
    }),
  ].filter(({ pattern }) => !patterns.includes(pattern));
}
