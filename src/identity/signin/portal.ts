import { randomToken, sha256 } from '../../platform/crypto/token.ts';
import {
  type Call,
  Failure,
  type RequestInfo,
  route,
  type ServiceFacts,
} from '../../platform/http/route/route.ts';
import { landing, landingRow } from '../../platform/http/site/built-in-routes.ts';
import { NOTHING } from '../../platform/http/site/html.ts';
import { oneOf, optional, text, type Values } from '../../platform/http/route/schema.ts';
import type { Site } from '../../platform/runtime/context.ts';
import { readVersion } from '../../platform/runtime/version.ts';
import { authenticate, createOptions } from '../factors/passkeys.ts';
import { cookieOf } from '../guard.ts';
import { logInWithPassword } from '../login.ts';
import { checkPassword } from '../passwords.ts';
import type { PortalService } from '../service.ts';
import { getsCookie } from '../settings.ts';
import { actorOf } from '../store/audit.ts';
import { findLink } from '../store/signin/links.ts';
import { findUser } from '../store/users.ts';
import {
  BROWSER_COOKIE,
  cookieText,
  isElsewhere,
  isSignedIn,
  keepsCookies,
  portalForm,
  signedInUserOf,
  tokenDigest,
} from './browser.ts';
import { destination, isListed, parseReturn } from './return-address.ts';
import { continueSignedIn, finishSignIn } from './finish.ts';
import { form, PASSKEY_FIELDS, return_to, type ReturnInput } from './forms.ts';
import { continueAgain, formPage, LOGIN_FIELDS, loginPage, withCookies } from './pages.ts';
import { beginStep, nextStep, waitingStep } from './steps.ts';
import { type PageCall, render, renderIf } from './templates.ts';

export const loginQuery = { return_to, again: optional(oneOf('on')) };

/**
 * The form. A signed-in user whose browser has kept all cookies continues to the requested address
 * instead, and a sign-in that waits in this browser, at its next step: phones load a page again
 * while the person reads the code.
 */
export async function showLogin(
  { query: { return_to, again }, request }: Call<null, unknown, Values<typeof loginQuery>, null>,
  service: PortalService,
) {
  if (again === undefined && (await isSignedIn(request, service))) {
    return continueAgain(destination(return_to, service), request);
  }
  const waiting = again === undefined && (await waitingStep(request, service, return_to));
  if (waiting) return waiting;
  const notice = await reasonOf(request, service, return_to, again);
  const page = loginPage(service.portal, return_to, { request }, notice);
  if (browserOf(request) !== '') return page;
  return withCookies(page, [cookieText(BROWSER_COOKIE, randomToken())]);
}

/** Why the form is shown, above it. */
async function reasonOf(
  request: RequestInfo,
  { portal, programAt }: PortalService,
  return_to: string,
  again?: 'on',
) {
  if (isElsewhere(request.headers, portal))
    return render('elsewhere', { address: `${portal.origin}/login` });
  const address = parseReturn(return_to, portal);
  if (address === null) return NOTHING;
  const { origin, hostname } = address;
  // Anyone can make a link that leads here: it names no host outside the domain.
  if (!isListed(address, portal)) {
    return renderIf(getsCookie(hostname, portal), 'unlisted', { origin });
  }
  const program = origin === portal.origin ? await programAt?.(address) : null;
  const host = program ?? address.host;
  if (!again) return render('sign-in-to', { host });
  const cookies = renderIf(!keepsCookies(request), 'keep-cookies', { host: portal.host });
  return render('sign-in-again', { host, cookies });
}

/** As the person chose, if the operator offers it. */
const staysSignedIn = (
  { stay }: Readonly<{ stay?: 'on' | undefined }>,
  { portal }: PortalService,
) => stay === 'on' && portal.staySeconds > 0;

/** By password. A second factor is asked for on the next page, in place of a session. */
export const signIn = form(
  portalForm,
  LOGIN_FIELDS,
  async (call, service) => {
    const { username, password, return_to } = call.body;
    const stays = staysSignedIn(call.body, service);
    const checked = await checkPassword(service, call.request, null, username, password);
    if (checked instanceof Failure) return checked;
    const proven = { user: checked.account, methods: null, link: null, stays };
    if (nextStep(service, proven) !== 'none') {
      return beginStep(call.request, service, proven, return_to);
    }
    const session = await logInWithPassword(
      service,
      call.request,
      checked,
      password,
      'password',
      stays,
    );
    if (session instanceof Failure) return session;
    return continueSignedIn(call, service, session.token);
  },
  showLoginAgain,
);

async function showLoginAgain(
  call: PageCall & Readonly<{ body: Partial<ReturnInput> }>,
  { portal }: PortalService,
) {
  return loginPage(portal, call.body.return_to ?? '', call);
}

/** By passkey alone, whatever sign-in waits in this browser for its next step. */
export const signInWithPasskey = form(
  portalForm,
  PASSKEY_FIELDS,
  async (call, service) => {
    const { body, request } = call;
    const user = await authenticate(service, request, null, browserOf(request), body.credential);
    if (user instanceof Failure) return user;
    const stays = staysSignedIn(body, service);
    return finishSignIn(call, service, user, 'passkey', 'passkey', stays);
  },
  showLoginAgain,
);

const browserOf = ({ headers }: RequestInfo) => cookieOf(headers, BROWSER_COOKIE) ?? '';

/** Options for `navigator.credentials.get`, without a password. */
export const passkeyOptions = async (
  { request }: Readonly<{ request: RequestInfo }>,
  service: PortalService,
) => ({ data: await createOptions(service, 'sign in', browserOf(request), null) });

// --- With a link, which takes the place of a password

const LINK_FIELDS = { token: text({ max: 2_048 }) };

/** Loading it changes nothing. A script takes the token from the address, and sends the form. */
export const showLink = async (call: PageCall) =>
  formPage('Open your link', 'link', LINK_FIELDS, call);

const INCOMPLETE = 'The link is not complete. Copy all of it, up to its last character.';
const ENDED =
  'This link does not work. It may have been used, have expired, have been opened 20 times, or have been replaced by a newer one. If you have set your password, sign in. Otherwise ask an administrator for a new link.';

/**
 * The person may have copied only the token, or the whole address as a mail program left it: with
 * `%23` for the #, line breaks, and characters behind the token.
 */
const tokenIn = (text: string) =>
  /^[\w-]*/.exec(text.replace(/[=\s]/g, '').replace(/^.*(?:#|%(?:25)*23)/s, ''))?.[0] ?? '';

/**
 * This does not use the link: the next step asks for a second factor, or for the new password. A
 * wrong token counts as a guess of the network. The first use of a link that has ended does not.
 */
export const openLink = form(
  portalForm,
  LINK_FIELDS,
  async ({ body, request }, service) => {
    const { database } = service;
    const token = tokenIn(body.token);
    const digest = tokenDigest(token);
    const link = await service.checkCredential(request.network, {
      kind: 'link',
      key: digest,
      message: digest === null ? INCOMPLETE : ENDED,
      find: () => findLink(database, actorOf(null, request), sha256(token)),
      isAllowed: ({ is_open }) => is_open,
    });
    if (link instanceof Failure) return link;
    const user = await findUser(database, link.user_id);
    if (!user) return new Failure('unauthorized', { message: ENDED });
    const signedIn = await signedInUserOf(request, service);
    const { username } = user;
    const other = signedIn instanceof Failure ? username : signedIn.user.username;
    const notice = renderIf(other !== username, 'other-user', { other, username });
    const begun = await beginStep(
      request,
      service,
      { user, methods: null, link, stays: false },
      '',
      notice,
    );
    return begun instanceof Failure ? new Failure('unauthorized', { message: ENDED }) : begun;
  },
  showLink,
);

/** Says who is signed in and, to administrators alone, which version runs. */
export const startPage = (site: Site, facts: ServiceFacts) =>
  route({
    ...landingRow,
    errors: [...landingRow.errors, 'service_failed'],
    async handle({ request }, service: PortalService) {
      const caller = await signedInUserOf(request, service);
      if (caller instanceof Failure)
        return landing(request, site, facts, [{ path: '/login', label: 'Sign in' }]);
      const { username, super_admin } = caller.user;
      const running = super_admin ? ` Gatehouse ${readVersion()} runs here.` : '';
      const state = `You are signed in as ${username}.${running}`;
      const account = { path: '/account', label: 'Your account' };
      return landing(request, site, facts, [account], state);
    },
  });
