import type { Database, Fragment, Sql } from './pool.ts';

// So that a store needs one import.
export type { Database, Fragment, Sql };

/**
 * An array in PostgreSQL's text form: one parameter, and so one prepared statement, for any number
 * of values. Text, because the types of arrays are not fetched from the server (`fetch_types`).
 */
export function arrayLiteral(values: ReadonlyArray<string | Buffer | null>) {
  const items = values.map((value) => {
    if (value === null) return 'NULL';
    if (Buffer.isBuffer(value)) return `"\\\\x${value.toString('hex')}"`;
    return `"${value.replace(/["\\]/g, '\\$&')}"`;
  });
  return `{${items.join()}}`;
}

/**
 * Rows for `json_to_recordset`: one parameter for any number of them. Half of a surrogate pair
 * becomes U+FFFD, as in other parameters: PostgreSQL rejects it in JSON.
 */
export const jsonRows = (rows: readonly object[]) =>
  JSON.stringify(rows, (_name, value: unknown) =>
    typeof value === 'string' ? value.toWellFormed() : value,
  );

/** Bytes for a column of type `bytea` in JSON. */
export const hexBytes = (bytes: Buffer) => `\\x${bytes.toString('hex')}`;

/**
 * One row, or null, for each key, in their order.
 * @param rows emptied, so that the driver does not keep them alive
 */
export function alignToKeys<Row>(
  keys: readonly string[],
  rows: Row[],
  keyOf: (row: Row) => string,
): Array<Row | null> {
  const found = new Map<string, Row>();
  for (const row of rows.splice(0)) found.set(keyOf(row), row);
  return keys.map((key) => found.get(key) ?? null);
}

/**
 * Removes the rows of a table whose keys a query selects. The query is limited, so that no
 * transaction is long.
 * @returns how many rows were removed
 */
export async function removeBatch(
  database: Database,
  table: string,
  key: string,
  query: (sql: Sql) => Fragment,
) {
  const removed = await database.write(
    (sql) => sql`delete from ${sql(table)} where ${sql(key)} = any (array(${query(sql)}))`,
  );
  return removed.count;
}
