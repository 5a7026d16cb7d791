import { boolean, dateTime, nullable, object, type Read, text, uuid, word } from '../http/shape.ts';
import type { Session, User } from './rules.ts';

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
  created_at: dateTime(),
  updated_at: dateTime(),
  deleted_at: nullable(dateTime()),
  user: userShape,
});

export const revocationShape = object({ message: text(), status: word('REVOKED') });

/** Member by member: a column that is added to the table does not leak out by itself (ASVS 15.3.1). */
export function viewUser(user: User): Read<typeof userShape> {
  return {
    id: user.id,
    first_name: user.first_name,
    last_name: user.last_name,
    username: user.username,
    email: user.email,
    enabled: user.enabled,
    verified: user.verified,
    super_admin: user.super_admin,
    created_at: user.created_at.toISOString(),
    updated_at: user.updated_at.toISOString(),
    deleted_at: user.deleted_at?.toISOString() ?? null,
  };
}

export function viewSession(session: Session): Read<typeof sessionShape> {
  return {
    id: session.id,
    user_id: session.user_id,
    revoked: session.revoked,
    logged_out: session.logged_out,
    expires_at: session.expires_at.toISOString(),
    created_at: session.created_at.toISOString(),
    updated_at: session.updated_at.toISOString(),
    deleted_at: session.deleted_at?.toISOString() ?? null,
    user: viewUser(session.user),
  };
}
