import { arrayLiteral, type Database, removeBatch } from '../../platform/db/sql.ts';
import { removeForgotten } from '../../platform/db/throttle.ts';
import { DAY_SECONDS } from '../../platform/runtime/duration.ts';
import { BATCH_ROWS, removalJob } from '../../platform/runtime/jobs.ts';
import { SCHEMA } from '../migrations.ts';
import type { IdentityService } from '../service.ts';
import { countRows, isExpiredSql } from './rows.ts';
import { type Sessions, STAY_IDLE_SECONDS } from './sessions.ts';

/**
 * Jobs that remove what no longer counts, and record uses. Replicas may run them at once: one
 * changes each row.
 */
export function createJobs(service: IdentityService) {
  const { database, metrics, lastSeen, retentionSeconds, auditSeconds } = service;
  const removal = (table: string, remove: (max: number) => Promise<number>) =>
    removalJob(metrics, `identity.${table}`, 300, remove);
  /** Removes rows whose `time` was `seconds` ago. */
  const removalOfOld = (table: string, key: string, time: string, seconds: number) =>
    removal(table, (max) =>
      removeBatch(
        database,
        `identity.${table}`,
        key,
        (sql) => sql`
          select ${sql(key)} from identity.${sql(table)}
          where ${sql(time)} < now() - make_interval(secs => ${seconds})
          order by ${sql(time)} limit ${max}`,
      ),
    );
  let ending = 0;
  metrics.gauge(
    'gatehouse_temporary_passwords_ending',
    'Generated passwords that expire within six hours.',
    () => ending,
  );
  return [
    removal('sessions', (max) => removeEndedSessions(database, retentionSeconds, max)),
    removal('throttles', (max) => removeForgotten(database, SCHEMA.name, max)),
    removalOfOld('audit', 'id', 'created_at', auditSeconds),
    removalOfOld('pending_sign_ins', 'token_digest', 'expires_at', 0),
    removalOfOld('used_challenges', 'digest', 'expires_at', 0),
    {
      name: 'erase deleted users',
      everySeconds: 300,
      batch: () => eraseDeletedUsers(database, retentionSeconds),
    },
    lastSeen.job('record last use', (ids) => writeLastSeen(service, ids)),
    {
      name: 'count the generated passwords that expire soon',
      everySeconds: 60,
      async batch() {
        ending = await countEndingPasswords(database);
      },
    },
  ];
}

/**
 * Records that these sessions and keys are in use: at most once a minute each, whichever replicas
 * saw it.
 */
export async function writeLastSeen(
  { database, idleSeconds }: Sessions,
  sessionAndKeyIds: readonly string[],
) {
  const ids = arrayLiteral(sessionAndKeyIds);
  await database.write(
    (sql) => sql`
    with seen as (
      update identity.sessions
      set last_seen_at = now(),
        -- Only of a session that stays, because least ignores null. At most once a day: an
        -- index has it.
        expires_at = case
          when stays_until is null
            or expires_at > now() + make_interval(secs => ${STAY_IDLE_SECONDS - DAY_SECONDS})
          then expires_at
          else least(stays_until, now() + make_interval(secs => ${STAY_IDLE_SECONDS}))
        end
      where id = any (array(
        select id from identity.sessions
        where id = any (${ids}::text::uuid[])
          and last_seen_at < now() - interval '1 minute'
          -- A session that has expired since must not become active again.
          and not ${isExpiredSql(sql, idleSeconds)}
        -- Waiting for a change that holds one row and waits for another could deadlock.
        -- The next use is recorded.
        for no key update skip locked))
    )
    update identity.api_keys
    set last_used_at = now()
    where id = any (array(
      select id
      from identity.api_keys
      where id = any (${ids}::text::uuid[])
        and coalesce(last_used_at < now() - interval '1 minute', true)
      for no key update skip locked))`,
  );
}

/**
 * Removes sessions that ended at least `seconds` ago. Those that were idle for too long end here
 * when they expire.
 * @returns how many; at most `max`
 */
export const removeEndedSessions = (database: Database, seconds: number, max: number) =>
  removeBatch(database, 'identity.sessions', 'id', (sql) => {
    const before = sql`now() - make_interval(secs => ${seconds})`;
    return sql`
        (select id from identity.sessions where expires_at < ${before} order by expires_at
          limit ${max})
        union
        (select id from identity.sessions
         where (revoked or logged_out)
           and updated_at < ${before}
         order by updated_at
         limit ${max})
        union
        (select s.id from identity.users u join identity.sessions s on s.user_id = u.id
          and s.deleted_at is null
         where u.sessions_end_at < ${before}
           and s.created_at <= u.sessions_end_at
         limit ${max})
        union
        (select id from identity.sessions
         where created_at <= (select sessions_end_at from identity.global_revocation
           where sessions_end_at < ${before})
           and deleted_at is null limit ${max})
        limit ${max}`;
  });

/**
 * Erases the names and addresses of users who were deleted `seconds` ago.
 * @returns whether there may be more
 */
async function eraseDeletedUsers(database: Database, seconds: number) {
  const { count } = await database.write(
    (sql) => sql`
    update identity.users
    set username = '', username_key = '', email = '', email_key = '', first_name = '',
      first_name_key = '', last_name = '', last_name_key = ''
    where id = any (array(
      select id from identity.users
      where deleted_at < now() - make_interval(secs => ${seconds})
        and username <> ''
      order by deleted_at limit ${BATCH_ROWS} for update skip locked
    ))`,
  );
  return count === BATCH_ROWS;
}

const countEndingPasswords = (database: Database) =>
  database.list((sql) =>
    countRows(
      sql,
      'users',
      sql`
        password_generated and deleted_at is null and enabled
          and password_set_at > now() - interval '24 hours'
          and password_set_at < now() - interval '18 hours'`,
    ),
  );
