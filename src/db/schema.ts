import { setTimeout as sleep } from 'node:timers/promises';
import type { Database, Sql } from './pool.ts';
import { describeError, Unavailable } from '../runtime/errors.ts';
import type { Log } from '../runtime/log.ts';

/** One step of a schema, numbered from 1 by its position in the list. A released step never changes. */
export interface Migration {
  readonly name: string;
  readonly statements: readonly string[]; // constants of the program
}

/** A PostgreSQL schema. Its steps are loaded only to apply or to list them. */
export interface Schema {
  readonly name: string;
  readonly version: number; // the number of the last step
  readonly steps: () => Promise<readonly Migration[]>;
}

const PROBE_MS = 1_000; // how long a probe may take, and for how long a write is not repeated
const OUTDATED = 'the schema is not current: run "gatehouse migrate"';

/** Whether all steps have been applied; a newer program may have added more. */
export const isCurrent = (database: Database, { name, version }: Schema): Promise<boolean> =>
  database.readiness(async (sql) => (await versionOf(sql, name)) >= version);

/**
 * For the readiness probe. Only changes are logged, because probes repeat every few seconds.
 * @returns a function that answers within a second and never throws: null if requests can be served, otherwise why not
 */
export function createReadiness(database: Database, schema: Schema, log: Log) {
  let [triedAt, written] = [-Infinity, Promise.resolve()];
  let known: string | null = null; // the latest problem, with its reason
  const write = () =>
    database.readiness(async (sql) => {
      await sql`update ${sql(schema.name)}.migrations set name = name where version = 1`;
      // The update needs no new disk space. This result does: it exceeds the working memory and goes to a file.
      await sql`select count(*) from generate_series(1, 20000)`;
    });
  return async (): Promise<string | null> => {
    let problem = 'the database cannot be read';
    const check = async () => {
      if (!(await isCurrent(database, schema)))
        return { problem: OUTDATED, error: 'steps are missing' };
      problem = 'the database can be read but not written';
      if (performance.now() - triedAt > PROBE_MS) [triedAt, written] = [performance.now(), write()];
      await written;
      problem = 'requests have no connection to the database';
      await database.ensureConnected();
      return null;
    };
    const late = sleep(PROBE_MS, new Unavailable('no answer within a second', true), {
      ref: false,
    });
    const found = await Promise.race([check(), late.then((error) => Promise.reject(error))]).catch(
      (error: unknown) => ({ problem, ...describeError(error) }),
    );
    const state = found && `${found.problem}: ${found.error}`;
    if (state !== known) found ? log.warn('not ready', found) : log.info('ready again');
    known = state;
    return found && found.problem;
  };
}

/** @returns how many steps have been applied; -1 if the table is missing */
export async function versionOf(sql: Sql, schema: string): Promise<number> {
  const [ledger] = await sql<
    [{ found: boolean }]
  >`select to_regclass(${schema} || '.migrations') is not null as found`;
  if (!ledger.found) return -1;
  const [row] = await sql<[{ version: number }]>`
    select coalesce(max(version), 0)::int4 as version from ${sql(schema)}.migrations`;
  return row.version;
}
