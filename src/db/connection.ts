import { Socket } from 'node:net';
import { userInfo } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import postgres, { type Sql } from 'postgres';
import { Unavailable } from '../runtime/errors.ts';
import type { Log } from '../runtime/log.ts';
import { Expected, type Variable } from '../runtime/variables.ts';

const SSL_MODES = ['disable', 'prefer', 'require', 'verify-ca', 'verify-full'] as const;

export type DatabaseAddress = Readonly<{
  host: string; port: number; database: string; user: string; password: string;
  /** As in libpq: `prefer` encrypts if the server can, `require` insists, `verify-*` also check the certificate. */
  sslmode: (typeof SSL_MODES)[number];
}>;

/** A placeholder, so that the other settings are checked too. */
export const NO_DATABASE: DatabaseAddress =
  { host: '', port: 0, database: '', user: '', password: '', sslmode: 'disable' };

export const isThisHost = (host: string): boolean =>
  host.startsWith('/') || ['localhost', '127.0.0.1', '::1'].includes(host);

const URL_FORM = 'postgres://user:password@host:5432/database, with "sslmode" as its only parameter';

/** A variable that holds a database URL. */
export const databaseUrl = (): Variable<DatabaseAddress | null> => ({ fallback: '–', unset: null, parse });

/** Rejects unknown parameters, which `postgres` would send to the server. */
function parse(text: string): DatabaseAddress | Expected {
  try {
    const url = new URL(text);
    const parts = [url.pathname.slice(1), url.username, url.password].map(decodeURIComponent);
    const [database = '', user, password = ''] = parts;
    const host = decodeURIComponent(url.hostname).replace(/^\[(.*)\]$/, '$1') || 'localhost';
    const names = [...url.searchParams.keys()].join();
    const isOne = /^postgres(ql)?:$/.test(url.protocol) && database !== '' && !host.includes(',');
    // U+0000 ends a string in PostgreSQL's protocol: the rest would be read as another field.
    const hasEnd = parts.join('').includes('\0');
    if (!isOne || hasEnd || !['', 'sslmode'].includes(names)) return new Expected(URL_FORM);
    const given = url.searchParams.get('sslmode') ?? (isThisHost(host) ? 'disable' : 'prefer');
    const sslmode = SSL_MODES.find((mode) => mode === given);
    if (!sslmode) return new Expected(`a URL whose sslmode is one of ${SSL_MODES.join(', ')}`);
    return { host, port: Number(url.port || 5432), database, user: user || userInfo().username, password, sslmode };
  } catch {
    return new Expected(URL_FORM); // not a URL, or malformed percent escapes in it
  }
}

/** A client of `postgres` for exactly one connection. */
export interface Client {
  /** Rejects if the connection cannot be opened, or does not have what its callers rely on. */
  readonly ready: Promise<Sql>;
  calls: number; // under way, as counted by the user of this client
  bytes(): { readonly received: number; readonly sent: number };
  /** Statements under way may finish within this time. Then they fail, and those that wait too. */
  close(seconds: number): Promise<void>;
}

export const STATEMENT_MS = 10_000; // the server ends a statement, and an idle transaction, after this time
const GOODBYE_MS = 250; // how long a closing server may take to close its side
/** As PostgreSQL shows them. */
const SETTINGS = {
  statement_timeout: `${STATEMENT_MS / 1_000}s`, idle_in_transaction_session_timeout: `${STATEMENT_MS / 1_000}s`,
  // An acknowledged write must survive a crash, whatever the default of the server or the role.
  synchronous_commit: 'on', TimeZone: 'UTC',
} as const;
/** Plans once, by the indexes: planning costs more than a point read, and a plan made for a small table would stay. */
const OFF = { enable_seqscan: 'off', enable_hashjoin: 'off', enable_mergejoin: 'off', jit: 'off' } as const;
const BY_INDEX = { plan_cache_mode: 'force_generic_plan', ...OFF } as const;
export const LOCK_MS = 5; // how long a statement may wait for a lock while others wait for its connection
const BRIEFLY = { lock_timeout: `${LOCK_MS}ms` } as const;
/** `claim`: in the order of an index, without reading all and sorting. `check` serves only to check another one. */
const KINDS = {
  read: BY_INDEX, write: { ...BY_INDEX, ...BRIEFLY }, transaction: BRIEFLY,
  claim: { ...BY_INDEX, enable_bitmapscan: 'off' }, readiness: { work_mem: '64kB' }, other: {}, check: {},
  search: { statement_timeout: '2s' }, migration: { statement_timeout: '0', lock_timeout: '0' },
} as const;
export type Kind = keyof typeof KINDS;

/**
 * After some errors, recognised by this field, `postgres` 3.4.9 sends the statement again without holding back those
 * behind it. All later results then go to the wrong callers. Without the field, the error goes to its caller.
 */
Object.defineProperty(postgres.PostgresError.prototype, 'routine', { set() {}, configurable: true });

/**
 * Opens a client, which never connects again. Left to itself, `postgres` 3.4.9 reconnects and resends what was left of
 * the old connection's statements, or dials without a pause a proxy that closes at once.
 * @param onEnd called when the connection has ended or is not fit for use: the client must not be used any more
 * @param kind `read` and `write` are for statements that find their rows by an index, whatever their values
 */
export function connect(
  address: DatabaseAddress, name: string, log: Log, onEnd: (client: Client) => void, kind: Kind,
): Client {
  const { host, port, database, user, password, sslmode } = address;
  let socket: Socket | null = null;
  // Every option is set: `postgres` takes missing ones from PG… variables of the environment.
  const options = {
    host, port, database, username: user,
    password: () => password, // a function, because an empty string would be replaced by PGPASSWORD
    ssl: sslOf(host, sslmode), sslnegotiation: null, connect_timeout: 5, keep_alive: 30, backoff: () => 0,
    max: 1, max_pipeline: 1_000, max_lifetime: null, idle_timeout: 0,
    prepare: true, debug: false, fetch_types: false, publications: '',
    connection: { application_name: `gatehouse-${name}` },
    // Asynchronous: `postgres` does not listen yet for an error raised at once (EMFILE), which would end the process.
    async socket() {
      await null;
      const ended = () => Object.assign(new Error('reconnected'), { code: 'CONNECTION_CLOSED' });
      return socket ? new Socket().destroy(ended()) : (socket = dial(host, port));
    },
    onclose: () => onEnd(client),
    onnotice: (notice: postgres.Notice) => log.debug('database notice', { code: notice.code ?? '' }),
  };
  const sql = postgres(options);
  const openOther = () => connect(address, name, log, () => {}, 'check');
  const client: Client = {
    ready: prepare(sql, { ...SETTINGS, ...KINDS[kind] }, kind === 'check' ? null : openOther),
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
async function prepare(sql: Sql, settings: Readonly<Record<string, string>>, openOther: (() => Client) | null) {
  const wanted = JSON.stringify(settings);
  await sql`select set_config(key, value, false) from json_each_text(${wanted}::text::json)`;
  const rows = await sql`
    select pg_backend_pid() as pid, json_object_agg(key, current_setting(key)) as found
    from json_object_keys(${wanted}::text::json) as key`;
  const isKept = Object.entries(settings).every(([key, value]) => rows[0]?.found[key] === value);
  // A pooler makes up the process id that it sends at the start of a connection.
  const isPooled = openOther !== null && rows.state.pid !== rows[0]?.pid;
  if (isKept && !(isPooled && (await sharesProcesses(sql, openOther())))) return sql;
  const problem = 'a connection pooler or proxy does not keep the settings of a connection';
  throw new Unavailable(`${problem}; set its pool mode to session, or connect to PostgreSQL directly`, false);
}

/**
 * Outside its session mode, a pooler gives a connection any server process for each transaction, so that settings and
 * prepared statements are lost. While nothing else runs, that is the process used last, or each of them in turn.
 */
async function sharesProcesses(sql: Sql, second: Client): Promise<boolean> {
  const processId = async (client: Sql) => (await client`select pg_backend_pid() as pid`.simple())[0]?.pid;
  const compare = async () => {
    const [other, own, others] = [await second.ready, new Set(), new Set()];
    for (let round = 0; round < 4; round += 1) {
      own.add(await processId(sql)).add(await processId(sql));
      others.add(await processId(other)).add(await processId(other));
    }
    return own.size > 1 || others.size > 1 || new Set([...own, ...others]).size < 2;
  };
  const isShared = await Promise.race([compare(), sleep(5_000, null, { ref: false })]).finally(() => second.close(0));
  if (isShared !== null) return isShared;
  throw new Unavailable('the connection pooler has too few connections; raise its pool size', true);
}

/** `postgres` reads `host` to check the certificate's name. */
function dial(host: string, port: number): Socket {
  const socket = Object.assign(new Socket(), { host });
  return host.startsWith('/') ? socket.connect(`${host}/.s.PGSQL.${port}`) : socket.connect(port, host);
}

function sslOf(host: string, sslmode: DatabaseAddress['sslmode']): boolean | 'prefer' | object {
  if (sslmode === 'disable') return false;
  if (sslmode === 'prefer') return 'prefer';
  if (sslmode === 'require') return { rejectUnauthorized: false };
  // For an IP address `postgres` gives no name, and Node would check the certificate for "localhost".
  const verified = { rejectUnauthorized: true, host };
  return sslmode === 'verify-ca' ? { ...verified, checkServerIdentity: () => undefined } : verified;
}
