import { readFileSync } from 'node:fs';
import { anonymous, routeDefaults, type Reply, type Route, route } from './call.ts';
import { Failure } from './errors.ts';
import { object, text } from './shape.ts';

/**
 * Nothing inline and nothing foreign, so that a text on the page can neither run nor be sent elsewhere; no referrer, no
 * frame, no window of another site that could look at this one (ASVS 3.4).
 */
const HEADERS = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
} as const;

const TYPES: Readonly<Record<string, string>> = { html: 'text/html; charset=utf-8', css: 'text/css; charset=utf-8', js: 'text/javascript; charset=utf-8' };

/** A file as it lies in a directory, read once: no template, so nothing a request sends can get into a page. */
function file(directory: URL, name: string): Reply<never> {
  return { text: readFileSync(new URL(name, directory), 'utf8'), contentType: TYPES[name.split('.').at(-1) ?? ''] ?? '', headers: HEADERS };
}

/** A page by its pattern, and the names of its file and of its scripts in `directory`. Loading it changes nothing, whoever loads it. */
export interface Page {
  readonly pattern: string;
  readonly summary: string;
  readonly name: string;
}

/** The rows of some pages, and of what they are made of: their scripts, and what all pages share. */
export function pageRows<Service>(directory: URL, pages: readonly Page[], scripts: readonly string[], summary: string): ReadonlyArray<Route<Service>> {
  const shared = new URL('pages/', import.meta.url);
  const parts = new Map([...['style.css', 'page.js'].map((name) => [name, file(shared, name)] as const), ...scripts.map((name) => [name, file(directory, name)] as const)]);
  const anyone = { ...routeDefaults, method: 'GET', guard: anonymous, reply: null } as const;
  return [
    ...pages.map(({ pattern, summary, name }) => {
      const html = file(directory, name);
      const parameters = [...pattern.matchAll(/\{([a-z_]+)\}/g)].map(([, parameter = '']) => [parameter, text()] as const);
      return route({ ...anyone, pattern, summary, path: object(Object.fromEntries(parameters)), handle: async () => html });
    }),
    route({ ...anyone, pattern: '/pages/{file}', summary,
      path: object({ file: text() }), errors: ['not_found'],
      handle: async ({ path }) => parts.get(path.file) ?? new Failure('not_found', { message: 'There is no such file.' }),
    }),
  ];
}
