import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { Unavailable } from '../runtime/errors.ts';
import type { Client } from './client.ts';
import { settingsOf } from './connection-settings.ts';
import { type DatabaseAddress, hostList } from './url.ts';

/** How long a pooler may take to open another connection. */
const COMPARISON_MS = 5_000;
const COMPARISONS = 4;

const POOLED =
  'a connection pooler or proxy does not keep the settings of a connection; set its pool mode to session, or connect to PostgreSQL directly';

const POOL_TOO_SMALL = 'the connection pooler has too few connections; raise its pool size';

/** Only a superuser may change it, so it is not set. */
const WITHOUT_FOREIGN_KEYS =
  'the database does not check foreign keys; reset session_replication_role of the role, the database and the server';

/** In SQL_ASCII, text is stored as the bytes that are sent. */
const WITHOUT_CHARACTERS =
  'the encoding of the database lacks characters; create a database with the encoding UTF8';

/**
 * Applies the settings and reads them back. Not as startup parameters, which PgBouncer rejects or
 * is told to ignore.
 * @returns when the server was started, which no other server has in common with it
 */
export async function prepare(
  { sql, host, pool }: Client,
  { target, limits }: DatabaseAddress,
  openOther: () => Client,
) {
  const wanted = JSON.stringify(settingsOf(limits.DATABASE_STATEMENT_TIMEOUT, pool));
  // Citus finds the shard of a row by the values of a statement, so it must not plan once.
  await sql`
    select set_config(key, case when key = 'plan_cache_mode'
      and to_regproc('citus_version') is not null then 'auto' else value end, false)
    from json_each_text(${wanted}::text::json)
    where current_setting(key, true) is not null`;
  const rows = await sql`
    select pg_backend_pid() as pid, pg_postmaster_start_time()::text as server,
      bool_and(current_setting(key, true) = value or key = 'plan_cache_mode') as is_kept,
      current_setting('session_replication_role') = 'origin' as has_foreign_keys,
      current_setting('server_encoding') in ('UTF8', 'SQL_ASCII') as has_all_characters,
      json_build_object('read-write', current_setting('transaction_read_only') = 'off',
        'primary', not pg_is_in_recovery(), 'any', true) as fits
    from json_each_text(${wanted}::text::json)`;
  const [row] = rows;
  if (!row?.fits[target]) {
    throw new Unavailable(
      `the server at ${hostList([host])} is not ${target}, as target_session_attrs requires`,
    );
  }
  if (!row.is_kept) throw new Unavailable(POOLED, false);
  if (!row.has_foreign_keys) throw new Unavailable(WITHOUT_FOREIGN_KEYS, false);
  if (!row.has_all_characters) throw new Unavailable(WITHOUT_CHARACTERS, false);
  // A pooler makes up the process id that it sends at the start of a connection.
  const isPooled = rows.state.pid !== row.pid;
  if (isPooled) await requireOwnProcess(sql, openOther());
  return row.server;
}

/** @throws Unavailable unless the pooler keeps a server process for each connection */
async function requireOwnProcess(sql: Sql, other: Client) {
  const late = sleep(COMPARISON_MS, null, { ref: false });
  try {
    const isShared = await Promise.race([sharesProcesses(sql, other.sql), late]);
    if (isShared) throw new Unavailable(POOLED, false);
    // No second connection in time.
    if (isShared === null) throw new Unavailable(POOL_TOO_SMALL);
  } finally {
    await other.close(0);
  }
}

/**
 * Outside its session mode, a pooler gives a connection any server process for each transaction, so
 * that settings and prepared statements are lost. An idle pooler gives both connections the last
 * process, or each connection several processes in turn.
 */
async function sharesProcesses(first: Sql, second: Sql) {
  const processOf = new Map<Sql, unknown>();
  for (let round = 0; round < COMPARISONS; round += 1) {
    for (const sql of [first, first, second, second]) {
      const id = await processId(sql);
      if (processOf.has(sql) && processOf.get(sql) !== id) return true;
      processOf.set(sql, id);
    }
  }
  return processOf.get(first) === processOf.get(second);
}

async function processId(sql: Sql) {
  const [row] = await sql`select pg_backend_pid() as pid`.simple();
  return row?.pid;
}
