import { Failure } from '../../platform/http/route/errors.ts';
import {
  type Members,
  oneOf,
  optional,
  uuid,
  type Values,
  withDefault,
} from '../../platform/http/route/schema.ts';
import { createRecoveryCodes } from '../factors/codes.ts';
import * as keys from '../keys.ts';
import { addressOf, stateOf, userFilter, usersCsv } from '../lists.ts';
import { forbidden, invalid, may, refusalOf, unknown } from '../policy.ts';
import { choice, groupList, nameSchemas, newNameSchemas } from '../rules.ts';
import type { PortalService } from '../service.ts';
import { secure } from '../secure.ts';
import { revokeAllOfUser, revokeById } from '../sessions.ts';
import { actorOf } from '../store/audit.ts';
import { listKeys } from '../store/keys.ts';
import { listSessions } from '../store/sessions.ts';
import { removeFactors } from '../store/signin/factors.ts';
import { findListedUser, type ListedUser, listUsers, USER_ORDERS } from '../store/lists.ts';
import { findUser } from '../store/users.ts';
import * as users from '../users.ts';
import { FIRST_PAGE, keyItems, listQuery, sessionItems } from './account.ts';
import { type PortalCall, recentUserForm, type SignedInUser } from './browser.ts';
import { form, password } from './forms.ts';
import * as links from './links.ts';
import { accountPage, CSV_ROWS, isCsv, listValues, page, when } from './pages.ts';
import { changeForm } from './rows.ts';
import { formValues, render, renderIf } from './templates.ts';

const PATH = '/account/users';

export const usersQuery = {
  ...listQuery,
  ...userFilter,
  sort: withDefault(oneOf(...USER_ORDERS), 'username'),
};
type UsersQuery = Values<typeof usersQuery>;

/** An administrator may choose one; otherwise it has 120 random bits and can be read aloud. */
const firstPassword = { password: withDefault(password, '') };
const passwordOf = (chosen: string) => chosen || (createRecoveryCodes()[0] ?? '');

const NEW_USER_FIELDS = {
  ...newNameSchemas,
  groups: withDefault(groupList, [], ''),
  /** Programs refuse users without it, whose address nobody but an administrator has entered. */
  verified: withDefault(choice, true, 'true'),
  role: withDefault(oneOf('user', 'administrator'), 'user'),
  first: withDefault(oneOf('link', 'password'), 'password'),
  ...firstPassword,
};

/**
 * For administrators, also as CSV. The guard does not check this, so that the log has the ids of a
 * caller who is refused.
 */
export async function showUsers(
  call: PortalCall<Partial<UsersQuery>>,
  { database, portal }: PortalService,
) {
  const { caller, request } = call;
  if (!may(caller, 'list every user')) return forbidden(caller);
  const query = { ...FIRST_PAGE, sort: 'username', ...call.query };
  const range = isCsv(request) ? CSV_ROWS : query;
  const { rows, total } = await listUsers(database, range, query, query.sort);
  if (isCsv(request)) return usersCsv(rows);
  return accountPage(call, 'Users', 'users', {
    ...formValues('new', NEW_USER_FIELDS, call),
    ...listValues(PATH, usersQuery, query, total),
    ...sortValues(query),
    hours: links.hoursOf(portal),
    rows:
      total > 0 ? rows.map((user) => render('user-row', shownOf(user, caller))) : render('no-user'),
  });
}

/** By the last part of their addresses. Names go up first, and times down. */
const SORTS = ['username', 'email', '-created'];

/** For the head of a column: where it leads, and whether the list is sorted by it. */
function sortValues(query: Readonly<{ sort: string }>) {
  const values = SORTS.map((first) => {
    const name = first.replace('-', '');
    const second = first === name ? `-${name}` : name;
    const sort = query.sort === first ? second : first;
    const direction = query.sort === name ? 'ascending' : 'descending';
    return [
      [`sort.${name}`, addressOf(PATH, { ...query, page: 1, sort })],
      [`sort.${name}.state`, renderIf(query.sort.replace('-', '') === name, direction)],
    ];
  });
  return Object.fromEntries(values.flat());
}

const shownOf = (user: ListedUser, caller: SignedInUser) => ({
  id: user.id,
  username: user.username,
  email: user.email,
  first_name: user.first_name,
  last_name: user.last_name,
  you: renderIf(user.id === caller.user.id, 'you'),
  groups: user.groups.map((name) => render('group', { name })),
  created: when(user.created_at),
  last_sign_in: when(user.last_sign_in_at),
  state: render(`state-${stateOf(user)}`, {
    link: user.link_ends_at
      ? render('link-open', { time: when(user.link_ends_at) })
      : render('link-none'),
  }),
  role: render(`administrator-${user.super_admin}`),
  factor: render(`factor-${user.second_factor}`),
});

/** A user must change a password that an administrator sets, like a generated one (ASVS 6.4.1). */
const firstPasswords = (service: PortalService) => ({ ...service, areGenerated: true });

/** Shown once: only its digest is stored. @param note of what else has happened */
const shownLink = (link: string, user: Named, { portal }: PortalService, note = '') =>
  render('user-link', { link, hours: links.hoursOf(portal), ...user, note });
type Named = Readonly<{ id: string; username: string }>;

export const createUser = form(
  recentUserForm,
  NEW_USER_FIELDS,
  async (call, service) => {
    const { role, first, password: chosen, ...given } = call.body;
    const invitation = first === 'link' ? links.createLink(service.portal) : null;
    if (invitation && chosen !== '') return invalid('/password', WITHOUT_PASSWORD);
    const password = passwordOf(chosen);
    const body = {
      ...given,
      super_admin: role === 'administrator',
      enabled: true,
      password: invitation ? undefined : password,
    };
    const created = await users.create(
      { ...call, body },
      firstPasswords(service),
      invitation?.insert,
    );
    if (created instanceof Failure) return created;
    const { id, username } = created.data;
    if (invitation) {
      return page(
        'The user is invited',
        shownLink(invitation.link, { id, username }, service),
        call,
      );
    }
    return accountPage(call, 'The user is created', 'first-password', { password, id, username });
  },
  showUsers,
);

const WITHOUT_PASSWORD = 'must be empty: with an invitation link, the user chooses the password';

type OfUser = Readonly<{ user_id: string }>;

const EDIT_FIELDS = {
  ...nameSchemas,
  groups: optional(groupList),
  verified: optional(choice),
};
const LINK_FIELDS = { factors: optional(oneOf('remove')) };

export async function showUser(call: PortalCall<unknown, OfUser>, service: PortalService) {
  const { caller } = call;
  const { user_id: id } = call.path;
  if (!may(caller, 'list every user')) return forbidden(caller);
  const { database } = service;
  const user = await findListedUser(database, id);
  if (!user) return unknown('user');
  const [sessions, ownKeys] = await Promise.all([
    listSessions(service, FIRST_PAGE, id, true),
    listKeys(database, FIRST_PAGE, id),
  ]);
  const { username } = user;
  const stored = { ...user, groups: user.groups.join(', ') };
  const isOwn = caller.user.id === id;
  return accountPage(call, username, 'user', {
    ...shownOf(user, caller),
    ...formValues('edit', EDIT_FIELDS, call, stored),
    ...formValues('link', LINK_FIELDS, call),
    ...formValues('password', firstPassword, call),
    length: service.passwords.minLength,
    hours: links.hoursOf(service.portal),
    // Nobody sets their own password without the current one.
    own: renderIf(isOwn, 'hidden'),
    no_factor: renderIf(!user.second_factor, 'hidden'),
    query: encodeURIComponent(username),
    sessions: sessionItems(sessions.rows, `${PATH}/${id}/end_session`, caller.session.id),
    session_count: sessions.total,
    keys: keyItems(ownKeys, `${PATH}/${id}/revoke_key`),
    actions: [
      user.enabled ? 'user-disable' : 'user-enable',
      user.super_admin ? 'user-demote' : 'user-promote',
      ...(isOwn ? [] : ['user-secure']),
      ...(user.second_factor ? ['user-remove-factors'] : []),
      'user-delete',
    ].map((action) => render(action, { id, username })),
  });
}

const change = <M extends Members>(
  fields: M,
  notice: string,
  apply: (call: PortalCall<unknown, OfUser, Values<M>>, service: PortalService) => Promise<unknown>,
) => changeForm(recentUserForm, fields, notice, apply, showUser);

/** The user of the page, who may have been deleted since. */
async function named(
  { path: { user_id: id } }: PortalCall<unknown, OfUser>,
  { database }: PortalService,
) {
  const user = await findUser(database, id);
  return { id, username: user?.username ?? '' };
}

const set = (body: Readonly<{ enabled?: boolean; super_admin?: boolean }>, notice: string) =>
  change({}, notice, (call, service) => users.change({ ...call, body }, service));

/** By the last part of their addresses. */
export const CHANGES = {
  edit: change(EDIT_FIELDS, 'The user is changed.', users.change),
  enable: set({ enabled: true }, 'The user is enabled and may sign in.'),
  disable: set({ enabled: false }, 'The user is disabled. All sessions of the user have ended.'),
  promote: set({ super_admin: true }, 'The user is a super administrator, and signed out.'),
  demote: set({ super_admin: false }, 'The user is not a super administrator any more.'),
  delete: change(
    {},
    'The user is deleted. All sessions and keys of the user have ended.',
    users.remove,
  ),
  remove_factors: change(
    {},
    'All second factors are removed.',
    async ({ caller, path: { user_id: id }, request }, service) => {
      const refused = refusalOf(caller, 'remove factors of a user');
      if (refused) return refused;
      const removed = await removeFactors(service.database, actorOf(caller, request), id, 'all');
      if (removed === null) return new Failure('not_found');
      if (removed > 0) service.reportFactor('all', 'removed', id);
      return removed;
    },
  ),
  end_session: change({ session_id: uuid() }, 'The session has ended.', (call, service) =>
    revokeById({ ...call, path: call.body }, service),
  ),
  end_sessions: change({}, 'All sessions of the user have ended.', (call, service) =>
    revokeAllOfUser({ ...call, query: { user: call.path.user_id } }, service),
  ),
  revoke_key: change({ key_id: uuid() }, 'The key is revoked.', (call, service) =>
    keys.revoke({ ...call, path: call.body, query: {} }, service),
  ),
  link: change(LINK_FIELDS, 'The link is made', async (call, service) => {
    const remove_factors = call.body.factors === 'remove';
    const made = await links.make({ ...call, body: { remove_factors } }, service);
    if (made instanceof Failure) return made;
    const note = remove_factors ? 'The link also removes the second factors.' : '';
    return shownLink(made.data.link, await named(call, service), service, note);
  }),
  secure: change({}, 'The account is secured', async (call, service) => {
    const secured = await secure(call, service, links.createLink(service.portal));
    if (secured instanceof Failure || !secured.data.link) return secured;
    const { link, message } = secured.data;
    return shownLink(link, await named(call, service), service, message);
  }),
  password: change(firstPassword, 'The password is set', async (call, service) => {
    const password = passwordOf(call.body.password);
    const own = { ...call, body: { password } };
    const changed = await users.setPasswordOf(own, firstPasswords(service));
    if (changed instanceof Failure) return changed;
    return render('first-password', { password, ...(await named(call, service)) });
  }),
};
