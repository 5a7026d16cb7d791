import { sha256 } from '../../../crypto/token.ts';
import type { Database, Sql } from '../../../db/pool.ts';
import { firstRow, hasChanged } from '../rows.ts';
import type { Account } from '../../model.ts';
import type { Link } from './links.ts';

/**
 * A sign-in whose password was right, or that a link began in place of a password. `token`: of the
 * cookie that only this browser has; `methods`: with which the user has also proved the second
 * factor, or null. A change of the password ends it.
 */
export type PendingSignIn = Readonly<{
  user: Account;
  token: string;
  methods: string | null;
  link: Link | null;
}>;

export const insertPending = (database: Database, { user, token, methods, link }: PendingSignIn) =>
  database.write(
    (sql) => sql`
    insert into identity.pending_sign_ins
      (token_digest, user_id, password_digest, methods, link_digest, expires_at)
    values (${sha256(token)}, ${user.id}, ${sha256(user.password_hash ?? '')}, ${methods},
      ${link?.token_digest ?? null}, now() + interval '10 minutes')`,
  );

const isOpenSql = (sql: Sql, token: string) =>
  sql`token_digest = ${sha256(token)} and expires_at > now()`;

type PendingRow = Pick<PendingSignIn, 'methods'> &
  Readonly<{ user_id: string; password_digest: Buffer; link_digest: Buffer | null }>;

/**
 * Counts an attempt before it is checked.
 * @returns null without such a sign-in or an attempt left
 */
export const countPendingAttempt = (database: Database, token: string) =>
  firstRow(
    database.write(
      (sql) => sql<PendingRow[]>`
      update identity.pending_sign_ins
      set attempts = attempts + 1
      where ${isOpenSql(sql, token)} and attempts < 5
      returning user_id, password_digest, methods, link_digest`,
    ),
  );

/** Writes nothing, because nothing limits such requests. */
export const findPending = (database: Database, token: string) =>
  firstRow(
    database.read(
      (sql) => sql<PendingRow[]>`
      select user_id, password_digest, methods, link_digest
      from identity.pending_sign_ins
      where ${isOpenSql(sql, token)}`,
    ),
  );

/** @returns false if a concurrent request has ended the sign-in */
export const removePending = (database: Database, token: string) =>
  hasChanged(
    database.write(
      (sql) => sql`delete from identity.pending_sign_ins where token_digest = ${sha256(token)}`,
    ),
  );
