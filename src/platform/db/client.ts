import { Socket } from 'node:net';
import postgres, { type Sql } from 'postgres';
import type { Log } from '../runtime/log.ts';
import { type PoolName, TYPES } from './connection-settings.ts';
import type { DatabaseAddress, Host } from './url.ts';

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
  /** From now on, a statement without an answer for so long ends the connection. */
  watch(seconds: number): void;
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

/** All others are set below: `postgres` takes missing ones from PG… variables of the environment. */
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

/** @param onEnd called when the connection has ended: the client must not be used any more */
export function connect(
  address: DatabaseAddress,
  host: Host,
  pool: PoolName,
  name: string,
  log: Log,
  onEnd: (client: Client) => void,
): Client {
  const { database, user, password } = address;
  // `postgres` reads `host` to check the certificate's name.
  const socket = Object.assign(new Socket(), { host: host.name });
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
    socket: dialOnce(socket, host),
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
    isRetired: false,
    watch(seconds) {
      const limitMs = seconds * 1_000 - GRACE_MS;
      const closeIfSilent = (received: number, sent: number) => {
        const isSilent = socket.bytesRead === received && socket.bytesWritten === sent;
        if (isSilent) void client.close(0);
      };
      socket.setTimeout(limitMs).on('timeout', () => {
        socket.setTimeout(limitMs); // after a timeout, a write does not start it again
        const { bytesRead, bytesWritten } = socket;
        if (client.isBusy) setTimeout(closeIfSilent, GRACE_MS, bytesRead, bytesWritten).unref();
      });
    },
    async close(seconds) {
      await sql.end({ timeout: seconds });
      setTimeout(() => socket.destroy(), CLOSE_MS).unref();
    },
  };
  return client;
}

/**
 * By default, `postgres` 3.4.9 reconnects and resends the statements that were unanswered on the
 * old connection, or connects again and again, without a pause, to a proxy that closes at once. So
 * the second socket that it asks for is a closed one.
 */
function dialOnce(socket: Socket, { name, port }: Host) {
  let isDialed = false;
  // Asynchronous: `postgres` does not listen yet for an error raised at once (EMFILE), which would
  // end the process.
  return async () => {
    await null;
    if (isDialed) {
      const closed = { code: 'CONNECTION_CLOSED' };
      return new Socket().destroy(Object.assign(new Error('reconnected'), closed));
    }
    isDialed = true;
    return name.startsWith('/')
      ? socket.connect(`${name}/.s.PGSQL.${port}`)
      : socket.connect(port, name);
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
  const verified = { rejectUnauthorized: true, host, ...own };
  return sslmode === 'verify-ca' ? { ...verified, checkServerIdentity: () => undefined } : verified;
}
