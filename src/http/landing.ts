import type { Site } from '../runtime/context.ts';
import type { DocumentFacts } from './call.ts';
import { HTML, pageHeaders, sharedFiles } from './pages.ts';
import { createFrame, render } from './site.ts';

/** Shown if the service has them. */
const LINKS = [
  { path: '/account', label: 'Your account' },
  { path: '/inbox', label: 'Inbox' },
  { path: '/openapi.json', label: 'Description of the interface (OpenAPI)' },
];

/** The files of a service without pages at `/` by name, and that page under the empty name. Rendered once. */
export function createLanding(
  site: Site,
  { title, about }: DocumentFacts,
  patterns: readonly string[],
) {
  const shown = LINKS.filter(({ path }) => patterns.includes(path));
  const links = shown.map(({ path, label }) => render('landing-link', { path, label }));
  const text = createFrame(site)(render('landing', { title, about, links }).text);
  return sharedFiles(site).set('', { text, contentType: HTML, headers: pageHeaders("'none'") });
}
