import type { Call, RequestInfo } from '../../platform/http/route/route.ts';
import { text, type Values } from '../../platform/http/route/schema.ts';
import type { PortalService } from '../service.ts';
import {
  endCurrentSession,
  findByCookie,
  HOST_COOKIE,
  portalForm,
  setCookies,
} from '../signin/browser.ts';
import { form } from '../signin/forms.ts';
import { continuePage, page, withCookies } from '../signin/pages.ts';
import { render as renderShared } from '../signin/templates.ts';
import { findClient } from '../store/oidc/clients.ts';
import { isGrantOf } from '../store/oidc/grants.ts';
import { withQuery } from './addresses.ts';
import { render } from './pages.ts';
import { type OidcService, redirect } from './service.ts';

/** Sign-out that a program begins (OpenID Connect RP-Initiated Logout). */

export const LOGOUT_PATH = '/oidc/logout';

const FIELDS = { client_id: text(), post_logout_redirect_uri: text(), state: text() };

/**
 * Ends the session of the browser if the program shows an ID token of that session, and asks the
 * person otherwise: another site must not sign anyone out (ASVS 10.6.2).
 */
export async function logout(
  { request }: Call<null, unknown, unknown, unknown>,
  service: OidcService,
) {
  const get = (name: string) => request.query.get(name) ?? '';
  const hint = await service.keys.readToken(get('id_token_hint'));
  const after = {
    client_id: get('client_id') || (hint?.aud ?? ''),
    post_logout_redirect_uri: get('post_logout_redirect_uri'),
    state: get('state'),
  };
  const session = await findByCookie(HOST_COOKIE, request, service);
  if (session && !session.ended) {
    // A token of another program names nothing.
    const isNamed =
      hint?.aud === after.client_id && (await isGrantOf(service.database, hint.sid, session.id));
    const values = { ...after, username: session.user.username };
    if (!isNamed) return page('Sign out', render('logout', values), { request });
  }
  return signOut(after, request, service, redirect);
}

/** The answer of the person who was asked. */
export const confirmLogout = form(portalForm, FIELDS, async ({ body, request }, service) =>
  signOut(body, request, service, (address) => continuePage(address, 'continue', SIGNED_OUT)),
);

const SIGNED_OUT = 'You are signed out';

/** @param go sends the browser on: only to an address that the program has registered */
async function signOut(
  { client_id, post_logout_redirect_uri: address, state }: Values<typeof FIELDS>,
  request: RequestInfo,
  service: PortalService,
  go: typeof redirect,
) {
  await endCurrentSession(request, service);
  const client = await findClient(service.database, client_id);
  const isRegistered = client?.enabled && client.logout_uri.includes(address);
  const next = isRegistered
    ? go(withQuery(address, { ...(state && { state }) }))
    : page(SIGNED_OUT, renderShared('signed-out'));
  return withCookies(next, setCookies({ host: '', domain: '' }, service.portal));
}
