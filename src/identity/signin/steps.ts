import { equalDigests, randomToken, sha256 } from '../../crypto/token.ts';
import type { RequestInfo } from '../../http/route.ts';
import { type ErrorCode, Failure } from '../../http/errors.ts';
import { NOTHING } from '../../http/html.ts';
import { text } from '../../http/schema.ts';
import { checkCode } from '../factors/codes.ts';
import { authenticate, createOptions } from '../factors/passkeys.ts';
import { cookieOf } from '../guard.ts';
import { actorBy, insertLogin, needsFactor, SAME_PASSWORD } from '../login.ts';
import { type Account, mayLogIn } from '../model.ts';
import { verifyPassword } from '../passwords.ts';
import { invalid } from '../policy.ts';
import type { PortalService } from '../service.ts';
import { actorOf } from '../store/audit.ts';
import { applyLink, findLink, type Link, recordLateUse } from '../store/signin/links.ts';
import * as store from '../store/signin/pending.ts';
import { findUser, type PasswordInput, setPasswordHash } from '../store/users.ts';
import { hashNewPassword } from '../users.ts';
import { BROWSER_COOKIE, hostCookie, NO_PENDING, PENDING_COOKIE } from './browser.ts';
import { continueSignedIn, type SignInCall } from './browser-session.ts';
import { confirmTotp, offerTotp } from './factors.ts';
import { portalForm } from './guards.ts';
import { code, form, password, return_to, withProblems } from './forms.ts';
import { render, signInPage } from './pages.ts';

/** What must follow a right password before there is a session. */
type Step = 'new-password' | 'code' | 'enrol' | 'none';

/**
 * The second factor comes before the password: whoever gets hold of a temporary password must not
 * lock the user out, and a link alone must not get around the factor (ASVS 6.4.3).
 * @param methods that have proved the second factor, or null
 */
export function nextStep(
  service: PortalService,
  account: Account,
  methods: string | null,
  link: Link | null,
) {
  const needsCode = account.second_factor && !link?.removes_factors;
  if (needsCode && methods === null) return 'code';
  if (link || account.password_expires_at !== null) return 'new-password';
  return methods === null && needsFactor(service, account) ? 'enrol' : 'none';
}

/** Waits for the next step in this browser alone. */
export async function beginStep(
  service: PortalService,
  proven: Omit<store.PendingSignIn, 'token'>,
  return_to: string,
  notice = NOTHING,
) {
  const pending = { ...proven, token: randomToken() };
  await store.insertPending(service.database, pending);
  const cookies = [hostCookie(PENDING_COOKIE, pending.token)];
  return stepPage(service, pending, return_to, cookies, notice);
}

/** The page of the next step. */
function stepPage(
  service: PortalService,
  pending: store.PendingSignIn,
  return_to: string,
  cookies: string[] = [],
  notice = NOTHING,
) {
  const { user, methods, link } = pending;
  const step = nextStep(service, user, methods, link);
  if (step === 'code' || step === 'new-password') {
    const { username } = user;
    const reason = link ? reasonOf(link, username) : render('temporary');
    const length = service.passwords.minLength;
    return signInPage(step, { username, return_to, length, notice, reason }, cookies);
  }
  return offerTotp(service, pending, { action: '/login/enrol', return_to }, cookies);
}

const reasonOf = (link: Link, username: string) =>
  render('link-of', {
    username,
    factors: link.removes_factors ? render('link-removes') : NOTHING,
  });

/**
 * The sign-in that waits in this browser for this step. Each attempt counts before it is checked.
 * @returns null after five attempts, or a change of the password or of the factors: the password is
 * asked for again
 */
async function takePendingSignIn(step: Step, request: RequestInfo, service: PortalService) {
  const token = cookieOf(request.headers, PENDING_COOKIE) ?? '';
  const pending = await store.countPendingAttempt(service.database, token);
  if (!pending) return null;
  const user = await findUser(service.database, pending.user_id);
  if (!user || !mayLogIn(user)) return null;
  const { methods, password_digest, link_digest } = pending;
  const link = link_digest && (await findLink(service.database, link_digest));
  if (link && !link.is_open) await recordLateUse(service.database, actorOf(null, request), link);
  if (link_digest && !link?.is_open) return null;
  if (nextStep(service, user, methods, link) !== step) return null;
  const isUnchanged = equalDigests(sha256(user.password_hash ?? ''), password_digest);
  return isUnchanged ? { user, token, methods, link } : null;
}

function startAgain({ body: { return_to } }: SignInCall) {
  const message = 'This sign-in has ended. Enter your password again, or open your link again.';
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

/** In place of a generated password, or of one that an administrator chose (ASVS 6.4.1), or none. */
export const choosePassword = form(portalForm, { password, return_to }, async (call, service) => {
  const { password, return_to } = call.body;
  const pending = await takePendingSignIn('new-password', call.request, service);
  if (!pending) return startAgain(call);
  const { user: before, methods } = pending;
  if (await isTemporary(service, before, password)) {
    return showAgain(call, service, pending, invalid('/password', SAME_PASSWORD));
  }
  const columns = await hashNewPassword(password, service, before);
  if (columns instanceof Failure) return showAgain(call, service, pending, columns);
  const changed = await changePassword(service, call.request, pending, columns);
  if (!changed) return startAgain(call);
  await store.removePending(service.database, pending.token);
  const user = await findUser(service.database, before.id);
  // Another change since then may have set another password.
  if (user?.updated_at.getTime() !== changed.updated_at.getTime()) return startAgain(call);
  if (nextStep(service, user, methods, null) !== 'none') {
    return beginStep(service, { user, methods, link: null }, return_to);
  }
  return createSessionAfterProof(call, service, null, user, methods ?? 'password');
});

async function isTemporary({ hashing }: PortalService, account: Account, password: string) {
  const { password_hash: hash, password_expires_at: end } = account;
  return hash !== null && end !== null && hashing.run(() => verifyPassword(password, hash));
}

/** @returns null if the link has ended, or the password was changed meanwhile */
async function changePassword(
  service: PortalService,
  request: RequestInfo,
  { user, link }: store.PendingSignIn,
  columns: PasswordInput,
) {
  const { database } = service;
  if (!link) {
    return setPasswordHash(database, actorBy(user, request), user.id, columns, user.password_hash);
  }
  const changed = await applyLink(database, actorBy(user, request, 'link'), link, columns);
  if (changed && link.removes_factors) service.reportFactor('all', 'removed', user.id);
  if (!changed) await recordLateUse(database, actorOf(null, request), link);
  return changed;
}

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

const bindingOf = ({ headers }: RequestInfo) =>
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
  const { user, token, link } = pending;
  if (nextStep(service, user, methods, link) === 'none') {
    return createSessionAfterProof(call, service, pending, user, methods);
  }
  if (!(await store.removePending(service.database, token))) return startAgain(call);
  return beginStep(service, { user, methods, link }, call.body.return_to);
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
