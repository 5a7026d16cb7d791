import { sha256 } from '../../../platform/crypto/token.ts';
import type { Database, Sql } from '../../../platform/db/pool.ts';
import { type Actor, audited } from '../audit.ts';
import { firstRow, hasChanged } from '../rows.ts';
import type { Account } from '../../model.ts';
import { countOpening, type Link } from './links.ts';

/**
 * A sign-in whose password was right, or that a link began in place of a password. `token`: of the
 * cookie that only this browser has; `methods`: with which the user has also proved the second
 * factor, or null; `stays`: whether the person stays signed in. A change of the password ends it.
 */
export type PendingSignIn = Readonly<{
  user: Account;
  token: string;
  methods: string | null;
  link: Link | null;
  stays: boolean;
}>;

/** For the audit trail. */
export const PENDING_DETAILS = {
  code: 'second factor needed',
  'new-password': 'new password needed',
  enrol: 'first second factor needed',
  none: '',
};

/**
 * With its entry in the audit trail: if the sign-in ends here, nothing else shows that the password
 * may be stolen (ASVS 6.3.5), or the link.
 * @returns false if its link was opened too often
 */
export const insertPending = (
  database: Database,
  actor: Actor,
  { user, token, methods, link, stays }: PendingSignIn,
  nextStep: string,
) =>
  database.transaction(async (sql) => {
    const isOpening = link !== null && methods === null;
    if (isOpening && !(await countOpening(sql, link))) return false;
    const insert = sql`
      insert into identity.pending_sign_ins
        (token_digest, user_id, password_digest, methods, link_digest, stays, expires_at)
      values (${sha256(token)}, ${user.id}, ${sha256(user.password_hash ?? '')}, ${methods},
        ${link?.token_digest ?? null}, ${stays}, now() + interval '10 minutes')
      returning user_id as id, user_id`;
    const detail = isOpening ? 'link opened' : nextStep;
    await audited(sql, { event: 'login.pending', actor, detail }, insert);
    return true;
  });

const isOpenSql = (sql: Sql, token: string) =>
  sql`token_digest = ${sha256(token)} and expires_at > now()`;

type PendingRow = Pick<PendingSignIn, 'methods' | 'stays'> &
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
      returning user_id, password_digest, methods, stays, link_digest`,
    ),
  );

/** Writes nothing, because nothing limits such requests. */
export const findPending = (database: Database, token: string) =>
  firstRow(
    database.read(
      (sql) => sql<PendingRow[]>`
      select user_id, password_digest, methods, stays, link_digest
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
