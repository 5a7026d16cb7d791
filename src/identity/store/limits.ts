import { arrayLiteral } from '../../db/batch.ts';
import type { Database } from '../../db/pool.ts';
import { changing, COMMAND_LINE, insertAudit } from './audit.ts';

/** The longest time for which a failure counts: wrong codes count for a day. */
const COUNTED_HOURS = 24;
/** A flood from more addresses than this is seen at the limits of its accounts. */
const MAX_FAILURES = 20_000;

export interface RecentFailure {
  /** Null if no user had the name that was tried. */
  readonly user_id: string | null;
  readonly username: string | null;
  readonly username_key: string | null;
  readonly ip: string;
}

/** Where logins failed while the failures still count, by user and address. @param userId null for all */
export function recentFailures(
  database: Database,
  userId: string | null,
): Promise<RecentFailure[]> {
  return database.list(
    (sql) => sql<RecentFailure[]>`
    select distinct u.id as user_id, u.username, u.username_key, a.ip
    from (select user_id, ip from identity.audit
      where event = any (${arrayLiteral(['login.failed', 'password.failed', 'factor.failed'])}::text::text[])
        and created_at > now() - make_interval(hours => ${COUNTED_HOURS}) and ip is not null
        and (${userId}::uuid is null or user_id = ${userId}::uuid)
      order by created_at desc limit ${MAX_FAILURES}) a
    left join identity.users u on u.id = a.user_id and u.deleted_at is null
    order by u.username, a.ip`,
  );
}

/** `key`: in hexadecimal digits; `wait`: seconds until the next attempt, 0 if one is allowed now. */
type LimitState = Readonly<{ key: string; failures: number; wait: number }>;

/** The limits with these keys that have counted failures. */
export function readLimits(database: Database, keys: readonly Buffer[]): Promise<LimitState[]> {
  return database.list(
    (sql) => sql<LimitState[]>`
    select encode(key, 'hex') as key, attempts as failures,
      ceil(greatest(0, coalesce(extract(epoch from blocked_until - now()), 0)))::int4 as wait
    from identity.throttles
    where key = any (${arrayLiteral(keys)}::text::bytea[]) and attempts > 0 and window_ends_at > now()`,
  );
}

/** Forgets the failures of a user, but not the networks that are known. @returns how many limits had counted any */
export function clearLimits(
  database: Database,
  userId: string,
  keys: readonly Buffer[],
): Promise<number | null> {
  return changing(database, COMMAND_LINE, userId, async (sql) => {
    const { count } = await sql`
      update identity.throttles
      set attempts = 0, window_ends_at = now(), blocked_until = null, was_blocked = false
      where key = any (${arrayLiteral(keys)}::text::bytea[]) and attempts > 0 and window_ends_at > now()`;
    const entry = { event: 'login.unlocked', actor: COMMAND_LINE } as const;
    if (count > 0) await insertAudit(sql, entry, { userId, targetId: userId, count });
    return count;
  });
}
