import type { Database } from '../../../platform/db/sql.ts';
import { type Sessions, sessionStateSql } from '../sessions.ts';
import { grantsSql } from './grants.ts';

/** A sign-in that has ended, and the address of the program that is told so. */
export type Notice = Readonly<{
  id: string;
  client_id: string;
  user_id: string;
  address: string;
  now: number; // of the database, in seconds
}>;

const MAX_TRIES = 3;
const BATCH = 20;

/**
 * Takes sign-ins that have ended, for a minute: if this process ends meanwhile, another tells the
 * program.
 */
export const takeNotices = ({ database, idleSeconds }: Sessions) =>
  database.write(
    (sql) => sql<Notice[]>`
    update identity.oidc_grants granted
    set notice_tries = notice_tries + 1, notice_at = now() + interval '1 minute'
    from (
      select granted.id, s.user_id, c.backchannel_uri
      from ${grantsSql(sql)}
      where c.backchannel_uri <> ''
        and granted.told_at is null
        and granted.code_used_at is not null
        and granted.notice_tries < ${MAX_TRIES}
        and coalesce(granted.notice_at < now(), true)
        and (granted.ended_at is not null or not u.enabled
          or ${sessionStateSql(sql, idleSeconds)} = 'ended')
      limit ${BATCH}
      for update of granted skip locked
    ) due
    where granted.id = due.id
    returning granted.id, granted.client_id, due.user_id, due.backchannel_uri as address,
      extract(epoch from now())::int4 as now`,
  );

export const markTold = (database: Database, id: string) =>
  database.write((sql) => sql`update identity.oidc_grants set told_at = now() where id = ${id}`);
