import { readTemplates } from '../../platform/http/site/html.ts';

export const render = readTemplates(import.meta.url, 'pages/pages.html');

/** In words, what each scope hands out. */
export const scopeItems = (scopes: readonly string[]) =>
  scopes.map((scope) => render(`scope-${scope}`));
