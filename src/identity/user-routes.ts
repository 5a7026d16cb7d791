import { json } from '../platform/http/route/json-body.ts';
import { type Route, route } from '../platform/http/route/route.ts';
import { list, object, optional, queryParameters, uuid } from '../platform/http/route/schema.ts';
import * as lists from './lists.ts';
import { outcomeSchema, userSchema } from './model.ts';
import { password, read, remove, write } from './rows.ts';
import { secure, secureRow } from './secure.ts';
import type { IdentityService } from './service.ts';
import * as users from './users.ts';

const oneUser = { pattern: '/api/user/{user_id}', path: object({ user_id: uuid() }) } as const;

/** Rows about users. */
export const USER_ROUTES: ReadonlyArray<Route<IdentityService>> = [
  route({
    ...read,
    pattern: '/api/user/',
    reply: list(userSchema),
    paged: 'if asked',
    errors: ['forbidden', 'too_slow'],
    handle: lists.users,
    summary:
      'Users, oldest first, all or a page; without super administrator rights, only yourself',
    query: queryParameters({
      page: optional(lists.page),
      limit: optional(lists.limit),
      ...lists.userFilter,
    }),
  }),
  route({
    ...write,
    pattern: '/api/user/',
    summary: 'Create a user',
    body: json(users.newUserSchema),
    success: 201,
    replyHeaders: ['Location'],
    reply: userSchema,
    errors: ['invalid_body', 'signin_too_old', 'forbidden', 'conflict'],
    handle: users.create,
  }),
  route({
    ...read,
    pattern: '/api/user/by-name',
    query: queryParameters(users.userNameQuery),
    summary: 'One user, by id, username or e-mail address',
    reply: userSchema,
    errors: ['forbidden', 'not_found'],
    handle: users.showUserByName,
  }),
  route({
    ...read,
    ...oneUser,
    summary: 'One user',
    reply: userSchema,
    errors: ['forbidden', 'not_found'],
    handle: users.showUser,
  }),
  route({
    ...write,
    method: 'PATCH',
    ...oneUser,
    body: json(users.userChangeSchema),
    summary: 'Change a user; without super administrator rights, only your own first and last name',
    reply: users.changedUserSchema,
    errors: ['signin_too_old', 'forbidden', 'not_found', 'conflict'],
    handle: users.change,
  }),
  route({
    ...remove,
    ...oneUser,
    reply: outcomeSchema('DELETED'),
    summary: 'Delete a user; sessions end, keys are revoked, the name is free again',
    errors: ['signin_too_old', 'forbidden', 'not_found', 'conflict'],
    handle: users.remove,
  }),
  route({
    ...write,
    ...oneUser,
    pattern: '/api/user/{user_id}/password',
    summary: "Set a user's password; the user's sessions end",
    body: json(object({ password }, 'rejected')),
    reply: outcomeSchema('CHANGED'),
    errors: ['invalid_body', 'signin_too_old', 'forbidden', 'not_found'],
    handle: users.setPasswordOf,
  }),
  route({ ...secureRow, handle: secure }),
];
