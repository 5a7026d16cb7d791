import { Failure, type TextReply } from '../../http/errors.ts';
import { actorOf } from '../audit.ts';
import { callerBySession } from '../guard.ts';
import { changePassword } from '../login.ts';
import type { PortalService } from '../service.ts';
import { listAudit } from '../store/audit.ts';
import { endSession, findSessionOwner, listSessions, revokeSessions } from '../store/sessions.ts';
import type { Person, Visit } from './guards.ts';
import { accountPage, continuePage, messageOf, PAGE_ROWS, withPage } from './pages.ts';
import { createCookies, signedOutPage } from './portal.ts';
import { findEarlierSignIn, findProof } from './store.ts';

export const showAccount = ({ caller }: Visit, service: PortalService) => account(caller, service, null);

async function account({ user, session }: Person, service: PortalService, message: string | null): Promise<TextReply> {
  const page = { page: 1, limit: PAGE_ROWS };
  const [sessions, { rows: events }, since] = await Promise.all([
    listSessions(service, page, { userId: user.id, active: true }),
    listAudit(service.database, page, { userId: user.id, event: null }),
    findEarlierSignIn(service.database, user.id, session.id),
  ]);
  return accountPage(user, session.id, sessions, events, since, message);
}

type Change = Readonly<{ current_password: string; new_password: string }>;

export async function changeOwnPassword(call: Visit<Change>, service: PortalService) {
  const { caller, request } = call;
  const proof = await findProof(service, caller.session.id);
  const changed = await changePassword({ ...call, query: {}, path: {} }, service);
  if (changed instanceof Failure) return withPage(changed, await account(caller, service, messageOf(changed)));
  const token = changed.data.session;
  const next = await callerBySession(token, request.address, service);
  if (next instanceof Failure || !next.session) return signedOutPage('Sign in again', service);
  // Not signed in again: the second factor was not asked for.
  const cookies = await createCookies(service, { id: next.session.id, token }, proof?.methods ?? 'password', proof?.at);
  return continuePage('Your password is changed', `${service.portal.origin}/account`, cookies);
}

/** One of the person's sessions, or all. */
export async function endSessions(call: Visit<{ session_id: string | undefined }>, service: PortalService) {
  const { caller, body: { session_id: id }, request } = call;
  const { database, portal } = service;
  const [actor, userId] = [actorOf(caller, request), caller.user.id];
  if (id === undefined) {
    await revokeSessions(database, actor, userId);
    return signedOutPage('You are signed out everywhere', service);
  }
  if ((await findSessionOwner(database, id)) !== userId) return new Failure('not_found');
  await endSession(database, actor, id, 'session.revoked', userId);
  return continuePage('The session has ended', `${portal.origin}/account`, []);
}
