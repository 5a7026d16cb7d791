import { digest, randomToken, sameDigest } from '../../crypto/token.ts';
import type { Call, RequestInfo } from '../../http/call.ts';
import { Failure } from '../../http/errors.ts';
import { actorOf } from '../audit.ts';
import { authenticate, createOptions } from '../factors/passkeys.ts';
import * as pending from '../factors/store.ts';
import { cookieOf } from '../guard.ts';
import { insertLogin, needsFactor, startSession } from '../login.ts';
import { type Account, mayLogIn } from '../model.ts';
import type { PortalService } from '../service.ts';
import type { Actor } from '../store/audit.ts';
import { endSession } from '../store/sessions.ts';
import { findUser } from '../store/users.ts';
import { setPassword } from '../users.ts';
import { BROWSER_COOKIE, DOMAIN_COOKIE, hostCookie, PENDING_COOKIE, returnAddress, setCookies } from './browser.ts';
import { confirmTotp, offerTotp } from './factors.ts';
import { personOf } from './guards.ts';
import { codePage, codesPage, continuePage, loginPage, type Message, newPasswordPage, tryAgain } from './pages.ts';
import { findByDomainToken, insertSignIn } from './store.ts';

type Search = Readonly<{ return_to: string | undefined; again: 'on' | undefined }>;
type FormCall<Fields = unknown> = Call<null, unknown, unknown, Fields & { readonly return_to: string }>;

/** The form, or straight on for somebody who is signed in and whose browser has kept all cookies. */
export async function showLogin({ query, request }: Call<null, unknown, Search, null>, service: PortalService) {
  const { return_to: returnTo = '', again } = query;
  if (again === undefined && (await isSignedIn(request, service))) {
    return continuePage('You are signed in', destination(returnTo, service), []);
  }
  const { headers } = request;
  const cookies = cookieOf(headers, BROWSER_COOKIE) === null ? [hostCookie(BROWSER_COOKIE, randomToken())] : [];
  // A passkey on this page signs in alone, and perhaps another person.
  if (cookieOf(headers, PENDING_COOKIE) !== null) cookies.push(hostCookie(PENDING_COOKIE, ''));
  return loginPage({ returnTo, message: null }, cookies);
}

const destination = (returnTo: string, { portal }: PortalService): string =>
  returnAddress(returnTo, portal) ?? `${portal.origin}/account`;

/** Without the cookie for the domain, going on would end in a loop. */
async function isSignedIn(request: RequestInfo, service: PortalService): Promise<boolean> {
  const person = await personOf(request, service);
  if (person === null || service.portal.cookieDomain === null) return person !== null;
  const domain = cookieOf(request.headers, DOMAIN_COOKIE);
  const shared = domain === null ? null : await findByDomainToken(service, digest(domain).toString('hex'));
  return shared?.id === person.session.id;
}

/** What must follow a right password before there is a session; null: nothing. */
function nextStep(service: PortalService, account: Account): 'password' | 'code' | 'enrol' | null {
  if (account.password_expires_at !== null) return 'password';
  if (account.second_factor) return 'code';
  return needsFactor(service, account) ? 'enrol' : null;
}

const ENROL = '/login/enrol';

/** By password. A second factor is asked for on the next page, in place of a session. */
export async function signIn(call: FormCall<{ username: string; password: string }>, service: PortalService) {
  const { body, request } = call;
  const { username, password, return_to: returnTo } = body;
  const [token, waiting]: [string, Account[]] = [randomToken(), []];
  const session = await startSession(service, request, username, password, async (account) => {
    if (nextStep(service, account) === null) return 'password';
    await pending.insertPending(service.database, token, account);
    waiting.push(account);
    return new Failure('second_factor_needed');
  });
  for (const user of waiting) {
    const [step, cookies] = [nextStep(service, user), [hostCookie(PENDING_COOKIE, token)]];
    if (step === 'password') return newPasswordPage({ username, returnTo, message: null }, cookies);
    if (step === 'code') return codePage({ returnTo, message: null }, cookies);
    return offerTotp(service, { user, token }, { action: ENROL, returnTo, message: null }, cookies);
  }
  if (!(session instanceof Failure)) return complete(call, service, session.token, 'password');
  return tryAgain(session, (message) => loginPage({ username, returnTo, message }));
}

/**
 * The pending sign-in of this browser, for one step only. Each attempt counts before it is checked; after five, or a
 * change of the password or of the factors, the password is asked for again.
 */
async function takeAttempt({ headers }: RequestInfo, service: PortalService, step: ReturnType<typeof nextStep>) {
  const token = cookieOf(headers, PENDING_COOKIE) ?? '';
  const waiting = await pending.takePendingAttempt(service.database, token);
  const user = waiting && (await findUser(service.database, waiting.user_id));
  const isSame = user && sameDigest(digest(user.password_hash ?? ''), waiting.password_digest);
  return isSame && mayLogIn(user) && nextStep(service, user) === step ? { token, user } : null;
}

function startAgain({ body }: FormCall) {
  const form = { returnTo: body.return_to, message: 'This sign-in has ended. Enter your password again.' };
  return new Failure('invalid_session', { page: loginPage(form, [hostCookie(PENDING_COOKIE, '')]) });
}

/** A typed code of the second factor. */
export async function enterCode(call: FormCall<{ code: string }>, service: PortalService) {
  const { body: { code, return_to: returnTo }, request } = call;
  const waiting = await takeAttempt(request, service, 'code');
  if (!waiting) return startAgain(call);
  const methods = (await service.checkCode?.(service, request, waiting.user, code)) ?? new Failure('invalid_code');
  if (!(methods instanceof Failure)) return finish(call, service, waiting.user, methods);
  return tryAgain(methods, (message) => codePage({ returnTo, message }));
}

const actorBy = (request: RequestInfo, userId: string): Actor =>
  ({ ...actorOf(null, request), via: 'password', userId });

/** In place of a generated password, or of one that an administrator chose (ASVS 6.4.1). Then the person signs in. */
export async function choosePassword(call: FormCall<{ new_password: string }>, service: PortalService) {
  const { body: { new_password: password, return_to: returnTo }, request } = call;
  const waiting = await takeAttempt(request, service, 'password');
  if (!waiting) return startAgain(call);
  const [{ user: { id, username, password_hash: before }, token }, { database }] = [waiting, service];
  const changed = await setPassword(database, actorBy(request, id), id, password, service, before);
  const show = (message: Message) => newPasswordPage({ username, returnTo, message });
  if (changed instanceof Failure) return tryAgain(changed, show);
  await pending.removePending(database, token);
  return loginPage({ username, returnTo, message: null }, [hostCookie(PENDING_COOKIE, '')]);
}

/** The first code of an app, where a second factor is required of a user who has none. */
export async function enrol(call: FormCall<{ code: string }>, service: PortalService) {
  const { body: { code, return_to: returnTo }, request } = call;
  const waiting = await takeAttempt(request, service, 'enrol');
  if (!waiting) return startAgain(call);
  const added = await confirmTotp(service, actorBy(request, waiting.user.id), null, waiting, code);
  if (added instanceof Failure) {
    return tryAgain(added, (message) => offerTotp(service, waiting, { action: ENROL, returnTo, message }));
  }
  return finish(call, service, { ...waiting.user, updated_at: added.changedAt }, 'password, totp', added.codes);
}

/** By passkey: after the password as the second factor, otherwise alone. */
export async function usePasskey(call: FormCall<{ credential: string }>, service: PortalService) {
  const { body: { credential, return_to: returnTo }, request } = call;
  const isSecond = cookieOf(request.headers, PENDING_COOKIE) !== null;
  const waiting = isSecond ? await takeAttempt(request, service, 'code') : null;
  if (isSecond && !waiting) return startAgain(call);
  const account = await authenticate(service, request, waiting?.user ?? null, bindingOf(request), credential);
  if (account) return finish(call, service, account, isSecond ? 'password, passkey' : 'passkey');
  const show = isSecond ? codePage : loginPage;
  return tryAgain(new Failure('invalid_passkey'), (message) => show({ returnTo, message }));
}

const bindingOf = ({ headers }: RequestInfo): string =>
  cookieOf(headers, PENDING_COOKIE) ?? cookieOf(headers, BROWSER_COOKIE) ?? '';

/** Options for `navigator.credentials.get`. */
export async function passkeyOptions({ request }: Call<null, unknown, unknown, null>, service: PortalService) {
  const token = cookieOf(request.headers, PENDING_COOKIE);
  const userId = token === null ? null : (await pending.findPending(service.database, token))?.user_id ?? null;
  const purpose = token === null ? 'sign in' : 'second factor';
  return { data: await createOptions(service, purpose, bindingOf(request), userId) };
}

/** New recovery codes, to be shown before the browser goes on. */
type Codes = readonly string[];

/** A pending sign-in that was used meanwhile, or has ended with a change of the factors, opens nothing. */
async function finish(call: FormCall, service: PortalService, account: Account, methods: string, codes?: Codes) {
  const { request } = call;
  const token = cookieOf(request.headers, PENDING_COOKIE);
  // An app that was just set up has ended it already.
  const isOpen = token === null || codes !== undefined || (await pending.removePending(service.database, token));
  const via = methods === 'passkey' ? 'passkey' : 'password';
  const session = isOpen && (await insertLogin(service, request, account, via, true));
  return session ? complete(call, service, session.token, methods, codes) : startAgain(call);
}

/** Ends the session that the browser had (ASVS 7.2.4), and gives it the cookies of the new one. */
async function complete(call: FormCall, service: PortalService, token: string, methods: string, codes?: Codes) {
  await endCurrent(call.request, service);
  const cookies = [...(await createCookies(service, token, methods)), hostCookie(PENDING_COOKIE, '')];
  const address = destination(call.body.return_to, service);
  return codes ? codesPage(codes, address, cookies) : continuePage('You are signed in', address, cookies);
}

/** @param at when the person proved this; now if omitted */
export async function createCookies({ database, portal }: PortalService, token: string, methods: string, at?: Date) {
  const tokens = { host: token, domain: randomToken() };
  await insertSignIn(database, tokens, methods, at ?? null);
  return setCookies(tokens, portal);
}

async function endCurrent(request: RequestInfo, service: PortalService): Promise<void> {
  const person = await personOf(request, service);
  // No rights are needed: the session may have ended meanwhile.
  const actor = { ...actorOf(person, request), caller: null };
  if (person) await endSession(service.database, actor, person.session.id, 'session.logged_out');
}

/** Idempotent: the cookies go in any case. */
export async function signOut({ request }: Call<null, unknown, unknown, unknown>, service: PortalService) {
  await endCurrent(request, service);
  const { portal } = service;
  return continuePage('You are signed out', `${portal.origin}/login`, setCookies({ host: '', domain: '' }, portal));
}
