import { anonymous, routeDefaults, type Route, route } from '../http/call.ts';
import { withBuiltIns } from '../http/probes.ts';
import { json } from '../http/body.ts';
import { list, object, optional, queryParameters, type Shape, text, uuid, withoutNul, oneOf } from '../http/shape.ts';
import * as administration from './administration.ts';
import * as audit from './audit.ts';
import { bearer, bearerOrCookie } from './guard.ts';
import * as keys from './keys.ts';
import { changePassword, login, logout, lookUpSession } from './login.ts';
import { limit, page, pageQuery } from './paging.ts';
import type { IdentityService } from './service.ts';
import * as sessions from './sessions.ts';
import { auditShape, changeShape, deletionShape, keyShape, revocationShape, sessionShape, userShape } from './shapes.ts';
import { EVENTS } from './store/audit.ts';
import { newUserShape, userChangeShape } from './users.ts';
import { verify } from './verify.ts';

const sessionBody = json(object({ session: text({ description: 'The session token that login returned' }) }));
const sessionQuery = queryParameters({ session: text({ description: 'The session token, Base64 encoded' }) });
const userPath = object({ user_id: uuid() });
const nil: Shape<null> = { schema: { nullable: true, enum: [null] }, read: () => null };

// Longer than any stored name or accepted password: no more than a bound on the work.
const password = text({ max: 4_096 });
const credentials = object({ username: text({ max: 1_024, check: withoutNul }), password });

/** What most rows have in common. */
const keyed = { ...routeDefaults, guard: bearer } as const;

const rows: ReadonlyArray<Route<IdentityService>> = [
  route({ ...routeDefaults, method: 'POST', pattern: '/api/auth/login',
    summary: 'Log in: username and password to a session token',
    guard: anonymous, body: json(credentials),
    reply: object({ session: text({ description: 'The session token: session:<uuid>' }) }), errors: ['invalid_credentials', 'too_many_requests', 'service_failed'], handle: login,
  }),
  route({ ...routeDefaults, method: 'POST', pattern: '/api/auth/logout',
    summary: 'Log out: end the session of this token',
    guard: anonymous, body: sessionBody,
    reply: nil, errors: ['invalid_body', 'service_failed'], handle: logout,
  }),
  route({ ...routeDefaults, method: 'POST', pattern: '/api/auth/session',
    summary: 'The active session of this token',
    guard: anonymous, body: sessionBody,
    reply: sessionShape, errors: ['invalid_session', 'service_failed'], handle: lookUpSession,
  }),
  route({ ...keyed, method: 'POST', pattern: '/api/auth/password',
    summary: "Change one's own password; the caller's other sessions end",
    body: json(object({ current_password: password, new_password: password }, 'refused')),
    reply: changeShape, errors: ['invalid_body', 'invalid_credentials', 'forbidden', 'too_many_requests'], handle: changePassword,
  }),
  route({ ...routeDefaults, method: 'GET', pattern: '/api/auth/verify',
    summary: 'Forward authentication: who sends this, as headers for a proxy',
    // A misspelt parameter must not let everybody in.
    guard: bearerOrCookie, query: queryParameters({ require: optional(oneOf('super_admin')) }, 'refused'),
    reply: nil, errors: ['forbidden'], handle: verify,
  }),
  route({ ...keyed, method: 'GET', pattern: '/api/user/',
    summary: 'The users, oldest first, all or a page; for anyone but a super administrator, only themselves',
    query: queryParameters({ page: optional(page), limit: optional(limit) }),
    reply: list(userShape), paged: 'if asked', handle: administration.list,
  }),
  route({ ...keyed, method: 'POST', pattern: '/api/user/',
    summary: 'Create a user',
    body: json(newUserShape), success: 201,
    reply: userShape, errors: ['invalid_body', 'forbidden', 'conflict'], handle: administration.create,
  }),
  route({ ...keyed, method: 'GET', pattern: '/api/user/{user_id}',
    summary: 'One user',
    path: userPath,
    reply: userShape, errors: ['forbidden', 'not_found'], handle: administration.show,
  }),
  route({ ...keyed, method: 'PATCH', pattern: '/api/user/{user_id}',
    summary: 'Change a user; anyone but a super administrator only their own first and last name',
    path: userPath, body: json(userChangeShape),
    reply: userShape, errors: ['forbidden', 'not_found', 'conflict'], handle: administration.change,
  }),
  route({ ...keyed, method: 'DELETE', pattern: '/api/user/{user_id}',
    summary: 'Delete a user; the sessions end, the keys are revoked, the name is free again',
    path: userPath,
    reply: deletionShape, errors: ['forbidden', 'not_found', 'conflict'], handle: administration.remove,
  }),
  route({ ...keyed, method: 'POST', pattern: '/api/user/{user_id}/password',
    summary: "Set a user's password; the user's sessions end",
    path: userPath, body: json(object({ password }, 'refused')),
    reply: changeShape, errors: ['invalid_body', 'forbidden', 'not_found', 'conflict'], handle: administration.setPasswordOf,
  }),
  route({ ...keyed, method: 'POST', pattern: '/api/key/',
    summary: 'Create an API key; it is shown whole this one time',
    body: json(keys.newKeyShape), success: 201,
    reply: keyShape, errors: ['invalid_body', 'forbidden', 'not_found'], handle: keys.create,
  }),
  route({ ...keyed, method: 'GET', pattern: '/api/key/',
    summary: 'The API keys, newest first; for anyone but a super administrator, only their own',
    // Here and below, a misspelt filter must not show everything.
    query: queryParameters({ ...pageQuery, user: optional(uuid('Only the keys of the user with this id')) }, 'refused'),
    reply: list(keyShape), paged: 'always', errors: ['forbidden'], handle: keys.list,
  }),
  route({ ...keyed, method: 'DELETE', pattern: '/api/key/{key_id}/revoke',
    summary: 'Revoke an API key',
    path: object({ key_id: uuid() }),
    reply: revocationShape, errors: ['forbidden', 'not_found'], handle: keys.revoke,
  }),
  route({ ...keyed, method: 'GET', pattern: '/api/session/',
    summary: 'The sessions, newest first; for anyone but a super administrator, only their own',
    query: queryParameters({ ...pageQuery, user: optional(uuid('Only the sessions of the user with this id')), active: optional(oneOf('true', 'false')) }),
    reply: list(sessionShape), paged: 'always', errors: ['forbidden'], handle: sessions.list,
  }),
  route({ ...keyed, method: 'GET', pattern: '/api/session/info',
    summary: 'The session of a token, also one that has ended',
    query: sessionQuery,
    reply: sessionShape, errors: ['forbidden', 'invalid_session_token'], handle: sessions.info,
  }),
  route({ ...keyed, method: 'DELETE', pattern: '/api/session/revoke',
    summary: 'Revoke the session of a token',
    query: sessionQuery,
    reply: revocationShape, errors: ['forbidden', 'invalid_session_token'], handle: sessions.revokeByToken,
  }),
  route({ ...keyed, method: 'DELETE', pattern: '/api/session/{session_id}/revoke',
    summary: 'Revoke a session by its id',
    path: object({ session_id: uuid() }),
    reply: revocationShape, errors: ['forbidden', 'not_found'], handle: sessions.revokeById,
  }),
  route({ ...keyed, method: 'DELETE', pattern: '/api/session/revoke/all',
    summary: "Revoke all sessions of all users, the caller's own included",
    reply: revocationShape, errors: ['forbidden'], handle: sessions.revokeAll,
  }),
  route({ ...keyed, method: 'DELETE', pattern: '/api/session/revoke/all/user',
    summary: 'Revoke all sessions of one user',
    query: queryParameters({ user: uuid("The user's id") }),
    reply: revocationShape, errors: ['forbidden', 'not_found'], handle: sessions.revokeAllOfUser,
  }),
  route({ ...keyed, method: 'GET', pattern: '/api/test/',
    summary: "The caller's user record and address",
    reply: object({ ip: text(), user: userShape }), errors: ['forbidden'], handle: administration.test,
  }),
  route({ ...keyed, method: 'GET', pattern: '/api/audit/',
    summary: 'The audit trail, newest first',
    query: queryParameters({ ...pageQuery, user: optional(uuid('Only what this user did, or what was done to them')), event: optional(oneOf(...EVENTS)) }, 'refused'),
    reply: list(auditShape), paged: 'always', errors: ['forbidden'], handle: audit.list,
  }),
];

export const routes = withBuiltIns(
  rows,
  {
    title: 'Gatehouse identity',
    version: '0.0.1',
    envelope: 'data',
    securitySchemes: {
      bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'session:<base64-encoded token>' },
      api_key: { type: 'apiKey', in: 'header', name: 'X-API-Key' },
      cookie: { type: 'apiKey', in: 'cookie', name: 'session' },
    },
  },
  'service_failed',
);
