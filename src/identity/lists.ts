import { Failure } from '../platform/http/route/errors.ts';
import {
  decimal,
  oneOf,
  optional,
  text,
  type Values,
  withDefault,
  withoutNul,
} from '../platform/http/route/schema.ts';
import {
  auditMembers,
  type User,
  userMembers,
  viewAudit,
  viewKey,
  viewSession,
  viewUser,
} from './model.ts';
import { type Caller, forbidden, type IdentityCall, isProvisioning, may } from './policy.ts';
import { group } from './rules.ts';
import type { IdentityService } from './service.ts';
import { EVENTS } from './store/audit.ts';
import { listKeys } from './store/keys.ts';
import type { Page, PageOf } from './store/rows.ts';
import { listSessions } from './store/sessions.ts';
import { findUser } from './store/users.ts';
import {
  eachUser,
  type ListedAudit,
  type ListedUser,
  listAudit,
  listUsers,
} from './store/lists.ts';

/** The parameters of every paged list. */
export const page = decimal({ min: 1, max: 1_000_000_000 });
export const limit = decimal({ min: 1, max: 100 });
const DEFAULT_LIMIT = 10;
export const pageQuery = {
  page: withDefault(page, 1),
  limit: withDefault(limit, DEFAULT_LIMIT),
};

/** The path and query of a list with these parameters. */
export function addressOf(path: string, query: object) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  const texts = given.map(([name, value]) => [name, String(value)]);
  return `${path}?${new URLSearchParams(Object.fromEntries(texts))}`;
}

/**
 * @param query the page, and the list's other parameters, which the links keep. A link is a path
 * and query, or empty if there is no such page.
 */
export function pageReply<Row, View>(
  path: string,
  query: Page & Readonly<Record<string, string | number | undefined>>,
  { rows, total }: PageOf<Row>,
  view: (row: Row) => View,
) {
  const { page, limit } = query;
  const pages = Math.ceil(total / limit);
  const linkTo = (page: number) => addressOf(path, { ...query, page });
  return {
    data: rows.map(view),
    pagination: { page, limit, total, total_pages: pages },
    links: {
      first: linkTo(1),
      last: linkTo(Math.max(1, pages)),
      // Past the end, `prev` leads to the last page that exists.
      prev: page > 1 ? linkTo(Math.max(1, Math.min(page - 1, pages))) : '',
      next: page < pages ? linkTo(page + 1) : '',
    },
  };
}

const exactly = (description: string) =>
  optional(text({ min: 1, max: 255, pattern: withoutNul, description }));

/** The same on the page of users, over the API, and as options of the command. */
export const userFilter = {
  username: exactly('Only the user of this name, as it is compared at a login'),
  email: exactly('Only the user of this address'),
  search: optional(
    text({
      min: 1,
      max: 255,
      pattern: withoutNul,
      description: 'Parts of the username, e-mail address or names, or a group',
    }),
  ),
  state: optional(oneOf('active', 'invited', 'disabled')),
  role: optional(oneOf('user', 'super_admin')),
  second_factor: optional(oneOf('on', 'off')),
  group: optional(group),
};
type UsersQuery = Values<typeof userFilter> & Record<'page' | 'limit', number | undefined>;

/**
 * All users for a caller who may list them, otherwise the caller alone. A page only if one is
 * requested.
 */
export async function users(
  { caller, query, request }: IdentityCall<unknown, UsersQuery>,
  { database }: IdentityService,
) {
  const self = caller.user?.id ?? null;
  const mayListAll = may(caller, 'list every user');
  if (!mayListAll && !may(caller, 'read a user', self)) return forbidden(caller);
  const { page, limit, ...asked } = query;
  const filter = { ...asked, id: mayListAll ? undefined : self };
  if (page === undefined && limit === undefined) {
    return { items: viewEach(eachUser(database, filter)) };
  }
  const range = { page: page ?? 1, limit: limit ?? DEFAULT_LIMIT };
  const listed = await listUsers(database, range, filter);
  return pageReply(request.path, { ...range, ...asked }, listed, viewUser);
}

async function* viewEach(batches: AsyncIterable<readonly User[]>) {
  for await (const batch of batches) yield batch.map(viewUser);
}

/**
 * Whose are listed. Without a filter: those of all users (null) if the caller may list them,
 * otherwise the caller's own.
 */
function ownerOf(caller: Caller, what: 'sessions' | 'keys', user: string | undefined) {
  const mayListAll = may(caller, `list ${what} of every user`);
  const userId = user ?? (mayListAll ? null : (caller.user?.id ?? null));
  const mayList = mayListAll || may(caller, `list ${what} of a user`, userId);
  return mayList ? userId : forbidden(caller);
}

type OfUser = Page & { user: string | undefined };

export async function sessions(
  {
    caller,
    query,
    request,
  }: IdentityCall<unknown, OfUser & { active: 'true' | 'false' | undefined }>,
  service: IdentityService,
) {
  const { user, active } = query;
  const userId = ownerOf(caller, 'sessions', user);
  if (userId instanceof Failure) return userId;
  const isActive = active === undefined ? null : active === 'true';
  const listed = await listSessions(service, query, userId, isActive);
  return pageReply(request.path, query, listed, viewSession);
}

export async function keys(
  { caller, query, request }: IdentityCall<unknown, OfUser>,
  { database }: IdentityService,
) {
  const userId = ownerOf(caller, 'keys', query.user);
  if (userId instanceof Failure) return userId;
  if (userId !== null && isProvisioning(caller)) {
    const user = await findUser(database, userId);
    if (!user || user.super_admin) return forbidden(caller);
  }
  return pageReply(request.path, query, await listKeys(database, query, userId), viewKey);
}

export const auditFilter = {
  user: optional(
    text({
      min: 1,
      max: 255,
      pattern: withoutNul,
      description:
        'Id, username or e-mail address: what they did, or what was done to them, also if deleted',
    }),
  ),
  event: optional(oneOf(...EVENTS)),
};

export const auditQuery = { ...pageQuery, ...auditFilter };

/** The audit trail, newest first. */
export async function audit(
  { caller, query, request }: IdentityCall<unknown, Values<typeof auditQuery>>,
  { database }: IdentityService,
) {
  if (!may(caller, 'read the audit trail')) return forbidden(caller);
  const listed = await listAudit(database, query, query); // the page and the filter
  return pageReply(request.path, query, listed, viewAudit);
}

/**
 * For a spreadsheet, with the names of users. Excel reads UTF-8 only behind a byte order mark.
 */
function csvOf(name: string, columns: readonly string[], lines: readonly unknown[][]) {
  return {
    text: `\ufeff${[columns, ...lines].map(lineOf).join('')}`,
    contentType: 'text/csv; charset=utf-8',
    headers: { 'Content-Disposition': `attachment; filename="${name}.csv"` },
  };
}

export const auditCsv = (rows: readonly ListedAudit[]) =>
  csvOf(
    'audit',
    ['actor', 'user', ...Object.keys(auditMembers)],
    rows.map((row) => [row.actor, row.subject, ...Object.values(viewAudit(row))]),
  );

export const usersCsv = (rows: readonly ListedUser[]) =>
  csvOf(
    'users',
    ['state', 'second_factor', 'last_sign_in_at', 'link_ends_at', ...Object.keys(userMembers)],
    rows.map((row) => [
      stateOf(row),
      row.second_factor,
      row.last_sign_in_at?.toISOString(),
      row.link_ends_at?.toISOString(),
      ...Object.values(viewUser(row)),
    ]),
  );

/** As filters name it. */
export function stateOf({ enabled, has_password }: ListedUser) {
  if (!enabled) return 'disabled';
  return has_password ? 'active' : 'invited';
}

const lineOf = (cells: readonly unknown[]) => `${cells.map(cellOf).join(',')}\r\n`;

/**
 * A spreadsheet would run a name that begins like a formula, even in full width, in quotes, or
 * after what it may take for a separator (CWE-1236).
 */
const cellOf = (value: unknown) =>
  `"${String(value ?? '')
    .replace(/(?<=(?:^|[;\t])"*)(?=[=+\-@\t\r＝＋－＠])/g, "'")
    .replaceAll('"', '""')}"`;
