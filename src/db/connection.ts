import { Socket } from 'node:net';
import { userInfo } from 'node:os';
import postgres, { type Sql } from 'postgres';
import type { Log } from '../runtime/log.ts';
import { Expected, type Variable } from '../runtime/variables.ts';

const SSL_MODES = ['disable', 'prefer', 'require', 'verify-ca', 'verify-full'] as const;

/** Where a database is and how to speak to it; checked by the configuration. */
export interface DatabaseAddress {
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
  readonly password: string;
  /** As in libpq: `prefer` encrypts if the server can, `require` insists, `verify-*` also check the certificate. */
  readonly sslmode: (typeof SSL_MODES)[number];
}

/** Stands in where a problem is reported, so that the rest can still be checked. */
export const NO_DATABASE: DatabaseAddress = { host: '', port: 0, database: '', user: '', password: '', sslmode: 'disable' };

export const isThisHost = (host: string): boolean => host.startsWith('/') || ['localhost', '127.0.0.1', '::1'].includes(host);

const URL_FORM = 'postgres://user:password@host:5432/database, with "sslmode" as its only parameter';

/** A variable that holds a database URL. */
export function databaseUrl(): Variable<DatabaseAddress | null> {
  const parse = (text: string) => {
    try {
      return parseDatabaseUrl(new URL(text));
    } catch {
      return new Expected(URL_FORM); // not a URL, or malformed percent escapes in it
    }
  };
  return { fallback: '–', unset: null, parse };
}

/** `postgres` would send parameters it does not know to the server; here an unknown one is rejected. */
function parseDatabaseUrl(url: URL): DatabaseAddress | Expected {
  const [database = '', user, password = ''] = [url.pathname.slice(1), url.username, url.password].map(decodeURIComponent);
  const host = decodeURIComponent(url.hostname).replace(/^\[(.*)\]$/, '$1') || 'localhost';
  const names = [...url.searchParams.keys()].join();
  const isOne = /^postgres(ql)?:$/.test(url.protocol) && database !== '' && !host.includes(',');
  if (!isOne || !['', 'sslmode'].includes(names)) return new Expected(URL_FORM);
  const given = url.searchParams.get('sslmode');
  const byHost = isThisHost(host) ? 'disable' : 'prefer';
  const sslmode = given === null ? byHost : SSL_MODES.find((mode) => mode === given);
  if (!sslmode) return new Expected(`a URL whose sslmode is one of ${SSL_MODES.join(', ')}`);
  // U+0000 ends a text in PostgreSQL's protocol: what follows it would be read as another field.
  if (`${database}${user}${password}`.includes('\0')) return new Expected(URL_FORM);
  return { host, port: Number(url.port || 5432), database, user: user || userInfo().username, password, sslmode };
}

/** A client of `postgres` for exactly one connection, and whether that connection has ended. */
export interface Client {
  readonly sql: Sql;
  ended: boolean;
  /** Lets statements under way finish for at most so many seconds; who still waits then is told that it failed. */
  close(seconds: number): Promise<void>;
}

/** The server ends a statement, or a transaction in which nothing happens, after this long. */
export const STATEMENT_MS = 10_000;
/** One plan for good, by the indexes: to plan anew costs several times what such a statement does, and a plan that was made for a small table stays. */
const BY_INDEX = { plan_cache_mode: 'force_generic_plan', enable_seqscan: 'off', enable_hashjoin: 'off', enable_mergejoin: 'off', jit: 'off' } as const;

/** How long a server has to take leave once nothing more is asked of it. */
const LAST_WORD_MS = 250;

/**
 * Opens a client at its first statement. It lives as long as its one connection: `postgres` 3.4.9 itself would dial
 * again, and then send what was left of the old connection's statements, or dial for ever without a pause at a proxy
 * with no database behind it.
 * Every option is set here: what is left out, `postgres` would take from PG… environment variables.
 * @param onEnd called once when the connection has ended; the client must not be used again
 * @param isPlannedOnce for statements that find their rows by an index, whatever the values and however small a table was
 * when they were planned
 */
export function connect(address: DatabaseAddress, name: string, log: Log, onEnd: (client: Client) => void, isPlannedOnce = false): Client {
  let socket: Socket | null = null;
  const options = {
    host: address.host,
    port: address.port,
    database: address.database,
    username: address.user,
    // As a function: an empty text would be replaced by PGPASSWORD.
    password: () => address.password,
    ssl: sslOf(address),
    sslnegotiation: null,
    max: 1,
    max_pipeline: 1_000,
    max_lifetime: null,
    idle_timeout: 0,
    connect_timeout: 5,
    backoff: () => 0,
    keep_alive: 30,
    prepare: true,
    debug: false,
    fetch_types: false,
    publications: '',
    connection: {
      application_name: `gatehouse-${name}`,
      statement_timeout: STATEMENT_MS,
      idle_in_transaction_session_timeout: STATEMENT_MS,
      // An acknowledged write must survive a crash, whatever the server's or the role's default.
      synchronous_commit: 'on',
      TimeZone: 'UTC',
      ...(isPlannedOnce ? BY_INDEX : {}),
    },
    // Not in one step: what fails at once (EMFILE, ENETUNREACH) would be told before `postgres` listens, and end the process.
    async socket() {
      await null;
      return socket ? deadEnd() : (socket = dial(address));
    },
    onclose() {
      if (client.ended) return;
      client.ended = true;
      onEnd(client);
    },
    onnotice: (notice: postgres.Notice) => log.debug('database notice', { code: notice.code ?? '' }),
  };
  const client: Client = {
    sql: postgres(options),
    ended: false,
    async close(seconds) {
      await client.sql.end({ timeout: seconds });
      // A server that is busy, or gone without a word, would not close its side for a long time.
      await closedWithin(LAST_WORD_MS, socket);
      socket?.destroy();
    },
  };
  return client;
}

function closedWithin(milliseconds: number, socket: Socket | null): Promise<void> {
  return new Promise((resolve) => {
    if (!socket || socket.closed) return resolve();
    const timer = setTimeout(resolve, milliseconds);
    socket.once('close', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

function dial({ host, port }: DatabaseAddress): Socket {
  // `postgres` takes the name for the check of the certificate from here.
  const socket = Object.assign(new Socket(), { host });
  return host.startsWith('/') ? socket.connect(`${host}/.s.PGSQL.${port}`) : socket.connect(port, host);
}

/** A socket that fails, though not before somebody listens for its errors. */
function deadEnd(): Socket {
  const socket = new Socket();
  setImmediate(() => socket.destroy(Object.assign(new Error('a client has one connection'), { code: 'CONNECTION_CLOSED' })));
  return socket;
}

function sslOf({ host, sslmode }: DatabaseAddress): boolean | 'prefer' | object {
  if (sslmode === 'disable') return false;
  if (sslmode === 'prefer') return 'prefer';
  if (sslmode === 'require') return { rejectUnauthorized: false };
  // The host by name: for an IP address `postgres` gives none, and Node would check the certificate for "localhost".
  return { rejectUnauthorized: true, host, ...(sslmode === 'verify-ca' ? { checkServerIdentity: () => undefined } : {}) };
}
