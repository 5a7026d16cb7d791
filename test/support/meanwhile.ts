import type { Sql, TransactionSql } from 'postgres';
import { untilLocked } from './connections.ts';

/**
 * Sends requests that wait for what a transaction has locked, which commits when all of them wait.
 * @param hold locks it
 * @param change is made while they wait
 * @returns what they are answered
 */
export async function meanwhile<T>(
  sql: Sql,
  hold: (held: TransactionSql) => PromiseLike<unknown>,
  requests: () => ReadonlyArray<Promise<T>>,
  change: (held: TransactionSql) => PromiseLike<unknown> = async () => {},
): Promise<T[]> {
  const { answers } = await sql.begin(async (held) => {
    await hold(held);
    const sent = requests();
    await untilLocked(held, sent.length);
    await change(held);
    return { answers: Promise.all(sent) };
  });
  return answers;
}
