import type { Call, Reply } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { Read } from '../http/shape.ts';
import { type Caller, may } from './policy.ts';
import { linksOf, paginationOf, revokedMessage } from './rules.ts';
import type { IdentityService } from './service.ts';
import { type revocationShape, type sessionShape, viewSession } from './shapes.ts';
import { findSessionByToken, findSessionOwner, listSessions, revokeSession, revokeSessions, userExists } from './store.ts';
import { parseSessionToken } from './token.ts';

type Ask<Path, Query> = Call<Caller, Path, Query, null>;
type Revoked = Reply<Read<typeof revocationShape>>;

const revoked = (count: number): Revoked => ({ data: { message: revokedMessage(count), status: 'REVOKED' } });

export async function list(
  { caller, query, visitor }: Ask<unknown, { page: number; limit: number; user: string | undefined }>,
  service: IdentityService,
): Promise<Reply<Array<Read<typeof sessionShape>>> | Failure<'forbidden'>> {
  const { page, limit, user } = query;
  if (user !== undefined && !may(caller, 'list sessions of a user', user)) return new Failure('forbidden');
  // Without a filter a super administrator sees all, and everybody else what is their own.
  const userId = user ?? (may(caller, 'list sessions of every user') ? null : caller.user.id);
  const { sessions, total } = await listSessions(service.database, { userId, limit, offset: (page - 1) * limit });
  const pagination = paginationOf(page, limit, total);
  return { data: sessions.map(viewSession), pagination, links: linksOf(visitor.path, pagination, { user }) };
}

/** Whoever holds a token may read its session, also one that has ended. */
export async function info(
  { query }: Ask<unknown, { session: string }>,
  service: IdentityService,
): Promise<Reply<Read<typeof sessionShape>> | Failure<'invalid_session_token'>> {
  const token = parseSessionToken(query.session);
  const session = token && (await findSessionByToken(service.database, token));
  return session ? { data: viewSession(session) } : new Failure('invalid_session_token');
}

export async function revokeByToken({ query }: Ask<unknown, { session: string }>, service: IdentityService): Promise<Revoked | Failure<'invalid_session_token'>> {
  const token = parseSessionToken(query.session);
  const session = token && (await findSessionByToken(service.database, token));
  return session ? revoked(await revokeSession(service.database, session.id)) : new Failure('invalid_session_token');
}

export async function revokeById({ caller, path }: Ask<{ session_id: string }, unknown>, service: IdentityService): Promise<Revoked | Failure<'forbidden' | 'not_found'>> {
  const ownerId = await findSessionOwner(service.database, path.session_id);
  if (ownerId === null) return new Failure('not_found', { message: 'There is no session with this id.' });
  if (!may(caller, 'revoke a session by its id', ownerId)) return new Failure('forbidden');
  return revoked(await revokeSession(service.database, path.session_id));
}

export async function revokeAll({ caller }: Ask<unknown, unknown>, service: IdentityService): Promise<Revoked | Failure<'forbidden'>> {
  if (!may(caller, 'revoke sessions of every user')) return new Failure('forbidden');
  return revoked(await revokeSessions(service.database, null));
}

export async function revokeAllOfUser({ caller, query }: Ask<unknown, { user: string }>, service: IdentityService): Promise<Revoked | Failure<'forbidden' | 'not_found'>> {
  if (!may(caller, 'revoke sessions of a user', query.user)) return new Failure('forbidden');
  if (!(await userExists(service.database, query.user))) return new Failure('not_found', { message: 'There is no user with this id.' });
  return revoked(await revokeSessions(service.database, query.user));
}
