import { Failure, type TextReply } from '../../http/errors.ts';
import { actorOf } from '../audit.ts';
import { activeSession } from '../guard.ts';
import { changePassword } from '../login.ts';
import type { PortalService } from '../service.ts';
import { revokeById } from '../sessions.ts';
import { listAudit } from '../store/audit.ts';
import { listSessions } from '../store/sessions.ts';
import { parseSessionToken } from '../token.ts';
import { createTokens, setCookies } from './browser.ts';
import type { Person, Visit } from './guards.ts';
import { accountPage, continuePage, messageOf, PAGE_ROWS, withPage } from './pages.ts';
import { createCookies, signedOutPage } from './portal.ts';
import { endOtherSessions, findByHostToken, findEarlierSignIn } from './store.ts';

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
  const changed = await changePassword({ ...call, query: {}, path: {} }, service);
  if (changed instanceof Failure) return withPage(changed, await account(caller, service, messageOf(changed)));
  const token = changed.data.session;
  const next = await activeSession(parseSessionToken(token), request.network, service, findByHostToken);
  if (next instanceof Failure) return signedOutPage('Sign in again', service);
  // Not signed in again: the second factor was not asked for.
  const { methods, at } = caller.session;
  const cookies = await createCookies(service, { id: next.id, token }, methods, at);
  return continuePage('Your password is changed', `${service.portal.origin}/account`, cookies);
}

/** One of the person's sessions, or all others. */
export async function endSessions(call: Visit<{ session_id: string | undefined }>, service: PortalService) {
  const { caller, body: { session_id: id }, request } = call;
  const { database, portal } = service;
  const [address, tokens] = [`${portal.origin}/account`, createTokens()];
  if (id === undefined) {
    await endOtherSessions(database, actorOf(caller, request), caller.user.id, caller.session.id, tokens);
    return continuePage('All other sessions have ended', address, setCookies(tokens, portal));
  }
  const ended = await revokeById({ ...call, query: {}, path: { session_id: id }, body: null }, service);
  return ended instanceof Failure ? ended : continuePage('The session has ended', address, []);
}
