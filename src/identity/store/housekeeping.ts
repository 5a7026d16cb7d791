import { arrayLiteral } from '../../db/batch.ts';
import type { Database } from '../../db/pool.ts';
import { removeForgotten } from '../../db/throttle-table.ts';
import { BATCH_ROWS, type Job, removalJob } from '../../runtime/jobs.ts';
import { SCHEMA } from '../schema.ts';
import type { IdentityService } from '../service.ts';
import { isExpired, type Sessions } from './sessions.ts';

/** Tables of the sign-in pages. */
const EXPIRING = ['pending_sign_ins', 'used_challenges'] as const;

/** Jobs that remove what no longer counts, and record uses. Replicas may run them at once: one changes each row. */
export function createJobs(service: IdentityService): Job[] {
  const { database, metrics, portal, pendingLastSeen, retentionSeconds, auditSeconds } = service;
  const removal = (table: string, remove: (max: number) => Promise<number>) =>
    removalJob(metrics, `identity.${table}`, 300, remove);
  return [
    removal('sessions', (max) => removeEndedSessions(database, retentionSeconds, max)),
    removal('throttles', (max) => removeForgotten(database, SCHEMA.name, max)),
    removal('audit', (max) => removeOldAudit(database, auditSeconds, max)),
    ...(portal ? EXPIRING : []).map((table) =>
      removal(table, (max) => removeExpired(database, table, max)),
    ),
    {
      name: 'erase deleted users',
      everySeconds: 300,
      batch: async () =>
        (await eraseDeletedUsers(database, retentionSeconds, BATCH_ROWS)) === BATCH_ROWS,
    },
    {
      name: 'record last use',
      everySeconds: 5,
      async batch() {
        const ids = [...pendingLastSeen];
        pendingLastSeen.clear();
        // If this fails, the next use is recorded.
        if (ids.length > 0) await writeLastSeen(service, ids);
      },
    },
  ];
}

/** Records that these sessions and keys are in use: at most once a minute each, whichever replicas saw it. */
export async function writeLastSeen(
  { database, idleSeconds }: Sessions,
  given: readonly string[],
): Promise<void> {
  const ids = arrayLiteral(given);
  await database.write(
    (sql) => sql`
    with seen as (
      update identity.sessions set last_seen_at = now() where id = any (array(
        select id from identity.sessions
        where id = any (${ids}::text::uuid[]) and last_seen_at < now() - interval '1 minute'
          -- A session that has expired meanwhile must not become active again.
          and not ${isExpired(sql, 'sessions', idleSeconds)}
        -- Waiting for a change that holds one row and waits for another could deadlock. The next use is recorded.
        for no key update skip locked))
    )
    update identity.api_keys set last_used_at = now() where id = any (array(
      select id from identity.api_keys where id = any (${ids}::text::uuid[])
        and coalesce(last_used_at < now() - interval '1 minute', true) for no key update skip locked))`,
  );
}

/** Removes sessions that ended at least `seconds` ago, however they ended. @returns how many; at most `max` */
export const removeEndedSessions = (
  database: Database,
  seconds: number,
  max: number,
): Promise<number> =>
  database.write(async (sql) => {
    const before = sql`now() - make_interval(secs => ${seconds})`;
    const { count } = await sql`
      delete from identity.sessions where id = any (array(
        (select id from identity.sessions where expires_at < ${before} order by expires_at limit ${max})
        union
        (select id from identity.sessions
         where (revoked or logged_out) and updated_at < ${before} order by updated_at limit ${max})
        union
        (select s.id from identity.users u join identity.sessions s on s.user_id = u.id and s.deleted_at is null
         where u.sessions_end_at < ${before} and s.created_at <= u.sessions_end_at limit ${max})
        union
        (select id from identity.sessions
         where created_at <= (select sessions_end_at from identity.global_revocation where sessions_end_at < ${before})
           and deleted_at is null limit ${max})
        limit ${max}
      ))`;
    return count;
  });

/** Erases the names and addresses of users who were deleted `seconds` ago. @returns how many; at most `max` */
const eraseDeletedUsers = async (
  database: Database,
  seconds: number,
  max: number,
): Promise<number> =>
  (
    await database.write(
      (sql) => sql`
    update identity.users
    set username = '', username_key = '', email = '', email_key = '', first_name = '', last_name = ''
    where id = any (array(
      select id from identity.users
      where deleted_at < now() - make_interval(secs => ${seconds}) and username <> ''
      order by deleted_at limit ${max} for update skip locked
    ))`,
    )
  ).count;

/** Removes rows older than `seconds`. @returns how many; at most `max` */
const removeOldAudit = async (database: Database, seconds: number, max: number): Promise<number> =>
  (
    await database.write(
      (sql) => sql`
    delete from identity.audit where id = any (array(
      select id from identity.audit where created_at < now() - make_interval(secs => ${seconds})
      order by created_at, id limit ${max}
    ))`,
    )
  ).count;

/** @returns how many; at most `max` */
const removeExpired = async (
  database: Database,
  table: (typeof EXPIRING)[number],
  max: number,
): Promise<number> =>
  (
    await database.write(
      (sql) => sql`
  delete from ${sql(`identity.${table}`)} where ctid = any (array(
    select ctid from ${sql(`identity.${table}`)} where expires_at < now() order by expires_at limit ${max}))`,
    )
  ).count;
