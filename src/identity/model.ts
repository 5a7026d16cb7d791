import {
  boolean,
  dateTime,
  type Infer,
  integer,
  isObject,
  type JsonSchema,
  list,
  nullable,
  object,
  oneOf,
  type Schema,
  scalar,
  text,
  uuid,
} from '../platform/http/route/schema.ts';

/**
 * What replies hold of users, sessions, keys and the audit trail; the types of their rows; and what
 * is usable.
 */

const stamps = { created_at: dateTime(), updated_at: dateTime(), deleted_at: nullable(dateTime()) };

export const userMembers = {
  id: uuid(),
  first_name: text(),
  last_name: text(),
  username: text(),
  email: text(),
  enabled: boolean(),
  verified: boolean(),
  super_admin: boolean(),
  groups: list(text()),
  ...stamps,
};
export const userSchema = object(userMembers);

export const sessionSchema = object({
  id: uuid(),
  user_id: uuid(),
  revoked: boolean(),
  logged_out: boolean(),
  expires_at: dateTime(),
  ip: nullable(text({ description: 'The address of the login' })),
  user_agent: nullable(
    text({ description: 'The User-Agent header of the login, cut to 256 characters' }),
  ),
  last_seen_at: dateTime(),
  ...stamps,
  user: userSchema,
});

/**
 * What a key with a list may do. With `provision`, which only a key without a user has, it acts for
 * ordinary users.
 */
export const KEY_RIGHTS = ['verify', 'read', 'revoke', 'provision'] as const;
export type KeyRight = (typeof KEY_RIGHTS)[number];

export const keySchema = object({
  id: uuid(),
  key: text({
    description: 'The whole key in the reply to its creation; afterwards its first characters',
  }),
  name: text(),
  user_id: nullable(uuid()),
  created_by: nullable(uuid('The user who created it; null for the command line')),
  created_by_username: nullable(text()),
  made_by: nullable(uuid('The key that made it')),
  rights: nullable(list(oneOf(...KEY_RIGHTS))),
  scopes: list(text({ description: 'Of programs, which get them in X-Auth-Scopes' })),
  provision_groups: list(text({ description: 'Which a key with provision may give and take' })),
  groups: list(text({ description: 'Of a key without a user' })),
  revoked: boolean(),
  expires_at: nullable(dateTime()),
  last_used_at: nullable(dateTime()),
  ...stamps,
  user: nullable(userSchema),
});

export const auditMembers = {
  id: uuid(),
  created_at: dateTime(),
  event: text(),
  via: oneOf('session', 'key', 'password', 'passkey', 'link', 'command', 'nobody'),
  actor_id: nullable(uuid('The user who did it')),
  key_id: nullable(uuid('The key that was used')),
  key_created_by: nullable(uuid('Who created that key; null for the command line')),
  user_id: nullable(uuid('The user it is about')),
  target_id: nullable(uuid('The session, key or user that changed, if it is one')),
  count: integer({ min: 0, max: 2 ** 31 - 1 }),
  ip: nullable(text()),
  request_id: nullable(text()),
  detail: text(),
};
export const auditSchema = object(auditMembers);

export const nil = scalar(
  { type: 'object', nullable: true, enum: [null] },
  'must be null',
  () => null,
);

/** What is replied to a change that has nothing to show. */
export const outcomeSchema = <Status extends string>(status: Status) =>
  object({ message: text(), status: oneOf(status) });

/** A row has dates where its view has their text. */
type RowOf<View> = {
  readonly [Name in keyof View]: Name extends `${string}_at`
    ? Exclude<View[Name], string>
    : RowOf<View[Name]>;
};

export type AuditRecord = RowOf<Infer<typeof auditSchema>>;
export type User = RowOf<Infer<typeof userSchema>>;
/** A user with the password hash (a PHC string). A generated password expires. */
export type Account = User &
  Readonly<{
    password_hash: string | null;
    password_expires_at: Date | null;
    password_expired: boolean;
    second_factor: boolean;
  }>;

/**
 * Decided in the database, whose clock is the only one for expiry. `expired` includes the idle
 * limit of sessions.
 */
type Times = Readonly<{ expired: boolean; last_seen_is_old: boolean }>;

/** `revoked`: by itself, or with all sessions of its user or of everyone. */
export type Session = RowOf<Infer<typeof sessionSchema>> & Times;
/**
 * What a check of a session's token reads. `ended`: revoked, logged out or expired; `age`: in
 * seconds, since the sign-in; `isProven`: with the second factor, if the user has one by now.
 */
export type CallerSession = Pick<Session, 'id' | 'last_seen_is_old' | 'user'> &
  Readonly<{ ended: boolean; hasTemporaryPassword: boolean; age: number; isProven: boolean }>;
/**
 * `user`: null for a key without a user. `suspended`: its user, or without a user its creator, may
 * not log in.
 */
export type ApiKey = Omit<RowOf<Infer<typeof keySchema>>, 'key'> &
  Times &
  Readonly<{ key_prefix: string; suspended: boolean }>;

/**
 * Copies exactly the members that the schema names: a column added to the table is not disclosed
 * (ASVS 15.3.1).
 */
function copierOf({ properties }: JsonSchema): (value: unknown) => unknown {
  const members = Object.entries(properties ?? {}).map(
    ([name, schema]) => [name, copierOf(schema)] as const,
  );
  return (value) => {
    if (value instanceof Date) return value.toISOString(); // JSON.stringify would be slower
    if (!properties || !isObject(value)) return value;
    const copy: Record<string, unknown> = {};
    for (const [name, copyMember] of members) copy[name] = copyMember(value[name]);
    return copy;
  };
}
/** By its type, the row has every member of the schema. */
function viewOf<View>({ jsonSchema }: Schema<View>) {
  const copy = copierOf(jsonSchema);
  return (row: RowOf<View>) => copy(row) as View;
}

export const viewUser = viewOf(userSchema);
export const viewAudit = viewOf(auditSchema);
export const viewSession = viewOf(sessionSchema);
export const viewKey = (row: ApiKey) => viewOf(keySchema)({ ...row, key: `${row.key_prefix}…` });

/** What becomes of the groups, for the audit trail: `groups +added -removed`. */
export function groupChange(before: readonly string[], after: readonly string[]) {
  const changes = [
    ...after.filter((name) => !before.includes(name)).map((name) => `+${name}`),
    ...before.filter((name) => !after.includes(name)).map((name) => `-${name}`),
  ];
  return changes.length > 0 ? `groups ${changes.join(' ')}` : '';
}

export const mayLogIn = (user: Pick<User, 'enabled' | 'deleted_at'>) =>
  user.enabled && user.deleted_at === null;

/**
 * Decided from the row at every request, so that the end of a session is effective at once on every
 * replica.
 */
export const isActive = (row: Session) =>
  !row.revoked && !row.logged_out && !row.expired && mayLogIn(row.user);

export const isUsable = (row: ApiKey) =>
  !row.revoked && !row.expired && !row.suspended && row.deleted_at === null;
