import { Failure } from '../../http/errors.ts';
import { oneOf, withDefault } from '../../http/shape.ts';
import { actorOf } from '../audit.ts';
import { findTotp, listPasskeys, removeFactors } from '../factors/store.ts';
import type { User } from '../model.ts';
import { forbidden, may } from '../policy.ts';
import { nameShapes } from '../rules.ts';
import type { PortalService } from '../service.ts';
import { listAudit } from '../store/audit.ts';
import { findUser } from '../store/users.ts';
import * as users from '../users.ts';
import type { Person, Visit } from './guards.ts';
import { again, formOf, page, PAGE_ROWS, pager, password, render, utc } from './pages.ts';
import { findUsernames, searchUsers } from './store.ts';

type Search = Readonly<{ page: number; search: string }>;

export async function showUsers(
  { query: { page: number, search } }: Visit<unknown, Search>, { database }: PortalService,
  form = { username: '', email: '', ...again('') },
) {
  const { rows, total } = await searchUsers(database, search, { page: number, limit: PAGE_ROWS });
  const pages = pager(`/account/users?search=${encodeURIComponent(search)}&page=`, number, total);
  const list = rows.map((user) => render('user-row', shown(user)));
  return page('Users', render('users', { search, pages, rows: list.length > 0 ? list : render('no-user'), ...form }));
}

const shown = ({ id, username, email, enabled, super_admin: isAdmin }: User) =>
  ({ id, username, email, state: `${enabled ? 'enabled' : 'disabled'}${isAdmin ? ', super administrator' : ''}` });

/** A user must change a password that an administrator sets, like a generated one (ASVS 6.4.1). */
const firstPasswords = (service: PortalService) => ({ ...service, areGenerated: true });

const { username, email } = nameShapes;

const named = (call: Visit<{ username: string }>) => ({ ...call, query: { page: 1, search: call.body.username } });

export const createUser = formOf<Person>()({ username, email, password }, async (call, service) => {
  const user = { ...call.body, first_name: '', last_name: '', verified: false, super_admin: false, enabled: true };
  const created = await users.create({ ...call, body: user }, firstPasswords(service));
  return created instanceof Failure ? created : showUsers(named(call), service);
}, (call, service, message) => {
  const { username, email } = call.body;
  return showUsers(named(call), service, { username, email, ...again(message) });
});

type OfUser = Visit<unknown, unknown, { readonly user_id: string }>;

export async function showUser({ path: { user_id: id } }: OfUser, { database }: PortalService, message = '') {
  const user = await findUser(database, id);
  if (!user) return new Failure('not_found');
  const [totp, passkeys] = await Promise.all([findTotp(database, id), listPasskeys(database, id)]);
  const factors = [...(totp ? ['authenticator app'] : []), ...passkeys.map(() => 'passkey')];
  return page(user.username, render('user', {
    ...shown(user), factors: factors.join(', ') || 'none',
    toggle: user.enabled ? 'disable' : 'enable', toggle_label: user.enabled ? 'Disable' : 'Enable',
  }), message);
}

const action = oneOf('disable', 'enable', 'remove_factors', 'set_password');
const change = { action, password: withDefault(password, '') };

/** The handlers of the API check permissions. */
export const changeUser = formOf<Person, OfUser['path']>()(change, async (call, service) => {
  const { action, password } = call.body;
  const changed = action === 'remove_factors' ? await removeAll(call, service)
    : action === 'set_password' ? await users.setPasswordOf({ ...call, body: { password } }, firstPasswords(service))
    : await users.change({ ...call, body: { enabled: action === 'enable' } }, service);
  return changed instanceof Failure ? changed : showUser(call, service);
}, showUser);

async function removeAll({ caller, request, path }: OfUser, service: PortalService) {
  if (!may(caller, 'remove factors of a user')) return forbidden(caller);
  const removed = await removeFactors(service.database, actorOf(caller, request), path.user_id, 'all');
  if (removed > 0) service.reportFactor('all', 'removed', path.user_id);
  return null;
}

/** The audit trail, newest first. */
export async function showAudit({ query }: Visit<unknown, { page: number }>, { database }: PortalService) {
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
