import type { Call, Reply } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { Infer } from '../http/shape.ts';
import { actorOf } from './guard.ts';
import { type Page, pageReply } from './paging.ts';
import { type Caller, forbidden, may } from './policy.ts';
import { revokedMessage } from './rules.ts';
import type { IdentityService } from './service.ts';
import { type revocationShape, type sessionShape, viewSession } from './shapes.ts';
import type { AuditEntry } from './store/audit.ts';
import { findSessionByToken, findSessionOwner, listSessions, revokeSession, revokeSessions } from './store/sessions.ts';
import { findUser } from './store/users.ts';
import { parseSessionToken } from './token.ts';

type Ask<Path, Query> = Call<Caller, Path, Query, null>;
type Revoked = Reply<Infer<typeof revocationShape>>;

const revoked = (count: number): Revoked => ({ data: { message: revokedMessage(count), status: 'REVOKED' } });
const entry = ({ caller, request }: Ask<unknown, unknown>): AuditEntry => ({ event: 'session.revoked', actor: actorOf(caller, request) });

export async function list(
  { caller, query, request }: Ask<unknown, Page & { user: string | undefined; active: 'true' | 'false' | undefined }>,
  service: IdentityService,
): Promise<Reply<Array<Infer<typeof sessionShape>>> | Failure<'forbidden'>> {
  const { user, active } = query;
  if (user !== undefined && !may(caller, 'list sessions of a user', user)) return forbidden(caller);
  // Without a filter a super administrator sees all, and everybody else what is their own.
  const userId = user ?? (may(caller, 'list sessions of every user') ? null : caller.user?.id);
  if (userId === undefined) return forbidden(caller);
  const part = await listSessions(service, query, { userId, active: active === undefined ? null : active === 'true' });
  return pageReply(request.path, query, part, viewSession, { user, active });
}

/** Whoever holds a token may read its session, also one that has ended. */
export async function info(
  { caller, query }: Ask<unknown, { session: string }>,
  service: IdentityService,
): Promise<Reply<Infer<typeof sessionShape>> | Failure<'forbidden' | 'invalid_session_token'>> {
  if (!may(caller, 'read a session by its token')) return forbidden(caller);
  const token = parseSessionToken(query.session);
  const session = token && (await findSessionByToken(service, token));
  return session ? { data: viewSession(session) } : new Failure('invalid_session_token');
}

export async function revokeByToken(call: Ask<unknown, { session: string }>, service: IdentityService): Promise<Revoked | Failure<'forbidden' | 'invalid_session_token'>> {
  if (!may(call.caller, 'revoke a session by its token')) return forbidden(call.caller);
  const token = parseSessionToken(call.query.session);
  const session = token && (await findSessionByToken(service, token));
  return session ? revoked(await revokeSession(service.database, entry(call), session.id)) : new Failure('invalid_session_token');
}

export async function revokeById(call: Ask<{ session_id: string }, unknown>, { database }: IdentityService): Promise<Revoked | Failure<'forbidden' | 'not_found'>> {
  const id = call.path.session_id;
  const ownerId = await findSessionOwner(database, id);
  if (ownerId === null) return new Failure('not_found', { message: 'There is no session with this id.' });
  if (!may(call.caller, 'revoke a session by its id', ownerId)) return forbidden(call.caller);
  return revoked(await revokeSession(database, entry(call), id));
}

export async function revokeAll(call: Ask<unknown, unknown>, { database }: IdentityService): Promise<Revoked | Failure<'forbidden'>> {
  if (!may(call.caller, 'revoke sessions of every user')) return forbidden(call.caller);
  return revoked(await revokeSessions(database, entry(call), null));
}

export async function revokeAllOfUser(call: Ask<unknown, { user: string }>, { database }: IdentityService): Promise<Revoked | Failure<'forbidden' | 'not_found'>> {
  const { user } = call.query;
  if (!may(call.caller, 'revoke sessions of a user', user)) return forbidden(call.caller);
  if (!(await findUser(database, user))) return new Failure('not_found', { message: 'There is no user with this id.' });
  return revoked(await revokeSessions(database, entry(call), user));
}
