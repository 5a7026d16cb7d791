import type { Database } from './pool.ts';

/** The statements that create the table. */
export const throttlesTable = (schema: string): readonly string[] => [
  `create table ${schema}.throttles (
    key bytea primary key, attempts integer not null, window_ends_at timestamptz not null, blocked_until timestamptz,
    was_blocked boolean not null default false, -- when the latest attempt was counted
    known_until timestamptz)`,
  `create index throttles_forgotten on ${schema}.throttles (greatest(window_ends_at, known_until))`,
];

/** Removes rows that no longer count. @returns how many; at most `max` */
export async function removeForgotten(db: Database, schema: string, max: number): Promise<number> {
  const removed = await db.write((sql) => {
    const [table, end] = [
      sql`${sql(schema)}.throttles`,
      sql`greatest(window_ends_at, known_until)`,
    ];
    const keys = sql`select key from ${table} where ${end} <= now() order by ${end} limit ${max}`;
    return sql`delete from ${table} where key = any(array(${keys}))`;
  });
  return removed.count;
}
