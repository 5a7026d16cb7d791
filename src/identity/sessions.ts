import { Failure } from '../http/errors.ts';
import { object, oneOf, text } from '../http/shape.ts';
import { actorOf } from './audit.ts';
import { viewSession } from './model.ts';
import { pageReply } from './paging.ts';
import { type Ask, forbidden, may } from './policy.ts';
import type { IdentityService } from './service.ts';
import type { Page } from './store/rows.ts';
import * as store from './store/sessions.ts';
import { findUser } from './store/users.ts';
import { parseSessionToken } from './token.ts';
import { unknownUser } from './users.ts';

type ByToken = { session: string };
type ListQuery = Page & { user: string | undefined; active: 'true' | 'false' | undefined };

export const revocationShape = object({ message: text(), status: oneOf('REVOKED') });

export function endedText(count: store.EndedCount = 0): string {
  if (count === null) return 'All open sessions';
  return count > store.MAX_COUNT
    ? 'More than 10,000 sessions'
    : `${count} session${count === 1 ? '' : 's'}`;
}

const revoked = (count: store.EndedCount) => ({
  data: { message: `${endedText(count)} revoked.`, status: 'REVOKED' as const },
});
const actor = ({ caller, request }: Ask<unknown, unknown>) => actorOf(caller, request);

export async function list(
  { caller, query, request }: Ask<unknown, ListQuery>,
  service: IdentityService,
) {
  const { user, active } = query;
  if (user !== undefined && !may(caller, 'list sessions of a user', user)) return forbidden(caller);
  // Without a filter, a super administrator gets all sessions and everyone else their own.
  const userId = user ?? (may(caller, 'list sessions of every user') ? null : caller.user?.id);
  if (userId === undefined) return forbidden(caller);
  const filter = { userId, active: active === undefined ? null : active === 'true' };
  return pageReply(
    request.path,
    query,
    await store.listSessions(service, query, filter),
    viewSession,
  );
}

/** By its token, even after its end. */
export async function findSession(given: string, service: IdentityService) {
  const token = parseSessionToken(given);
  return token === null ? null : store.findSessionByToken(service, token);
}

/** The holder of a token may read and revoke its session. */
export async function info({ query }: Ask<unknown, ByToken>, service: IdentityService) {
  const session = await findSession(query.session, service);
  return session ? { data: viewSession(session) } : new Failure('invalid_session_token');
}

export async function revokeByToken(call: Ask<unknown, ByToken>, service: IdentityService) {
  const session = await findSession(call.query.session, service);
  if (!session) return new Failure('invalid_session_token');
  return revoked(
    await store.endSession(
      service.database,
      actor(call),
      session.id,
      'session.revoked',
      session.user_id,
    ),
  );
}

export async function revokeById(call: Ask<{ session_id: string }>, { database }: IdentityService) {
  const id = call.path.session_id;
  const ownerId = await store.findSessionOwner(database, id);
  if (ownerId === null)
    return new Failure('not_found', { message: 'There is no session with this id.' });
  if (!may(call.caller, 'revoke a session by its id', ownerId)) return forbidden(call.caller);
  return revoked(await store.endSession(database, actor(call), id, 'session.revoked', ownerId));
}

export async function revokeAll(call: Ask, { database }: IdentityService) {
  if (!may(call.caller, 'revoke sessions of every user')) return forbidden(call.caller);
  return revoked(await store.revokeSessions(database, actor(call), null));
}

export async function revokeAllOfUser(
  call: Ask<unknown, { user: string }>,
  { database }: IdentityService,
) {
  const { user } = call.query;
  if (!may(call.caller, 'revoke sessions of a user', user)) return forbidden(call.caller);
  if (!(await findUser(database, user))) return unknownUser();
  return revoked(await store.revokeSessions(database, actor(call), user));
}
