import { Failure } from '../../http/errors.ts';
import { actorOf } from '../audit.ts';
import { findTotp, listPasskeys, removeFactors } from '../factors/store.ts';
import type { User } from '../model.ts';
import { type Action, forbidden, may } from '../policy.ts';
import type { PortalService } from '../service.ts';
import { listAudit } from '../store/audit.ts';
import { findUser } from '../store/users.ts';
import * as users from '../users.ts';
import type { Visit } from './guards.ts';
import { again, type Message, messageOf, page, PAGE_ROWS, pager, render, tryAgain, utc } from './pages.ts';
import { findUsernames, searchUsers } from './store.ts';

type Search = Readonly<{ page: number; search: string }>;
type NewUser = Readonly<{ username: string; email: string; password: string }>;
type Change = Readonly<{
  action: 'disable' | 'enable' | 'remove_factors' | 'set_password'; password: string | undefined;
}>;
type OfUser<Body = unknown> = Visit<Body, unknown, { readonly user_id: string }>;

export const showUsers = async ({ caller, query }: Visit<unknown, Search>, service: PortalService) =>
  may(caller, 'list every user') ? usersPage(service, query) : forbidden(caller);

async function usersPage(
  { database }: PortalService, { page: number, search }: Search, form = { username: '', email: '', ...again(null) },
) {
  const { rows, total } = await searchUsers(database, search, { page: number, limit: PAGE_ROWS });
  const pages = pager(`/account/users?search=${encodeURIComponent(search)}&page=`, number, total);
  const list = rows.map((user) => render('user-row', shown(user)));
  return page('Users', render('users', { search, pages, rows: list.length > 0 ? list : render('no-user'), ...form }));
}

const shown = ({ id, username, email, enabled, super_admin: isAdmin }: User) =>
  ({ id, username, email, state: `${enabled ? 'enabled' : 'disabled'}${isAdmin ? ', super administrator' : ''}` });

/** Whatever password an administrator sets, the user must change it, as a generated one (ASVS 6.4.1). */
const firstPasswords = (service: PortalService) => ({ ...service, areGenerated: true });

export async function createUser({ caller, body, request }: Visit<NewUser>, service: PortalService) {
  if (!may(caller, 'create a user')) return forbidden(caller);
  const user = { ...body, first_name: '', last_name: '', verified: false, super_admin: false, enabled: true };
  const created = await users.createUser(service.database, actorOf(caller, request), user, firstPasswords(service));
  const { username, email } = body;
  const list = { page: 1, search: username };
  if (!(created instanceof Failure)) return usersPage(service, list);
  return tryAgain(created, (message) => usersPage(service, list, { username, email, ...again(message) }));
}

export const showUser = async ({ caller, path }: OfUser, service: PortalService) =>
  may(caller, 'list every user') ? userPage(service, path.user_id, null) : forbidden(caller);

async function userPage({ database }: PortalService, id: string, message: Message) {
  const user = await findUser(database, id);
  if (!user) return new Failure('not_found');
  const [totp, passkeys] = await Promise.all([findTotp(database, id), listPasskeys(database, id)]);
  const factors = [...(totp ? ['authenticator app'] : []), ...passkeys.map(() => 'passkey')];
  return page(user.username, render('user', {
    ...shown(user), factors: factors.join(', ') || 'none',
    toggle: user.enabled ? 'disable' : 'enable', toggle_label: user.enabled ? 'Disable' : 'Enable',
  }), message);
}

const RIGHTS = {
  enable: 'change a user', disable: 'change a user',
  set_password: 'set the password of a user', remove_factors: 'remove factors of a user',
} as const satisfies Record<Change['action'], Action>;

export async function changeUser(call: OfUser<Change>, service: PortalService) {
  const { caller, path: { user_id: id }, body: { action } } = call;
  // Somebody without the right does not see the user either.
  if (!may(caller, RIGHTS[action])) return forbidden(caller);
  const outcome = await change(call, service);
  if (!(outcome instanceof Failure)) return userPage(service, id, null);
  const reply = await userPage(service, id, messageOf(outcome));
  return reply instanceof Failure ? reply : tryAgain(outcome, () => reply);
}

async function change({ caller, request, path, body }: OfUser<Change>, service: PortalService) {
  const [{ database }, actor, id, { action, password = '' }] = [service, actorOf(caller, request), path.user_id, body];
  if (action === 'set_password') return users.setPassword(database, actor, id, password, firstPasswords(service));
  if (action !== 'remove_factors') return users.changeUser(database, actor, id, { enabled: action === 'enable' });
  const removed = await removeFactors(database, actor, id, 'all');
  if (removed > 0) service.reportFactor('all', 'removed', id);
  return null;
}

/** The trail, newest first. */
export async function showAudit({ caller, query }: Visit<unknown, { page: number }>, { database }: PortalService) {
  if (!may(caller, 'read the audit trail')) return forbidden(caller);
  const all = { userId: null, event: null };
  const { rows: records, total } = await listAudit(database, { ...query, limit: PAGE_ROWS }, all);
  const names = await findUsernames(database, records.flatMap(({ actor_id, user_id }) => [actor_id, user_id]));
  const who = (id: string | null, nobody: string, via = '') =>
    (id === null ? nobody : render('audit-user', { name: names.get(id) ?? 'deleted user', via, id }));
  const rows = records.map(({ created_at, event, via, actor_id, user_id, ip, detail }) => render('audit-row', {
    time: utc(created_at), event, by: who(actor_id, `nobody (${via})`, ` (${via})`), user: who(user_id, '–'),
    ip: ip ?? '–', detail,
  }));
  return page('Audit trail', render('audit', { rows, pages: pager('/account/audit?page=', query.page, total) }));
}
