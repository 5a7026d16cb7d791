import type { Database, Sql } from './pool.ts';

/** Runs work in a transaction while no other replica holds this lock, for what must happen exactly once. */
export const withNamedLock = <T>(database: Database, schema: string, name: string, work: (sql: Sql) => Promise<T>) =>
  database.transaction(async (sql) => {
    await takeNamedLock(sql, schema, name);
    return work(sql);
  });

/** Waits for the lock and keeps it to the end of the transaction. */
export async function takeNamedLock(sql: Sql, schema: string, name: string): Promise<void> {
  await sql`
    insert into ${sql(schema)}.locks (name, taken_at) values (${name}, now())
    on conflict (name) do update set taken_at = now()`;
}

export const locksTable = (schema: string): string =>
  `create table ${schema}.locks (name text primary key, taken_at timestamptz not null)`;
