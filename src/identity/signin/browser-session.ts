import type { Call, RequestInfo } from '../../http/route.ts';
import { Failure } from '../../http/errors.ts';
import type { PortalService } from '../service.ts';
import { actorOf } from '../store/audit.ts';
import { logOutSession } from '../store/session-ends.ts';
import {
  createCookies,
  DOMAIN_COOKIE,
  findByCookie,
  HOST_COOKIE,
  NO_PENDING,
  portalForm,
  returnAddress,
  setCookies,
  signedInUserOf,
} from './browser.ts';
import { form, type ReturnInput } from './forms.ts';
import { codesPage, continuePage, done, withCookies } from './pages.ts';

/** A form of the sign-in. */
export type SignInCall = Call<null, unknown, unknown, ReturnInput>;

/** Where the browser continues. */
export const destination = (return_to: string, { portal }: PortalService) =>
  returnAddress(return_to, portal) ?? `${portal.origin}/account`;

/** Also by the cookie of the domain, if there is one. */
export async function isSignedIn(request: RequestInfo, service: PortalService) {
  const user = await signedInUserOf(request, service);
  if (user instanceof Failure) return false;
  if (service.portal.cookieDomain === null) return true;
  // Without the cookie for the domain, `verify` would send the browser back here, in a loop.
  const session = await findByCookie(DOMAIN_COOKIE, request, service);
  return session?.id === user.session.id;
}

/** Ends the session that the browser had (ASVS 7.2.4), and gives it the cookies of the new one. */
export async function continueSignedIn(
  { body: { return_to }, request }: SignInCall,
  service: PortalService,
  token: string,
  methods: string,
  codes?: string[],
) {
  await endCurrentSession(request, service);
  const cookies = [...(await createCookies(service, request, token, methods)), NO_PENDING];
  const address = destination(return_to, service);
  return withCookies(codes ? codesPage(codes, address) : continuePage(address), cookies);
}

/**
 * Not limited by wrong credentials of the network: a sign-out must end the session (ASVS 7.4.1).
 * Looked up first, because invented tokens must not cost a write.
 */
async function endCurrentSession(request: RequestInfo, service: PortalService) {
  const session = await findByCookie(HOST_COOKIE, request, service);
  if (!session || session.ended) return;
  // No rights are needed: the session may have ended meanwhile.
  const actor = { ...actorOf({ session, key: null, user: session.user }, request), caller: null };
  await logOutSession(service.database, actor, session.id);
}

/** Idempotent: the cookies are removed in any case. */
export const signOut = form(portalForm, {}, async ({ request }, service) => {
  await endCurrentSession(request, service);
  const cookies = setCookies({ host: '', domain: '' }, service.portal);
  return done('/login', 'You are signed out.', cookies);
});
