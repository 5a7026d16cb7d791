import { Failure, type TextReply } from '../../http/errors.ts';
import { actorOf } from '../audit.ts';
import { callerBySession } from '../guard.ts';
import { changePassword } from '../login.ts';
import type { Caller } from '../policy.ts';
import type { PortalService } from '../service.ts';
import { listAudit } from '../store/audit.ts';
import { endSession, findSessionOwner, listSessions, revokeSessions } from '../store/sessions.ts';
import { userOf, type Visit } from './factors.ts';
import { accountPage, continuePage, messageOf } from './pages.ts';
import { createCookies, signedOutPage } from './portal.ts';
import { findEarlierSignIn } from './store.ts';

const MAX_SHOWN = 20;

export const showAccount = ({ caller }: Visit, service: PortalService) => account(caller, service, null);

async function account(caller: Caller, service: PortalService, message: string | null): Promise<TextReply> {
  const user = userOf(caller);
  const [page, current] = [{ page: 1, limit: MAX_SHOWN }, caller.session?.id ?? ''];
  const [{ rows: sessions, total }, { rows: events }, since] = await Promise.all([
    listSessions(service, page, { userId: user.id, active: true }),
    listAudit(service.database, page, { userId: user.id, event: null }),
    findEarlierSignIn(service.database, user.id, current),
  ]);
  return accountPage({ user, current, sessions, total, message, events, since });
}

type Change = Readonly<{ current_password: string; new_password: string }>;

export async function changeOwnPassword(call: Visit<Change>, service: PortalService) {
  const changed = await changePassword({ ...call, query: {}, path: {} }, service);
  if (changed instanceof Failure) {
    const page = await account(call.caller, service, messageOf(changed));
    return new Failure(changed.code, { ...changed.details, page });
  }
  const token = changed.data.session;
  const caller = await callerBySession(token, call.request.address, service);
  if (caller instanceof Failure || !caller.session) return signedOutPage('Sign in again', service);
  const cookies = await createCookies(service, { id: caller.session.id, token }, 'password');
  return continuePage('Your password is changed', `${service.portal.origin}/account`, cookies);
}

/** One of the person's sessions, or all. */
export async function endSessions(
  { caller, body, request }: Visit<{ session_id: string | undefined }>, service: PortalService,
) {
  const { database } = service;
  const [actor, userId] = [actorOf(caller, request), userOf(caller).id];
  if (body.session_id === undefined) {
    await revokeSessions(database, actor, userId);
    return signedOutPage('You are signed out everywhere', service);
  }
  if ((await findSessionOwner(database, body.session_id)) !== userId) return new Failure('not_found');
  await endSession(database, actor, body.session_id, 'session.revoked');
  return continuePage('The session has ended', `${service.portal.origin}/account`, []);
}
