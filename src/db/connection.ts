import { Socket } from 'node:net';
import postgres, { type Sql } from 'postgres';
import { Unavailable } from '../runtime/errors.ts';
import type { Log } from '../runtime/log.ts';
import { type DatabaseAddress, type Host, hostList } from './address.ts';

/** A client of `postgres` for exactly one connection. */
export interface Client {
  /** Rejects if the connection cannot be opened, or lacks a property that its callers rely on. */
  readonly ready: Promise<Sql>;
  readonly host: Host;
  calls: number; // under way, as counted by the user of this client
  bytes(): { readonly received: number; readonly sent: number };
  /** Statements under way may finish within this time. Then they fail, and those that wait too. */
  close(seconds: number): Promise<void>;
}

const GOODBYE_MS = 250; // how long a closing server may take to close its side
/** As PostgreSQL shows them. */
const settings = ({ limits }: DatabaseAddress, kind: Kind): Readonly<Record<string, string>> => {
  const { DATABASE_STATEMENT_TIMEOUT: limit } = limits;
  const time = limit % 60 === 0 ? `${limit / 60}min` : `${limit}s`;
  // An acknowledged write must survive a crash, regardless of the defaults of the server and the role.
  const common = { synchronous_commit: 'on', TimeZone: 'UTC' };
  return {
    statement_timeout: time,
    idle_in_transaction_session_timeout: time,
    ...common,
    ...KINDS[kind],
  };
};
/** Plans once, by the indexes: planning costs more than a point read, and a plan made for a small table would stay. */
const OFF = {
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  jit: 'off',
} as const;
const BY_INDEX = { plan_cache_mode: 'force_generic_plan', ...OFF } as const;
export const LOCK_MS = 5; // how long a statement may wait for a lock while others wait for its connection
const BRIEFLY = { lock_timeout: `${LOCK_MS}ms` } as const;
/** `claim`: in the order of an index, without reading all and sorting. `check` serves only to check another one. */
const KINDS = {
  read: BY_INDEX,
  write: { ...BY_INDEX, ...BRIEFLY },
  transaction: BRIEFLY,
  claim: { ...BY_INDEX, enable_bitmapscan: 'off' },
  readiness: { work_mem: '64kB' },
  other: {},
  check: {},
  search: { ...OFF, statement_timeout: '2s' },
  migration: { statement_timeout: '0', lock_timeout: '0' },
} as const;
export type Kind = keyof typeof KINDS;

/**
 * After some errors, recognized by this field, `postgres` 3.4.9 sends the statement again without holding back those
 * behind it. All later results then go to the wrong callers. Without the field, the error goes to its caller.
 */
Object.defineProperty(postgres.PostgresError.prototype, 'routine', {
  set() {},
  configurable: true,
});

/**
 * Opens a client, which never connects again. By default, `postgres` 3.4.9 reconnects and resends the statements that
 * were unanswered on the old one, or connects again and again, without a pause, to a proxy that closes at once.
 * @param host one of the hosts of the address
 * @param onEnd called when the connection has ended or is not fit for use: the client must not be used any more
 * @param kind `read` and `write` are for statements that find their rows by an index, with any values
 */
export function connect(
  address: DatabaseAddress,
  host: Host,
  name: string,
  log: Log,
  onEnd: (client: Client) => void,
  kind: Kind,
): Client {
  const { database, user, password } = address;
  let socket: Socket | null = null;
  // Every option is set: `postgres` takes missing ones from PG… variables of the environment.
  const options = {
    host: host.name,
    port: host.port,
    database,
    username: user,
    password: () => password, // a function, because an empty string would be replaced by PGPASSWORD
    ssl: sslOf(address, host),
    sslnegotiation: null,
    connect_timeout: address.connectSeconds,
    keep_alive: 30,
    backoff: () => 0,
    max: 1,
    max_pipeline: 1_000,
    max_lifetime: null,
    idle_timeout: 0,
    prepare: true,
    debug: false,
    fetch_types: false,
    publications: '',
    connection: { application_name: `${address.applicationName}-${name}` },
    // Asynchronous: `postgres` does not listen yet for an error raised at once (EMFILE), which would end the process.
    async socket() {
      await null;
      const ended = () => Object.assign(new Error('reconnected'), { code: 'CONNECTION_CLOSED' });
      return socket ? new Socket().destroy(ended()) : (socket = dial(host));
    },
    onclose: () => onEnd(client),
    onnotice: (notice: postgres.Notice) =>
      log.debug('database notice', { code: notice.code ?? '' }),
  };
  const sql = postgres(options);
  const openOther = () => connect(address, host, name, log, () => {}, 'check');
  const client: Client = {
    ready: prepare(sql, address, host, kind, openOther),
    host,
    calls: 0,
    bytes: () => ({ received: socket?.bytesRead ?? 0, sent: socket?.bytesWritten ?? 0 }),
    async close(seconds) {
      await sql.end({ timeout: seconds });
      setTimeout(() => socket?.destroy(), GOODBYE_MS).unref();
    },
  };
  client.ready.catch(() => onEnd(client));
  return client;
}

/** Not as startup parameters, which PgBouncer rejects or is told to ignore. What was set is read back. */
async function prepare(
  sql: Sql,
  address: DatabaseAddress,
  host: Host,
  kind: Kind,
  openOther: () => Client,
) {
  const wanted = settings(address, kind);
  const text = JSON.stringify(wanted);
  await sql`select set_config(key, value, false) from json_each_text(${text}::text::json)`;
  const rows = await sql`
    select pg_backend_pid() as pid, json_object_agg(key, current_setting(key)) as found,
      json_build_object('read-write', current_setting('transaction_read_only') = 'off',
        'primary', not pg_is_in_recovery(), 'any', true) as fits
    from json_object_keys(${text}::text::json) as key`;
  const [row] = rows;
  const unfit = `the server at ${hostList([host])} is not ${address.target}, as target_session_attrs requires`;
  if (!row?.fits[address.target]) throw new Unavailable(unfit, true);
  const isKept = Object.entries(wanted).every(([key, value]) => row.found[key] === value);
  // A pooler makes up the process id that it sends at the start of a connection.
  const isPooled = kind !== 'check' && rows.state.pid !== row.pid;
  if (
    isKept &&
    !(isPooled && (await (await import('./pooler.ts')).sharesProcesses(sql, openOther())))
  )
    return sql;
  const problem = 'a connection pooler or proxy does not keep the settings of a connection';
  throw new Unavailable(
    `${problem}; set its pool mode to session, or connect to PostgreSQL directly`,
    false,
  );
}

/** `postgres` reads `host` to check the certificate's name. */
function dial({ name: host, port }: Host): Socket {
  const socket = Object.assign(new Socket(), { host });
  return host.startsWith('/')
    ? socket.connect(`${host}/.s.PGSQL.${port}`)
    : socket.connect(port, host);
}

function sslOf(
  { sslmode, certificates }: DatabaseAddress,
  { name: host }: Host,
): boolean | 'prefer' | object {
  // As libpq: a Unix socket needs no encryption, and no server offers it there.
  if (sslmode === 'disable' || host.startsWith('/')) return false;
  if (sslmode === 'prefer') return 'prefer';
  const own = certificates && { secureContext: certificates };
  if (sslmode === 'require') return { rejectUnauthorized: false, ...own };
  // For an IP address `postgres` gives no name, and Node would check the certificate for "localhost".
  const verified = { rejectUnauthorized: true, host, ...own };
  return sslmode === 'verify-ca' ? { ...verified, checkServerIdentity: () => undefined } : verified;
}
