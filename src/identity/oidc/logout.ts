import type { TextReply } from '../../platform/http/route/errors.ts';
import { HTML } from '../../platform/http/site/html.ts';
import type { Call } from '../../platform/http/route/route.ts';
import { text } from '../../platform/http/route/schema.ts';
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
import { render } from './pages.ts';
import type { PortalService } from '../service.ts';
import { findClient } from '../store/oidc/clients.ts';
import { findGrantSession } from '../store/oidc/grants.ts';
import { isUuid } from '../../platform/runtime/text.ts';
import type { OidcService } from './service.ts';

/** Sign-out that a program begins (OpenID Connect RP-Initiated Logout). */

export const LOGOUT_PATH = '/oidc/logout';

type After = Readonly<Record<'client_id' | 'post_logout_redirect_uri' | 'state', string>>;

/** Where the browser goes then, or null: only to an address that the program has registered. */
async function addressAfter(
  { client_id, post_logout_redirect_uri: wanted, state }: After,
  { database }: PortalService,
) {
  const client = await findClient(database, client_id);
  if (!client?.enabled || !client.logout_uri.includes(wanted)) return null;
  if (state === '') return wanted;
  return `${wanted}${wanted.includes('?') ? '&' : '?'}${new URLSearchParams({ state })}`;
}

const go = (address: string, cookies: readonly string[] = []): TextReply => ({
  text: '',
  contentType: HTML,
  headers: { Location: address, 'Set-Cookie': cookies },
});

const noCookies = ({ portal }: PortalService) => setCookies({ host: '', domain: '' }, portal);

/**
 * Ends the session of the browser if the program shows an ID token of that session, and asks the
 * person otherwise: another site must not sign anyone out (ASVS 10.6.2).
 */
export async function logout(
  { request }: Call<null, unknown, unknown, unknown>,
  service: OidcService,
) {
  const get = (name: string) => request.query.get(name) ?? '';
  const claims = await service.keys.readToken(get('id_token_hint'));
  const named = get('client_id');
  const client_id = named || (claims?.aud ?? '');
  // A token of another program names nothing.
  const hint = claims?.aud === client_id ? claims : null;
  const wanted = get('post_logout_redirect_uri');
  const after = { client_id, post_logout_redirect_uri: wanted, state: get('state') };
  const session = await findByCookie(HOST_COOKIE, request, service);
  const isOver = !session || session.ended;
  const grant = hint && isUuid(hint.sid) ? await findGrantSession(service, hint.sid) : null;
  if (!isOver && grant?.session_id !== session.id) {
    const { username } = session.user;
    return page('Sign out', render('logout', { ...after, username }), { request });
  }
  await endCurrentSession(request, service);
  const address = await addressAfter(after, service);
  if (address !== null) return go(address, noCookies(service));
  return withCookies(page('You are signed out', renderShared('signed-out')), noCookies(service));
}

/** The answer of the person who was asked. */
export const confirmLogout = form(
  portalForm,
  { client_id: text(), post_logout_redirect_uri: text(), state: text() },
  async ({ body, request }, service) => {
    await endCurrentSession(request, service);
    const address = await addressAfter(body, service);
    const title = 'You are signed out';
    const shown =
      address === null
        ? page(title, renderShared('signed-out'))
        : continuePage(address, 'continue', title);
    return withCookies(shown, noCookies(service));
  },
);

/** POST, perhaps from a page of another site: as in the authorization endpoint. */
export async function logoutByForm({ body }: Call<null, unknown, unknown, URLSearchParams>) {
  return go(`${LOGOUT_PATH}?${body}`);
}
