import { readFileSync } from 'node:fs';
import type { Site } from '../runtime/context.ts';
import { anonymous, type Route, route, routeDefaults } from './call.ts';
import { Failure, type TextReply } from './errors.ts';
import { noInput, object, text } from './shape.ts';
import { createFrame, siteFiles, siteName } from './site.ts';

/**
 * ASVS 3.4: nothing inline and nothing from another origin, so that text on a page can neither run nor be sent
 * elsewhere; no referrer, no frame, and no window of another site that could read the page.
 */
export const pageHeaders = (formAction: "'none'" | "'self'") => ({
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
    `base-uri 'none'; form-action ${formAction}; frame-ancestors 'none'; require-trusted-types-for 'script'`,
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
});
const HEADERS = pageHeaders("'none'");
/** For a page whose forms work without scripts. With `no-referrer`, browsers would send them with `Origin: null`. */
export const FORM_HEADERS = { ...pageHeaders("'self'"), 'Referrer-Policy': 'same-origin' };

export const HTML = 'text/html; charset=utf-8';
const TYPES: Readonly<Record<string, string>> = { html: 'html', css: 'css', js: 'javascript' };

const typeOf = (name: string) =>
  `text/${TYPES[name.split('.').at(-1) ?? ''] ?? 'plain'}; charset=utf-8`;

/** A file, read once. Nothing of a request gets into a page. */
const file = (directory: URL, name: string, edit = (text: string) => text): TextReply => ({
  text: edit(readFileSync(new URL(name, directory), 'utf8')),
  contentType: typeOf(name),
  headers: HEADERS,
});

const SHARED = new URL('pages/', import.meta.url);

/** The files that every page loads, by name. */
export function sharedFiles(site: Site): Map<string, TextReply<string | Uint8Array>> {
  const files = new Map<string, TextReply<string | Uint8Array>>();
  for (const one of ['style.css', 'page.js']) files.set(one, file(SHARED, one));
  for (const [one, reply] of siteFiles(site))
    files.set(one, { ...reply, headers: { ...HEADERS, ...reply.headers } });
  return files;
}

/** A page, and its file in a directory. Loading it changes nothing. */
export type Page = Readonly<{ pattern: string; summary: string; name: string }>;

/** The routes of pages, of their scripts in the same directory, and of the files that all pages share. */
export function pageRows<Service>(
  site: Site,
  directory: URL,
  pages: readonly Page[],
  scripts: readonly string[],
  summary: string,
): ReadonlyArray<Route<Service>> {
  const frame = createFrame(site);
  const name = siteName(site);
  const files = sharedFiles(site);
  for (const one of scripts) files.set(one, file(one === 'qr.js' ? SHARED : directory, one));
  // Programs that share a link may add parameters to it.
  const defaults = {
    ...routeDefaults,
    query: noInput,
    method: 'GET',
    guard: anonymous,
    reply: null,
  } as const;
  return [
    ...pages.map(({ pattern, summary, name: fileName }) => {
      const html = file(directory, fileName, (page) => frame(page.replaceAll('{{site}}', name)));
      const names = [...pattern.matchAll(/\{([a-z_]+)\}/g)].map(([, parameter = '']) => parameter);
      const path =
        names.length === 0
          ? noInput
          : object(Object.fromEntries(names.map((one) => [one, text()])));
      return route({ ...defaults, pattern, summary, path, handle: async () => html });
    }),
    route({
      ...defaults,
      pattern: '/pages/{file}',
      summary,
      path: object({ file: text() }),
      errors: ['not_found'],
      handle: async ({ path }) =>
        files.get(path.file) ?? new Failure('not_found', { message: 'No such file.' }),
    }),
  ];
}

/** Puts the frame of the site around every page that these rows answer with. */
export function framed<Service>(
  site: Site,
  rows: ReadonlyArray<Route<Service>>,
): ReadonlyArray<Route<Service>> {
  const frame = createFrame(site);
  const withFrame = (page: TextReply): TextReply => ({ ...page, text: frame(page.text) });
  return rows.map(({ failurePage, ...row }) => ({
    ...row,
    ...(failurePage && { failurePage: (failure: Failure) => withFrame(failurePage(failure)) }),
    async answer(request, service, hooks) {
      const outcome = await row.answer(request, service, hooks);
      if (outcome instanceof Failure) {
        const { code, details } = outcome;
        return details.page
          ? new Failure(code, { ...details, page: withFrame(details.page) })
          : outcome;
      }
      if (!('text' in outcome) || typeof outcome.text !== 'string' || outcome.contentType !== HTML)
        return outcome;
      return { ...outcome, text: frame(outcome.text) };
    },
  }));
}
