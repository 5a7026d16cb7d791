import { arrayLiteral } from './batch.ts';
import type { Database } from './pool.ts';
import { type Limit, upsert } from './throttle.ts';

/** Counts an attempt before it is made, if there is one left. @returns whether there was */
export const takeAttempt = async (db: Database, schema: string, limit: Limit): Promise<boolean> =>
  (
    await db.write(
      (sql) => sql`
    ${upsert(sql, schema, limit)} where (t.blocked_until > now()) is not true`,
    )
  ).count === 1;

/** Undoes `takeAttempt` for attempts that did not fail. */
export async function giveBackAttempts(
  db: Database,
  schema: string,
  keys: readonly Buffer[],
): Promise<void> {
  await db.write(
    (sql) => sql`
    update ${sql(schema)}.throttles set attempts = attempts - 1, blocked_until = null
    where attempts > 0 and key = any(${arrayLiteral(keys)}::text::bytea[])`,
  );
}
