import { anonymous, type Route, route, routeDefaults } from '../../http/call.ts';
import { form } from '../../http/form.ts';
import { pageRows } from '../../http/pages.ts';
import {
  decimal, object, oneOf, optional, queryParameters, text, uuid, withDefault, withoutNul,
} from '../../http/shape.ts';
import type { PortalService } from '../service.ts';
import { controlCharError } from '../rules.ts';
import * as admin from './admin.ts';
import { changeOwnPassword, endSessions, showAccount } from './account.ts';
import * as factors from './factors.ts';
import { failurePage } from './pages.ts';
import {
  choosePassword, enrol, enterCode, passkeyOptions, portalForm, showLogin, signedIn, signIn, signOut, usePasskey,
} from './portal.ts';
import { portalVisitor, verifyOrSignIn } from './verify.ts';

const MAX_AGE = 366 * 86_400;
const returnTo = text({ description: 'Where to go after signing in: an address of RETURN_ORIGINS' });
const username = text({ max: 1_024, check: withoutNul });
const password = text({ max: 4_096 });
const code = text({ max: 64 });
const userPath = object({ user_id: uuid() });
const passkey = { name: text({ min: 1, max: 64, check: controlCharError }), credential: text({ max: 32_768 }) };
const onward = { return_to: withDefault(returnTo, '') };
const pageNumber = withDefault(decimal({ min: 1, max: 1_000_000 }), 1);
const FAILURES = [
  'invalid_credentials', 'invalid_code', 'invalid_passkey', 'invalid_session', 'invalid_body', 'second_factor_needed',
  'too_many_requests', 'key_unknown', 'service_failed',
] as const;

const page = { ...routeDefaults, reply: null, failurePage } as const;
const visit = { ...page, method: 'GET' } as const;
const submit = { ...page, method: 'POST' } as const;
const [reads, changes] = [signedIn('reads'), signedIn('changes')];

/** The routes of SIGNIN_PAGES. `verify` takes the place of the one without them. */
export const ROWS: ReadonlyArray<Route<PortalService>> = [
  route({ ...visit, pattern: '/login', summary: 'Sign-in pages: the form', guard: anonymous,
    query: queryParameters({ return_to: optional(returnTo), again: optional(oneOf('on')) }),
    handle: showLogin }),
  route({ ...submit, pattern: '/login', summary: 'Sign-in pages: sign in', guard: portalForm,
    body: form(object({ username, password, return_to: withDefault(returnTo, '') })),
    errors: FAILURES, handle: signIn }),
  route({ ...submit, pattern: '/login/code', summary: 'Sign-in pages: a code of the second factor',
    guard: portalForm, body: form(object({ code, return_to: withDefault(returnTo, '') })),
    errors: FAILURES, handle: enterCode }),
  route({ ...submit, pattern: '/login/password', summary: 'Sign-in pages: choose a password at the first sign-in',
    guard: portalForm, body: form(object({ new_password: password, return_to: withDefault(returnTo, '') })),
    errors: [...FAILURES, 'not_found', 'conflict'], handle: choosePassword }),
  route({ ...submit, pattern: '/login/passkey', summary: 'Sign-in pages: sign in with a passkey',
    guard: portalForm, body: form(object({ credential: text({ max: 8_192 }), return_to: withDefault(returnTo, '') })),
    errors: FAILURES, handle: usePasskey }),
  route({ ...routeDefaults, method: 'GET', pattern: '/login/passkey', summary: 'Sign-in pages: options for a passkey',
    guard: anonymous, reply: null, errors: ['service_failed'],
    handle: passkeyOptions }),
  route({ ...submit, pattern: '/logout', summary: 'Sign-in pages: sign out', guard: portalForm,
    errors: ['service_failed'], handle: signOut }),
  route({ ...visit, pattern: '/account', summary: 'Sign-in pages: your account', guard: reads,
    handle: showAccount }),
  route({ ...submit, pattern: '/account/password', summary: 'Sign-in pages: change your password',
    guard: changes, body: form(object({ current_password: password, new_password: password })),
    errors: [...FAILURES, 'forbidden'], handle: changeOwnPassword }),
  route({ ...submit, pattern: '/account/sessions/end', summary: 'Sign-in pages: end one of your sessions, or all',
    guard: changes, body: form(object({ session_id: optional(uuid()) })),
    errors: ['not_found'], handle: endSessions }),
  route({ ...submit, pattern: '/login/enrol', summary: 'Sign-in pages: set up the second factor that is required',
    guard: portalForm, body: form(object({ code, return_to: withDefault(returnTo, '') })),
    errors: FAILURES, handle: enrol }),
  route({ ...visit, pattern: '/account/factors', summary: 'Sign-in pages: your second factors',
    guard: reads, query: queryParameters(onward), errors: ['signin_needed'],
    handle: factors.showFactors }),
  route({ ...submit, pattern: '/account/totp/start', summary: 'Sign-in pages: set up an authenticator app',
    guard: changes, body: form(object(onward)), errors: ['signin_needed'], handle: factors.startTotp }),
  route({ ...submit, pattern: '/account/totp', summary: 'Sign-in pages: confirm an authenticator app',
    guard: changes, body: form(object({ code, ...onward })), errors: ['invalid_code'],
    handle: factors.finishTotp }),
  route({ ...submit, pattern: '/account/recovery', summary: 'Sign-in pages: new recovery codes',
    guard: changes, errors: ['signin_needed'], handle: factors.newCodes }),
  route({ ...submit, pattern: '/account/factors/remove', summary: 'Sign-in pages: remove a second factor',
    guard: changes, body: form(object({ passkey: optional(text({ max: 2_048 })) })), errors: ['signin_needed'],
    handle: factors.removeFactor }),
  route({ ...routeDefaults, method: 'GET', pattern: '/account/passkeys', reply: null,
    summary: 'Sign-in pages: options for a new passkey', guard: reads,
    handle: factors.passkeyOptions }),
  route({ ...submit, pattern: '/account/passkeys', summary: 'Sign-in pages: add a passkey',
    guard: changes, errors: ['signin_needed'],
    body: form(object({ ...passkey, ...onward })),
    handle: factors.addPasskey }),
  route({ ...visit, pattern: '/account/users', summary: 'Sign-in pages: users', guard: reads,
    query: queryParameters({ page: pageNumber, search: withDefault(text({ max: 255, check: withoutNul }), '') }),
    errors: ['forbidden'], handle: admin.showUsers }),
  route({ ...submit, pattern: '/account/users', summary: 'Sign-in pages: create a user', guard: changes,
    body: form(object({ username: text(), email: text(), password })),
    errors: ['signin_needed', 'invalid_body', 'forbidden', 'conflict'],
    handle: admin.createUser }),
  route({ ...visit, pattern: '/account/users/{user_id}', summary: 'Sign-in pages: one user', path: userPath,
    guard: reads, errors: ['forbidden', 'not_found'], handle: admin.showUser }),
  route({ ...submit, pattern: '/account/users/{user_id}', summary: 'Sign-in pages: change a user', guard: changes,
    path: userPath, body: form(object({
      action: oneOf('disable', 'enable', 'remove_factors', 'set_password'), password: optional(password),
    })),
    errors: ['signin_needed', 'invalid_body', 'forbidden', 'not_found', 'conflict'],
    handle: admin.changeUser }),
  route({ ...visit, pattern: '/account/audit', summary: 'Sign-in pages: the audit trail',
    guard: reads, query: queryParameters({ page: pageNumber }), errors: ['forbidden'],
    handle: admin.showAudit }),
  route({ ...routeDefaults, method: 'GET', pattern: '/api/auth/verify',
    summary: 'Forward authentication: the caller, as headers for a proxy, or the way to the sign-in page',
    // A misspelled parameter must not admit everyone.
    guard: portalVisitor, query: queryParameters({
      require: optional(oneOf('super_admin', 'second_factor')),
      max_age: optional(decimal({ min: 1, max: MAX_AGE, description: 'Seconds since the person signed in' })),
      redirect: optional(oneOf('302', '401')),
    }),
    reply: null, errors: ['unauthorized', 'signin_needed', 'signin_too_old', 'second_factor_needed', 'forbidden'],
    handle: verifyOrSignIn }),
  ...pageRows<PortalService>(new URL('pages/', import.meta.url), [], ['passkey.js'], 'Sign-in pages: script, style'),
];
