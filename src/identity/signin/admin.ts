import { Failure, type TextReply } from '../../http/errors.ts';
import { actorOf } from '../audit.ts';
import { findTotp, listPasskeys, removeFactors } from '../factors/store.ts';
import type { User } from '../model.ts';
import { createPasswords } from '../passwords.ts';
import { forbidden, may } from '../policy.ts';
import type { PortalService } from '../service.ts';
import { listAudit } from '../store/audit.ts';
import { findUser } from '../store/users.ts';
import * as users from '../users.ts';
import { signInAgain, type Visit } from './factors.ts';
import { messageOf, page, pager, render, utc } from './pages.ts';
import { searchUsers } from './store.ts';

const LIMIT = 20;
const stateOf = ({ enabled, super_admin }: User): string =>
  `${enabled ? 'enabled' : 'disabled'}${super_admin ? ', super administrator' : ''}`;

type Search = Readonly<{ page: number; search: string }>;

export const showUsers = async ({ caller, query }: Visit<unknown, Search>, service: PortalService) =>
  may(caller, 'list every user') ? usersPage(service, query, null) : forbidden(caller);

async function usersPage({ database }: PortalService, query: Search, message: string | null): Promise<TextReply> {
  const { rows, total } = await searchUsers(database, query.search, { page: query.page, limit: LIMIT });
  return page('Users', render('users', {
    search: query.search,
    rows: rows.map((user) => render('user-row', { ...nameOf(user), state: stateOf(user) })),
    pages: pager('/account/users', { page: query.page, limit: LIMIT, total }, { search: query.search }),
  }), message);
}

const nameOf = ({ id, username, email }: User) => ({ id, username, email });

type NewUser = Readonly<{ username: string; email: string; password: string }>;

export async function createUser(call: Visit<NewUser>, service: PortalService) {
  const again = await signInAgain(call.caller, service, '/account/users');
  if (again) return again;
  const rest = { first_name: '', last_name: '', verified: false, super_admin: false, enabled: true };
  const { caller, body, request } = call;
  const passwords = { ...createPasswords(service), areGenerated: true };
  const created = may(caller, 'create a user')
    ? await users.createUser(service.database, actorOf(caller, request), { ...body, ...rest }, passwords)
    : forbidden(caller);
  const list = { page: 1, search: call.body.username };
  if (created instanceof Failure) {
    return new Failure(created.code, { ...created.details, page: await usersPage(service, list, messageOf(created)) });
  }
  return usersPage(service, list, null);
}

type ById = Readonly<{ user_id: string }>;
type OfUser<Body> = Visit<Body> & { readonly path: ById };

export const showUser = async ({ caller, path }: OfUser<unknown>, service: PortalService) =>
  may(caller, 'list every user') ? userPage(service, path.user_id, null) : forbidden(caller);

async function userPage({ database }: PortalService, id: string, message: string | null) {
  const user = await findUser(database, id);
  if (!user) return new Failure('not_found');
  const [totp, passkeys] = await Promise.all([findTotp(database, id), listPasskeys(database, id)]);
  const factors = [...(totp?.confirmed ? ['authenticator app'] : []), ...passkeys.map(() => 'passkey')];
  return page(user.username, render('user', {
    ...nameOf(user), state: stateOf(user), factors: factors.join(', ') || 'none',
    toggle: user.enabled ? 'disable' : 'enable', toggle_label: user.enabled ? 'Disable' : 'Enable',
  }), message);
}

const NO_CHANGE = {
  username: undefined, email: undefined, first_name: undefined, last_name: undefined, verified: undefined,
  super_admin: undefined,
};
type Change = Readonly<{
  action: 'disable' | 'enable' | 'remove_factors' | 'set_password'; password: string | undefined;
}>;

export async function changeUser(call: OfUser<Change>, service: PortalService) {
  const { caller, request, path: { user_id: id }, body: { action, password } } = call;
  const again = await signInAgain(caller, service, `/account/users/${id}`);
  if (again) return again;
  const [to, actor] = [{ ...call, query: {} }, actorOf(caller, request)];
  // The user must change it, as they must change a generated one.
  const passwords = { ...createPasswords(service), areGenerated: true };
  const actions = {
    enable: () => users.change({ ...to, body: { ...NO_CHANGE, enabled: true } }, service),
    disable: () => users.change({ ...to, body: { ...NO_CHANGE, enabled: false } }, service),
    set_password: async () => (may(caller, 'set the password of a user')
      ? users.setPassword(service.database, actor, id, password ?? '', passwords) : forbidden(caller)),
    remove_factors: async () => (may(caller, 'remove factors of a user')
      ? removeFactors(service.database, actor, id, 'all', true) : forbidden(caller)),
  };
  const outcome = await actions[action]();
  const shown = await userPage(service, id, outcome instanceof Failure ? messageOf(outcome) : null);
  if (!(outcome instanceof Failure) || shown instanceof Failure) return shown;
  return new Failure(outcome.code, { ...outcome.details, page: shown });
}

/** The trail, newest first. */
export async function showAudit({ caller, query }: Visit<unknown, { page: number }>, { database }: PortalService) {
  if (!may(caller, 'read the audit trail')) return forbidden(caller);
  const { rows, total } = await listAudit(database, { page: query.page, limit: LIMIT }, { userId: null, event: null });
  return page('Audit trail', render('audit', {
    rows: rows.map(({ created_at, event, via, actor_id, user_id, ip, detail }) => render('audit-row', {
      time: utc(created_at), event, by: `${actor_id ?? 'nobody'} (${via})`, user: user_id ?? '–', ip: ip ?? '–', detail,
    })),
    pages: pager('/account/audit', { page: query.page, limit: LIMIT, total }, {}),
  }));
}
