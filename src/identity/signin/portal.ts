import type { IncomingHttpHeaders } from 'node:http';
import { randomToken } from '../../crypto/token.ts';
import type { Call } from '../../http/route.ts';
import { Failure } from '../../http/errors.ts';
import { NOTHING } from '../../http/html.ts';
import { oneOf, optional, text, type Values, withoutNul } from '../../http/schema.ts';
import { cookieOf } from '../guard.ts';
import { auditPendingLogin, startSession } from '../login.ts';
import { checkPassword } from '../passwords.ts';
import type { PortalService } from '../service.ts';
import type { Portal } from '../settings.ts';
import { BROWSER_COOKIE, hostCookie, isElsewhere, NO_PENDING, returnAddress } from './browser.ts';
import { continueSignedIn, destination, isSignedIn } from './browser-session.ts';
import { portalForm } from './guards.ts';
import { form, password, return_to } from './forms.ts';
import { continuePage, render, signInPage } from './pages.ts';
import { beginStep, nextStep } from './steps.ts';

export const loginQuery = { return_to, again: optional(oneOf('on')) };

/**
 * The form. A signed-in user whose browser has kept all cookies continues to the requested address
 * instead.
 */
export async function showLogin(
  { query: { return_to, again }, request }: Call<null, unknown, Values<typeof loginQuery>, null>,
  service: PortalService,
) {
  if (again === undefined && (await isSignedIn(request, service))) {
    return continuePage(destination(return_to, service));
  }
  const { headers } = request;
  // A passkey on this page signs in alone, perhaps as another user.
  const cookies = [NO_PENDING];
  if (cookieOf(headers, BROWSER_COOKIE) === null)
    cookies.push(hostCookie(BROWSER_COOKIE, randomToken()));
  const notice = reasonOf(headers, service.portal, return_to, again);
  return signInPage('login', return_to, { notice }, cookies);
}

/** Why the form is shown, above it. */
function reasonOf(headers: IncomingHttpHeaders, portal: Portal, return_to: string, again?: 'on') {
  if (isElsewhere(headers, portal))
    return render('elsewhere', { address: `${portal.origin}/login` });
  const address = returnAddress(return_to, portal);
  if (address === null) return NOTHING;
  return render(again ? 'sign-in-again' : 'sign-in-to', { host: new URL(address).host });
}

/** For the audit trail. */
const PENDING_DETAILS = {
  code: 'second factor needed',
  'new-password': 'new password needed',
  enrol: 'first second factor needed',
} as const;

/** By password. A second factor is asked for on the next page, in place of a session. */
export const signIn = form(
  portalForm,
  { username: text({ max: 1_024, check: withoutNul }), password, return_to },
  async (call, service) => {
    const { username, password, return_to } = call.body;
    const user = await checkPassword(service, call.request, null, username, password);
    if (user instanceof Failure) return user;
    const proven = { user, methods: null, link: null };
    const step = nextStep(service, proven);
    if (step !== 'none') {
      await auditPendingLogin(service, user, call.request, PENDING_DETAILS[step]);
      return beginStep(service, proven, return_to);
    }
    const session = await startSession(service, call.request, user, password, false);
    if (session instanceof Failure) return session;
    return continueSignedIn(call, service, session.token, 'password');
  },
  async ({ body: { return_to = '' } }) => signInPage('login', return_to, {}),
);
