import type { Route } from '../http/call.ts';
import { pageRows } from '../http/pages.ts';
import type { SecretsService } from './service.ts';

/** Loading one reveals nothing, whoever loads it: a mail scanner, a preview, a person. */
const PAGES = [
  { pattern: '/', summary: 'Share pages: a page that makes a secret', name: 'make.html' },
  { pattern: '/s/{id}', summary: 'Share pages: a page that reveals a secret on a click', name: 'reveal.html' },
];

export const sharePages = (): ReadonlyArray<Route<SecretsService>> =>
  pageRows(new URL('pages/', import.meta.url), PAGES, ['make.js', 'reveal.js', 'qr.js'], 'Share pages: their scripts and their style');
