import { open, plain, type Reply, type Route, route } from '../http/call.ts';
import { withBuiltIns } from '../http/builtin.ts';
import { json } from '../http/body.ts';
import { decimal, list, object, optional, orElse, parameters, type Shape, text, uuid, withoutNul } from '../http/shape.ts';
import { bearer } from './guard.ts';
import { login, logout, lookUpSession } from './login.ts';
import type { IdentityService } from './service.ts';
import * as sessions from './sessions.ts';
import { revocationShape, sessionShape, userShape, viewUser } from './shapes.ts';
import * as users from './users.ts';

const sessionBody = json(object({ session: text({ description: 'The session token that login returned' }) }));
const sessionQuery = parameters({ session: text({ description: 'The session token, Base64 encoded' }) });
const nil: Shape<null> = { schema: { nullable: true, enum: [null] }, read: () => null };

const credentials = object({
  // Longer than any stored name or accepted password: no more than a bound on the work.
  username: text({ max: 1_024, check: withoutNul }),
  password: text({ max: 4_096 }),
});

const rows: ReadonlyArray<Route<IdentityService>> = [
  route({
    ...plain,
    method: 'POST',
    pattern: '/api/auth/login',
    summary: 'Log in: username and password to a session token',
    guard: open,
    body: json(credentials),
    reply: object({ session: text({ description: 'The session token: session:<uuid>' }) }),
    errors: ['invalid_credentials', 'service_failed'],
    handle: login,
  }),
  route({
    ...plain,
    method: 'POST',
    pattern: '/api/auth/logout',
    summary: 'Log out: end the session of this token',
    guard: open,
    body: sessionBody,
    reply: nil,
    errors: ['invalid_body', 'service_failed'],
    handle: logout,
  }),
  route({
    ...plain,
    method: 'POST',
    pattern: '/api/auth/session',
    summary: 'The active session of this token',
    guard: open,
    body: sessionBody,
    reply: sessionShape,
    errors: ['invalid_session', 'service_failed'],
    handle: lookUpSession,
  }),
  route({
    ...plain,
    method: 'GET',
    pattern: '/api/user/',
    summary: 'The users; for anyone but a super administrator, only themselves',
    guard: bearer,
    reply: list(userShape),
    errors: ['service_failed'],
    handle: users.list,
  }),
  route({
    ...plain,
    method: 'GET',
    pattern: '/api/session/',
    summary: 'The sessions, newest first; for anyone but a super administrator, only their own',
    guard: bearer,
    query: parameters({
      page: orElse(decimal({ min: 1, max: 1_000_000_000 }), 1),
      limit: orElse(decimal({ min: 1, max: 100 }), 10),
      user: optional(uuid('Only the sessions of the user with this id')),
    }),
    reply: list(sessionShape),
    paged: true,
    errors: ['forbidden', 'service_failed'],
    handle: sessions.list,
  }),
  route({
    ...plain,
    method: 'GET',
    pattern: '/api/session/info',
    summary: 'The session of a token, also one that has ended',
    guard: bearer,
    query: sessionQuery,
    reply: sessionShape,
    errors: ['invalid_session_token', 'service_failed'],
    handle: sessions.info,
  }),
  route({
    ...plain,
    method: 'DELETE',
    pattern: '/api/session/revoke',
    summary: 'Revoke the session of a token',
    guard: bearer,
    query: sessionQuery,
    reply: revocationShape,
    errors: ['invalid_session_token', 'service_failed'],
    handle: sessions.revokeByToken,
  }),
  route({
    ...plain,
    method: 'DELETE',
    pattern: '/api/session/{session_id}/revoke',
    summary: 'Revoke a session by its id',
    guard: bearer,
    path: object({ session_id: uuid() }),
    reply: revocationShape,
    errors: ['forbidden', 'not_found', 'service_failed'],
    handle: sessions.revokeById,
  }),
  route({
    ...plain,
    method: 'DELETE',
    pattern: '/api/session/revoke/all',
    summary: "Revoke all sessions of all users, the caller's own included",
    guard: bearer,
    reply: revocationShape,
    errors: ['forbidden', 'service_failed'],
    handle: sessions.revokeAll,
  }),
  route({
    ...plain,
    method: 'DELETE',
    pattern: '/api/session/revoke/all/user',
    summary: 'Revoke all sessions of one user',
    guard: bearer,
    query: parameters({ user: uuid("The user's id") }),
    reply: revocationShape,
    errors: ['forbidden', 'not_found', 'service_failed'],
    handle: sessions.revokeAllOfUser,
  }),
  route({
    ...plain,
    method: 'GET',
    pattern: '/api/test/',
    summary: "The caller's user record and address",
    guard: bearer,
    reply: object({ ip: text(), user: userShape }),
    errors: ['service_failed'],
    handle: async ({ visitor, caller }): Promise<Reply<{ ip: string; user: ReturnType<typeof viewUser> }>> => ({
      data: { ip: visitor.address, user: viewUser(caller.user) },
    }),
  }),
];

export const routes = withBuiltIns(
  rows,
  {
    title: 'Gatehouse identity',
    version: '0.0.1',
    envelope: 'data',
    securitySchemes: { bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'session:<base64-encoded token>' } },
  },
  'service_failed',
);
