import { json } from '../http/body.ts';
import { anonymous, type Route, route, routeDefaults } from '../http/call.ts';
import { withBuiltIns } from '../http/probes.ts';
import {
  list,
  object,
  oneOf,
  optional,
  queryParameters,
  type Shape,
  text,
  uuid,
  withoutNul,
} from '../http/shape.ts';
import type { Site } from '../runtime/context.ts';
import * as audit from './audit.ts';
import { bearer, bearerOrCookie, withRightsLost } from './guard.ts';
import * as keys from './keys.ts';
import {
  changePassword,
  login,
  logout,
  loginShape,
  lookUpSession,
  passwordChangeShape,
} from './login.ts';
import { auditShape, keyShape, sessionShape, userShape } from './model.ts';
import { limit, page, pageQuery } from './paging.ts';
import type { IdentityService } from './service.ts';
import * as sessions from './sessions.ts';
import { EVENTS } from './store/audit.ts';
import * as users from './users.ts';
import { verify } from './verify.ts';

const sessionBody = json(
  object({ session: text({ description: 'The session token that login returned' }) }),
);
const sessionQuery = queryParameters({
  session: text({ description: 'The session token, Base64 encoded' }),
});
const userPath = object({ user_id: uuid() });
const nil: Shape<null> = { schema: { nullable: true, enum: [null] }, read: () => null };

const password = text({ max: 4_096 }); // longer than any accepted one, as for names: only bounds the work
const otp = optional(
  text({ max: 64, description: 'A code of the second factor, if the user has one' }),
);
const credentials = object({ username: text({ max: 1_024, check: withoutNul }), password, otp });

const sessionsOf = optional(uuid('Only the sessions of the user with this id'));
const involving = optional(uuid('Only what this user did, or what was done to them'));

const open = { ...routeDefaults, method: 'POST', guard: anonymous } as const;
/** Rows that need a credential. */
const read = { ...routeDefaults, method: 'GET', guard: bearer } as const;
const write = { ...read, method: 'POST' } as const;
const remove = { ...read, method: 'DELETE' } as const;

const rows: ReadonlyArray<Route<IdentityService>> = [
  route({
    ...open,
    pattern: '/api/auth/login',
    summary: 'Log in: username and password to a session token',
    body: json(credentials),
    reply: loginShape,
    handle: login,
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
    errors: ['invalid_body', 'service_failed'],
    handle: logout,
  }),
  route({
    ...open,
    pattern: '/api/auth/session',
    summary: 'The active session of this token',
    body: sessionBody,
    reply: sessionShape,
    errors: ['invalid_session', 'service_failed'],
    handle: lookUpSession,
  }),
  route({
    ...write,
    pattern: '/api/auth/password',
    summary:
      'Change your own password; all your sessions end, and the reply has the token of a new one',
    body: json(object({ current_password: password, new_password: password }, 'rejected')),
    handle: changePassword,
    reply: passwordChangeShape,
    errors: ['invalid_body', 'invalid_credentials', 'forbidden', 'too_many_requests'],
  }),
  route({
    ...read,
    guard: bearerOrCookie,
    pattern: '/api/auth/verify',
    summary: 'Forward authentication: the caller, as headers for a proxy',
    reply: nil,
    errors: ['forbidden'],
    query: queryParameters({ require: optional(oneOf('super_admin')) }),
    handle: verify,
  }),
  route({
    ...read,
    pattern: '/api/user/',
    reply: list(userShape),
    paged: 'if asked',
    handle: users.list,
    summary:
      'Users, oldest first, all or a page; without super administrator rights, only yourself',
    query: queryParameters({ page: optional(page), limit: optional(limit) }),
  }),
  route({
    ...write,
    pattern: '/api/user/',
    summary: 'Create a user',
    body: json(users.newUserShape),
    success: 201,
    reply: userShape,
    errors: ['invalid_body', 'forbidden', 'conflict'],
    handle: users.create,
  }),
  route({
    ...read,
    pattern: '/api/user/{user_id}',
    summary: 'One user',
    path: userPath,
    reply: userShape,
    errors: ['forbidden', 'not_found'],
    handle: users.show,
  }),
  route({
    ...write,
    method: 'PATCH',
    pattern: '/api/user/{user_id}',
    path: userPath,
    body: json(users.userChangeShape),
    summary: 'Change a user; without super administrator rights, only your own first and last name',
    reply: users.changedUserShape,
    errors: ['forbidden', 'not_found', 'conflict'],
    handle: users.change,
  }),
  route({
    ...remove,
    pattern: '/api/user/{user_id}',
    path: userPath,
    reply: users.deletionShape,
    summary: 'Delete a user; sessions end, keys are revoked, the name is free again',
    errors: ['forbidden', 'not_found', 'conflict'],
    handle: users.remove,
  }),
  route({
    ...write,
    pattern: '/api/user/{user_id}/password',
    summary: "Set a user's password; the user's sessions end",
    path: userPath,
    body: json(object({ password }, 'rejected')),
    reply: users.changeShape,
    errors: ['invalid_body', 'forbidden', 'not_found', 'conflict'],
    handle: users.setPasswordOf,
  }),
  route({
    ...write,
    pattern: '/api/key/',
    summary: 'Create an API key, which is shown only once',
    success: 201,
    body: json(keys.newKeyShape),
    reply: keyShape,
    errors: ['invalid_body', 'forbidden', 'not_found'],
    handle: keys.create,
  }),
  route({
    ...read,
    pattern: '/api/key/',
    reply: list(keyShape),
    paged: 'always',
    errors: ['forbidden'],
    summary: 'API keys, newest first; without super administrator rights, only your own',
    handle: keys.list,
    query: queryParameters({
      ...pageQuery,
      user: optional(uuid('Only the keys of the user with this id')),
    }),
  }),
  route({
    ...remove,
    pattern: '/api/key/{key_id}/revoke',
    summary: 'Revoke an API key',
    handle: keys.revoke,
    path: object({ key_id: uuid() }),
    reply: sessions.revocationShape,
    errors: ['forbidden', 'not_found'],
  }),
  route({
    ...read,
    pattern: '/api/session/',
    reply: list(sessionShape),
    paged: 'always',
    errors: ['forbidden'],
    summary: 'Sessions, newest first; without super administrator rights, only your own',
    handle: sessions.list,
    query: queryParameters({
      ...pageQuery,
      user: sessionsOf,
      active: optional(oneOf('true', 'false')),
    }),
  }),
  route({
    ...read,
    pattern: '/api/session/info',
    summary: 'The session of a token, even after its end',
    query: sessionQuery,
    reply: sessionShape,
    errors: ['forbidden', 'invalid_session_token'],
    handle: sessions.info,
  }),
  route({
    ...remove,
    pattern: '/api/session/revoke',
    summary: 'Revoke the session of a token',
    query: sessionQuery,
    reply: sessions.revocationShape,
    errors: ['forbidden', 'invalid_session_token'],
    handle: sessions.revokeByToken,
  }),
  route({
    ...remove,
    pattern: '/api/session/{session_id}/revoke',
    summary: 'Revoke a session by its id',
    path: object({ session_id: uuid() }),
    reply: sessions.revocationShape,
    errors: ['forbidden', 'not_found'],
    handle: sessions.revokeById,
  }),
  route({
    ...remove,
    pattern: '/api/session/revoke/all',
    reply: sessions.revocationShape,
    errors: ['forbidden'],
    summary: "Revoke all sessions of all users, the caller's own included",
    handle: sessions.revokeAll,
  }),
  route({
    ...remove,
    pattern: '/api/session/revoke/all/user',
    summary: 'Revoke all sessions of one user',
    query: queryParameters({ user: uuid("The user's id") }),
    reply: sessions.revocationShape,
    errors: ['forbidden', 'not_found'],
    handle: sessions.revokeAllOfUser,
  }),
  route({
    ...read,
    pattern: '/api/test/',
    summary: "The caller's user record and address",
    reply: object({ ip: text(), user: userShape }),
    errors: ['forbidden'],
    handle: users.test,
  }),
  route({
    ...read,
    pattern: '/api/audit/',
    summary: 'The audit trail, newest first',
    paged: 'always',
    query: queryParameters({ ...pageQuery, user: involving, event: optional(oneOf(...EVENTS)) }),
    reply: list(auditShape),
    errors: ['forbidden'],
    handle: audit.list,
  }),
];

const securitySchemes = {
  bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'session:<base64-encoded token>' },
  api_key: { type: 'apiKey', in: 'header', name: 'X-API-Key' },
  cookie: { type: 'apiKey', in: 'cookie', name: 'session' },
  portal_cookie: { type: 'apiKey', in: 'cookie', name: '__Host-gatehouse' },
};
const about = 'Users, passwords and sessions, for other programs and their users.';
const api = {
  title: 'Gatehouse identity',
  version: '0.0.1',
  envelope: 'data',
  securitySchemes,
  about,
} as const;

export const routes = withBuiltIns(rows.map(withRightsLost), api, 'service_failed');

export async function createRoutes(site: Site | null): Promise<typeof routes> {
  if (!site) return routes;
  const own = (await import('./signin/routes.ts')).portalRoutes(site);
  const isReplaced = ({ pattern }: Route<IdentityService>) =>
    own.some((row) => row.pattern === pattern);
  return withBuiltIns(
    [...rows.filter((row) => !isReplaced(row)), ...own].map(withRightsLost),
    api,
    'service_failed',
  );
}
