import { arrayLiteral } from './batch.ts';
import type { Database } from './pool.ts';

/** Undoes `takeAttempt` for attempts that did not fail. */
export async function giveBackAttempts(db: Database, schema: string, keys: readonly Buffer[]): Promise<void> {
  await db.write((sql) => sql`
    update ${sql(schema)}.throttles set attempts = attempts - 1, blocked_until = null
    where attempts > 0 and key = any(${arrayLiteral(keys)}::text::bytea[])`);
}
