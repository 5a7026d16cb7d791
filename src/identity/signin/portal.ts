import { equalDigests, randomToken, sha256 } from '../../crypto/token.ts';
import type { Call, RequestInfo } from '../../http/route.ts';
import { type ErrorCode, Failure, type TextReply } from '../../http/errors.ts';
import { NOTHING } from '../../http/html.ts';
import { oneOf, optional, text, type Values, withoutNul } from '../../http/schema.ts';
import { checkCode } from '../factors/codes.ts';
import { authenticate, createOptions } from '../factors/passkeys.ts';
import * as store from '../store/signin/factors.ts';
import { cookieOf } from '../guard.ts';
import { insertLogin, needsFactor, startSession } from '../login.ts';
import { type Account, mayLogIn } from '../model.ts';
import { checkPassword } from '../passwords.ts';
import type { PortalService } from '../service.ts';
import { actorOf } from '../store/audit.ts';
import { logOutSession } from '../store/session-ends.ts';
import { findByDomainToken } from '../store/signin/sign-ins.ts';
import { findUser } from '../store/users.ts';
import { setPassword } from '../users.ts';
import {
  BROWSER_COOKIE,
  createCookies,
  DOMAIN_COOKIE,
  hostCookie,
  isElsewhere,
  NO_PENDING,
  PENDING_COOKIE,
  returnAddress,
  setCookies,
} from './browser.ts';
import { confirmTotp, offerTotp } from './factors.ts';
import { portalForm, signedInUserOf } from './guards.ts';
import {
  code,
  codesPage,
  continuePage,
  errorMessage,
  form,
  password,
  return_to,
  type ReturnInput,
  render,
  shownOn,
  signInPage,
} from './pages.ts';

/** A form of the sign-in. */
type SignInCall = Call<null, unknown, unknown, ReturnInput>;
/** A sign-in whose password was right. `token`: of the cookie that only this browser has. */
type PendingSignIn = Readonly<{ user: Account; token: string }>;

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
    return continuePage('You are signed in', destination(return_to, service), []);
  }
  const { headers } = request;
  const cookies: string[] = [];
  if (cookieOf(headers, BROWSER_COOKIE) === null)
    cookies.push(hostCookie(BROWSER_COOKIE, randomToken()));
  // A passkey on this page signs in alone, perhaps as another user.
  if (cookieOf(headers, PENDING_COOKIE) !== null) cookies.push(NO_PENDING);
  const notice = isElsewhere(headers, service.portal)
    ? render('elsewhere', { address: `${service.portal.origin}/login` })
    : NOTHING;
  return signInPage('login', { return_to, notice }, '', cookies);
}

const destination = (return_to: string, { portal }: PortalService) =>
  returnAddress(return_to, portal) ?? `${portal.origin}/account`;

/** What must follow a right password before there is a session. */
type Step = 'new-password' | 'code' | 'enrol' | 'none';

function nextStep(service: PortalService, account: Account): Step {
  if (account.password_expires_at !== null) return 'new-password';
  if (account.second_factor) return 'code';
  return needsFactor(service, account) ? 'enrol' : 'none';
}

/** The page of the next step. Without a message it is the first, and sets the cookie. */
function stepPage(
  service: PortalService,
  pending: PendingSignIn,
  return_to: string,
  message = '',
): TextReply {
  const { user, token } = pending;
  const cookies = message === '' ? [hostCookie(PENDING_COOKIE, token)] : [];
  const step = nextStep(service, user);
  if (step === 'code' || step === 'new-password') {
    return signInPage(step, { username: user.username, return_to }, message, cookies);
  }
  return offerTotp(service, pending, { action: '/login/enrol', return_to }, message, cookies);
}

/** By password. A second factor is asked for on the next page, in place of a session. */
export const signIn = form(
  portalForm,
  { username: text({ max: 1_024, check: withoutNul }), password, return_to },
  async (call, service) => {
    const { username, password, return_to } = call.body;
    const user = await checkPassword(service, call.request, null, username, password);
    if (user instanceof Failure) return user;
    if (nextStep(service, user) !== 'none') {
      const pending = { user, token: randomToken() };
      await store.insertPending(service.database, pending.token, user);
      return stepPage(service, pending, return_to);
    }
    const session = await startSession(service, call.request, user, password, false);
    if (session instanceof Failure) return session;
    return continueSignedIn(call, service, session.token, 'password');
  },
  async ({ body }, _, message) => signInPage('login', body, message),
);

/**
 * The sign-in that waits in this browser for this step. Each attempt counts before it is checked.
 * @returns null after five attempts, or a change of the password or of the factors: the password is
 * asked for again
 */
async function takePendingSignIn(step: Step, { headers }: RequestInfo, service: PortalService) {
  const token = cookieOf(headers, PENDING_COOKIE) ?? '';
  const pending = await store.countPendingAttempt(service.database, token);
  if (!pending) return null;
  const user = await findUser(service.database, pending.user_id);
  if (!user || !mayLogIn(user) || nextStep(service, user) !== step) return null;
  const passwordDigest = sha256(user.password_hash ?? '');
  return equalDigests(passwordDigest, pending.password_digest) ? { user, token } : null;
}

function startAgain({ body: { return_to } }: SignInCall) {
  const message = 'This sign-in has ended. Enter your password again.';
  const page = signInPage('login', { return_to }, message, [NO_PENDING]);
  return new Failure('invalid_session', { page });
}

/** The page of the step, or without a pending sign-in the first form, with what went wrong. */
function showAgain<Code extends ErrorCode>(
  { body: { return_to } }: SignInCall,
  service: PortalService,
  pending: PendingSignIn | null,
  failure: Failure<Code>,
) {
  const message = errorMessage(failure);
  const page = pending
    ? stepPage(service, pending, return_to, message)
    : signInPage('login', { return_to }, message);
  return shownOn(page, failure);
}

/** A typed code of the second factor. */
export const enterCode = form(portalForm, { code, return_to }, async (call, service) => {
  const { body, request } = call;
  const pending = await takePendingSignIn('code', request, service);
  if (!pending) return startAgain(call);
  const methods = await checkCode(service, request, pending.user, body.code);
  if (methods instanceof Failure) return showAgain(call, service, pending, methods);
  return createSessionAfterProof(call, service, pending, pending.user, methods);
});

const actorBy = ({ id }: Account, request: RequestInfo) =>
  ({ ...actorOf(null, request), via: 'password', userId: id }) as const;

/**
 * In place of a generated password, or of one that an administrator chose (ASVS 6.4.1). Then the
 * user signs in.
 */
export const choosePassword = form(
  portalForm,
  { new_password: password, return_to },
  async (call, service) => {
    const { new_password, return_to } = call.body;
    const pending = await takePendingSignIn('new-password', call.request, service);
    if (!pending) return startAgain(call);
    const actor = actorBy(pending.user, call.request);
    const { id, username, password_hash: before } = pending.user;
    const { database } = service;
    const changed = await setPassword(database, actor, id, new_password, service, before);
    if (changed instanceof Failure) return showAgain(call, service, pending, changed);
    await store.removePending(database, pending.token);
    return signInPage('login', { username, return_to }, '', [NO_PENDING]);
  },
);

/** The first code of an app, if a second factor is required and the user has none. */
export const enrol = form(portalForm, { code, return_to }, async (call, service) => {
  const pending = await takePendingSignIn('enrol', call.request, service);
  if (!pending) return startAgain(call);
  const { user } = pending;
  const actor = actorBy(user, call.request);
  const added = await confirmTotp(service, actor, null, pending, call.body.code);
  if (added instanceof Failure) return showAgain(call, service, pending, added);
  // The app has ended the pending sign-in and changed the account.
  const account = { ...user, updated_at: added.changedAt };
  return createSessionAfterProof(call, service, null, account, 'password, totp', added.codes);
});

/** By passkey: after the password as the second factor, otherwise alone. */
export const signInWithPasskey = form(
  portalForm,
  { credential: text({ max: 8_192 }), return_to },
  async (call, service) => {
    const { body, request } = call;
    const isSecond = cookieOf(request.headers, PENDING_COOKIE) !== null;
    const pending = isSecond ? await takePendingSignIn('code', request, service) : null;
    if (isSecond && !pending) return startAgain(call);
    const known = pending?.user ?? null;
    const binding = bindingOf(request);
    const account = await authenticate(service, request, known, binding, body.credential);
    if (!account) return showAgain(call, service, pending, new Failure('invalid_passkey'));
    const methods = pending ? 'password, passkey' : 'passkey';
    return createSessionAfterProof(call, service, pending, account, methods);
  },
);

const bindingOf = ({ headers }: RequestInfo): string =>
  cookieOf(headers, PENDING_COOKIE) ?? cookieOf(headers, BROWSER_COOKIE) ?? '';

/** Options for `navigator.credentials.get`. */
export async function passkeyOptions(
  { request }: Pick<SignInCall, 'request'>,
  service: PortalService,
) {
  const token = cookieOf(request.headers, PENDING_COOKIE);
  const pending = token === null ? null : await store.findPending(service.database, token);
  const purpose = token === null ? 'sign in' : 'second factor';
  const userId = pending?.user_id ?? null;
  return { data: await createOptions(service, purpose, bindingOf(request), userId) };
}

/**
 * A pending sign-in that was used meanwhile, and an account that was changed, get no session.
 * @param pending null if it has ended already, or there was none
 * @param codes new recovery codes, to be shown before the browser continues
 */
async function createSessionAfterProof(
  call: SignInCall,
  service: PortalService,
  pending: PendingSignIn | null,
  account: Account,
  methods: string,
  codes?: string[],
) {
  if (pending && !(await store.removePending(service.database, pending.token))) {
    return startAgain(call);
  }
  const via = methods === 'passkey' ? 'passkey' : 'password';
  const session = await insertLogin(service, call.request, account, via, true);
  if (!session) return startAgain(call);
  return continueSignedIn(call, service, session.token, methods, codes);
}

async function isSignedIn(request: RequestInfo, service: PortalService) {
  const user = await signedInUserOf(request, service);
  if (user instanceof Failure) return false;
  if (service.portal.cookieDomain === null) return true;
  // Without the cookie for the domain, `verify` would send the browser back here, in a loop.
  const token = cookieOf(request.headers, DOMAIN_COOKIE);
  if (token === null) return false;
  const session = await findByDomainToken(service, sha256(token).toString('hex'));
  return session?.id === user.session.id;
}

/** Ends the session that the browser had (ASVS 7.2.4), and gives it the cookies of the new one. */
async function continueSignedIn(
  { body: { return_to }, request }: SignInCall,
  service: PortalService,
  token: string,
  methods: string,
  codes?: string[],
) {
  await endCurrentSession(request, service);
  const cookies = [...(await createCookies(service, token, methods)), NO_PENDING];
  const address = destination(return_to, service);
  if (codes) return codesPage(codes, address, cookies);
  return continuePage('You are signed in', address, cookies);
}

async function endCurrentSession(request: RequestInfo, service: PortalService) {
  const user = await signedInUserOf(request, service);
  if (user instanceof Failure) return;
  // No rights are needed: the session may have ended meanwhile.
  const actor = { ...actorOf(user, request), caller: null };
  await logOutSession(service.database, actor, user.session.id);
}

/** Idempotent: the cookies are removed in any case. */
export async function signOut({ request }: Pick<SignInCall, 'request'>, service: PortalService) {
  await endCurrentSession(request, service);
  const cookies = setCookies({ host: '', domain: '' }, service.portal);
  return continuePage('You are signed out', `${service.portal.origin}/login`, cookies);
}
