import type { Call } from '../../platform/http/route/route.ts';
import { Failure } from '../../platform/http/route/errors.ts';
import { logIn, type LoginProof } from '../login.ts';
import type { Account } from '../model.ts';
import { loginThrottle } from '../passwords.ts';
import type { PortalService } from '../service.ts';
import { createCookies, endCurrentSession, keepsCookies, NO_PENDING } from './browser.ts';
import { destination } from './return-address.ts';
import type { ReturnInput } from './forms.ts';
import { codesPage, continuePage, withCookies } from './pages.ts';

/** The end of a sign-in: its session and cookies. */

export type SignInCall = Call<null, unknown, unknown, ReturnInput>;

export const ENDED = new Failure('invalid_session', {
  message: 'This sign-in has ended. Enter your password again, or open your link again.',
});

/**
 * An account that has changed since its check gets no session.
 * @param codes new recovery codes, to be shown before the browser continues
 */
export async function finishSignIn(
  call: SignInCall,
  service: PortalService,
  account: Account,
  via: LoginProof,
  methods: string,
  stays: boolean,
  codes?: string[],
) {
  const { request } = call;
  const throttle = await loginThrottle(service, request, account);
  const session = await logIn(service, request, { account, throttle }, via, methods, stays);
  return session ? continueSignedIn(call, service, session.token, codes) : ENDED;
}

/** Ends the session that the browser had (ASVS 7.2.4), and gives it the cookies of the new one. */
export async function continueSignedIn(
  { body: { return_to }, request }: SignInCall,
  service: PortalService,
  token: string,
  codes?: string[],
) {
  await endCurrentSession(request, service, token);
  const cookies = [...(await createCookies(service, request, token)), NO_PENDING];
  const address = destination(return_to, service);
  const next = continuePage(address, keepsCookies(request) ? 'continue' : 'continue-anyway');
  return withCookies(codes ? codesPage(codes, address) : next, cookies);
}
