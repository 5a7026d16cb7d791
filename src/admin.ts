import { type Option, OperationFailed, UsageError } from './command.ts';
import type { ServiceName } from './config.ts';
import { type Migration, requireCurrent } from './db/migrate.ts';
import { createDatabase, type Database } from './db/pool.ts';
import { Failure } from './http/errors.ts';
import { createLog } from './runtime/log.ts';
import { createMetrics } from './runtime/metrics.ts';

/** What the commands of all services share: administration is the same functions as the routes call, without HTTP. */
export const json: Option = { type: 'boolean', help: 'print JSON' };

/** Opens the database of a service for one command. @throws Unavailable when its schema is not current */
export async function withDatabase<T>(
  name: ServiceName,
  address: Parameters<typeof createDatabase>[0],
  schema: string,
  migrations: readonly Migration[],
  work: (database: Database) => Promise<T>,
): Promise<T> {
  const database = createDatabase(address, `${name}-admin`, createLog('silent', () => {}), createMetrics());
  try {
    await requireCurrent(database, schema, migrations);
    return await work(database);
  } finally {
    await database.close();
  }
}

/** @returns what is no failure. @throws UsageError for wrong input (exit 2), OperationFailed for everything else (exit 1) */
export function orThrow<T>(command: string, outcome: T | Failure): T {
  if (!(outcome instanceof Failure)) return outcome;
  const { message, fields } = outcome.details;
  const faults = fields?.map(({ path, message: fault }) => `${path.slice(1).replaceAll('_', '-')} ${fault}`).join('; ');
  if (outcome.code === 'invalid_body') throw new UsageError(`${command}: ${faults}`);
  throw new OperationFailed(faults ?? message ?? outcome.code);
}

/** Columns as wide as their widest cell. */
export function printTable(print: (line: string) => void, head: readonly string[], rows: ReadonlyArray<readonly string[]>): void {
  const all = [head, ...rows];
  const widths = head.map((_, column) => all.reduce((width, row) => Math.max(width, row[column]?.length ?? 0), 0));
  for (const row of all) print(row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ').trimEnd());
}
