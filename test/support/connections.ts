/** The database connections of a service, for tests that need nothing above them. */
import assert from 'node:assert/strict';
import type { Sql, TransactionSql } from 'postgres';
import { withConnection } from '../../scripts/postgres.ts';
import { readConfig } from './settings.ts';
import { createDatabase, type Database } from '../../src/platform/db/pool.ts';
import { createLog } from '../../src/platform/runtime/log.ts';
import { createMetrics } from '../../src/platform/runtime/metrics.ts';
import type { TestDatabase } from './database.ts';
import { pause } from './until.ts';
import type { Owner } from './owner.ts';

type Variables = Readonly<Record<string, string>>;

export function addressOf(url: string, more: Variables = {}) {
  const settings = { DATABASE_URL: url, ...more };
  const { identity } = readConfig(['identity'], 'administer', settings);
  return identity?.database ?? assert.fail();
}

/**
 * @param name PostgreSQL sees these connections as `gatehouse-NAME`
 * @param more further variables
 */
export function openConnections(owner: Owner, url: string, name: string, more: Variables = {}) {
  const log = createLog('silent', () => {});
  const database = createDatabase(addressOf(url, more), name, log, createMetrics());
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

/** One statement on the connection for this purpose. @returns its first row */
export function ask(database: Database, purpose: Purpose, statement: string) {
  const work = async (sql: Sql): Promise<Record<string, unknown>> => ({
    ...(await sql.unsafe(statement))[0],
  });
  return purpose === 'transaction' ? database.transaction(work) : database[purpose](work);
}

/** Polls PostgreSQL. */
export async function untilSql(condition: () => Promise<boolean>, what: string) {
  const begun = Date.now();
  while (!(await condition())) await pause(begun, () => `until ${what}`);
}

/**
 * Changes settings of a server, and waits until its processes have been told of them: the server
 * reads its files some time after `pg_reload_conf` has returned.
 * @param url of an administrator
 */
export async function changeSettings(url: string, ...statements: string[]) {
  const loadTime = () =>
    withConnection(url, async (sql) => {
      const [row] = await sql`select pg_conf_load_time()::text as time`;
      return row?.time;
    });
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
export const untilLocked = (sql: Sql | TransactionSql, count: number) =>
  untilSql(async () => {
    await sql`select pg_stat_clear_snapshot()`;
    const waiting = await sql`
      select from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`;
    return waiting.length >= count;
  }, `${count} statements wait for locks`);

/** Terminates a backend, as an administrator or a failover does. Resolves when it has ended. */
export async function kill({ sql }: TestDatabase, pid: number) {
  await sql`select pg_terminate_backend(${pid})`;
  const isGone = async () =>
    (await sql`select 1 from pg_stat_activity where pid = ${pid}`).length === 0;
  await untilSql(isGone, 'the backend has ended');
}
