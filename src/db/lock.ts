import type { Sql } from './pool.ts';

/** Waits for the lock and keeps it to the end of the transaction: for work that only one replica may do at a time. */
export async function takeNamedLock(sql: Sql, schema: string, name: string): Promise<void> {
  await sql`
    insert into ${sql(schema)}.locks (name, taken_at) values (${name}, now())
    on conflict (name) do update set taken_at = now()`;
}
