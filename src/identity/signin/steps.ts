import { equalDigests, randomToken, sha256 } from '../../crypto/token.ts';
import type { RequestInfo } from '../../http/route.ts';
import { type ErrorCode, Failure, type TextReply } from '../../http/errors.ts';
import { text } from '../../http/schema.ts';
import { checkCode } from '../factors/codes.ts';
import { authenticate, createOptions } from '../factors/passkeys.ts';
import { cookieOf } from '../guard.ts';
import { actorBy, insertLogin, needsFactor, SAME_PASSWORD } from '../login.ts';
import { type Account, mayLogIn } from '../model.ts';
import { verifyPassword } from '../passwords.ts';
import { invalid } from '../policy.ts';
import type { PortalService } from '../service.ts';
import * as store from '../store/signin/pending.ts';
import { findUser } from '../store/users.ts';
import { setPassword } from '../users.ts';
import { BROWSER_COOKIE, hostCookie, NO_PENDING, PENDING_COOKIE } from './browser.ts';
import { continueSignedIn, type SignInCall } from './browser-session.ts';
import { confirmTotp, offerTotp } from './factors.ts';
import { portalForm } from './guards.ts';
import { code, form, password, return_to, withProblems } from './forms.ts';
import { signInPage } from './pages.ts';

/** What must follow a right password before there is a session. */
type Step = 'new-password' | 'code' | 'enrol' | 'none';

/**
 * The second factor comes before the password: whoever gets hold of a temporary password must not
 * lock the user out.
 * @param methods that have proved the second factor, or null
 */
export function nextStep(service: PortalService, account: Account, methods: string | null): Step {
  if (account.second_factor && methods === null) return 'code';
  if (account.password_expires_at !== null) return 'new-password';
  return methods === null && needsFactor(service, account) ? 'enrol' : 'none';
}

/** Waits for the next step in this browser alone. */
export async function beginStep(
  service: PortalService,
  user: Account,
  methods: string | null,
  return_to: string,
): Promise<TextReply> {
  const pending = { user, token: randomToken(), methods };
  await store.insertPending(service.database, pending);
  const cookies = [hostCookie(PENDING_COOKIE, pending.token)];
  return stepPage(service, pending, return_to, cookies);
}

/** The page of the next step. */
function stepPage(
  service: PortalService,
  pending: store.PendingSignIn,
  return_to: string,
  cookies: string[] = [],
): TextReply {
  const { user, methods } = pending;
  const step = nextStep(service, user, methods);
  if (step === 'code' || step === 'new-password') {
    const length = service.passwords.minLength;
    return signInPage(step, { username: user.username, return_to, length }, cookies);
  }
  return offerTotp(service, pending, { action: '/login/enrol', return_to }, cookies);
}

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
  if (!user || !mayLogIn(user)) return null;
  const { methods, password_digest } = pending;
  if (nextStep(service, user, methods) !== step) return null;
  const isUnchanged = equalDigests(sha256(user.password_hash ?? ''), password_digest);
  return isUnchanged ? { user, token, methods } : null;
}

function startAgain({ body: { return_to } }: SignInCall) {
  const message = 'This sign-in has ended. Enter your password again.';
  const failure = new Failure('invalid_session', { message });
  const page = signInPage('login', { return_to }, [NO_PENDING]);
  return withProblems(page, '/login', {}, failure);
}

/** The page of the step, or without a pending sign-in the first form, with what went wrong. */
function showAgain<Code extends ErrorCode>(
  { body: { return_to }, request }: SignInCall,
  service: PortalService,
  pending: store.PendingSignIn | null,
  failure: Failure<Code>,
) {
  const page = pending ? stepPage(service, pending, return_to) : signInPage('login', { return_to });
  return withProblems(page, request.path, {}, failure);
}

/** A typed code of the second factor. */
export const enterCode = form(portalForm, { code, return_to }, async (call, service) => {
  const { body, request } = call;
  const pending = await takePendingSignIn('code', request, service);
  if (!pending) return startAgain(call);
  const methods = await checkCode(service, request, pending.user, body.code);
  if (methods instanceof Failure) return showAgain(call, service, pending, methods);
  return continueAfterProof(call, service, pending, methods);
});

/** In place of a generated password, or of one that an administrator chose (ASVS 6.4.1). */
export const choosePassword = form(portalForm, { password, return_to }, async (call, service) => {
  const { password, return_to } = call.body;
  const pending = await takePendingSignIn('new-password', call.request, service);
  if (!pending) return startAgain(call);
  const actor = actorBy(pending.user, call.request);
  const { id, password_hash: before } = pending.user;
  const { database, hashing } = service;
  if (await hashing.run(() => verifyPassword(password, before ?? ''))) {
    return showAgain(call, service, pending, invalid('/password', SAME_PASSWORD));
  }
  const changed = await setPassword(database, actor, id, password, service, before);
  if (changed instanceof Failure) return showAgain(call, service, pending, changed);
  await store.removePending(database, pending.token);
  const user = await findUser(database, id);
  // Another change since then may have set another password.
  if (user?.updated_at.getTime() !== changed.updated_at.getTime()) return startAgain(call);
  const { methods } = pending;
  if (nextStep(service, user, methods) !== 'none') {
    return beginStep(service, user, methods, return_to);
  }
  return createSessionAfterProof(call, service, null, user, methods ?? 'password');
});

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
    if (!pending) return createSessionAfterProof(call, service, null, account, 'passkey');
    const proven = { ...pending, user: account };
    return continueAfterProof(call, service, proven, 'password, passkey');
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

/** After the second factor, a temporary password is changed before there is a session. */
async function continueAfterProof(
  call: SignInCall,
  service: PortalService,
  pending: store.PendingSignIn,
  methods: string,
) {
  const { user, token } = pending;
  if (nextStep(service, user, methods) === 'none') {
    return createSessionAfterProof(call, service, pending, user, methods);
  }
  if (!(await store.removePending(service.database, token))) return startAgain(call);
  return beginStep(service, user, methods, call.body.return_to);
}

/**
 * A pending sign-in that was used meanwhile, and an account that was changed, get no session.
 * @param pending null if it has ended already, or there was none
 * @param codes new recovery codes, to be shown before the browser continues
 */
async function createSessionAfterProof(
  call: SignInCall,
  service: PortalService,
  pending: store.PendingSignIn | null,
  account: Account,
  methods: string,
  codes?: string[],
) {
  if (pending && !(await store.removePending(service.database, pending.token))) {
    return startAgain(call);
  }
  const via = methods === 'passkey' ? 'passkey' : 'password';
  const isProven = methods !== 'password';
  const session = await insertLogin(service, call.request, account, via, isProven);
  if (!session) return startAgain(call);
  return continueSignedIn(call, service, session.token, methods, codes);
}
