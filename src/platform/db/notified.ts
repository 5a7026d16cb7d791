import type { Database } from './pool.ts';

/**
 * Up to when a service has told what happened: one row in its schema. One replica at a time gets
 * it, once a minute, and again if that one fails: in pauses that double, up to an hour.
 * @returns the time to tell of: at most a week, which can be read in time. It ends before now: a
 * transaction that is still open has begun later.
 */
export async function claimNotices(database: Database, schema: string) {
  const [row] = await database.write(
    (sql) => sql<Array<Readonly<Record<'since' | 'until', string>>>>`
    insert into ${sql(schema)}.notified as n default values
    on conflict (only_row) do update set next_at = now() + least(interval '1 hour',
      greatest(interval '1 minute', now() - n.position - interval '1 minute'))
    where n.next_at <= now()
    returning greatest(position, now() - interval '7 days')::text as since,
      (now() - interval '30 s')::text as until`,
  );
  return row;
}

export const endNotices = (database: Database, schema: string, until: string) =>
  database.write(
    (sql) => sql`
    update ${sql(schema)}.notified set next_at = now() + interval '1 minute',
      position = greatest(position, ${until}::text::timestamptz)`,
  );
