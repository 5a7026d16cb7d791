import { anonymous, type Guard, type Route, route, routeDefaults } from '../../http/call.ts';
import { framed, pageRows } from '../../http/pages.ts';
import {
  decimal,
  object,
  oneOf,
  optional,
  queryParameters,
  text,
  uuid,
  withDefault,
  withoutNul,
} from '../../http/shape.ts';
import type { Site } from '../../runtime/context.ts';
import type { PortalService } from '../service.ts';
import * as account from './account.ts';
import * as factors from './factors.ts';
import { portalForm, portalVisitor, signedIn } from './guards.ts';
import { address, FAILURES, failurePage, return_to } from './pages.ts';
import * as portal from './portal.ts';
import { verifyOrSignIn, verifyQuery } from './verify.ts';

const userPath = object({ user_id: uuid() });
const number = withDefault(decimal({ min: 1, max: 1_000_000 }), 1);
const search = withDefault(text({ max: 255, check: withoutNul }), '');
const pageQuery = queryParameters({ page: number });
const loginQuery = queryParameters({ return_to: optional(address), again: optional(oneOf('on')) });

const defaults = {
  ...routeDefaults,
  method: 'GET',
  reply: null,
  errors: ['service_failed'],
} as const;
const row = (pattern: string, about: string) =>
  ({ ...defaults, pattern, summary: `Sign-in pages: ${about}` }) as const;
const pageFor =
  <Caller>(guard: Guard<PortalService, Caller>) =>
  (pattern: string, about: string) =>
    ({ ...row(pattern, about), failurePage, errors: FAILURES, guard }) as const;
const formFor =
  <Caller>(guard: Guard<PortalService, Caller>) =>
  (pattern: string, about: string) =>
    ({ ...pageFor(guard)(pattern, about), method: 'POST' }) as const;
const entry = formFor(portalForm);
const reader = signedIn('reads');
const [read, readRecent] = [pageFor(reader), pageFor(signedIn('reads', true))];
const [change, sensitive] = [formFor(signedIn('changes')), formFor(signedIn('changes', true))];

const ROWS: ReadonlyArray<Route<PortalService>> = [
  route({
    ...pageFor(anonymous)('/login', 'the form'),
    query: loginQuery,
    handle: portal.showLogin,
  }),
  route({ ...entry('/login', 'sign in'), ...portal.signIn }),
  route({ ...entry('/login/code', 'a code of the second factor'), ...portal.enterCode }),
  route({
    ...entry('/login/password', 'choose a password at the first sign-in'),
    ...portal.choosePassword,
  }),
  route({ ...entry('/login/enrol', 'set up the second factor that is required'), ...portal.enrol }),
  route({ ...entry('/login/passkey', 'sign in with a passkey'), ...portal.usePasskey }),
  route({
    ...row('/login/passkey', 'options for a passkey'),
    guard: anonymous,
    handle: portal.passkeyOptions,
  }),
  route({ ...entry('/logout', 'sign out'), handle: portal.signOut }),

  route({ ...read('/account', 'your account'), handle: account.showAccount }),
  route({ ...change('/account/password', 'change your password'), ...account.changeOwnPassword }),
  route({
    ...change('/account/sessions/end', 'end one of your sessions, or all'),
    ...account.endSessions,
  }),
  route({
    ...readRecent('/account/factors', 'your second factors'),
    query: queryParameters({ return_to }),
    handle: factors.showFactors,
  }),
  route({
    ...sensitive('/account/totp/start', 'set up an authenticator app'),
    ...factors.startTotp,
  }),
  route({ ...sensitive('/account/totp', 'confirm an authenticator app'), ...factors.finishTotp }),
  route({ ...sensitive('/account/recovery', 'new recovery codes'), handle: factors.newCodes }),
  route({
    ...sensitive('/account/factors/remove', 'remove a second factor'),
    ...factors.removeFactor,
  }),
  route({
    ...row('/account/passkeys', 'options for a new passkey'),
    guard: reader,
    handle: factors.passkeyOptions,
  }),
  route({ ...sensitive('/account/passkeys', 'add a passkey'), ...factors.addPasskey }),

  route({
    ...readRecent('/account/keys', 'your API keys'),
    query: pageQuery,
    handle: account.showKeys,
  }),
  route({ ...sensitive('/account/keys', 'create an API key'), ...account.createKey }),
  route({ ...change('/account/keys/revoke', 'revoke an API key'), ...account.revokeKey }),

  route({
    ...read('/account/users', 'users'),
    query: queryParameters({ page: number, search }),
    handle: account.showUsers,
  }),
  route({ ...sensitive('/account/users', 'create a user'), ...account.createUser }),
  route({
    ...read('/account/users/{user_id}', 'one user'),
    path: userPath,
    handle: account.showUser,
  }),
  route({
    ...sensitive('/account/users/{user_id}', 'change a user'),
    path: userPath,
    ...account.changeUser,
  }),
  route({
    ...read('/account/audit', 'the audit trail'),
    query: pageQuery,
    handle: account.showAudit,
  }),

  route({
    ...defaults,
    pattern: '/api/auth/verify',
    guard: portalVisitor,
    query: verifyQuery,
    handle: verifyOrSignIn,
    summary:
      'Forward authentication: the caller, as headers for a proxy, or the way to the sign-in page',
    errors: [
      'unauthorized',
      'signin_needed',
      'signin_too_old',
      'second_factor_needed',
      'forbidden',
    ],
  }),
];

/** The routes of SIGNIN_PAGES. This `verify` replaces the one without the pages. */
export const portalRoutes = (site: Site): ReadonlyArray<Route<PortalService>> => [
  ...framed(site, ROWS),
  ...pageRows<PortalService>(
    site,
    new URL('pages/', import.meta.url),
    [],
    ['passkey.js'],
    'Sign-in pages: files',
  ),
];
