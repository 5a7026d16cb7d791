import { type Database, jsonRows } from '../../platform/db/sql.ts';
import type { Refused } from '../schemas.ts';

/** Stands for an unknown or missing token. */
export const UNKNOWN_TOKEN = '00000000-0000-0000-0000-000000000000';

/** `reason`: an error code. */
export type Refusal = { readonly token_id: string; readonly reason: string; count: number };

export const addRefusals = (database: Database, refusals: readonly Refusal[]) =>
  database.write(
    (sql) => sql`
    insert into webhook.refusals as r (token_id, reason, hour, count)
    select token_id, reason, date_trunc('hour', now()), count
    from json_to_recordset(${jsonRows(refusals)}::text::json)
      as given (token_id uuid, reason text, count int8)
    on conflict (hour, token_id, reason) do update
    set count = r.count + excluded.count, last_at = excluded.last_at`,
  );

/** Over the last 24 hours, the latest first. */
export const listRefusals = (database: Database) =>
  database.list(
    (sql) => sql<Refused[]>`
    select nullif(r.token_id, ${UNKNOWN_TOKEN}) as token_id, t.name, r.reason,
      sum(r.count)::float8 as count, max(r.last_at) as last_at
    from webhook.refusals r
    left join webhook.tokens t on t.id = r.token_id
    where r.hour > now() - interval '24 hours'
    group by 1, 2, 3
    order by last_at desc
    limit 100`,
  );

/** @returns how many rows were older than seven days and are removed, at most `limit` */
export async function removeRefusals(database: Database, limit: number) {
  const { count } = await database.write(
    (sql) => sql`
    delete from webhook.refusals
    where (hour, token_id, reason) in (
      select hour, token_id, reason
      from webhook.refusals
      where hour < now() - interval '7 days'
      limit ${limit}
      for update skip locked)`,
  );
  return count;
}
