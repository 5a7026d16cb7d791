import { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import postgres, { type Sql } from 'postgres';
import { Unavailable } from '../runtime/errors.ts';
import type { Log } from '../runtime/log.ts';
import { type PoolName, settingsOf, TYPES } from './connection-settings.ts';
import type { Dialed } from './dial.ts';
import { Unreachable } from './errors.ts';
import { type DatabaseAddress, type Host, hostList } from './url.ts';

/** A client of `postgres` for exactly one connection, which one call uses at a time. */
export interface Client {
  readonly sql: Sql;
  readonly host: Host;
  readonly pool: PoolName;
  /** Identifies the server behind `host`; null until the connection is ready. */
  server: string | null;
  isBusy: boolean;
  /** Whether no further call may use it. */
  isRetired: boolean;
  /** A statement under way may finish within this time. */
  close(seconds: number): Promise<void>;
}

/** How long a closing server may take to close its side. */
const CLOSE_MS = 250;
/**
 * A process that was suspended finds its timers expired before it reads what has arrived, so an
 * overdue answer has this time more.
 */
const GRACE_MS = 1_000;

/** All others are set below: `postgres` takes missing ones from PG… environment variables. */
const FIXED_OPTIONS = {
  sslnegotiation: null,
  keep_alive: 30,
  backoff: () => 0,
  max: 1,
  max_pipeline: 1,
  max_lifetime: null,
  idle_timeout: 0,
  prepare: true,
  debug: false,
  fetch_types: false,
  types: TYPES,
  publications: '',
};

/**
 * A statement without an answer for DATABASE_DEAD_AFTER ends the connection.
 * @param onEnd called when the connection has ended: the client must not be used any more
 */
export function connect(
  address: DatabaseAddress,
  { host, socket }: Dialed,
  pool: PoolName,
  name: string,
  log: Log,
  onEnd: (client: Client) => void,
): Client {
  const { database, user, password } = address;
  const options = {
    ...FIXED_OPTIONS,
    host: host.name,
    port: host.port,
    database,
    username: user,
    password: () => password, // a function, because an empty string would be replaced by PGPASSWORD
    ssl: sslOf(address, host),
    connect_timeout: address.connectSeconds,
    connection: { application_name: `${address.applicationName}-${name}` },
    socket: giveOnce(socket),
    onclose() {
      // Work that goes on must fail, instead of waiting for another connection.
      void client.close(0);
      onEnd(client);
    },
    onnotice: (notice: postgres.Notice) =>
      log.debug('database notice', { code: notice.code ?? '' }),
  };
  const sql = postgres(options);
  const client: Client = {
    sql,
    host,
    pool,
    server: null,
    isBusy: true,
    // A change of the schema has a connection of its own.
    isRetired: pool === 'migration',
    async close(seconds) {
      await sql.end({ timeout: seconds });
      setTimeout(() => socket.destroy(), CLOSE_MS).unref();
    },
  };
  const limitMs = address.limits.DATABASE_DEAD_AFTER * 1_000 - GRACE_MS;
  const closeIfSilent = (received: number, sent: number) => {
    const isSilent = socket.bytesRead === received && socket.bytesWritten === sent;
    if (isSilent) void client.close(0);
  };
  socket.setTimeout(limitMs).on('timeout', () => {
    socket.setTimeout(limitMs); // after a timeout, a write does not start it again
    // A change of the schema may take hours.
    const mayTakeLong = pool === 'migration' && client.server !== null;
    if (!client.isBusy || mayTakeLong) return;
    setTimeout(closeIfSilent, GRACE_MS, socket.bytesRead, socket.bytesWritten).unref();
  });
  return client;
}

/**
 * By default, `postgres` 3.4.9 reconnects and resends the statements that were unanswered on the
 * old connection, or connects again and again, without a pause, to a proxy that closes at once. So
 * the second socket that it asks for is a closed one.
 */
function giveOnce(socket: Socket) {
  let isGiven = false;
  return async () => {
    if (!isGiven && !socket.destroyed) {
      isGiven = true;
      return socket;
    }
    await null; // `postgres` does not listen yet for an error that is raised at once
    const closed = { code: 'CONNECTION_CLOSED' };
    return new Socket().destroy(Object.assign(new Error('reconnected'), closed));
  };
}

function sslOf({ sslmode, certificates }: DatabaseAddress, { name: host }: Host) {
  // As libpq: a Unix socket needs no encryption, and no server offers it there.
  if (sslmode === 'disable' || host.startsWith('/')) return false;
  if (sslmode === 'prefer') return sslmode;
  const own = certificates && { secureContext: certificates.context };
  if (sslmode === 'require') return { rejectUnauthorized: false, ...own };
  // For an IP address `postgres` gives no name, and Node would check the certificate for
  // "localhost".
  const verified = {
    rejectUnauthorized: true,
    host,
    ...own,
  };
  return sslmode === 'verify-ca' ? { ...verified, checkServerIdentity: () => undefined } : verified;
}

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
  openOther: () => Promise<Client>,
) {
  const wanted = JSON.stringify(settingsOf(limits.DATABASE_STATEMENT_TIMEOUT, pool));
  // Two statements in one round trip: the settings are constants. Citus finds the shard of a row by
  // the values of a statement, so it must not plan once.
  const settings = sql.unsafe(`json_each_text('${wanted}')`);
  const [, rows] = await sql`
    select set_config(key, case when key = 'plan_cache_mode'
      and to_regproc('citus_version') is not null then 'auto' else value end, false)
    from ${settings}
    where current_setting(key, true) is not null;
    select pg_backend_pid() as pid, pg_postmaster_start_time()::text as server,
      bool_and(current_setting(key, true) = value or key = 'plan_cache_mode') as is_kept,
      current_setting('session_replication_role') = 'origin' as has_foreign_keys,
      current_setting('server_encoding') in ('UTF8', 'SQL_ASCII') as has_all_characters,
      json_build_object('read-write', current_setting('transaction_read_only') = 'off',
        'primary', not pg_is_in_recovery(), 'any', true) as fits
    from ${settings}`.simple();
  const row = rows?.[0];
  if (!row?.fits[target]) {
    throw new Unreachable(
      `the server at ${hostList([host])} is not ${target}, as target_session_attrs requires`,
    );
  }
  if (!row.is_kept) throw new Unavailable(POOLED, false);
  if (!row.has_foreign_keys) throw new Unavailable(WITHOUT_FOREIGN_KEYS, false);
  if (!row.has_all_characters) throw new Unavailable(WITHOUT_CHARACTERS, false);
  // A pooler makes up the process id that it sends at the start of a connection.
  const isPooled = rows?.state.pid !== row.pid;
  if (isPooled) await requireOwnProcess(row.pid, sql, await openOther());
  return row.server;
}

/** @throws Unavailable unless the pooler keeps a server process for each connection */
async function requireOwnProcess(own: unknown, sql: Sql, other: Client) {
  const late = sleep(COMPARISON_MS, null, { ref: false });
  try {
    const isKept = await Promise.race([keepsProcesses(own, sql, other.sql), late]);
    if (isKept === false) throw new Unavailable(POOLED, false);
    // No second connection in time.
    if (isKept === null) throw new Unavailable(POOL_TOO_SMALL);
  } finally {
    await other.close(0);
  }
}

/**
 * Outside its session mode, a pooler gives a connection any server process for each transaction, so
 * that settings and prepared statements are lost. An idle pooler gives both connections the last
 * process, or each connection several processes in turn.
 */
async function keepsProcesses(own: unknown, first: Sql, second: Sql) {
  const others = new Set<unknown>();
  for (let round = 0; round < COMPARISONS; round += 1) {
    for (const sql of [second, second, first, first]) {
      const [row] = await sql`select pg_backend_pid() as pid`.simple();
      if (sql === second) others.add(row?.pid);
      else if (row?.pid !== own) return false;
    }
  }
  return others.size === 1 && !others.has(own);
}
