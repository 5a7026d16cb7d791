import { Failure } from '../../platform/http/route/errors.ts';
import {
  type Members,
  oneOf,
  optional,
  text,
  uuid,
  type Values,
  withDefault,
  withoutNul,
} from '../../platform/http/route/schema.ts';
import { Html, NOTHING } from '../../platform/http/site/html.ts';
import { createRecoveryCodes } from '../factors/codes.ts';
import * as keys from '../keys.ts';
import { forbidden, invalid, may, refusalOf } from '../policy.ts';
import { groupList, nameSchemas, newNameSchemas } from '../rules.ts';
import type { PortalService } from '../service.ts';
import { secure } from '../secure.ts';
import { revokeAllOfUser, revokeById } from '../sessions.ts';
import { actorOf } from '../store/audit.ts';
import { listKeys } from '../store/keys.ts';
import { listSessions } from '../store/sessions.ts';
import { removeFactors } from '../store/signin/factors.ts';
import { type ListedUser, searchUsers } from '../store/lists.ts';
import { findUser } from '../store/users.ts';
import * as users from '../users.ts';
import { keyItems, pageQuery, rangeOf, sessionItems } from './account.ts';
import { type PortalCall, recentUserForm, type SignedInUser } from './browser.ts';
import { form, password } from './forms.ts';
import * as links from './links.ts';
import { accountPage, done, page, pager, when } from './pages.ts';
import { formValues, render, renderIf } from './templates.ts';

const PATH = '/account/users';

/** Empty for all. */
export const anyName = withDefault(text({ max: 255, pattern: withoutNul }), '');
export const usersQuery = { ...pageQuery, search: anyName };

/** An administrator may choose one; otherwise it has 120 random bits and can be read aloud. */
const firstPassword = { password: withDefault(password, '') };
const passwordOf = (chosen: string) => chosen || (createRecoveryCodes()[0] ?? '');

const NEW_USER_FIELDS = {
  ...newNameSchemas,
  groups: withDefault(groupList, [], ''),
  role: withDefault(oneOf('user', 'administrator'), 'user'),
  first: withDefault(oneOf('link', 'password'), 'password'),
  ...firstPassword,
};

/**
 * For administrators. The guard does not check this, so that the log has the ids of a caller who is
 * refused.
 */
export async function showUsers(
  call: PortalCall<Partial<Values<typeof usersQuery>>>,
  { database, portal }: PortalService,
) {
  if (!may(call.caller, 'list every user')) return forbidden(call.caller);
  const { search = '' } = call.query;
  const range = rangeOf(call.query);
  const { rows, total } = await searchUsers(database, search, range);
  return accountPage(call, 'Users', 'users', {
    ...formValues('new', NEW_USER_FIELDS, call),
    search,
    total,
    hours: links.hoursOf(portal),
    pages: pager(`${PATH}?search=${encodeURIComponent(search)}&page=`, range.page, total),
    rows: total > 0 ? rows.map(userRow) : render('no-user'),
  });
}

const userRow = (user: ListedUser) =>
  render('user-row', { ...shownOf(user), last_sign_in: when(user.last_sign_in_at) });

type Shown = Omit<ListedUser, 'last_sign_in_at'>;
const shownOf = ({ id, username, email, first_name, last_name, groups, ...user }: Shown) => ({
  id,
  username,
  email,
  first_name,
  last_name,
  groups: groups.map((name) => render('group', { name })),
  created: when(user.created_at),
  state: render(`enabled-${user.enabled}`),
  role: render(`administrator-${user.super_admin}`),
  factor: render(`factor-${user.second_factor}`),
});

/** A user must change a password that an administrator sets, like a generated one (ASVS 6.4.1). */
const firstPasswords = (service: PortalService) => ({ ...service, areGenerated: true });

/** Shown once: only its digest is stored. */
const shownLink = (link: string, id: string, { portal }: PortalService, note = NOTHING) =>
  render('user-link', { link, hours: links.hoursOf(portal), id, note });

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
      verified: false,
      enabled: true,
      password: invitation ? undefined : password,
    };
    const created = await users.create(
      { ...call, body },
      firstPasswords(service),
      invitation?.insert,
    );
    if (created instanceof Failure) return created;
    const { id } = created.data;
    if (invitation) return page('The user is invited', shownLink(invitation.link, id, service));
    return page('The user is created', render('first-password', { password, id }));
  },
  showUsers,
);

const WITHOUT_PASSWORD = 'must be empty: with an invitation link, the user chooses the password';

type OfUser = Readonly<{ user_id: string }>;

const EDIT_FIELDS = { ...nameSchemas, groups: optional(groupList) };
const LINK_FIELDS = { factors: optional(oneOf('remove')) };

export async function showUser(call: PortalCall<unknown, OfUser>, service: PortalService) {
  const { caller } = call;
  const { user_id: id } = call.path;
  if (!may(caller, 'list every user')) return forbidden(caller);
  const { database } = service;
  const user = await findUser(database, id);
  if (!user) return new Failure('not_found');
  const [sessions, ownKeys] = await Promise.all([
    listSessions(service, rangeOf(), id, true),
    listKeys(database, rangeOf(), id),
  ]);
  const { username } = user;
  const stored = { ...user, groups: user.groups.join(', ') };
  const isOwn = caller.user?.id === id;
  return accountPage(call, username, 'user', {
    ...shownOf(user),
    ...formValues('edit', EDIT_FIELDS, call, stored),
    ...formValues('link', LINK_FIELDS, call),
    ...formValues('password', firstPassword, call),
    length: service.passwords.minLength,
    hours: links.hoursOf(service.portal),
    // Nobody sets their own password without the current one.
    own: renderIf(isOwn, 'hidden'),
    no_factor: renderIf(!user.second_factor, 'hidden'),
    query: encodeURIComponent(username),
    sessions: sessionItems(sessions.rows, `${PATH}/${id}/end_session`),
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

/**
 * A form of the page of a user.
 * @param notice says what was done
 * @param apply may return what is shown once, because only its digest or hash is stored
 */
const change = <M extends Members>(
  fields: M,
  notice: string,
  apply: (call: PortalCall<unknown, OfUser, Values<M>>, service: PortalService) => Promise<unknown>,
) =>
  form<SignedInUser, OfUser, M>(
    recentUserForm,
    fields,
    async (call, service) => {
      const changed = await apply(call, service);
      if (changed instanceof Failure) return changed;
      if (changed instanceof Html) return page(notice, changed);
      return done(notice === DELETED ? PATH : `${PATH}/${call.path.user_id}`, notice);
    },
    showUser,
  );

const DELETED = 'The user is deleted. All sessions and keys of the user have ended.';
const set = (body: Readonly<{ enabled?: boolean; super_admin?: boolean }>, notice: string) =>
  change({}, notice, (call, service) => users.change({ ...call, body }, service));

/** By the last part of their addresses. */
export const CHANGES = {
  edit: change(EDIT_FIELDS, 'The user is changed.', users.change),
  enable: set({ enabled: true }, 'The user is enabled and may sign in.'),
  disable: set({ enabled: false }, 'The user is disabled. All sessions of the user have ended.'),
  promote: set({ super_admin: true }, 'The user is a super administrator, and signed out.'),
  demote: set({ super_admin: false }, 'The user is not a super administrator any more.'),
  delete: change({}, DELETED, users.remove),
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
    keys.revoke({ ...call, path: call.body }, service),
  ),
  link: change(LINK_FIELDS, 'The link is made', async (call, service) => {
    const remove_factors = call.body.factors === 'remove';
    const made = await links.make({ ...call, body: { remove_factors } }, service);
    if (made instanceof Failure) return made;
    const note = renderIf(remove_factors, 'link-removes');
    return shownLink(made.data.link, call.path.user_id, service, note);
  }),
  secure: change({}, 'The account is secured', async (call, service) => {
    const secured = await secure(call, service, links.createLink(service.portal));
    if (secured instanceof Failure || !secured.data.link) return secured;
    const note = render('note', { message: secured.data.message });
    return shownLink(secured.data.link, call.path.user_id, service, note);
  }),
  password: change(firstPassword, 'The password is set', async (call, service) => {
    const password = passwordOf(call.body.password);
    const own = { ...call, body: { password } };
    const changed = await users.setPasswordOf(own, firstPasswords(service));
    if (changed instanceof Failure) return changed;
    return render('first-password', { password, id: call.path.user_id });
  }),
};
