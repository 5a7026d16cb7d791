/** The database connections of a service, for tests that need nothing above them. */
import assert from 'node:assert/strict';
import type { Sql, TransactionSql } from 'postgres';
import { withConnection } from '../../scripts/postgres.ts';
import { readConfig } from './settings.ts';
import { createDatabase, type Database, type DatabaseAddress } from '../../src/platform/db/pool.ts';
import { createLog } from '../../src/platform/runtime/log.ts';
import { createMetrics } from '../../src/platform/runtime/metrics.ts';
import type { TestDatabase } from './database.ts';
import { pause } from './until.ts';
import type { Owner } from './owner.ts';

/** @param more further variables */
export function addressOf(
  url: string,
  more: Readonly<Record<string, string>> = {},
): DatabaseAddress {
  const address = readConfig(['identity'], 'administer', { DATABASE_URL: url, ...more }).identity
    ?.database;
  assert.ok(address);
  return address;
}

/**
 * @param name PostgreSQL sees these connections as `gatehouse-NAME`
 * @param more further variables
 */
export function openConnections(
  owner: Owner,
  url: string,
  name: string,
  more: Readonly<Record<string, string>> = {},
): Database {
  const database = createDatabase(
    addressOf(url, more),
    name,
    createLog('silent', () => {}),
    createMetrics(),
  );
  owner.after(() => database.close());
  return database;
}

/** Limits for `openConnections` that end no call before the end of its test. */
export const PATIENT = {
  DATABASE_STATEMENT_TIMEOUT: '299',
  DATABASE_LOCK_TIMEOUT: '300',
  DATABASE_DEAD_AFTER: '300',
};

/** What the connections are for. */
export const PURPOSES = ['read', 'write', 'list', 'claim', 'readiness', 'transaction'] as const;
export type Purpose = (typeof PURPOSES)[number];

interface Queryable {
  unsafe(text: string): PromiseLike<Iterable<Record<string, unknown>>>;
}

/** One statement on the connection for this purpose. */
export async function ask(
  database: Database,
  purpose: Purpose,
  statement: string,
): Promise<Record<string, unknown>> {
  // Both kinds of `sql` are alike in this one call.
  const work = async (sql: Queryable) => [...(await sql.unsafe(statement))][0] ?? {};
  return purpose === 'transaction' ? database.transaction(work) : database[purpose](work);
}

/** Polls PostgreSQL. */
export async function untilSql(condition: () => Promise<boolean>, what: string): Promise<void> {
  const begun = Date.now();
  while (!(await condition())) await pause(begun, () => `until ${what}`);
}

/**
 * Changes settings of a server, and waits until its processes have been told of them: the server
 * reads its files some time after `pg_reload_conf` has returned.
 * @param url of an administrator
 */
export async function changeSettings(url: string, ...statements: string[]): Promise<void> {
  const loadTime = () =>
    withConnection(
      url,
      async (sql) => (await sql`select pg_conf_load_time()::text as time`)[0]?.time,
    );
  const before = await loadTime();
  await withConnection(url, async (sql) => {
    for (const statement of [...statements, 'select pg_reload_conf()']) await sql.unsafe(statement);
  });
  // A new connection has the time from the process that tells the others.
  await untilSql(async () => (await loadTime()) !== before, 'the settings are read');
}

/**
 * Waits until so many statements wait for locks that others hold.
 * @param sql may be a transaction, which would see the same answer for ever
 */
export const untilLocked = (sql: Sql | TransactionSql, count: number): Promise<void> =>
  untilSql(async () => {
    await sql`select pg_stat_clear_snapshot()`;
    const waiting = await sql`
      select from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`;
    return waiting.length >= count;
  }, `${count} statements wait for locks`);

/** Terminates a backend, as an administrator or a failover does. Resolves when it has ended. */
export async function kill({ sql }: TestDatabase, pid: number): Promise<void> {
  await sql`select pg_terminate_backend(${pid})`;
  const isGone = async () =>
    (await sql`select 1 from pg_stat_activity where pid = ${pid}`).length === 0;
  await untilSql(isGone, 'the backend has ended');
}

/** The backend that runs a statement with this text. */
export async function runningPid({ sql }: TestDatabase, text: string): Promise<number> {
  let pid = 0;
  await untilSql(async () => {
    const [found] = await sql<Array<{ pid: number }>>`
      select pid from pg_stat_activity
      where state = 'active' and query like ${`%${text}%`} and pid <> pg_backend_pid()
        and datname = current_database()`;
    pid = found?.pid ?? 0;
    return pid !== 0;
  }, `a statement with ${text} runs`);
  return pid;
}
