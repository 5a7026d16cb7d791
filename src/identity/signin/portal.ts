import { digest, randomToken, sameDigest } from '../../crypto/token.ts';
import type { Call, Guard, RequestInfo } from '../../http/call.ts';
import { Failure, type TextReply } from '../../http/errors.ts';
import { actorOf } from '../audit.ts';
import { authenticate, createOptions } from '../factors/passkeys.ts';
import * as pending from '../factors/store.ts';
import { callerBySession, cookieOf } from '../guard.ts';
import { insertLogin, needsFactor, startSession } from '../login.ts';
import { type Account, mayLogIn } from '../model.ts';
import { createPasswords } from '../passwords.ts';
import type { Caller } from '../policy.ts';
import type { PortalService } from '../service.ts';
import { endSession } from '../store/sessions.ts';
import { setPassword } from '../users.ts';
import {
  BROWSER_COOKIE, DOMAIN_COOKIE, HOST_COOKIE, hostCookie, isFromPortal, PENDING_COOKIE, returnAddress, setCookies,
} from './browser.ts';
import { confirmTotp, offerTotp } from './factors.ts';
import { codePage, codesPage, continuePage, loginPage, messageOf, newPasswordPage } from './pages.ts';
import { findByDomainToken, insertSignIn } from './store.ts';

const NOT_FROM_PORTAL = new Failure('forbidden', {
  message: 'This form was not sent by the sign-in page itself. Open the page and try again.',
});

/** A form of the sign-in page: another site could otherwise sign a visitor in as somebody else. */
export const portalForm: Guard<PortalService, null> = {
  security: [],
  errors: ['forbidden'],
  check: async ({ headers }, { portal }) => (isFromPortal(headers, portal) ? null : NOT_FROM_PORTAL),
};

/** A person who signed in here. Everyone else is sent to the sign-in page. */
export const signedIn = (kind: 'changes' | 'reads'): Guard<PortalService, Caller> => ({
  security: ['portal_cookie'],
  errors: ['signin_needed', 'forbidden', 'service_failed'],
  async check(request, service) {
    if (kind === 'changes' && !isFromPortal(request.headers, service.portal)) return NOT_FROM_PORTAL;
    return (await callerOf(request, service)) ?? new Failure('signin_needed', { headers: { Location: '/login' } });
  },
});

/** The caller of the cookie for the portal's own host. */
async function callerOf({ headers, address }: RequestInfo, service: PortalService): Promise<Caller | null> {
  const token = cookieOf(headers, HOST_COOKIE);
  const caller = token === null ? null : await callerBySession(token, address, service);
  return caller instanceof Failure ? null : caller;
}

type Search = Readonly<{ return_to: string | undefined; again: 'on' | undefined }>;

/** The form, or straight on for somebody who is signed in and whose browser has kept all cookies. */
export async function showLogin(
  { query, request }: Call<null, unknown, Search, null>, service: PortalService,
) {
  const returnTo = query.return_to ?? '';
  if (query.again === undefined && (await isSignedIn(request, service))) {
    return continuePage('You are signed in', destination(returnTo, service), []);
  }
  const isKnown = cookieOf(request.headers, BROWSER_COOKIE) !== null;
  const cookies = isKnown ? [] : [hostCookie(BROWSER_COOKIE, randomToken())];
  return loginPage({ username: '', returnTo, message: null }, cookies);
}

const destination = (returnTo: string, { portal }: PortalService): string =>
  returnAddress(returnTo, portal) ?? `${portal.origin}/account`;

/** Without the cookie for the domain, going on would end in a loop. */
async function isSignedIn(request: RequestInfo, service: PortalService): Promise<boolean> {
  const caller = await callerOf(request, service);
  if (caller === null || service.portal.cookieDomain === null) return caller !== null;
  const domain = cookieOf(request.headers, DOMAIN_COOKIE);
  const shared = domain === null ? null : await findByDomainToken(service, digest(domain).toString('hex'));
  return shared?.id === caller.session?.id;
}

type FormCall<Fields> = Call<null, unknown, unknown, Fields & { readonly return_to: string }>;

/** By password. A second factor is asked for on the next page, in place of a session. */
export async function signIn(
  { body, request }: FormCall<{ username: string; password: string }>, service: PortalService,
) {
  const { username, password, return_to: returnTo } = body;
  const [token, waiting]: [string, Account[]] = [randomToken(), []];
  const session = await startSession(service, request, username, password, async (account) => {
    if (account.password_expires_at === null && !needsFactor(service, account)) return 'password';
    await pending.insertPending(service.database, token, account);
    waiting.push(account);
    return new Failure('second_factor_needed');
  });
  for (const account of waiting) {
    const cookies = [hostCookie(PENDING_COOKIE, token)];
    if (account.password_expires_at !== null) return newPasswordPage({ username, returnTo, message: null }, cookies);
    if (account.second_factor) return codePage({ returnTo, message: null }, cookies);
    return offerTotp(account, service, { action: '/login/enrol', returnTo, message: null }, cookies);
  }
  if (!(session instanceof Failure)) return complete(request, service, session, 'password', returnTo);
  const page = loginPage({ username, returnTo, message: messageOf(session) }, []);
  return new Failure(session.code, { ...session.details, page });
}

/** A typed code of the second factor. Each counts before it is checked; after five, the password is asked for again. */
export async function enterCode(
  { body, request }: FormCall<{ code: string }>, service: PortalService,
) {
  const token = cookieOf(request.headers, PENDING_COOKIE) ?? '';
  const attempt = await pending.takePendingAttempt(service.database, token);
  const account = attempt && (await accountOf(service, attempt));
  if (!account) return startAgain(body.return_to);
  const methods = (await service.checkCode?.(service, request, account, body.code)) ?? new Failure('invalid_code');
  if (!(methods instanceof Failure)) return finish(request, service, account, methods, body.return_to);
  const page = codePage({ returnTo: body.return_to, message: messageOf(methods) }, []);
  return new Failure(methods.code, { ...methods.details, page });
}

/** In place of a generated password, or of one that an administrator chose (ASVS 6.4.1). Then the person signs in. */
export async function choosePassword(
  { body, request }: FormCall<{ new_password: string }>, service: PortalService,
) {
  const token = cookieOf(request.headers, PENDING_COOKIE) ?? '';
  const attempt = await pending.takePendingAttempt(service.database, token);
  const account = attempt && (await accountOf(service, attempt));
  if (!account || account.password_expires_at === null) return startAgain(body.return_to);
  const actor = { ...actorOf(null, request), via: 'password', userId: account.id } as const;
  const passwords = createPasswords(service);
  const changed = await setPassword(service.database, actor, account.id, body.new_password, passwords);
  const form = { username: account.username, returnTo: body.return_to };
  if (changed instanceof Failure) {
    const page = newPasswordPage({ ...form, message: messageOf(changed) }, []);
    return new Failure(changed.code, { ...changed.details, page });
  }
  await pending.removePending(service.database, token);
  return loginPage({ ...form, message: null }, [hostCookie(PENDING_COOKIE, '')]);
}

/** The first code of an app, where a second factor is required of a user who has none. */
export async function enrol({ body, request }: FormCall<{ code: string }>, service: PortalService) {
  const token = cookieOf(request.headers, PENDING_COOKIE) ?? '';
  const attempt = await pending.takePendingAttempt(service.database, token);
  const account = attempt && (await accountOf(service, attempt));
  // Nobody who only knows the password may add a factor beside another one.
  if (!account || account.second_factor) return startAgain(body.return_to);
  const actor = { ...actorOf(null, request), via: 'password', userId: account.id } as const;
  const codes = await confirmTotp(service, actor, account.id, body.code);
  if (codes instanceof Failure) {
    const form = { action: '/login/enrol', returnTo: body.return_to, message: messageOf(codes) };
    return new Failure(codes.code, { page: await offerTotp(account, service, form) });
  }
  const session = await insertLogin(service, request, account, 'password', true);
  if (!session) return startAgain(body.return_to);
  await endCurrent(request, service);
  const cookies = await createCookies(service, session, 'password, totp');
  return codesPage(codes, destination(body.return_to, service), [...cookies, hostCookie(PENDING_COOKIE, '')]);
}

/** By passkey: after the password as the second factor, otherwise alone. */
export async function usePasskey(
  { body, request }: FormCall<{ credential: string }>, service: PortalService,
) {
  const { credential, return_to: returnTo } = body;
  const { isSecond, waiting, binding } = await stepOf(request, service);
  const userId = waiting?.user_id ?? null;
  if (isSecond && !waiting) return startAgain(returnTo);
  const actor = { ...actorOf(null, request), via: 'passkey' } as const;
  const proven = await authenticate(service, actor, userId, binding, credential);
  const account = proven instanceof Failure ? null
    : waiting ? await accountOf(service, waiting) : await pending.findAccountById(service.database, proven.userId);
  if (account) return finish(request, service, account, isSecond ? 'password, passkey' : 'passkey', returnTo);
  const [failure, show] = [new Failure('invalid_passkey'), isSecond ? codePage : loginPage];
  return new Failure(failure.code, { page: show({ username: '', returnTo, message: messageOf(failure) }, []) });
}

/** Options for `navigator.credentials.get`. */
export async function passkeyOptions(
  { request }: Call<null, unknown, unknown, null>, service: PortalService,
) {
  const { isSecond, waiting, binding } = await stepOf(request, service);
  const purpose = isSecond ? 'second factor' : 'sign in';
  return { data: await createOptions(service, purpose, binding, waiting?.user_id ?? null) };
}

async function stepOf({ headers }: RequestInfo, { database }: PortalService) {
  const token = cookieOf(headers, PENDING_COOKIE);
  const waiting = token === null ? null : await pending.findPending(database, token);
  return { isSecond: token !== null, waiting, binding: token ?? cookieOf(headers, BROWSER_COOKIE) ?? '' };
}

/** The account of a pending sign-in, unless it may no longer log in or has another password now. */
async function accountOf({ database }: PortalService, waiting: pending.Pending): Promise<Account | null> {
  const account = await pending.findAccountById(database, waiting.user_id);
  const isSame = account && sameDigest(digest(account.password_hash ?? ''), waiting.password_digest);
  return isSame && mayLogIn(account) ? account : null;
}

function startAgain(returnTo: string): Failure<'invalid_session'> {
  const message = 'This sign-in has ended. Enter your password again.';
  const page = loginPage({ username: '', returnTo, message }, [hostCookie(PENDING_COOKIE, '')]);
  return new Failure('invalid_session', { page });
}

async function finish(
  request: RequestInfo, service: PortalService, account: Account, methods: string, returnTo: string,
) {
  const session = await insertLogin(service, request, account, methods === 'passkey' ? 'passkey' : 'password', true);
  if (!session) return startAgain(returnTo);
  const token = cookieOf(request.headers, PENDING_COOKIE);
  if (token !== null) await pending.removePending(service.database, token);
  return complete(request, service, session, methods, returnTo);
}

/** Ends the session that the browser had (ASVS 7.2.4), and gives it the cookies of the new one. */
async function complete(
  request: RequestInfo, service: PortalService, session: Session, methods: string, returnTo: string,
) {
  await endCurrent(request, service);
  const cookies = [...(await createCookies(service, session, methods)), hostCookie(PENDING_COOKIE, '')];
  return continuePage('You are signed in', destination(returnTo, service), cookies);
}

type Session = Readonly<{ id: string; token: string }>;

export async function createCookies({ database, portal }: PortalService, session: Session, methods: string) {
  const domain = randomToken();
  await insertSignIn(database, session.id, portal.cookieDomain === null ? null : domain, methods);
  return setCookies({ host: session.token, domain }, portal);
}

async function endCurrent(request: RequestInfo, service: PortalService): Promise<void> {
  const caller = await callerOf(request, service);
  const { session = null } = caller ?? {};
  if (session) await endSession(service.database, actorOf(caller, request), session.id, 'session.logged_out');
}

/** Idempotent: the cookies go in any case. */
export async function signOut(
  { request }: Call<null, unknown, unknown, unknown>, service: PortalService,
): Promise<TextReply> {
  await endCurrent(request, service);
  return signedOutPage('You are signed out', service);
}

export const signedOutPage = (title: string, { portal }: PortalService): TextReply =>
  continuePage(title, `${portal.origin}/login`, setCookies(null, portal));
