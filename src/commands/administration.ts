import { type Option, OperationFailed, UsageError } from './command.ts';
import { type Migration, requireCurrent } from '../db/migrate.ts';
import { createDatabase, type Database } from '../db/pool.ts';
import { Failure } from '../http/errors.ts';
import { createLog } from '../runtime/log.ts';
import { createMetrics } from '../runtime/metrics.ts';

/** What the commands of all services share: administration is the same functions as the routes call, without HTTP. */
export const json: Option = { type: 'boolean', help: 'print JSON' };

/** Opens the database of a service for one command. @throws Unavailable when its schema is not current */
export async function withDatabase<T>(
  name: string,
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

const MAX_SECONDS = 36_500 * 86_400;

/** @returns seconds. @param what is named where the text is neither a number of seconds nor a time such as 30m, 12h or 7d */
export function parseDuration(what: string, text: string): number {
  const [, number, unit = 's'] = /^([0-9]{1,10})([smhd]?)$/.exec(text) ?? [];
  if (number === undefined) throw new UsageError(`${what} must be a number of seconds, or a time such as 30m, 12h or 7d`);
  const seconds = Number(number) * ({ s: 1, m: 60, h: 3_600, d: 86_400 }[unit] ?? 1);
  if (seconds > MAX_SECONDS) throw new UsageError(`${what} must be at most 36500d`);
  return seconds;
}

/** Without the characters that a terminal obeys: texts from elsewhere could redraw it. */
export const stripControlChars = (text: string): string => text.replace(/[^\P{Cc}\n\t]/gu, '');

/** The same on one line. */
export const oneLine = (text: string): string => text.replace(/[\p{Cc}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+/gu, ' ');

/** Columns as wide as their widest cell. */
export function printTable(print: (line: string) => void, head: readonly string[], rows: ReadonlyArray<readonly string[]>): void {
  const all = [head, ...rows.map((row) => row.map(oneLine))];
  const widths = head.map((_, column) => all.reduce((width, row) => Math.max(width, row[column]?.length ?? 0), 0));
  for (const row of all) print(row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ').trimEnd());
}
