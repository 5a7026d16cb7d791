import { boolean, dateTime, integer, nullable, object, type Infer, type Shape, text, uuid, oneOf } from '../http/shape.ts';
import type { ApiKey, Session, User } from './rules.ts';
import type { AuditRecord } from './store/audit.ts';

export const userShape = object({
  id: uuid(),
  first_name: text(),
  last_name: text(),
  username: text(),
  email: text(),
  enabled: boolean(),
  verified: boolean(),
  super_admin: boolean(),
  created_at: dateTime(),
  updated_at: dateTime(),
  deleted_at: nullable(dateTime()),
});

export const sessionShape = object({
  id: uuid(),
  user_id: uuid(),
  revoked: boolean(),
  logged_out: boolean(),
  expires_at: dateTime(),
  ip: nullable(text({ description: 'The address of the login' })),
  user_agent: nullable(text({ description: 'What the login called itself, cut to 256 characters' })),
  last_seen_at: dateTime(),
  created_at: dateTime(),
  updated_at: dateTime(),
  deleted_at: nullable(dateTime()),
  user: userShape,
});

export const keyShape = object({
  id: uuid(),
  key: text({ description: 'The whole key in the answer to its creation; afterwards its first characters' }),
  name: text(),
  user_id: nullable(uuid()),
  revoked: boolean(),
  expires_at: nullable(dateTime()),
  last_used_at: nullable(dateTime()),
  created_at: dateTime(),
  updated_at: dateTime(),
  deleted_at: nullable(dateTime()),
  user: nullable(userShape),
});

const count = integer({ min: 0, max: 2 ** 31 - 1 });
export const auditShape = object({
  id: uuid(),
  created_at: dateTime(),
  event: text(),
  via: oneOf('session', 'key', 'password', 'command', 'nobody'),
  actor_id: nullable(uuid('The user who did it')),
  key_id: nullable(uuid('The key that was used')),
  user_id: nullable(uuid('The user it is about')),
  target_id: nullable(uuid('The session, key or user that was changed, if it was one')),
  count,
  ip: nullable(text()),
  request_id: nullable(text()),
  detail: text(),
});

export const revocationShape = object({ message: text(), status: oneOf('REVOKED') });
export const deletionShape = object({ message: text(), status: oneOf('DELETED') });
export const changeShape = object({ message: text(), status: oneOf('CHANGED') });

/** A row's members, with moments where the shape has their text. */
type Row<T> = { readonly [K in keyof T]: T[K] extends string | null ? T[K] | Date : T[K] extends object | null ? Row<T[K]> | null : T[K] };

/** Shows exactly the members that the shape names: a column that is added to the table does not leak out by itself (ASVS 15.3.1). */
function viewOf<T extends object>(shape: Shape<T>): (row: Row<T>) => T {
  const names = Object.keys(shape.schema.properties ?? {});
  return (row) => {
    const values: Readonly<Record<string, unknown>> = { ...row };
    const shown: Record<string, unknown> = {};
    for (const name of names) {
      const value = values[name];
      shown[name] = value instanceof Date ? value.toISOString() : value;
    }
    // The row has every member of the shape, by its type.
    return shown as T;
  };
}

export const viewUser: (user: User) => Infer<typeof userShape> = viewOf(userShape);
const sessionView = viewOf(sessionShape);
export const viewSession = (session: Session): Infer<typeof sessionShape> => sessionView({ ...session, user: viewUser(session.user) });
const keyView = viewOf(keyShape);
export const viewKey = (key: ApiKey): Infer<typeof keyShape> => keyView({ ...key, key: `${key.key_prefix}…`, user: key.user && viewUser(key.user) });
export const viewAudit: (record: AuditRecord) => Infer<typeof auditShape> = viewOf(auditShape);
