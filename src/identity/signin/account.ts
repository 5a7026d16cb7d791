import { randomToken } from '../../platform/crypto/token.ts';
import type { Call } from '../../platform/http/route/route.ts';
import { Failure } from '../../platform/http/route/errors.ts';
import {
  decimal,
  type Members,
  oneOf,
  optional,
  uuid,
  type Values,
  withDefault,
} from '../../platform/http/route/schema.ts';
import { DAY_SECONDS } from '../../platform/runtime/duration.ts';
import { readClock } from '../store/signin/factors.ts';
import * as keys from '../keys.ts';
import { limit } from '../lists.ts';
import { changePassword } from '../login.ts';
import * as own from '../own-account.ts';
import { type ApiKey, KEY_RIGHTS, type Session } from '../model.ts';
import { nameSchemas } from '../rules.ts';
import type { PortalService } from '../service.ts';
import { revokeById } from '../sessions.ts';
import { actorOf } from '../store/audit.ts';
import { type ListedAudit, listAudit } from '../store/lists.ts';
import { type KeyInput, listKeys } from '../store/keys.ts';
import type { PageOf } from '../store/rows.ts';
import { findEarlierSignIn, listSessions } from '../store/sessions.ts';
import { endOtherSessions } from '../store/signin/sign-ins.ts';
import * as users from '../users.ts';
import {
  createCookies,
  endCurrentSession,
  type PortalCall,
  portalForm,
  recentUserForm,
  setCookies,
  signedInUserOf,
  userForm,
} from './browser.ts';
import { form, label, password, passwordAgain } from './forms.ts';
import { accountPage, done, page, pager, programOf, when } from './pages.ts';
import { changeForm } from './rows.ts';
import { formValues, type PageCall, render, renderIf } from './templates.ts';

const PATH = '/account';

const { first_name, last_name } = nameSchemas;
const NAME_FIELDS = { first_name, last_name };
const PASSWORD_FIELDS = {
  current_password: password,
  new_password: password,
  repeated: passwordAgain,
};

/** Next to the password that the change of it asks for. */
const DELETE_FIELDS = { password };

/** How many events are shown. */
export const accountQuery = { events: withDefault(limit, 10) };

/** Events that leave nothing behind. */
const UNDONE = /failed|pending|throttled|logged_out/;

export async function showAccount(
  call: PortalCall<Partial<Values<typeof accountQuery>>>,
  service: PortalService,
) {
  const { user, session } = call.caller;
  const { username, email, first_name, last_name } = user;
  const range = { page: 1, limit: call.query.events ?? 10 };
  const [{ rows: sessions, total }, listed, earlier] = await Promise.all([
    listSessions(service, FIRST_PAGE, user.id, true),
    listAudit(service.database, range, { user: user.id }),
    findEarlierSignIn(service.database, session),
  ]);
  const own = sessions.find(({ id }) => id === session.id)?.ip;
  // What a thief may have done between two sign-ins of the user. From the same address, what did
  // not succeed was the user.
  const isNew = ({ created_at: time, ip, event }: ListedAudit) => {
    const isOwn = event === 'login.succeeded' || (ip === own && UNDONE.test(event));
    return !isOwn && earlier !== null && time > earlier && time < session.at;
  };
  return accountPage(call, 'Your account', 'account', {
    username,
    email,
    first_name,
    last_name,
    ...formValues('name', NAME_FIELDS, call, user),
    ...formValues('password', PASSWORD_FIELDS, call),
    delete: renderIf(
      service.selfDeletion,
      'delete-account',
      formValues('delete', DELETE_FIELDS, call),
    ),
    length: service.passwords.minLength,
    sessions: sessionItems(sessions, `${PATH}/sessions/end`, session.id),
    shown: sessions.length,
    total,
    more: renderIf(listed.total > range.limit && range.limit < 100, 'more-events'),
    events: listed.rows.map((entry) =>
      render('event', {
        is_new: renderIf(isNew(entry), 'new'),
        what: render(entry.event),
        detail: entry.detail,
        time: when(entry.created_at),
        ip: entry.ip ?? 'the command line',
      }),
    ),
  });
}

/** For links of other pages to it. The navigation has the button. */
export async function askSignOut(call: Call<null, unknown, unknown, null>, service: PortalService) {
  const caller = await signedInUserOf(call.request, service);
  if (!(caller instanceof Failure)) {
    const { username } = caller.user;
    return accountPage({ ...call, caller }, 'Sign out', 'sign-out', { username });
  }
  // The cookie was not checked: its session may be active.
  if (caller.code === 'too_many_requests') return caller;
  return page('You are signed out', render('signed-out'));
}

/** Idempotent: the cookies are removed in any case. */
export const signOut = form(portalForm, {}, async ({ request }, service) => {
  await endCurrentSession(request, service);
  const cookies = setCookies({ host: '', domain: '' }, service.portal);
  return done('/login', 'You are signed out.', cookies);
});

/** @param action where the form of each goes that ends it */
export const sessionItems = (sessions: readonly Session[], action: string, current = '') =>
  sessions.map(({ id, ip, user_agent: agent, created_at, last_seen_at }) =>
    render('session', {
      program: programOf(agent ?? ''),
      ip: ip ?? 'an unknown address',
      created: when(created_at),
      seen: when(last_seen_at),
      end: id === current ? render('current') : render('end', { action, id }),
    }),
  );

export const changeOwnName = changeForm(
  userForm,
  NAME_FIELDS,
  'Your name is changed.',
  (call, service) => users.change({ ...call, path: { user_id: call.caller.user.id } }, service),
  showAccount,
);

export const changeOwnPassword = form(
  userForm,
  PASSWORD_FIELDS,
  async (call, service) => {
    const changed = await changePassword(call, service);
    if (changed instanceof Failure) return changed;
    const cookies = await createCookies(service, call.request, changed.data.session);
    return done(PATH, 'Your password is changed. Your other sessions have ended.', cookies);
  },
  showAccount,
);

export const deleteOneself = form(
  recentUserForm,
  DELETE_FIELDS,
  async (call, service) => {
    const deleted = await own.deleteOneself(call, service);
    if (deleted instanceof Failure) return deleted;
    const cookies = setCookies({ host: '', domain: '' }, service.portal);
    return done('/login', 'Your account is deleted.', cookies);
  },
  showAccount,
);

/** As a file. */
export async function exportOwnData(call: PortalCall, service: PortalService) {
  const exported = await own.exportOwnData(call, service);
  if (exported instanceof Failure) return exported;
  return {
    text: JSON.stringify(exported.data, null, 2),
    contentType: 'application/json; charset=utf-8',
    headers: { 'Content-Disposition': 'attachment; filename="account.json"' },
  };
}

/** Ends one of the user's sessions, or all others, and perhaps the keys. */
export const endSessions = form(
  userForm,
  { session_id: optional(uuid()), keys: optional(oneOf('revoke')) },
  async (call, service) => {
    const { caller, request } = call;
    const { session_id, keys } = call.body;
    if (session_id !== undefined) {
      const ended = await revokeById({ ...call, path: { session_id } }, service);
      return ended instanceof Failure ? ended : done(PATH, 'The session has ended.');
    }
    const token = randomToken();
    const actor = actorOf(caller, request);
    const withKeys = keys === 'revoke';
    await endOtherSessions(service.database, actor, caller.session, token, withKeys);
    const cookies = await createCookies(service, request, token);
    return done(PATH, 'All other sessions have ended.', cookies);
  },
  showAccount,
);

/** The parameters of a list. A form that shows the list again has none. */
export const listQuery = {
  page: withDefault(decimal({ min: 1, max: 1_000_000 }), 1),
  limit: withDefault(limit, 50),
};
export type ListQuery = Values<typeof listQuery>;
export const FIRST_PAGE: ListQuery = { page: 1, limit: 50 };

/** What the forms of all keys have. */
export const NEW_KEY = { name: label, days: oneOf('30', '90', '365', 'never') };
const KEY_FIELDS = {
  ...NEW_KEY,
  rights: withDefault(oneOf('all', ...KEY_RIGHTS), 'all'),
};

/** The form of a new key, which those of users and of programs have in common. */
export function keyForm(fields: Members, call: PageCall) {
  const values = formValues('key', fields, call, { days: '90' });
  return { ...values, fields: render('key-fields', values) };
}

/** The user's API keys. */
export async function showKeys(call: PortalCall<Partial<ListQuery>>, { database }: PortalService) {
  const range = { ...FIRST_PAGE, ...call.query };
  const listed = await listKeys(database, range, call.caller.user.id);
  return accountPage(call, 'API keys', 'keys', {
    keys: keyItems(listed, '/account/keys/revoke'),
    pages: pager('/account/keys', range, listed.total),
    ...keyForm(KEY_FIELDS, call),
  });
}

/**
 * @param action where the form of each goes that revokes it
 * @param form its template
 */
export function keyItems({ rows, total }: PageOf<ApiKey>, action: string, form = 'key-revoke') {
  if (total === 0) return render('no-key');
  return rows.map((key) => {
    // Not a key whose user is disabled: it works again when the user is enabled.
    const hasEnded = key.revoked || key.expired;
    const state = render('key-ended', { state: key.revoked ? 'Revoked' : 'Expired' });
    return render('key', {
      name: key.name || 'Without a name',
      prefix: key.key_prefix,
      rights: keys.rightsText(key),
      created: when(key.created_at),
      creator: key.created_by_username ?? 'the command line',
      used: when(key.last_used_at),
      expires: when(key.expires_at),
      end: hasEnded ? state : render(form, { action, id: key.id, name: key.name }),
    });
  });
}

export const createKey = form(
  recentUserForm,
  KEY_FIELDS,
  (call, service) => {
    const { rights, ...own } = call.body;
    const ofUser = { user_id: call.caller.user.id, groups: [], scopes: [], provision_groups: [] };
    const body = { ...own, ...ofUser, rights: rights === 'all' ? null : [rights] };
    return showNewKey(call, service, body, '/account/keys');
  },
  showKeys,
);

/** @param next the page with the list */
export async function showNewKey(
  call: PortalCall<unknown, unknown, unknown>,
  service: PortalService,
  { days, ...input }: KeyInput & Values<typeof NEW_KEY>,
  next: string,
) {
  const seconds = (await readClock(service.database)) + Number(days) * DAY_SECONDS;
  const expires_at = days === 'never' ? null : new Date(seconds * 1000);
  const created = await keys.create({ ...call, body: { ...input, expires_at } }, service);
  if (created instanceof Failure) return created;
  const { name, key } = created.data;
  return accountPage(call, 'The new API key', 'new-key', { name, key, next });
}

export const revokeKey = changeForm(
  userForm,
  { key_id: uuid() },
  'The key is revoked.',
  (call, service) => keys.revoke({ ...call, path: call.body, query: {} }, service),
  showKeys,
);
