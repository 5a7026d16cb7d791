import type { Database, Sql } from './pool.ts';
import { codeOf, constraintOf, lostCreationRace } from './retry.ts';
import { Unavailable } from '../runtime/errors.ts';

/** One step of a schema. Steps are numbered from 1 by their place in the list; one that was published never changes. */
export interface Migration {
  readonly name: string;
  /** Statements without parameters; each is a constant of the program. */
  readonly statements: readonly string[];
}

/** SQLSTATE of a lock that was not to be had in time, and how long the others are let pass then. */
const LOCK_NOT_AVAILABLE = '55P03';
const STAND_BACK_MS = 1_000;

/**
 * Brings a schema up to date. Any number of replicas may do so at once: each step is one transaction whose first
 * statement inserts the step's number, so of two that try the same step one waits, is refused, and goes on to the next.
 * @returns how many steps this process applied
 */
export async function migrate(database: Database, schema: string, migrations: readonly Migration[]): Promise<number> {
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
        // Another replica has just done this step. Any other index that is violated is the step's own trouble.
        if (constraintOf(error) === 'migrations_pkey') continue;
        if (codeOf(error) !== LOCK_NOT_AVAILABLE) throw error;
        await new Promise((resolve) => setTimeout(resolve, STAND_BACK_MS));
      }
    }
  });
}

/** Whether the schema has at least all the given steps: a newer program may already have added some. */
export async function isCurrent(database: Database, schema: string, migrations: readonly Migration[]): Promise<boolean> {
  return database.read(async (sql) => {
    return (await hasLedger(sql, schema)) && (await versionOf(sql, schema)) >= migrations.length;
  });
}

/** @throws Unavailable, as something that may pass, when somebody else has to bring the schema up to date */
export async function requireCurrent(database: Database, schema: string, migrations: readonly Migration[]): Promise<void> {
  if (await isCurrent(database, schema, migrations)) return;
  throw new Unavailable(`the schema "${schema}" is not up to date; run "gatehouse migrate"`, true);
}

/** How long a database may take to be called ready. */
const READY_MS = 1_000;

/** For the readiness probe: never throws, and takes no longer than a second. */
export async function isReady(database: Database, schema: string, migrations: readonly Migration[]): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => (timer = setTimeout(() => resolve(false), READY_MS)));
  const answer = isCurrent(database, schema, migrations).catch(() => false);
  return Promise.race([answer, late]).finally(() => clearTimeout(timer));
}

/** Asked before created: `CREATE … IF NOT EXISTS` needs rights that a role without DDL (MIGRATE=off) does not have. */
async function createLedger(sql: Sql, schema: string): Promise<void> {
  if (await hasLedger(sql, schema)) return;
  try {
    await sql`create schema if not exists ${sql(schema)}`;
    await sql`
      create table if not exists ${sql(schema)}.migrations (
        version integer primary key,
        name text not null,
        applied_at timestamptz not null default now()
      )`;
  } catch (error) {
    // "If not exists" is itself a race: two replicas may both find nothing, and the slower one is refused.
    if (!lostCreationRace(error)) throw error;
    await createLedger(sql, schema);
  }
}

async function hasLedger(sql: Sql, schema: string): Promise<boolean> {
  const [row] = await sql<[{ found: boolean }]>`select to_regclass(${`${schema}.migrations`}) is not null as found`;
  return row.found;
}

async function versionOf(sql: Sql, schema: string): Promise<number> {
  const [row] = await sql<[{ version: number }]>`select coalesce(max(version), 0)::int as version from ${sql(schema)}.migrations`;
  return row.version;
}

/**
 * Where a table is read for long, as by a dump, whoever comes later waits behind a step that waits for the table, and replicas
 * that serve come later. So a step waits for a moment only, and is tried again.
 */
async function apply(sql: Sql, schema: string, version: number, { name, statements }: Migration): Promise<void> {
  await sql`set local lock_timeout = '2s'`;
  await sql`insert into ${sql(schema)}.migrations (version, name) values (${version}, ${name})`;
  for (const statement of statements) await sql.unsafe(statement);
}

/**
 * Runs work in a transaction that no other replica's `once` of the same name overlaps: the later one waits and then
 * sees what the first committed. For first-run steps that must happen exactly once.
 */
export async function withNamedLock<T>(database: Database, schema: string, name: string, work: (sql: Sql) => Promise<T>): Promise<T> {
  return database.transaction(async (sql) => {
    await takeNamedLock(sql, schema, name);
    return work(sql);
  });
}

/** Inside a transaction: waits until no other one has the turn of this name, and keeps it to the end. */
export async function takeNamedLock(sql: Sql, schema: string, name: string): Promise<void> {
  await sql`
    insert into ${sql(schema)}.turns (name, taken_at) values (${name}, now())
    on conflict (name) do update set taken_at = now()`;
}

/** The table of `oneAtATime`; each schema's first step makes it. */
export const locksTable = (schema: string): string =>
  `create table ${schema}.turns (name text primary key, taken_at timestamptz not null)`;
