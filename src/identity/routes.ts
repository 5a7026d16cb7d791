import { json } from '../platform/http/route/json-body.ts';
import { type Route, route } from '../platform/http/route/route.ts';
import { withBuiltIns } from '../platform/http/site/built-in-routes.ts';
import {
  list,
  nullable,
  object,
  oneOf,
  optional,
  queryParameters,
  text,
  uuid,
  withoutNul,
} from '../platform/http/route/schema.ts';
import type { Site } from '../platform/runtime/context.ts';
import { bearerOrCookie, withRightsLost } from './guard.ts';
import * as keys from './keys.ts';
import * as login from './login.ts';
import { auditSchema, keySchema, nil, outcomeSchema, sessionSchema, userSchema } from './model.ts';
import * as lists from './lists.ts';
import * as own from './own-account.ts';
import type { IdentityService } from './service.ts';
import { STYLE } from './settings.ts';
import * as sessions from './sessions.ts';
import { showSelf } from './users.ts';
import { USER_ROUTES } from './user-routes.ts';
import { open, pages, password, read, revoke, write } from './rows.ts';
import { bytesOfPasswords } from './rules.ts';
import { tokenText } from './token.ts';
import { CALLER_HEADERS, forwardAuth, verifyParameters } from './verify.ts';

const sessionBody = json(object({ session: tokenText('The session token that login returned') }));
const sessionQuery = queryParameters({ session: tokenText('The session token, Base64 encoded') });

const credentials = object({
  username: text({
    max: 1_024,
    pattern: withoutNul,
    description: 'The username or the e-mail address',
  }),
  password,
  otp: optional(nullable(text({ max: 64, description: 'The code, if there is a second factor' }))),
});

const rows: ReadonlyArray<Route<IdentityService>> = [
  route({
    ...open,
    pattern: '/api/auth/login',
    summary: 'Log in: username or e-mail address, and password, to a session token',
    body: { ...json(credentials), leastBytes: bytesOfPasswords(1) },
    reply: login.loginSchema,
    handle: login.login,
    errors: [
      'invalid_credentials',
      'second_factor_needed',
      'invalid_code',
      'too_many_requests',
      'key_unknown',
      'service_failed',
    ],
  }),
  route({
    ...open,
    pattern: '/api/auth/logout',
    summary: 'Log out: end the session of this token',
    body: sessionBody,
    reply: nil,
    errors: ['invalid_body', 'too_many_requests', 'service_failed'],
    handle: login.logout,
  }),
  route({
    ...open,
    pattern: '/api/auth/session',
    summary: 'The active session of this token',
    body: sessionBody,
    reply: sessionSchema,
    errors: ['invalid_session', 'too_many_requests', 'service_failed'],
    handle: login.lookUpSession,
  }),
  route({
    ...write,
    pattern: '/api/auth/password',
    summary: 'Change your own password; your sessions end, and the reply has a new token',
    body: json(object({ current_password: password, new_password: password }, 'rejected')),
    handle: login.changePassword,
    reply: login.passwordChangeSchema,
    errors: [
      'invalid_body',
      'invalid_credentials',
      'signin_too_old',
      'forbidden',
      'too_many_requests',
    ],
  }),
  route({
    ...read,
    guard: bearerOrCookie,
    pattern: '/api/auth/verify',
    isProxyCheck: true,
    summary: 'Forward authentication: the caller, as headers for a proxy',
    reply: nil,
    errors: ['forbidden'],
    query: verifyParameters(['super_admin'], {}),
    replyHeaders: CALLER_HEADERS,
    handle: forwardAuth,
  }),
  route({
    ...read,
    pattern: '/api/auth/export',
    summary: 'Your own record, and your newest sessions, keys and audit entries',
    reply: own.ownDataSchema,
    errors: ['signin_too_old', 'forbidden', 'too_slow'],
    handle: own.exportOwnData,
  }),
  route({
    ...write,
    pattern: '/api/auth/delete',
    summary: 'Delete your own account, if SELF_DELETION allows it',
    body: json(object({ password }, 'rejected')),
    reply: outcomeSchema('DELETED'),
    errors: [
      'invalid_credentials',
      'signin_too_old',
      'forbidden',
      'not_found',
      'conflict',
      'too_many_requests',
    ],
    handle: own.deleteOneself,
  }),
  ...USER_ROUTES,
  route({
    ...write,
    pattern: '/api/key/',
    summary: 'Create an API key, which is shown only once',
    success: 201,
    body: json(keys.newKeySchema),
    reply: keySchema,
    errors: ['invalid_body', 'signin_too_old', 'forbidden', 'not_found'],
    handle: keys.create,
  }),
  route({
    ...pages,
    pattern: '/api/key/',
    reply: list(keySchema),
    summary: 'API keys, newest first; without super administrator rights, only your own',
    handle: lists.keys,
    query: queryParameters({
      ...lists.pageQuery,
      user: optional(uuid('Only the keys of the user with this id')),
    }),
  }),
  route({
    ...revoke,
    pattern: '/api/key/{key_id}/revoke',
    summary: 'Revoke an API key',
    handle: keys.revoke,
    path: object({ key_id: uuid() }),
    query: queryParameters(keys.revokeQuery),
  }),
  route({
    ...pages,
    pattern: '/api/session/',
    reply: list(sessionSchema),
    summary: 'Sessions, newest first; without super administrator rights, only your own',
    handle: lists.sessions,
    query: queryParameters({
      ...lists.pageQuery,
      user: optional(uuid('Only the sessions of the user with this id')),
      active: optional(oneOf('true', 'false')),
    }),
  }),
  route({
    ...read,
    pattern: '/api/session/info',
    summary: 'The session of a token, even after its end',
    query: sessionQuery,
    reply: sessionSchema,
    errors: ['invalid_session_token', 'too_many_requests'],
    handle: sessions.info,
  }),
  route({
    ...revoke,
    pattern: '/api/session/revoke',
    summary: 'Revoke the session of a token',
    query: sessionQuery,
    errors: ['forbidden', 'invalid_session_token', 'too_many_requests'],
    handle: sessions.revokeByToken,
  }),
  route({
    ...revoke,
    pattern: '/api/session/{session_id}/revoke',
    summary: 'Revoke a session by its id',
    path: object({ session_id: uuid() }),
    handle: sessions.revokeById,
  }),
  route({
    ...revoke,
    pattern: '/api/session/revoke/all',
    errors: ['forbidden'],
    summary: "Revoke all sessions of all users, the caller's own included",
    handle: sessions.revokeAll,
  }),
  route({
    ...revoke,
    pattern: '/api/session/revoke/all/user',
    summary: 'Revoke all sessions of one user',
    query: queryParameters({ user: uuid("The user's id") }),
    handle: sessions.revokeAllOfUser,
  }),
  route({
    ...read,
    pattern: '/api/test/',
    summary: "The caller's user record and address",
    reply: object({ ip: text(), user: userSchema }),
    errors: ['forbidden'],
    handle: showSelf,
  }),
  route({
    ...pages,
    pattern: '/api/audit/',
    summary: 'The audit trail, newest first',
    query: queryParameters(lists.auditQuery),
    reply: list(auditSchema),
    handle: lists.audit,
  }),
];

export const FACTS = {
  ...STYLE,
  title: 'Gatehouse identity',
  about: 'Signs users in, and manages their sessions and API keys.',
} as const;

/**
 * @param site null without the sign-in pages
 * @param hasOidc whether the service is a provider of OpenID Connect
 */
export async function createRoutes(site: Site | null, hasOidc = false) {
  const urlOf = (path: string) => new URL(path, import.meta.url);
  if (!site)
    return withBuiltIns(rows.map(withRightsLost), FACTS, urlOf('openapi/without-pages.json'));
  const { portalRoutes } = await import('./signin/routes.ts');
  const oidc = hasOidc ? await import('./oidc/routes.ts') : null;
  const portal = [...portalRoutes(site, FACTS, oidc?.OIDC_PAGES), ...(oidc?.OIDC_ROUTES ?? [])];
  const others = rows.filter(({ pattern }) => !portal.some((row) => row.pattern === pattern));
  const file = urlOf(`openapi/with-${oidc ? 'oidc' : 'pages'}.json`);
  const all = [...others, ...portal].map(withRightsLost);
  return withBuiltIns(all, FACTS, file, urlOf('signin/pages/'));
}
