import type { RequestInfo } from '../../platform/http/route/route.ts';
import { readTemplates } from '../../platform/http/site/html.ts';
import type { SignedInUser } from '../signin/browser.ts';
import { page } from '../signin/pages.ts';
import type { Request } from './request.ts';

export const render = readTemplates(import.meta.url, 'pages/pages.html');

/** In words, what each scope hands out. */
export const scopeItems = (scopes: readonly string[]) =>
  scopes.map((scope) => render(`scope-${scope}`));

/** Asks whether a program may have what it asks for (ASVS 10.7.1 to 10.7.3). */
export function consentPage(
  request: RequestInfo,
  { user }: SignedInUser,
  { client, redirectUri, parameters, authorization }: Request,
) {
  const { host, protocol } = new URL(redirectUri);
  const main = render('consent', {
    name: client.name,
    address: host === '' ? protocol : host,
    username: user.username,
    scopes: scopeItems(authorization.scopes),
    request: String(parameters),
  });
  return page(`Sign in to ${client.name}`, main, { request, account: user.id });
}
