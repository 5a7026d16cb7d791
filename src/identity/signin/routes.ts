import { anonymous, type Route, route, routeDefaults } from '../../http/call.ts';
import { form } from '../../http/form.ts';
import { framed, pageRows } from '../../http/pages.ts';
import {
  decimal, object, oneOf, optional, queryParameters, text, uuid, withDefault, withoutNul,
} from '../../http/shape.ts';
import type { Site } from '../../runtime/context.ts';
import { controlCharError, nameShapes } from '../rules.ts';
import type { PortalService } from '../service.ts';
import * as account from './account.ts';
import * as admin from './admin.ts';
import * as factors from './factors.ts';
import { portalForm, signedIn } from './guards.ts';
import { failurePage } from './pages.ts';
import * as portal from './portal.ts';
import { portalVisitor, verifyOrSignIn } from './verify.ts';

const MAX_AGE = 366 * 86_400;
const address = text({ description: 'Where to go after signing in: an address of RETURN_ORIGINS' });
const return_to = withDefault(address, '');
const password = text({ max: 4_096 });
const code = text({ max: 64 });
const userPath = object({ user_id: uuid() });
const pageNumber = withDefault(decimal({ min: 1, max: 1_000_000 }), 1);
const search = withDefault(text({ max: 255, check: withoutNul }), '');
const actions = oneOf('disable', 'enable', 'remove_factors', 'set_password');
const signInFields = object({ username: text({ max: 1_024, check: withoutNul }), password, return_to });
const label = text({ min: 1, max: 64, check: controlCharError });
const passkeyFields = object({ name: label, credential: text({ max: 32_768 }), return_to });
const newUserFields = object({ username: nameShapes.username, email: nameShapes.email, password });
const FAILURES = [
  'invalid_credentials', 'invalid_code', 'invalid_passkey', 'invalid_session', 'invalid_body', 'second_factor_needed',
  'too_many_requests', 'key_unknown', 'service_failed', 'forbidden', 'not_found', 'conflict',
] as const;

const page = { ...routeDefaults, reply: null, failurePage, errors: FAILURES } as const;
const data = { ...routeDefaults, method: 'GET', reply: null } as const;
const visit = { ...page, method: 'GET', guard: signedIn('reads') } as const;
const change = { ...page, method: 'POST', guard: signedIn('changes') } as const;
const sensitive = { ...page, method: 'POST', guard: signedIn('changes', true) } as const;
const submit = { ...page, method: 'POST', guard: portalForm } as const;

const ROWS: ReadonlyArray<Route<PortalService>> = [
  route({ ...page, method: 'GET', pattern: '/login', summary: 'Sign-in pages: the form', guard: anonymous,
    query: queryParameters({ return_to: optional(address), again: optional(oneOf('on')) }),
    handle: portal.showLogin }),
  route({ ...submit, pattern: '/login', summary: 'Sign-in pages: sign in', body: form(signInFields),
    handle: portal.signIn }),
  route({ ...submit, pattern: '/login/code', summary: 'Sign-in pages: a code of the second factor',
    body: form(object({ code, return_to })), handle: portal.enterCode }),
  route({ ...submit, pattern: '/login/password', summary: 'Sign-in pages: choose a password at the first sign-in',
    body: form(object({ new_password: password, return_to })), handle: portal.choosePassword }),
  route({ ...submit, pattern: '/login/enrol', summary: 'Sign-in pages: set up the second factor that is required',
    body: form(object({ code, return_to })), handle: portal.enrol }),
  route({ ...submit, pattern: '/login/passkey', summary: 'Sign-in pages: sign in with a passkey',
    body: form(object({ credential: text({ max: 8_192 }), return_to })), handle: portal.usePasskey }),
  route({ ...data, pattern: '/login/passkey', summary: 'Sign-in pages: options for a passkey', guard: anonymous,
    errors: ['service_failed'], handle: portal.passkeyOptions }),
  route({ ...submit, pattern: '/logout', summary: 'Sign-in pages: sign out', handle: portal.signOut }),

  route({ ...visit, pattern: '/account', summary: 'Sign-in pages: your account', handle: account.showAccount }),
  route({ ...change, pattern: '/account/password', summary: 'Sign-in pages: change your password',
    body: form(object({ current_password: password, new_password: password })), handle: account.changeOwnPassword }),
  route({ ...change, pattern: '/account/sessions/end', summary: 'Sign-in pages: end one of your sessions, or all',
    body: form(object({ session_id: optional(uuid()) })), handle: account.endSessions }),
  route({ ...visit, pattern: '/account/factors', summary: 'Sign-in pages: your second factors',
    guard: signedIn('reads', true), query: queryParameters({ return_to }), handle: factors.showFactors }),
  route({ ...sensitive, pattern: '/account/totp/start', summary: 'Sign-in pages: set up an authenticator app',
    body: form(object({ return_to })), handle: factors.startTotp }),
  route({ ...sensitive, pattern: '/account/totp', summary: 'Sign-in pages: confirm an authenticator app',
    body: form(object({ code, return_to })), handle: factors.finishTotp }),
  route({ ...sensitive, pattern: '/account/recovery', summary: 'Sign-in pages: new recovery codes',
    handle: factors.newCodes }),
  route({ ...sensitive, pattern: '/account/factors/remove', summary: 'Sign-in pages: remove a second factor',
    body: form(object({ passkey: optional(text({ max: 2_048 })) })), handle: factors.removeFactor }),
  route({ ...data, pattern: '/account/passkeys', summary: 'Sign-in pages: options for a new passkey',
    guard: signedIn('reads'), handle: factors.passkeyOptions }),
  route({ ...sensitive, pattern: '/account/passkeys', summary: 'Sign-in pages: add a passkey',
    body: form(passkeyFields), handle: factors.addPasskey }),

  route({ ...visit, pattern: '/account/keys', summary: 'Sign-in pages: your API keys', guard: signedIn('reads', true),
    query: queryParameters({ page: pageNumber }), handle: account.showKeys }),
  route({ ...sensitive, pattern: '/account/keys', summary: 'Sign-in pages: create an API key',
    body: form(object({ name: label, days: oneOf(...account.LIFETIMES) })), handle: account.createKey }),
  route({ ...change, pattern: '/account/keys/revoke', summary: 'Sign-in pages: revoke an API key',
    body: form(object({ key_id: uuid() })), handle: account.revokeKey }),

  route({ ...visit, pattern: '/account/users', summary: 'Sign-in pages: users',
    query: queryParameters({ page: pageNumber, search }), handle: admin.showUsers }),
  route({ ...sensitive, pattern: '/account/users', summary: 'Sign-in pages: create a user', body: form(newUserFields),
    handle: admin.createUser }),
  route({ ...visit, pattern: '/account/users/{user_id}', summary: 'Sign-in pages: one user', path: userPath,
    handle: admin.showUser }),
  route({ ...sensitive, pattern: '/account/users/{user_id}', summary: 'Sign-in pages: change a user', path: userPath,
    body: form(object({ action: actions, password: optional(password) })), handle: admin.changeUser }),
  route({ ...visit, pattern: '/account/audit', summary: 'Sign-in pages: the audit trail',
    query: queryParameters({ page: pageNumber }), handle: admin.showAudit }),

  route({ ...data, pattern: '/api/auth/verify',
    summary: 'Forward authentication: the caller, as headers for a proxy, or the way to the sign-in page',
    // A misspelled parameter must not admit everyone.
    guard: portalVisitor, query: queryParameters({
      require: optional(oneOf('super_admin', 'second_factor')),
      max_age: optional(decimal({ min: 1, max: MAX_AGE, description: 'Seconds since the person signed in' })),
      redirect: optional(oneOf('302', '401')),
    }),
    errors: ['unauthorized', 'signin_needed', 'signin_too_old', 'second_factor_needed', 'forbidden'],
    handle: verifyOrSignIn }),
];

/** The routes of SIGNIN_PAGES. `verify` takes the place of the one without them. */
export const portalRoutes = (site: Site): ReadonlyArray<Route<PortalService>> => [
  ...framed(site, ROWS),
  ...pageRows<PortalService>(site, new URL('pages/', import.meta.url), [], ['passkey.js'], 'Sign-in pages: files'),
];
