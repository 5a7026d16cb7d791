import { readFileSync } from 'node:fs';
import { open, plain, type Route, route } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { object, text } from '../http/shape.ts';
import type { SecretsService } from './service.ts';

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

const TYPES = { html: 'text/html; charset=utf-8', css: 'text/css; charset=utf-8', js: 'text/javascript; charset=utf-8' } as const;

/** Files as they lie in `pages/`, read once: no template, so nothing a visitor sends can get into a page. */
function file(name: string, type: keyof typeof TYPES) {
  const content = readFileSync(new URL(`pages/${name}.${type}`, import.meta.url), 'utf8');
  return { text: content, contentType: TYPES[type], headers: HEADERS };
}

/** Loading a page changes nothing and reveals nothing, whoever loads it: a mail scanner, a preview, a person. */
export function pageRows(): ReadonlyArray<Route<SecretsService>> {
  const [make, reveal] = [file('make', 'html'), file('reveal', 'html')];
  const parts = new Map([['style.css', file('style', 'css')], ...['make', 'reveal', 'page', 'qr'].map((name) => [`${name}.js`, file(name, 'js')] as const)]);
  const anyone = { ...plain, method: 'GET', guard: open, reply: null } as const;
  return [
    route({ ...anyone, pattern: '/',
      summary: 'Share pages: a page that makes a secret',
      handle: async () => make,
    }),
    route({ ...anyone, pattern: '/s/{id}',
      summary: 'Share pages: a page that reveals a secret on a click',
      path: object({ id: text() }),
      handle: async () => reveal,
    }),
    route({ ...anyone, pattern: '/pages/{file}',
      summary: 'Share pages: their scripts and their style',
      path: object({ file: text() }), errors: ['not_found'],
      handle: async ({ path }) => parts.get(path.file) ?? new Failure('not_found', { message: 'There is no such file.' }),
    }),
  ];
}
