import { Failure, type RequestInfo } from '../platform/http/route/route.ts';
import { viewSession } from './model.ts';
import { forbidden, type IdentityCall, may, unknown } from './policy.ts';
import type { IdentityService } from './service.ts';
import { actorOf } from './store/audit.ts';
import { type EndedCount, MAX_COUNT, revokeSession, revokeSessions } from './store/session-ends.ts';
import { findSessionByToken, findSessionOwner } from './store/sessions.ts';
import { findUser } from './store/users.ts';
import { parseSessionToken } from './token.ts';

type ByToken = { session: string };

export function endedText(count: EndedCount = 0) {
  if (count === null) return 'All open sessions';
  if (count > MAX_COUNT) return 'More than 10,000 sessions';
  return `${count} session${count === 1 ? '' : 's'}`;
}

const revoked = (count: EndedCount) => ({
  data: { message: `${endedText(count)} revoked.`, status: 'REVOKED' as const },
});

/**
 * By its token, even after its end. As with a bearer token, a token that no session has counts as a
 * guess of the network.
 */
export async function findSession(
  encoded: string,
  { network }: RequestInfo,
  service: IdentityService,
) {
  const found = await service.checkCredential(network, {
    kind: 'session',
    key: parseSessionToken(encoded),
    message: 'No session has this token.',
    find: (digest) => findSessionByToken(service, digest),
  });
  return found instanceof Failure && found.code === 'unauthorized' ? null : found;
}

/** The holder of a token may read and revoke its session. */
export async function info(
  { query, request }: IdentityCall<unknown, ByToken>,
  service: IdentityService,
) {
  const session = await findSession(query.session, request, service);
  if (session instanceof Failure) return session;
  return session ? { data: viewSession(session) } : new Failure('invalid_session_token');
}

export async function revokeByToken(
  { caller, query, request }: IdentityCall<unknown, ByToken>,
  service: IdentityService,
) {
  const session = await findSession(query.session, request, service);
  if (session instanceof Failure) return session;
  if (!session) return new Failure('invalid_session_token');
  const actor = actorOf(caller, request);
  return revoked(await revokeSession(service.database, actor, session.id, session.user_id));
}

export async function revokeById(
  { caller, path, request }: IdentityCall<{ session_id: string }>,
  { database }: IdentityService,
) {
  const id = path.session_id;
  const ownerId = await findSessionOwner(database, id);
  if (ownerId === null) return unknown('session');
  if (!may(caller, 'revoke a session by its id', ownerId)) return forbidden(caller);
  return revoked(await revokeSession(database, actorOf(caller, request), id, ownerId));
}

export async function revokeAll({ caller, request }: IdentityCall, { database }: IdentityService) {
  if (!may(caller, 'revoke sessions of every user')) return forbidden(caller);
  return revoked(await revokeSessions(database, actorOf(caller, request), null));
}

export async function revokeAllOfUser(
  { caller, query, request }: IdentityCall<unknown, { user: string }>,
  { database }: IdentityService,
) {
  if (!may(caller, 'revoke sessions of a user', query.user)) return forbidden(caller);
  if (!(await findUser(database, query.user))) return unknown('user');
  return revoked(await revokeSessions(database, actorOf(caller, request), query.user));
}
