import { Failure } from '../../http/errors.ts';
import { oneOf, optional, uuid, withDefault } from '../../http/shape.ts';
import { NOTHING } from '../../http/template.ts';
import { actorOf } from '../audit.ts';
import { findTotp, listPasskeys, readClock, removeFactors } from '../factors/store.ts';
import { create, revoke } from '../keys.ts';
import { changePassword } from '../login.ts';
import { isUsable, type User } from '../model.ts';
import { forbidden, may } from '../policy.ts';
import { nameShapes } from '../rules.ts';
import type { PortalService } from '../service.ts';
import { revokeById } from '../sessions.ts';
import { listAudit } from '../store/audit.ts';
import { listKeys } from '../store/keys.ts';
import { listSessions } from '../store/sessions.ts';
import { findUser } from '../store/users.ts';
import * as users from '../users.ts';
import { createTokens, setCookies } from './browser.ts';
import type { Person, Visit } from './guards.ts';
import {
  again,
  continuePage,
  formOf,
  label,
  page,
  PAGE_ROWS,
  pager,
  password,
  render,
  utc,
} from './pages.ts';
import { createCookies } from './portal.ts';
import { endOtherSessions, findEarlierSignIn, findUsernames, searchUsers } from './store.ts';

export async function showAccount(
  { caller: { user, session } }: Visit,
  service: PortalService,
  message = '',
) {
  const first = { page: 1, limit: PAGE_ROWS };
  const [{ rows: sessions, total }, { rows: events }, since] = await Promise.all([
    listSessions(service, first, { userId: user.id, active: true }),
    listAudit(service.database, first, { userId: user.id, event: null }),
    findEarlierSignIn(service.database, user.id, session.id),
  ]);
  return page(
    'Your account',
    render('account', {
      ...again(message),
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
          // Later than the user's previous sign-in.
          is_new: since !== null && time > since ? render('new') : NOTHING,
          what: [event.replace(/[._]/g, ' '), detail].filter(Boolean).join(': '),
          when: `${utc(time)}, from ${ip ?? 'the command line'}`,
        }),
      ),
    }),
  );
}

const BROWSERS = ['Edg', 'OPR', 'Firefox', 'Chrome', 'Safari'];
const SYSTEMS = ['Android', 'iPhone', 'iPad', 'Windows', 'Mac OS X', 'Linux'];

/** Names that a person recognizes: a browser and its system, or otherwise the name that the program sends. */
function programOf(agent: string): string {
  const browser = BROWSERS.find((name) => agent.includes(`${name}/`));
  const system = SYSTEMS.find((name) => agent.includes(name));
  if (!browser || !system) return agent || 'Unknown program';
  return `${{ Edg: 'Edge', OPR: 'Opera' }[browser] ?? browser} on ${system}`;
}

const passwords = { current_password: password, new_password: password };

export const changeOwnPassword = formOf<Person>()(
  passwords,
  async (call, service) => {
    const { session } = call.caller;
    const changed = await changePassword(call, service);
    if (changed instanceof Failure) return changed;
    // This is not a new sign-in, because the second factor was not requested.
    const cookies = await createCookies(service, changed.data.session, session.methods, session.at);
    return continuePage('Your password is changed', `${service.portal.origin}/account`, cookies);
  },
  showAccount,
);

/** Ends one of the user's sessions, or all others. */
export const endSessions = formOf<Person>()(
  { session_id: optional(uuid()) },
  async (call, service) => {
    const {
      caller,
      body: { session_id: id },
      request,
    } = call;
    const { database, portal } = service;
    const [address, tokens] = [`${portal.origin}/account`, createTokens()];
    if (id === undefined) {
      await endOtherSessions(
        database,
        actorOf(caller, request),
        caller.user.id,
        caller.session.id,
        tokens,
      );
      return continuePage('All other sessions have ended', address, setCookies(tokens, portal));
    }
    const ended = await revokeById({ ...call, path: { session_id: id }, body: null }, service);
    return ended instanceof Failure ? ended : continuePage('The session has ended', address, []);
  },
);

type Paged<More = unknown> = Visit<unknown, Readonly<{ page: number }> & More>;

/** The user's API keys. The forms below call the handlers of the API, which check permissions. */
export async function showKeys(
  { caller, query }: Paged,
  { database }: PortalService,
  message = '',
) {
  const { rows, total } = await listKeys(database, { ...query, limit: PAGE_ROWS }, caller.user.id);
  const keys = rows.map((key) => {
    const used = key.last_used_at ? `last used ${utc(key.last_used_at)}` : 'never used';
    const end = key.expires_at ? `expires ${utc(key.expires_at)}` : 'never expires';
    const state = render('key-ended', { state: key.revoked ? 'Revoked' : 'Expired' });
    return render('key', {
      name: key.name || 'Without a name',
      prefix: key.key_prefix,
      about: `created ${utc(key.created_at)} by ${key.created_by_username ?? 'the command line'}, ${used}, ${end}`,
      end: isUsable(key) ? render('key-revoke', { id: key.id }) : state,
    });
  });
  if (keys.length === 0) keys.push(render('no-key'));
  return page(
    'API keys',
    render('keys', { keys, pages: pager('/account/keys?page=', query.page, total) }),
    message,
  );
}

const showFirstKeys = (call: Visit, service: PortalService, message = '') =>
  showKeys({ ...call, query: { page: 1 } }, service, message);
const newKey = { name: label, days: oneOf('30', '90', '365', 'never') };

export const createKey = formOf<Person>()(
  newKey,
  async (call, service) => {
    const { name, days } = call.body;
    const seconds = (await readClock(service.database)) + Number(days) * 86_400;
    const wanted = {
      name,
      user_id: undefined,
      expires_at: days === 'never' ? null : new Date(seconds * 1000),
    };
    const created = await create({ ...call, body: wanted }, service);
    return created instanceof Failure
      ? created
      : page('Your new API key', render('new-key', { key: created.data.key }));
  },
  showFirstKeys,
);

export const revokeKey = formOf<Person>()({ key_id: uuid() }, async (call, service) => {
  const revoked = await revoke({ ...call, path: call.body, body: null }, service);
  return revoked instanceof Failure ? revoked : showFirstKeys(call, service);
});

/** For administrators. The guard does not check this, so that the log has the ids of a caller who is refused. */
export async function showUsers(
  { caller, query: { page: number, search } }: Paged<{ search: string }>,
  { database }: PortalService,
  form = { username: '', email: '', ...again('') },
) {
  if (!may(caller, 'list every user')) return forbidden(caller);
  const { rows, total } = await searchUsers(database, search, { page: number, limit: PAGE_ROWS });
  const pages = pager(`/account/users?search=${encodeURIComponent(search)}&page=`, number, total);
  const list = rows.map((user) => render('user-row', shown(user)));
  return page(
    'Users',
    render('users', { search, pages, rows: list.length > 0 ? list : render('no-user'), ...form }),
  );
}

const shown = ({ id, username, email, enabled, super_admin: isAdmin }: User) => ({
  id,
  username,
  email,
  state: `${enabled ? 'enabled' : 'disabled'}${isAdmin ? ', super administrator' : ''}`,
});

/** A user must change a password that an administrator sets, like a generated one (ASVS 6.4.1). */
const firstPasswords = (service: PortalService) => ({ ...service, areGenerated: true });

const { username, email } = nameShapes;

const named = (call: Visit<{ username: string }>) => ({
  ...call,
  query: { page: 1, search: call.body.username },
});

export const createUser = formOf<Person>()(
  { username, email, password },
  async (call, service) => {
    const user = {
      ...call.body,
      first_name: '',
      last_name: '',
      verified: false,
      super_admin: false,
      enabled: true,
    };
    const created = await users.create({ ...call, body: user }, firstPasswords(service));
    return created instanceof Failure ? created : showUsers(named(call), service);
  },
  (call, service, message) => {
    const { username, email } = call.body;
    return showUsers(named(call), service, { username, email, ...again(message) });
  },
);

type OfUser = Visit<unknown, unknown, { readonly user_id: string }>;

export async function showUser(
  { caller, path: { user_id: id } }: OfUser,
  { database }: PortalService,
  message = '',
) {
  if (!may(caller, 'list every user')) return forbidden(caller);
  const user = await findUser(database, id);
  if (!user) return new Failure('not_found');
  const [totp, passkeys] = await Promise.all([findTotp(database, id), listPasskeys(database, id)]);
  const factors = [...(totp ? ['authenticator app'] : []), ...passkeys.map(() => 'passkey')];
  return page(
    user.username,
    render('user', {
      ...shown(user),
      factors: factors.join(', ') || 'none',
      toggle: user.enabled ? 'disable' : 'enable',
      toggle_label: user.enabled ? 'Disable' : 'Enable',
    }),
    message,
  );
}

const action = oneOf('disable', 'enable', 'remove_factors', 'set_password');
const change = { action, password: withDefault(password, '') };

export const changeUser = formOf<Person, OfUser['path']>()(
  change,
  async (call, service) => {
    const { action, password } = call.body;
    const changed =
      action === 'remove_factors'
        ? await removeAll(call, service)
        : action === 'set_password'
          ? await users.setPasswordOf({ ...call, body: { password } }, firstPasswords(service))
          : await users.change({ ...call, body: { enabled: action === 'enable' } }, service);
    return changed instanceof Failure ? changed : showUser(call, service);
  },
  showUser,
);

async function removeAll({ caller, request, path }: OfUser, service: PortalService) {
  if (!may(caller, 'remove factors of a user')) return forbidden(caller);
  const removed = await removeFactors(
    service.database,
    actorOf(caller, request),
    path.user_id,
    'all',
  );
  if (removed > 0) service.reportFactor('all', 'removed', path.user_id);
  return null;
}

/** The audit trail, newest first. */
export async function showAudit({ caller, query }: Paged, { database }: PortalService) {
  if (!may(caller, 'read the audit trail')) return forbidden(caller);
  const all = { userId: null, event: null };
  const { rows: records, total } = await listAudit(database, { ...query, limit: PAGE_ROWS }, all);
  const names = await findUsernames(
    database,
    records.flatMap(({ actor_id, user_id }) => [actor_id, user_id]),
  );
  const who = (id: string | null, nobody: string, via = '') =>
    id === null ? nobody : render('audit-user', { name: names.get(id) ?? 'deleted user', via, id });
  const rows = records.map(({ created_at, event, via, actor_id, user_id, ip, detail }) =>
    render('audit-row', {
      time: utc(created_at),
      event,
      by: who(actor_id, `nobody (${via})`, ` (${via})`),
      user: who(user_id, '–'),
      ip: ip ?? '–',
      detail,
    }),
  );
  return page(
    'Audit trail',
    render('audit', { rows, pages: pager('/account/audit?page=', query.page, total) }),
  );
}
