import { equalDigests, randomToken, sha256 } from '../../platform/crypto/token.ts';
import type { Call, RequestInfo } from '../../platform/http/route/route.ts';
import { Failure } from '../../platform/http/route/errors.ts';
import { NOTHING } from '../../platform/http/site/html.ts';
import { checkCode } from '../factors/codes.ts';
import { authenticate, createOptions, NO_COOKIES } from '../factors/passkeys.ts';
import { cookieOf } from '../guard.ts';
import { actorBy, type LoginProof, needsFactor, SAME_PASSWORD } from '../login.ts';
import { mayLogIn } from '../model.ts';
import { verifyPassword } from '../passwords.ts';
import { invalid } from '../policy.ts';
import type { PortalService } from '../service.ts';
import { actorOf } from '../store/audit.ts';
import { applyLink, findLink } from '../store/signin/links.ts';
import {
  countPendingAttempt,
  findPending,
  insertPending,
  PENDING_DETAILS,
  type PendingSignIn,
  removePending,
} from '../store/signin/pending.ts';
import { findUser, setPasswordHash } from '../store/users.ts';
import { hashNewPassword } from '../users.ts';
import {
  cookieText,
  isSignedIn,
  keepsCookies,
  NO_PENDING,
  PENDING_COOKIE,
  portalForm,
} from './browser.ts';
import { destination } from './return-address.ts';
import { ENDED, finishSignIn, type SignInCall } from './finish.ts';
import { codesAfter, confirmTotp, offerTotp, TOTP_FIELDS } from './factors.ts';
import {
  code,
  form,
  isOfAnother,
  type PageReply,
  PASSKEY_FIELDS,
  password,
  passwordAgain,
  return_to,
  type ReturnInput,
} from './forms.ts';
import { continuePage, formPage, loginPage, passkeyForm, withCookies } from './pages.ts';
import { type PageCall, render, renderIf, type Repeated } from './templates.ts';

/** What must follow the password or the link before there is a session. */
type Step = keyof typeof PENDING_DETAILS;

/** What a browser has proved. `methods`: of the sign-in, with its second factor; otherwise null. */
type Proven = Omit<PendingSignIn, 'token'>;

/**
 * The second factor comes before a new password: whoever gets hold of a temporary password must not
 * lock the user out, and a link alone must not get around the factor (ASVS 6.4.3).
 */
export function nextStep(service: PortalService, { user, methods, link }: Proven): Step {
  const needsCode = user.second_factor && !link?.removes_factors;
  if (needsCode && methods === null) return 'code';
  if (link || user.password_expires_at !== null) return 'new-password';
  return methods === null && needsFactor(service, user) ? 'enrol' : 'none';
}

/** Stores a sign-in that waits in this browser alone. @returns ENDED after too many openings */
export async function beginStep(
  request: RequestInfo,
  service: PortalService,
  proven: Proven,
  return_to: string,
  notice = NOTHING,
) {
  const actor = actorBy(proven.user, request, proven.link ? 'link' : 'password');
  const pending = { ...proven, token: randomToken() };
  const detail = PENDING_DETAILS[nextStep(service, proven)];
  if (!(await insertPending(service.database, actor, pending, detail))) return ENDED;
  const page = stepPage(service, pending, return_to, notice);
  return withCookies(page, [cookieText(PENDING_COOKIE, pending.token)]);
}

const CODE_FIELDS = { code, return_to };
const PASSWORD_FIELDS = { password, repeated: passwordAgain, return_to };

/** The page of the next step. */
function stepPage(
  service: PortalService,
  pending: PendingSignIn,
  return_to: string,
  notice = NOTHING,
  parts: PageCall = {},
) {
  const step = nextStep(service, pending);
  const call = { ...parts, account: pending.user.id };
  const query = String(new URLSearchParams({ again: 'on', return_to }));
  const another = render('another-user', { query });
  if (step === 'enrol') {
    return offerTotp(service, pending, '/login/enrol', return_to, call, another);
  }
  const { user, link } = pending;
  const { username } = user;
  const factors = renderIf(link?.removes_factors, 'link-removes');
  const temporary = renderIf(step === 'new-password', 'temporary');
  const reason = link ? render('link-of', { username, factors }) : temporary;
  const length = service.passwords.minLength;
  const words = 'Use a passkey or security key';
  const passkey = passkeyForm(service.portal, '/login/code/passkey', words, return_to, call);
  const values = { return_to, notice, reason, username, length, passkey, another };
  return step === 'code'
    ? formPage('Second factor', 'code', CODE_FIELDS, call, values)
    : formPage('Choose a password', 'new-password', PASSWORD_FIELDS, call, values);
}

/**
 * The sign-in that waits in this browser.
 * @param find `countPendingAttempt` before a step is checked
 * @param withLinks to look at a link that has ended would record its use
 * @returns null after five attempts, a change of the account, or the end of its link
 */
async function pendingSignIn(
  find: typeof findPending,
  request: RequestInfo,
  service: PortalService,
  withLinks = true,
) {
  const token = cookieOf(request.headers, PENDING_COOKIE) ?? '';
  const pending = token === '' ? null : await find(service.database, token);
  if (!pending || (pending.link_digest && !withLinks)) return null;
  const user = await findUser(service.database, pending.user_id);
  if (!user || !mayLogIn(user)) return null;
  const { methods, password_digest, link_digest, stays } = pending;
  const link =
    link_digest && (await findLink(service.database, actorOf(null, request), link_digest));
  if (link_digest && !link?.is_open) return null;
  const isUnchanged = equalDigests(sha256(user.password_hash ?? ''), password_digest);
  const current = { user, token, methods, link, stays };
  return isUnchanged && nextStep(service, current) !== 'none' ? current : null;
}

/** @returns the page of the step that waits in this browser, or null */
export async function waitingStep(request: RequestInfo, service: PortalService, return_to: string) {
  const pending = await pendingSignIn(findPending, request, service, false);
  return pending && stepPage(service, pending, return_to, NOTHING, { request });
}

const WITHOUT_COOKIES = new Failure('invalid_session', { message: NO_COOKIES });

/** After a failure, the page of the step, or without a pending sign-in the first form. */
async function showStep(
  call: Call<null, unknown, unknown, Partial<ReturnInput>> & Readonly<{ repeated: Repeated }>,
  service: PortalService,
) {
  const { repeated, request } = call;
  const { return_to = '' } = call.body;
  const isOver = repeated.failure === ENDED;
  const pending = isOver ? null : await pendingSignIn(findPending, request, service);
  if (pending) return stepPage(service, pending, return_to, NOTHING, call);
  const again = { repeated: { ...repeated, fields: {} } };
  const page = loginPage(service.portal, return_to, again);
  return withCookies(page, [NO_PENDING]);
}

/** What the form of a step does, for the sign-in that waits for this step. */
const inStep =
  <StepCall extends SignInCall & Readonly<{ madeFor?: string | undefined }>>(
    step: Step,
    work: (call: StepCall, service: PortalService, pending: PendingSignIn) => Promise<PageReply>,
  ) =>
  async (call: StepCall, service: PortalService) => {
    const { request } = call;
    const pending = await pendingSignIn(countPendingAttempt, request, service);
    if (pending && isOfAnother(call.madeFor, pending.user)) {
      const { username } = pending.user;
      const message = `Another tab has begun to sign in as ${username}. Go on as ${username} here, or sign in as another user.`;
      return new Failure('conflict', { message });
    }
    if (pending && nextStep(service, pending) === step) return work(call, service, pending);
    const hasCookie = cookieOf(request.headers, PENDING_COOKIE) !== null;
    if (hasCookie || pending) return ENDED;
    // The form was sent twice, for example by another tab or after the button for the last page.
    if (await isSignedIn(request, service)) {
      return continuePage(destination(call.body.return_to, service));
    }
    return keepsCookies(request) ? ENDED : WITHOUT_COOKIES;
  };

/** A typed code of the second factor. */
export const enterCode = form(
  portalForm,
  CODE_FIELDS,
  inStep('code', async (call, service, pending) => {
    const methods = await checkCode(service, call.request, pending.user, call.body.code);
    if (methods instanceof Failure) return methods;
    return continueAfterFactor(call, service, { ...pending, methods });
  }),
  showStep,
);

/** A passkey or security key as the second factor. */
export const enterPasskey = form(
  portalForm,
  PASSKEY_FIELDS,
  inStep('code', async (call, service, pending) => {
    const { user: known, token } = pending;
    const user = await authenticate(service, call.request, known, token, call.body.credential);
    if (user instanceof Failure) return user;
    return continueAfterFactor(call, service, { ...pending, user, methods: 'password, passkey' });
  }),
  showStep,
);

/**
 * In place of a generated password, or of one that an administrator chose (ASVS 6.4.1), or none.
 */
export const choosePassword = form(
  portalForm,
  PASSWORD_FIELDS,
  inStep('new-password', async (call, service, pending) => {
    const { password } = call.body;
    const { database } = service;
    const { user: before, methods, token, link } = pending;
    const { id, password_hash: hash } = before;
    const isSame =
      hash !== null &&
      before.password_expires_at !== null &&
      (await service.hashing.run(() => verifyPassword(password, hash)));
    if (isSame) return invalid('/password', SAME_PASSWORD);
    const columns = await hashNewPassword(password, service, before);
    if (columns instanceof Failure) return columns;
    const via = link ? 'link' : 'password';
    const actor = actorBy(before, call.request, via);
    const changed = link
      ? await applyLink(database, actor, link, columns)
      : await setPasswordHash(database, actor, id, columns, hash);
    // The link has ended, or the password has changed since.
    if (!changed) return ENDED;
    if (link?.removes_factors) service.reportFactor('all', 'removed', id);
    await removePending(database, token);
    const user = await findUser(database, id);
    // Another change since then may have set another password.
    if (user?.updated_at.getTime() !== changed.updated_at.getTime()) return ENDED;
    return proceed(call, service, { user, methods, link: null, stays: pending.stays }, via);
  }),
  showStep,
);

/** The first code of an app, if a second factor is required and the user has none. */
export const enrol = form(
  portalForm,
  TOTP_FIELDS,
  inStep('enrol', async (call, service, pending) => {
    const { user } = pending;
    const actor = actorBy(user, call.request);
    const changedAt = await confirmTotp(service, actor, pending, call.body);
    if (changedAt instanceof Failure) return changedAt;
    const codes = await codesAfter(service, actor, user.id, 'totp');
    // Adding the app has ended the pending sign-in and changed the account.
    const account = { ...user, updated_at: changedAt };
    const { stays } = pending;
    return finishSignIn(call, service, account, 'password', 'password, totp', stays, codes);
  }),
  showStep,
);

/** Options for `navigator.credentials.get`, after the password. */
export async function secondFactorOptions(
  { request }: Pick<SignInCall, 'request'>,
  service: PortalService,
) {
  const token = cookieOf(request.headers, PENDING_COOKIE) ?? '';
  const pending = await findPending(service.database, token);
  if (!pending) return new Failure('unauthorized', ENDED.details);
  return { data: await createOptions(service, 'second factor', token, pending.user_id) };
}

/** A pending sign-in that has been used has ended. */
async function continueAfterFactor(
  call: SignInCall,
  service: PortalService,
  pending: PendingSignIn,
) {
  const isUnused = await removePending(service.database, pending.token);
  return isUnused ? proceed(call, service, pending, 'password') : ENDED;
}

/** A temporary password is changed before there is a session. */
async function proceed(call: SignInCall, service: PortalService, proven: Proven, via: LoginProof) {
  if (nextStep(service, proven) === 'none') {
    const { user, methods, stays } = proven;
    return finishSignIn(call, service, user, via, methods ?? 'password', stays);
  }
  return beginStep(call.request, service, proven, call.body.return_to);
}
