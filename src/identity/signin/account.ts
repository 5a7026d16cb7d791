import { Failure } from '../../http/errors.ts';
import { oneOf, optional, uuid, type Values, withDefault } from '../../http/schema.ts';
import { NOTHING } from '../../http/html.ts';
import { findTotp, listPasskeys, readClock, removeFactors } from '../store/signin/factors.ts';
import * as keys from '../keys.ts';
import { changePassword } from '../login.ts';
import { isUsable, type User } from '../model.ts';
import { forbidden, may } from '../policy.ts';
import { nameSchemas } from '../rules.ts';
import type { PortalService } from '../service.ts';
import { revokeById } from '../sessions.ts';
import { listAudit, actorOf } from '../store/audit.ts';
import { listKeys } from '../store/keys.ts';
import { listSessions } from '../store/sessions.ts';
import { findUser } from '../store/users.ts';
import * as users from '../users.ts';
import { createCookies, createTokens, issueCookies } from './browser.ts';
import { type PageInput, type PortalCall, recentUserForm, userForm } from './guards.ts';
import {
  continuePage,
  errorContext,
  form,
  label,
  page,
  PAGE_ROWS,
  pager,
  password,
  programOf,
  render,
  utc,
} from './pages.ts';
import {
  endOtherSessions,
  findEarlierSignIn,
  findUsernames,
  searchUsers,
} from '../store/signin/sign-ins.ts';
import { DAY } from '../../runtime/duration.ts';

export async function showAccount(
  { caller: { user, session } }: PortalCall,
  service: PortalService,
  message = '',
) {
  const first = { page: 1, limit: PAGE_ROWS };
  const [{ rows: sessions, total }, { rows: events }, earlier] = await Promise.all([
    listSessions(service, first, user.id, true),
    listAudit(service.database, first, user.id, null),
    findEarlierSignIn(service.database, session),
  ]);
  const main = render('account', {
    ...errorContext(message),
    administration: user.super_admin ? render('administration') : NOTHING,
    others: render('others'),
    username: user.username,
    email: user.email,
    name: `${user.first_name} ${user.last_name}`.trim() || '–',
    sessions: sessions.map(({ id, ip, user_agent: agent, created_at, last_seen_at }) =>
      render('session', {
        about: `${programOf(agent ?? '')}, from ${ip ?? 'an unknown address'}`,
        when: `signed in ${utc(created_at)}, last used ${utc(last_seen_at)}`,
        end: id === session.id ? render('current') : render('end', { id }),
      }),
    ),
    more: total > sessions.length ? render('more', { shown: sessions.length, total }) : NOTHING,
    events: events.map(({ event, detail, ip, created_at: time }) =>
      render('event', {
        is_new: earlier && time > earlier ? render('new') : NOTHING,
        what: [event.replace(/[._]/g, ' '), detail].filter(Boolean).join(': '),
        when: `${utc(time)}, from ${ip ?? 'the command line'}`,
      }),
    ),
  });
  return page('Your account', main);
}

export const changeOwnPassword = form(
  userForm,
  { current_password: password, new_password: password },
  async (call, service) => {
    const { session } = call.caller;
    const changed = await changePassword(call, service);
    if (changed instanceof Failure) return changed;
    // This is not a new sign-in, because the second factor was not requested.
    const token = changed.data.session;
    const { methods, at } = session;
    const cookies = await createCookies(service, call.request, token, methods, at);
    return continuePage('Your password is changed', `${service.portal.origin}/account`, cookies);
  },
  showAccount,
);

/** Ends one of the user's sessions, or all others. */
export const endSessions = form(
  userForm,
  { session_id: optional(uuid()) },
  async (call, service) => {
    const { caller, request } = call;
    const { session_id } = call.body;
    const address = `${service.portal.origin}/account`;
    if (session_id !== undefined) {
      const ended = await revokeById({ ...call, path: { session_id }, body: null }, service);
      return ended instanceof Failure ? ended : continuePage('The session has ended', address, []);
    }
    const tokens = createTokens();
    await endOtherSessions(service.database, actorOf(caller, request), caller.session, tokens);
    const cookies = issueCookies(service, request, tokens);
    return continuePage('All other sessions have ended', address, cookies);
  },
);

/** The parameters of a list. A form that shows the list again has none. */
type ListQuery = Readonly<{ page?: number; search?: string }>;
const rangeOf = ({ page = 1 }: ListQuery) => ({ page, limit: PAGE_ROWS });

/** The user's API keys. */
export async function showKeys(
  { caller, query }: PageInput<ListQuery>,
  { database }: PortalService,
  message = '',
) {
  const range = rangeOf(query);
  const { rows, total } = await listKeys(database, range, caller.user.id);
  const items = rows.map((key) => {
    const creator = key.created_by_username ?? 'the command line';
    const used = key.last_used_at ? `last used ${utc(key.last_used_at)}` : 'never used';
    const end = key.expires_at ? `expires ${utc(key.expires_at)}` : 'never expires';
    const state = render('key-ended', { state: key.revoked ? 'Revoked' : 'Expired' });
    return render('key', {
      name: key.name || 'Without a name',
      prefix: key.key_prefix,
      about: `created ${utc(key.created_at)} by ${creator}, ${used}, ${end}`,
      end: isUsable(key) ? render('key-revoke', { id: key.id }) : state,
    });
  });
  const main = render('keys', {
    keys: items.length > 0 ? items : render('no-key'),
    pages: pager('/account/keys?page=', range.page, total),
  });
  return page('API keys', main, message);
}

export const createKey = form(
  recentUserForm,
  { name: label, days: oneOf('30', '90', '365', 'never') },
  async (call, service) => {
    const { name, days } = call.body;
    const seconds = (await readClock(service.database)) + Number(days) * DAY;
    const expires_at = days === 'never' ? null : new Date(seconds * 1000);
    const body = { user_id: call.caller.user.id, expires_at, name };
    const created = await keys.create({ ...call, body }, service);
    if (created instanceof Failure) return created;
    return page('Your new API key', render('new-key', { key: created.data.key }));
  },
  showKeys,
);

export const revokeKey = form(userForm, { key_id: uuid() }, async (call, service) => {
  const revoked = await keys.revoke({ ...call, path: call.body, body: null }, service);
  return revoked instanceof Failure ? revoked : showKeys(call, service);
});

const { username, email } = nameSchemas;
const newUser = { username, email, password };

/**
 * For administrators. The guard does not check this, so that the log has the ids of a caller who is
 * refused.
 */
export async function showUsers(
  { caller, query, body }: PortalCall<Values<typeof newUser> | null, ListQuery>,
  { database }: PortalService,
  message = '',
) {
  if (!may(caller, 'list every user')) return forbidden(caller);
  const search = body?.username ?? query.search ?? '';
  const range = rangeOf(query);
  const { rows, total } = await searchUsers(database, search, range);
  const items = rows.map((user) => render('user-row', shownOf(user)));
  const rejected = message === '' ? null : body;
  const main = render('users', {
    search,
    pages: pager(`/account/users?search=${encodeURIComponent(search)}&page=`, range.page, total),
    rows: items.length > 0 ? items : render('no-user'),
    username: rejected?.username ?? '',
    email: rejected?.email ?? '',
    ...errorContext(message),
  });
  return page('Users', main);
}

const shownOf = ({ id, username, email, enabled, super_admin: isAdmin }: User) => ({
  id,
  username,
  email,
  state: `${enabled ? 'enabled' : 'disabled'}${isAdmin ? ', super administrator' : ''}`,
});

/** A user must change a password that an administrator sets, like a generated one (ASVS 6.4.1). */
const firstPasswords = (service: PortalService) => ({ ...service, areGenerated: true });

export const createUser = form(
  recentUserForm,
  newUser,
  async (call, service) => {
    const names = { first_name: '', last_name: '' };
    const body = { ...call.body, ...names, verified: false, super_admin: false, enabled: true };
    const created = await users.create({ ...call, body }, firstPasswords(service));
    return created instanceof Failure ? created : showUsers(call, service);
  },
  showUsers,
);

type UserCall<Body = unknown> = PortalCall<Body, unknown, { readonly user_id: string }>;

export async function showUser(
  { caller, path: { user_id: id } }: UserCall,
  { database }: PortalService,
  message = '',
) {
  if (!may(caller, 'list every user')) return forbidden(caller);
  const user = await findUser(database, id);
  if (!user) return new Failure('not_found');
  const [totp, passkeys] = await Promise.all([findTotp(database, id), listPasskeys(database, id)]);
  const factors = [...(totp ? ['authenticator app'] : []), ...passkeys.map(() => 'passkey')];
  const main = render('user', {
    ...shownOf(user),
    factors: factors.join(', ') || 'none',
    toggle: user.enabled ? 'disable' : 'enable',
    toggle_label: user.enabled ? 'Disable' : 'Enable',
  });
  return page(user.username, main, message);
}

export const changeUser = form(
  recentUserForm,
  {
    action: oneOf('disable', 'enable', 'remove_factors', 'set_password'),
    password: withDefault(password, ''),
  },
  async (call, service) => {
    const changed = await applyChange(call, service);
    return changed instanceof Failure ? changed : showUser(call, service);
  },
  showUser,
);

async function applyChange(
  call: UserCall<{ action: string; password: string }>,
  service: PortalService,
) {
  const { action } = call.body;
  if (action === 'set_password') return users.setPasswordOf(call, firstPasswords(service));
  if (action === 'remove_factors') return removeAllFactors(call, service);
  return users.change({ ...call, body: { enabled: action === 'enable' } }, service);
}

async function removeAllFactors({ caller, path, request }: UserCall, service: PortalService) {
  if (!may(caller, 'remove factors of a user')) return forbidden(caller);
  const id = path.user_id;
  const removed = await removeFactors(service.database, actorOf(caller, request), id, 'all');
  if (removed > 0) service.reportFactor('all', 'removed', id);
  return removed;
}

/** The audit trail, newest first. */
export async function showAudit(
  { caller, query }: PageInput<ListQuery>,
  { database }: PortalService,
) {
  if (!may(caller, 'read the audit trail')) return forbidden(caller);
  const range = rangeOf(query);
  const found = await listAudit(database, range, null, null);
  const ids = found.rows.flatMap(({ actor_id, user_id }) => [actor_id, user_id]);
  const names = await findUsernames(database, ids);
  const who = (id: string | null, nobody: string, via = '') =>
    id === null ? nobody : render('audit-user', { name: names.get(id) ?? 'deleted user', via, id });
  const rows = found.rows.map(({ created_at, event, via, actor_id, user_id, ip, detail }) =>
    render('audit-row', {
      time: utc(created_at),
      event,
      by: who(actor_id, `nobody (${via})`, ` (${via})`),
      user: who(user_id, '–'),
      ip: ip ?? '–',
      detail,
    }),
  );
  const pages = pager('/account/audit?page=', range.page, found.total);
  return page('Audit trail', render('audit', { rows, pages }));
}
