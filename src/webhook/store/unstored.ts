/** Requests of which no event is stored: refused ones, and handshakes. */
import { type Database, jsonRows } from '../../platform/db/sql.ts';
import type { Refused } from '../schemas.ts';

/** Stands for an unknown or missing token. */
export const UNKNOWN_TOKEN = '00000000-0000-0000-0000-000000000000';

/** The reason of a request that was answered as its sender expects; others are error codes. */
export const HANDSHAKE = 'handshake';

/** `detail` and `address` are those of the last one. */
export type Unstored = Readonly<
  Record<'token_id' | 'reason' | 'detail' | 'address', string> & { count: number }
>;

export const addUnstored = (database: Database, requests: readonly Unstored[]) =>
  database.write(
    (sql) => sql`
    insert into webhook.unstored as u (token_id, reason, hour, count, detail, address)
    select token_id, reason, date_trunc('hour', now()), count, detail, address
    from json_to_recordset(${jsonRows(requests)}::text::json)
      as given (token_id uuid, reason text, count int8, detail text, address text)
    on conflict (hour, token_id, reason) do update
    set count = u.count + excluded.count, last_at = excluded.last_at, detail = excluded.detail,
      address = excluded.address`,
  );

/** Over the last 24 hours, the latest first. */
export const listRefusals = (database: Database) =>
  database.list(
    (sql) => sql<Refused[]>`
    select nullif(u.token_id, ${UNKNOWN_TOKEN}) as token_id, t.name, u.reason,
      sum(u.count)::float8 as count, max(u.last_at) as last_at,
      (array_agg(u.detail order by u.last_at desc))[1] as detail,
      (array_agg(u.address order by u.last_at desc))[1] as address
    from webhook.unstored u
    left join webhook.tokens t on t.id = u.token_id
    where u.hour > now() - interval '24 hours' and u.reason <> ${HANDSHAKE}
    group by 1, 2, 3
    order by last_at desc
    limit 100`,
  );

/** @returns how many rows were older than seven days and are removed, at most `limit` */
export async function removeUnstored(database: Database, limit: number) {
  const { count } = await database.write(
    (sql) => sql`
    delete from webhook.unstored
    where ctid = any (array(
      select ctid
      from webhook.unstored
      where hour < now() - interval '7 days'
      limit ${limit}
      for update skip locked))`,
  );
  return count;
}
