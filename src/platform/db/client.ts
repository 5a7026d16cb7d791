import { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import postgres, { type Sql } from 'postgres';
import { Unavailable } from '../runtime/errors.ts';
import type { Log } from '../runtime/log.ts';
import { type Purpose, settingsOf, TYPES } from './connection-settings.ts';
import { type DatabaseAddress, type Host, hostList } from './url.ts';

/** A client of `postgres` for exactly one connection. */
export interface Client {
  /** Rejects if the connection cannot be opened, or lacks a property that its callers rely on. */
  readonly ready: Promise<Sql>;
  readonly host: Host;
  /** Identifies the server behind `host`; null until ready. */
  server: string | null;
  calls: number; // under way, as counted by the user of this client
  bytes(): { received: number; sent: number };
  /** Statements under way may finish within this time. Then they fail, and those that wait too. */
  close(seconds: number): Promise<void>;
}

/** How long a closing server may take to close its side. */
const CLOSE_MS = 250;
/** How long a pooler may take to open another connection. */
const COMPARISON_MS = 5_000;
const COMPARISONS = 4;

/**
 * After some errors, recognized by this field, `postgres` 3.4.9 sends the statement again without
 * holding back those behind it. All later results then go to the wrong callers. Without the field,
 * the error goes to its caller.
 */
Object.defineProperty(postgres.PostgresError.prototype, 'routine', {
  set() {},
  configurable: true,
});

/** All others are set below: `postgres` takes missing ones from PG… variables of the environment. */
const FIXED_OPTIONS = {
  sslnegotiation: null,
  keep_alive: 30,
  backoff: () => 0,
  max: 1,
  max_pipeline: 1_000,
  max_lifetime: null,
  idle_timeout: 0,
  prepare: true,
  debug: false,
  fetch_types: false,
  types: TYPES,
  publications: '',
};

/**
 * Opens a client, which never connects again. By default, `postgres` 3.4.9 reconnects and resends
 * the statements that were unanswered on the old one, or connects again and again, without a pause,
 * to a proxy that closes at once.
 * @param host one of the hosts of the address
 * @param onEnd called when the connection has ended or is not fit for use: the client must not be
 * used any more
 */
export function connect(
  address: DatabaseAddress,
  host: Host,
  name: string,
  log: Log,
  onEnd: (client: Client) => void,
  purpose: Purpose,
): Client {
  const { database, user, password } = address;
  let socket: Socket | null = null;
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
    // Asynchronous: `postgres` does not listen yet for an error raised at once (EMFILE), which
    // would end the process.
    async socket() {
      await null;
      if (socket) {
        const closed = { code: 'CONNECTION_CLOSED' };
        return new Socket().destroy(Object.assign(new Error('reconnected'), closed));
      }
      socket = dial(host);
      return socket;
    },
    onclose: () => onEnd(client),
    onnotice: (notice: postgres.Notice) =>
      log.debug('database notice', { code: notice.code ?? '' }),
  };
  const sql = postgres(options);
  const openOther = () => connect(address, host, name, log, () => {}, 'comparison');
  const client: Client = {
    ready: prepare(sql, address, host, purpose, openOther).then((server) => {
      client.server = server;
      return sql;
    }),
    host,
    server: null,
    calls: 0,
    bytes: () => ({ received: socket?.bytesRead ?? 0, sent: socket?.bytesWritten ?? 0 }),
    async close(seconds) {
      await sql.end({ timeout: seconds });
      setTimeout(() => socket?.destroy(), CLOSE_MS).unref();
    },
  };
  client.ready.catch(() => onEnd(client));
  return client;
}

const POOLED =
  'a connection pooler or proxy does not keep the settings of a connection; set its pool mode to session, or connect to PostgreSQL directly';

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
async function prepare(
  sql: Sql,
  address: DatabaseAddress,
  host: Host,
  purpose: Purpose,
  openOther: () => Client,
) {
  const { target, limits } = address;
  const wanted = JSON.stringify(settingsOf(limits.DATABASE_STATEMENT_TIMEOUT, purpose));
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
  if (purpose === 'comparison' || !isPooled) return row.server;
  const other = openOther();
  const timeout = sleep(COMPARISON_MS, null, { ref: false });
  try {
    // Null: no second connection in time.
    const isShared = await Promise.race([sharesProcesses(sql, other.ready), timeout]);
    if (isShared === false) return row.server;
    if (isShared) throw new Unavailable(POOLED, false);
  } finally {
    await other.close(0);
  }
  throw new Unavailable('the connection pooler has too few connections; raise its pool size');
}

/**
 * Outside its session mode, a pooler gives a connection any server process for each transaction, so
 * that settings and prepared statements are lost. An idle pooler gives both connections the last
 * process, or each connection several processes in turn.
 */
async function sharesProcesses(first: Sql, opening: Promise<Sql>) {
  const second = await opening;
  const ofFirst = new Set();
  const ofSecond = new Set();
  for (let round = 0; round < COMPARISONS; round += 1) {
    ofFirst.add(await processId(first)).add(await processId(first));
    ofSecond.add(await processId(second)).add(await processId(second));
  }
  const all = new Set([...ofFirst, ...ofSecond]);
  return ofFirst.size > 1 || ofSecond.size > 1 || all.size < 2;
}

async function processId(sql: Sql) {
  const [row] = await sql`select pg_backend_pid() as pid`.simple();
  return row?.pid;
}

/** `postgres` reads `host` to check the certificate's name. */
function dial({ name: host, port }: Host) {
  const socket = Object.assign(new Socket(), { host });
  return host.startsWith('/')
    ? socket.connect(`${host}/.s.PGSQL.${port}`)
    : socket.connect(port, host);
}

function sslOf({ sslmode, certificates }: DatabaseAddress, { name: host }: Host) {
  // As libpq: a Unix socket needs no encryption, and no server offers it there.
  if (sslmode === 'disable' || host.startsWith('/')) return false;
  if (sslmode === 'prefer') return sslmode;
  const own = certificates && { secureContext: certificates.context };
  if (sslmode === 'require') return { rejectUnauthorized: false, ...own };
  // For an IP address `postgres` gives no name, and Node would check the certificate for
  // "localhost".
  const verified = { rejectUnauthorized: true, host, ...own };
  return sslmode === 'verify-ca' ? { ...verified, checkServerIdentity: () => undefined } : verified;
}
