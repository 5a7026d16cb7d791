import { setTimeout as sleep } from 'node:timers/promises';
import type { Database, Sql } from './pool.ts';
import { codeOf, Unavailable } from '../runtime/errors.ts';
import { LOCK_NOT_AVAILABLE } from './retry.ts';
import { isCurrent, type Migration, type Schema, versionOf } from './schema.ts';

const LOCK_RETRY_MS = 1_000;
/** Lost a creation race: unique violation; schema, table or object that already exists. */
const ALREADY_EXISTS = new Set(['23505', '42P06', '42P07', '42710']);

/**
 * Brings a schema up to date, also from several replicas at once: each step is one transaction that first inserts its
 * number, so the slower replica gets a unique violation and continues. @returns how many steps this process applied
 */
export async function migrate(
  database: Database,
  { name: schema, steps }: Schema,
): Promise<number> {
  const migrations = await steps();
  return database.maintain(async (sql, transaction) => {
    await createLedger(sql, schema);
    let applied = 0;
    for (;;) {
      const version = await versionOf(sql, schema);
      const next = migrations[version];
      if (!next) return applied;
      try {
        await transaction((inner) => apply(inner, schema, version + 1, next));
        applied += 1;
      } catch (error) {
        const constraint =
          error instanceof Error && 'constraint_name' in error ? error.constraint_name : null;
        if (constraint === 'migrations_pkey') continue;
        if (codeOf(error) !== LOCK_NOT_AVAILABLE) throw error;
        await sleep(LOCK_RETRY_MS);
      }
    }
  });
}

/** @throws Unavailable, as temporary: another process has to migrate */
export async function requireCurrent(database: Database, schema: Schema): Promise<void> {
  if (await isCurrent(database, schema)) return;
  throw new Unavailable(
    `the schema "${schema.name}" is not up to date; run "gatehouse migrate"`,
    true,
  );
}

/** Checks first: `create … if not exists` requires privileges that a role for MIGRATE=off lacks. */
async function createLedger(sql: Sql, schema: string): Promise<void> {
  const create = async () => {
    await sql`create schema if not exists ${sql(schema)}`;
    await sql`
      create table if not exists ${sql(schema)}.migrations (
        version int4 primary key, name text not null, applied_at timestamptz not null default now())`;
  };
  while ((await versionOf(sql, schema)) < 0) {
    // `if not exists` is itself a race between replicas, and the slower one gets an error.
    await create().catch((error) => ALREADY_EXISTS.has(codeOf(error)) || Promise.reject(error));
  }
}

/** While a step waits for a lock, later statements on the table wait behind it: so it waits briefly and repeats. */
async function apply(
  sql: Sql,
  schema: string,
  version: number,
  { name, statements }: Migration,
): Promise<void> {
  await sql`set local lock_timeout = '2s'`;
  await sql`insert into ${sql(schema)}.migrations (version, name) values (${version}, ${name})`;
  for (const statement of statements) await sql.unsafe(statement);
}
