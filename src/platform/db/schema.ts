import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { codeOf, Unavailable } from '../runtime/errors.ts';
import { LOCK_NOT_AVAILABLE } from './errors.ts';
import type { Database, Sql } from './pool.ts';

export interface DatabaseSchema {
  readonly name: string;
  /** Where the files of the steps are. */
  readonly folder: URL;
  /**
   * The names of the files, without `.sql`. The first one is step 1. A released step never changes;
   * a change is a new step at the end, which only adds.
   */
  readonly steps: readonly string[];
  /** The table that Citus may distribute, as `distributedTables` describes it. */
  readonly distributable?: string;
}

const LOCK_RETRY_MS = 1_000;
/** Whether all steps have been applied; a newer program may have added more. */
export const isCurrent = (database: Database, { name, steps }: DatabaseSchema) =>
  database.readiness(async (sql) => (await versionOf(sql, name)) >= steps.length);

/** @returns how many steps have been applied; -1 if the table is missing */
export async function versionOf(sql: Sql, schema: string) {
  const [ledger] = await sql`select to_regclass(${schema} || '.migrations') as found`;
  if (!ledger?.found) return -1;
  const [row] = await sql<[{ version: number }]>`
    select coalesce(max(version), 0)::int4 as version
    from ${sql(schema)}.migrations`;
  return row.version;
}

/** Lost a creation race: unique violation; schema, table or object that already exists. */
const ALREADY_EXISTS = new Set(['23505', '42P06', '42P07', '42710']);

/**
 * Brings a schema up to date, even from several replicas at once: each step is one transaction that
 * first inserts its number, so the slower replica gets a unique violation and continues.
 * @returns how many steps this process applied
 */
export async function migrate(database: Database, schema: DatabaseSchema) {
  return database.maintain(async (sql, transaction) => {
    await createLedger(sql, schema.name);
    let applied = 0;
    for (;;) {
      const version = await versionOf(sql, schema.name);
      const step = schema.steps[version];
      if (step === undefined) return applied;
      try {
        await transaction((inner) => apply(inner, schema, version + 1, step));
        applied += 1;
      } catch (error) {
        // Another replica was faster.
        if ((await versionOf(sql, schema.name)) > version) continue;
        if (codeOf(error) !== LOCK_NOT_AVAILABLE) throw error;
        await sleep(LOCK_RETRY_MS);
      }
    }
  });
}

/** @throws Unavailable, as temporary: another process has to migrate */
export async function requireCurrent(database: Database, schema: DatabaseSchema) {
  if (!(await isCurrent(database, schema))) throw outdated(schema);
}

export const outdated = ({ name }: DatabaseSchema) =>
  new Unavailable(`the schema "${name}" is not up to date; run "gatehouse migrate"`);

/** Such as "secrets.secrets by id". None without Citus, and no local ones. */
export const distributedTables = (database: Database, { name }: DatabaseSchema) =>
  database.readiness(async (sql) => {
    const [citus] = await sql`select to_regclass('citus_tables') as found`;
    if (!citus?.found) return [];
    const rows = await sql<Array<{ text: string }>>`
      select table_name || ' by ' || distribution_column as text from citus_tables
      where table_name::text like ${`${name}.%`} and citus_table_type <> 'local' order by 1`;
    return rows.map(({ text }) => text);
  });

/** Checks first: `create … if not exists` requires rights that a role for MIGRATE=off lacks. */
async function createLedger(sql: Sql, schema: string) {
  while ((await versionOf(sql, schema)) < 0) {
    try {
      await sql`create schema if not exists ${sql(schema)}`;
      await sql`
        create table if not exists ${sql(schema)}.migrations (
          version int4 primary key, name text not null,
          applied_at timestamptz not null default now())`;
    } catch (error) {
      // `if not exists` is itself a race between replicas, and the slower one gets an error.
      if (!ALREADY_EXISTS.has(codeOf(error))) throw error;
    }
  }
}

/**
 * While a step waits for a lock, later statements on the table wait behind it: so it waits briefly
 * and repeats.
 */
async function apply(sql: Sql, { name, folder }: DatabaseSchema, version: number, step: string) {
  const statements = await readFile(new URL(`${step}.sql`, folder), 'utf8');
  await sql`set local lock_timeout = '2s'`;
  await sql`insert into ${sql(name)}.migrations (version, name) values (${version}, ${step})`;
  await sql.unsafe(statements);
}
