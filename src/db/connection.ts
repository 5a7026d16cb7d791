import { Socket } from 'node:net';
import postgres, { type Sql } from 'postgres';
import type { Log } from '../runtime/log.ts';

/** Where a database is and how to speak to it; checked by the configuration. */
export interface DatabaseAddress {
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
  readonly password: string;
  /** As in libpq: `prefer` encrypts if the server can, `require` insists, `verify-*` also check the certificate. */
  readonly sslmode: 'disable' | 'prefer' | 'require' | 'verify-ca' | 'verify-full';
}

/**
 * How often a new connection may close before the server has said a word, until its caller is told. `postgres` by
 * itself would go on for ever without a pause, for instance at a proxy with no database behind it.
 */
const MOST_SILENT_CLOSES = 5;

/**
 * One connection. Every option is set here: what is left out, `postgres` would take from PG… environment variables.
 * @param limitMs the server ends a statement after this long; 0 for never
 */
export function connect(address: DatabaseAddress, name: string, log: Log, limitMs: number): Sql {
  let silent = 0;
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
    // Connections are opened by demand only, so a failed one needs no growing pause: the callers behind it must not queue up.
    backoff: () => 0,
    keep_alive: 30,
    prepare: true,
    debug: false,
    fetch_types: false,
    publications: '',
    connection: {
      application_name: `gatehouse-${name}`,
      statement_timeout: limitMs,
      idle_in_transaction_session_timeout: limitMs,
      // An acknowledged write must survive a crash, whatever the server's or the role's default.
      synchronous_commit: 'on',
      TimeZone: 'UTC',
    },
    socket: () => dial(address, (silent += 1) <= MOST_SILENT_CLOSES),
    onparameter: () => void (silent = 0),
    onnotice: (notice: postgres.Notice) => log.debug('database notice', { code: notice.code ?? '' }),
  };
  return postgres(options);
}

/** A socket on its way, or one that goes nowhere: writing to that is an error, which is what the caller then gets. */
function dial({ host, port }: DatabaseAddress, goes: boolean): Socket {
  const socket = new Socket();
  // `postgres` takes the name for the check of the certificate from here.
  Object.assign(socket, { host });
  if (!goes) return socket;
  return host.startsWith('/') ? socket.connect(`${host}/.s.PGSQL.${port}`) : socket.connect(port, host);
}

function sslOf({ sslmode }: DatabaseAddress): boolean | 'prefer' | object {
  if (sslmode === 'disable') return false;
  if (sslmode === 'prefer') return 'prefer';
  if (sslmode === 'require') return { rejectUnauthorized: false };
  return sslmode === 'verify-ca' ? { rejectUnauthorized: true, checkServerIdentity: () => undefined } : { rejectUnauthorized: true };
}
