import { readFileSync } from 'node:fs';
import { anonymous, type Reply, type Route, route, routeDefaults } from './call.ts';
import { Failure } from './errors.ts';
import { noInput, object, text } from './shape.ts';

/**
 * ASVS 3.4: nothing inline and nothing from another origin, so that text on a page can neither run nor be sent
 * elsewhere; no referrer, no frame, and no window of another site that could read the page.
 */
const pageHeaders = (formAction: "'none'" | "'self'") => ({
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; " +
    `form-action ${formAction}; frame-ancestors 'none'; require-trusted-types-for 'script'`,
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
});
const HEADERS = pageHeaders("'none'");
/** Of a page whose forms work without scripts. With `no-referrer`, browsers would send them with `Origin: null`. */
export const FORM_HEADERS = { ...pageHeaders("'self'"), 'Referrer-Policy': 'same-origin' };

const TYPES: Readonly<Record<string, string>> = { html: 'html', css: 'css', js: 'javascript' };

/** A file, read once. There are no templates, so a request cannot put anything into a page. */
function file(directory: URL, name: string): Reply<never> {
  const contentType = `text/${TYPES[name.split('.').at(-1) ?? ''] ?? 'plain'}; charset=utf-8`;
  return { text: readFileSync(new URL(name, directory), 'utf8'), contentType, headers: HEADERS };
}

/** A page, and its file in a directory. Loading it changes nothing. */
export type Page = Readonly<{ pattern: string; summary: string; name: string }>;

/** The routes of pages, of their scripts in the same directory, and of the files that all pages share. */
export function pageRows<Service>(
  directory: URL, pages: readonly Page[], scripts: readonly string[], summary: string,
): ReadonlyArray<Route<Service>> {
  const shared = new URL('pages/', import.meta.url);
  const files = new Map<string, Reply<never>>();
  for (const name of ['style.css', 'page.js']) files.set(name, file(shared, name));
  for (const name of scripts) files.set(name, file(name === 'qr.js' ? shared : directory, name));
  // Programs that share a link may add parameters to it.
  const defaults = { ...routeDefaults, query: noInput, method: 'GET', guard: anonymous, reply: null } as const;
  return [
    ...pages.map(({ pattern, summary, name }) => {
      const html = file(directory, name);
      const names = [...pattern.matchAll(/\{([a-z_]+)\}/g)].map(([, parameter = '']) => parameter);
      const path = names.length === 0 ? noInput : object(Object.fromEntries(names.map((one) => [one, text()])));
      return route({ ...defaults, pattern, summary, path, handle: async () => html });
    }),
    route({
      ...defaults, pattern: '/pages/{file}', summary, path: object({ file: text() }), errors: ['not_found'],
      handle: async ({ path }) => files.get(path.file) ?? new Failure('not_found', { message: 'No such file.' }),
    }),
  ];
}
