import { digest, randomToken, sameDigest } from '../../crypto/token.ts';
import type { Call, RequestInfo } from '../../http/call.ts';
import { Failure } from '../../http/errors.ts';
import { form } from '../../http/form.ts';
import { type Members, text, type Values, withoutNul } from '../../http/shape.ts';
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
import {
  BROWSER_COOKIE,
  DOMAIN_COOKIE,
  hostCookie,
  PENDING_COOKIE,
  returnAddress,
  setCookies,
} from './browser.ts';
import { confirmTotp, offerTotp } from './factors.ts';
import { personOf } from './guards.ts';
import {
  code,
  codePage,
  codesPage,
  continuePage,
  formOf,
  type Handle,
  loginPage,
  newPasswordPage,
  password,
  retried,
  return_to,
} from './pages.ts';
import { findByDomainToken, insertSignIn } from './store.ts';

type Search = Readonly<{ return_to: string | undefined; again: 'on' | undefined }>;
/** A sign-in whose password was right. `token`: of the cookie that only this browser has. */
type Waiting = Readonly<{ user: Account; token: string }>;
type Form<Fields = unknown, Caller = unknown> = Call<
  Caller,
  unknown,
  unknown,
  Fields & { readonly return_to: string }
>;

/** The form. A signed-in user whose browser has kept all cookies continues to the requested address instead. */
export async function showLogin(
  { query, request }: Call<null, unknown, Search, null>,
  service: PortalService,
) {
  const { return_to: returnTo = '', again } = query;
  if (again === undefined && (await isSignedIn(request, service))) {
    return continuePage('You are signed in', destination(returnTo, service), []);
  }
  const { headers } = request;
  const cookies =
    cookieOf(headers, BROWSER_COOKIE) === null ? [hostCookie(BROWSER_COOKIE, randomToken())] : [];
  // A passkey on this page signs in alone, perhaps as another user.
  if (cookieOf(headers, PENDING_COOKIE) !== null) cookies.push(hostCookie(PENDING_COOKIE, ''));
  return loginPage({ return_to: returnTo }, '', cookies);
}

const destination = (returnTo: string, { portal }: PortalService): string =>
  returnAddress(returnTo, portal) ?? `${portal.origin}/account`;

/** Without the cookie for the domain, `verify` would send the browser back here, in a loop. */
async function isSignedIn(request: RequestInfo, service: PortalService): Promise<boolean> {
  const person = await personOf(request, service);
  if (person instanceof Failure || service.portal.cookieDomain === null)
    return !(person instanceof Failure);
  const domain = cookieOf(request.headers, DOMAIN_COOKIE);
  const shared =
    domain === null ? null : await findByDomainToken(service, digest(domain).toString('hex'));
  return shared?.id === person.session.id;
}

/** What must follow a right password before there is a session; null: nothing. */
function nextStep(service: PortalService, account: Account): 'password' | 'code' | 'enrol' | null {
  if (account.password_expires_at !== null) return 'password';
  if (account.second_factor) return 'code';
  return needsFactor(service, account) ? 'enrol' : null;
}

async function showStep(
  { caller, body: { return_to } }: Form<unknown, Waiting>,
  service: PortalService,
  message = '',
) {
  const [step, { user, token }] = [nextStep(service, caller.user), caller];
  const cookies = message === '' ? [hostCookie(PENDING_COOKIE, token)] : [];
  if (step === 'enrol')
    return offerTotp(service, caller, { action: '/login/enrol', return_to }, message, cookies);
  return (step === 'code' ? codePage : newPasswordPage)(
    { username: user.username, return_to },
    message,
    cookies,
  );
}

const showForm = async ({ body }: Form<{ username?: string }>, _: unknown, message: string) =>
  loginPage(body, message);

const loginName = text({ max: 1_024, check: withoutNul });

/** By password. A second factor is asked for on the next page, in place of a session. */
export const signIn = formOf<null>()(
  { username: loginName, password, return_to },
  async (call, service) => {
    const {
      body: { username, password },
      request,
    } = call;
    const session = await startSession(service, request, username, password, async (user) => {
      if (nextStep(service, user) === null) return 'password';
      const caller = { user, token: randomToken() };
      await pending.insertPending(service.database, caller.token, user);
      return new Failure('second_factor_needed', {
        page: await showStep({ ...call, caller }, service),
      });
    });
    if (session instanceof Failure) return session.details.page ?? session;
    return complete(call, service, session.token, 'password');
  },
  showForm,
);

/**
 * A step after the password, in the pending sign-in of this browser. Each attempt counts before it is checked; after
 * five, or a change of the password or of the factors, the password is asked for again.
 */
const step = <M extends Members>(
  name: ReturnType<typeof nextStep>,
  fields: M,
  check: Handle<Form<Values<M>, Waiting>>,
) => ({
  body: form({ ...fields, return_to }),
  async handle(call: Form<Values<M>, null>, service: PortalService) {
    const token = cookieOf(call.request.headers, PENDING_COOKIE) ?? '';
    const waiting = await pending.usePending(service.database, token);
    const user = waiting && (await findUser(service.database, waiting.user_id));
    const isSame = user && sameDigest(digest(user.password_hash ?? ''), waiting.password_digest);
    if (!isSame || !mayLogIn(user) || nextStep(service, user) !== name) return startAgain(call);
    return retried(check, showStep)({ ...call, caller: { user, token } }, service);
  },
});

function startAgain({ body: { return_to } }: Form) {
  const message = 'This sign-in has ended. Enter your password again.';
  return new Failure('invalid_session', {
    page: loginPage({ return_to }, message, [hostCookie(PENDING_COOKIE, '')]),
  });
}

/** A typed code of the second factor. */
export const enterCode = step('code', { code }, async (call, service) => {
  const {
    caller: { user },
    body: { code },
    request,
  } = call;
  const methods =
    (await service.checkCode?.(service, request, user, code)) ?? new Failure('invalid_code');
  return methods instanceof Failure ? methods : finish(call, service, user, methods);
});

const actorBy = ({ caller: { user }, request }: Form<unknown, Waiting>): Actor => ({
  ...actorOf(null, request),
  via: 'password',
  userId: user.id,
});

/** In place of a generated password, or of one that an administrator chose (ASVS 6.4.1). Then the user signs in. */
export const choosePassword = step(
  'password',
  { new_password: password },
  async (call, service) => {
    const {
      caller: {
        user: { id, username, password_hash: before },
        token,
      },
      body: { new_password, return_to },
    } = call;
    const changed = await setPassword(
      service.database,
      actorBy(call),
      id,
      new_password,
      service,
      before,
    );
    if (changed instanceof Failure) return changed;
    await pending.removePending(service.database, token);
    return loginPage({ username, return_to }, '', [hostCookie(PENDING_COOKIE, '')]);
  },
);

/** The first code of an app, if a second factor is required and the user has none. */
export const enrol = step('enrol', { code }, async (call, service) => {
  const { caller, body } = call;
  const added = await confirmTotp(service, actorBy(call), null, caller, body.code);
  if (added instanceof Failure) return added;
  return finish(
    call,
    service,
    { ...caller.user, updated_at: added.changedAt },
    'password, totp',
    added.codes,
  );
});

async function checkPasskey(
  call: Form<{ credential: string }, Waiting | null>,
  service: PortalService,
) {
  const {
    caller,
    body: { credential },
    request,
  } = call;
  const account = await authenticate(
    service,
    request,
    caller?.user ?? null,
    bindingOf(request),
    credential,
  );
  if (!account) return new Failure('invalid_passkey');
  return finish(call, service, account, caller ? 'password, passkey' : 'passkey');
}

const asSecond = step('code', { credential: text({ max: 8_192 }) }, checkPasskey);

/** By passkey: after the password as the second factor, otherwise alone. */
export const usePasskey: typeof asSecond = {
  ...asSecond,
  handle: (call, service) =>
    cookieOf(call.request.headers, PENDING_COOKIE) === null
      ? retried(checkPasskey, showForm)(call, service)
      : asSecond.handle(call, service),
};

const bindingOf = ({ headers }: RequestInfo): string =>
  cookieOf(headers, PENDING_COOKIE) ?? cookieOf(headers, BROWSER_COOKIE) ?? '';

/** Options for `navigator.credentials.get`. */
export async function passkeyOptions(
  { request }: Call<null, unknown, unknown, null>,
  service: PortalService,
) {
  const token = cookieOf(request.headers, PENDING_COOKIE);
  const userId = token === null ? null : await pending.findPendingUser(service.database, token);
  const purpose = token === null ? 'sign in' : 'second factor';
  return { data: await createOptions(service, purpose, bindingOf(request), userId) };
}

/**
 * A pending sign-in that was used meanwhile, or has ended with a change of the factors, gives no session.
 * @param codes new recovery codes, to be shown before the browser continues
 */
async function finish(
  call: Form<unknown, Waiting | null>,
  service: PortalService,
  account: Account,
  methods: string,
  codes?: string[],
) {
  const { caller, request } = call;
  // An app that was just set up has ended it already.
  const isOpen =
    !caller || codes !== undefined || (await pending.removePending(service.database, caller.token));
  const session =
    isOpen && (await insertLogin(service, request, account, caller ? 'password' : 'passkey', true));
  return session ? complete(call, service, session.token, methods, codes) : startAgain(call);
}

/** Ends the session that the browser had (ASVS 7.2.4), and gives it the cookies of the new one. */
async function complete(
  call: Form,
  service: PortalService,
  token: string,
  methods: string,
  codes?: string[],
) {
  await endCurrent(call.request, service);
  const cookies = [
    ...(await createCookies(service, token, methods)),
    hostCookie(PENDING_COOKIE, ''),
  ];
  const address = destination(call.body.return_to, service);
  return codes
    ? codesPage(codes, address, cookies)
    : continuePage('You are signed in', address, cookies);
}

/** @param at the time of the proof; now if omitted */
export async function createCookies(
  { database, portal }: PortalService,
  token: string,
  methods: string,
  at?: Date,
) {
  const tokens = { host: token, domain: randomToken() };
  await insertSignIn(database, tokens, methods, at ?? null);
  return setCookies(tokens, portal);
}

async function endCurrent(request: RequestInfo, service: PortalService): Promise<void> {
  const person = await personOf(request, service);
  if (person instanceof Failure) return;
  // No rights are needed: the session may have ended meanwhile.
  const actor = { ...actorOf(person, request), caller: null };
  await endSession(service.database, actor, person.session.id, 'session.logged_out');
}

/** Idempotent: the cookies are removed in any case. */
export async function signOut(
  { request }: Call<null, unknown, unknown, unknown>,
  service: PortalService,
) {
  await endCurrent(request, service);
  const { portal } = service;
  return continuePage(
    'You are signed out',
    `${portal.origin}/login`,
    setCookies({ host: '', domain: '' }, portal),
  );
}
