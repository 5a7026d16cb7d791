import {
  type Call,
  type Guard,
  anonymous,
  type Route,
  route,
  routeDefaults,
} from '../../http/route.ts';
import { Failure, type TextReply } from '../../http/errors.ts';
import { HTML } from '../../http/html.ts';
import { createFrame, pageRows } from '../../http/pages.ts';
import {
  decimal,
  type Members,
  object,
  queryParameters,
  type Values,
  text,
  uuid,
  withDefault,
  withoutNul,
} from '../../http/schema.ts';
import type { Site } from '../../runtime/context.ts';
import type { PortalService } from '../service.ts';
import * as account from './account.ts';
import * as factors from './factors.ts';
import { portalForm, portalVisitor, recentlySignedIn, recentUserForm, signedIn } from './guards.ts';
import { FAILURES, failurePage, type Form, type PageHandler, return_to } from './pages.ts';
import { signOut } from './browser-session.ts';
import * as portal from './portal.ts';
import * as steps from './steps.ts';
import { verifyOrSignIn, verifyQuery } from './verify.ts';

const userPath = object({ user_id: uuid() });
const number = withDefault(decimal({ min: 1, max: 1_000_000 }), 1);
const search = withDefault(text({ max: 255, check: withoutNul }), '');
const pageQuery = { page: number };

const shared = {
  ...routeDefaults,
  method: 'GET',
  reply: null,
  errors: ['service_failed'],
} as const;
const pageRow = (method: 'GET' | 'POST', pattern: string, about: string) =>
  ({
    ...shared,
    method,
    pattern,
    summary: `Sign-in pages: ${about}`,
    failurePage,
    errors: FAILURES,
  }) as const;

const page = <Caller, M extends Members>(
  pattern: string,
  about: string,
  guard: Guard<PortalService, Caller>,
  query: M,
  handle: PageHandler<Call<Caller, unknown, Values<M>, null>>,
) => route({ ...pageRow('GET', pattern, about), guard, query: queryParameters(query), handle });

/** The guard of a form stands beside its fields. */
const post = <Caller, Body>(pattern: string, about: string, form: Form<Caller, unknown, Body>) =>
  route({ ...pageRow('POST', pattern, about), ...form });

type PortalRoute = Route<PortalService>;

const ROWS: readonly PortalRoute[] = [
  page('/login', 'the form', anonymous, portal.loginQuery, portal.showLogin),
  post('/login', 'sign in', portal.signIn),
  post('/login/code', 'a code of the second factor', steps.enterCode),
  post('/login/password', 'choose a password at the first sign-in', steps.choosePassword),
  post('/login/enrol', 'set up the second factor that is required', steps.enrol),
  post('/login/passkey', 'sign in with a passkey', steps.signInWithPasskey),
  route({
    ...shared,
    pattern: '/login/passkey',
    summary: 'Sign-in pages: options for a passkey',
    guard: anonymous,
    handle: steps.passkeyOptions,
  }),
  route({ ...pageRow('POST', '/logout', 'sign out'), guard: portalForm, handle: signOut }),

  page('/account', 'your account', signedIn, {}, account.showAccount),
  post('/account/password', 'change your password', account.changeOwnPassword),
  post('/account/sessions/end', 'end one of your sessions, or all', account.endSessions),
  page(
    '/account/factors',
    'your second factors',
    recentlySignedIn,
    { return_to },
    factors.showFactors,
  ),
  post('/account/totp/start', 'set up an authenticator app', factors.startTotp),
  post('/account/totp', 'confirm an authenticator app', factors.finishTotp),
  route({
    ...pageRow('POST', '/account/recovery', 'new recovery codes'),
    guard: recentUserForm,
    handle: factors.newCodes,
  }),
  post('/account/factors/remove', 'remove a second factor', factors.removeFactor),
  route({
    ...shared,
    pattern: '/account/passkeys',
    summary: 'Sign-in pages: options for a new passkey',
    guard: signedIn,
    handle: factors.passkeyOptions,
  }),
  post('/account/passkeys', 'add a passkey', factors.addPasskey),

  page('/account/keys', 'your API keys', recentlySignedIn, pageQuery, account.showKeys),
  post('/account/keys', 'create an API key', account.createKey),
  post('/account/keys/revoke', 'revoke an API key', account.revokeKey),

  page('/account/users', 'users', signedIn, { page: number, search }, account.showUsers),
  post('/account/users', 'create a user', account.createUser),
  route({
    ...pageRow('GET', '/account/users/{user_id}', 'one user'),
    guard: signedIn,
    path: userPath,
    handle: account.showUser,
  }),
  route({
    ...pageRow('POST', '/account/users/{user_id}', 'change a user'),
    path: userPath,
    ...account.changeUser,
  }),
  page('/account/audit', 'the audit trail', signedIn, pageQuery, account.showAudit),

  route({
    ...shared,
    pattern: '/api/auth/verify',
    summary:
      'Forward authentication: the caller, as headers for a proxy, or the way to the sign-in page',
    guard: portalVisitor,
    query: verifyQuery,
    handle: verifyOrSignIn,
    errors: [
      'unauthorized',
      'signin_needed',
      'signin_too_old',
      'second_factor_needed',
      'forbidden',
    ],
  }),
];

/** Puts the frame of the site around every page that these rows answer with. */
function framed(site: Site, rows: readonly PortalRoute[]): readonly PortalRoute[] {
  const frame = createFrame(site);
  const withFrame = (page: TextReply): TextReply => ({ ...page, text: frame(page.text) });
  return rows.map(({ failurePage, ...row }) => ({
    ...row,
    ...(failurePage && { failurePage: (failure: Failure) => withFrame(failurePage(failure)) }),
    async answer(request, service, readBody) {
      const outcome = await row.answer(request, service, readBody);
      if (outcome instanceof Failure) {
        const { page } = outcome.details;
        if (!page) return outcome;
        return new Failure(outcome.code, { ...outcome.details, page: withFrame(page) });
      }
      if (!('text' in outcome) || outcome.contentType !== HTML) return outcome;
      return { ...outcome, text: frame(String(outcome.text)) };
    },
  }));
}

/** The routes of SIGNIN_PAGES. This `verify` replaces the one without the pages. */
export const portalRoutes = (site: Site): readonly PortalRoute[] => [
  ...framed(site, ROWS),
  ...pageRows(site, new URL('pages/', import.meta.url), [], ['passkey.js'], 'Sign-in pages: files'),
];
