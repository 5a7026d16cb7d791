import { codeOf, TooSlow, Unavailable } from '../runtime/errors.ts';
import type { PoolName } from './connection-settings.ts';
import { type DatabaseAddress, hostList } from './url.ts';

/** A unique index rejected the row: the only failure of a statement that callers handle. */
export class Duplicate extends Error {
  override readonly name = 'Duplicate';
  readonly constraint: string;
  constructor(constraint: string) {
    super('a unique index rejected the row');
    this.constraint = constraint;
  }
}

/**
 * The database rejected a value of the statement, and would again, or cannot reach the node of a
 * row. None of it was done.
 */
export class Rejected extends Unavailable {}

/** No connection to a database that can be used. The message names hosts. */
export class Unreachable extends Unavailable {}

/** Another session holds a lock that the work needs. None of it was done. */
export class Locked extends Unavailable {}

// Codes, or how they begin.

/**
 * A serialization failure and a deadlock. READ COMMITTED seldom reports the first; distributed
 * databases do.
 */
const CONFLICTS = '40001 40P01';
/**
 * A table has changed since the statement was prepared, or a pooler has deallocated the statement.
 */
const STALE = '0A000 26000 42804 42883';
/**
 * The connection failed, or the server starts, stops, has no connection left or became read-only by
 * a failover.
 */
const CONNECTION_LOST =
  'ECONNREFUSED ECONNRESET EPIPE ETIMEDOUT ENOTFOUND EAI_AGAIN EHOSTUNREACH ENETUNREACH ENOENT ' +
  'CONNECT_TIMEOUT CONNECTION_ ERR_SOCKET_CLOSED 57P03 57P01 57P02 53300 25006';
/**
 * Connection trouble, no disk space or memory, a conflict, a lock, and the time limits of a
 * statement or session.
 */
const PASSING = '08 53 40001 40P01 55P03 57014 57P05 25P03 25P04';
/** A statement waited for a lock longer than its connection allows. */
export const LOCK_NOT_AVAILABLE = '55P03';
/** A statement took longer than its connection allows. */
const TOOK_TOO_LONG = '57014';

const isOneOf = (code: string, beginnings: string) =>
  beginnings.split(' ').some((beginning) => code.startsWith(beginning));

/** Whether the connection can no longer be used. After a FATAL error, the server closes it. */
export const endsConnection = (error: unknown) =>
  isOneOf(codeOf(error), CONNECTION_LOST) ||
  (error instanceof Error && 'severity' in error && error.severity === 'FATAL');
/** Whether the statement must be prepared again, on a new connection. None of it was done. */
export const isStale = (error: unknown) => isOneOf(codeOf(error), STALE);
/** Whether the work was undone, and may succeed if it is repeated. */
export const isRepeatable = (error: unknown) => isOneOf(codeOf(error), `${STALE} ${CONFLICTS}`);
/** Whether waiting may help, as opposed to a wrong password or a missing database. */
const isTemporary = (code: string) => isOneOf(code, `${CONNECTION_LOST} ${PASSING}`);

/**
 * Foreign errors end here: their message and `detail` may quote values, so only the code is kept.
 */
export function translate(
  error: unknown,
  { hosts, sslmode }: DatabaseAddress,
  pool: PoolName,
): unknown {
  const code = codeOf(error);
  const [, hint = ''] = Object.entries(HINTS).find(([codes]) => isOneOf(code, codes)) ?? [];
  const reason = hint === '' ? code : `${code}: ${hint}`;
  if (isServerError(error)) {
    if (code === '23505') return new Duplicate(error.constraint_name ?? '');
    const message = `the database returned an error (SQLSTATE ${reason})`;
    if (code === LOCK_NOT_AVAILABLE || isLockTimeout(error, pool)) return new Locked(message);
    if (code === TOOK_TOO_LONG && pool === 'list') return new TooSlow(message);
    if (ABOUT_DATA.test(code)) return new Rejected(message, isTemporary(code));
    return new Unavailable(message, isTemporary(code));
  }
  if (code === 'unknown') return error;
  const tls = sslmode === 'disable' ? '' : `, sslmode=${sslmode}`;
  return new Unreachable(
    `the connection to the database at ${hostList(hosts)} failed (${reason}${tls})`,
    isTemporary(code),
  );
}

type ServerError = Error & { readonly constraint_name?: string; readonly where?: string };

/** By its name: this module is loaded at the start, before the driver. */
const isServerError = (error: unknown): error is ServerError =>
  error instanceof Error && error.name === 'PostgresError';

/** Their waits for locks are so short that a limit or an administrator seldom ends one first. */
const WITH_LOCK_TIMEOUT: readonly PoolName[] = ['write', 'lock'];

/**
 * If a lock is granted while its timeout fires, PostgreSQL 15 reports at the next lock that a user
 * has canceled the statement (ProcessInterrupts). In any language, the context has the place of the
 * row: "while locking tuple (16,17) in relation".
 */
const isLockTimeout = (error: ServerError, pool: PoolName) =>
  codeOf(error) === TOOK_TOO_LONG &&
  WITH_LOCK_TIMEOUT.includes(pool) &&
  /\(\d+,\d+\)/.test(error.where ?? '');

/**
 * SQLSTATEs of a value, a constraint, a limit, an exception of a trigger, and a corrupted row.
 * Citus returns the last two if the node of a row does not answer.
 */
const ABOUT_DATA = /^(22|23|54|P0|XX00[12]|XX000|08006)/;

/** What the code of the server, of the system or of TLS means, and what to do. */
const HINTS = {
  '28P01': 'the user or the password in the database URL is wrong',
  '28000': 'the server does not accept this user; check its pg_hba.conf',
  '3D000': 'the database in the database URL does not exist',
  '42501': 'the role lacks a required privilege',
  '3F000 42P01 42703 42883':
    'the schema is of another version; run "gatehouse migrate", and if that does not help, see "Upgrade" in docs/deploy.md',
  '0A000 26000 42804': 'a table was changed again and again while it was read',
  '40001 40P01': 'other transactions changed the same rows, in every try',
  '55P03': 'another session holds a lock for too long',
  '57014': 'a statement took too long, or an administrator canceled it',
  '53300': 'no connection is left; raise max_connections, or the limit of the role or the database',
  '53100': "the server's disk is full; free space on it",
  '53200': 'the server has no memory left; lower its load or give it more',
  '53400': 'a limit in the configuration of the server was reached, such as temp_file_limit',
  '25006': 'the server accepts no writes, as a standby does; connect to the primary',
  '57P01 57P02': 'the server is shutting down or has crashed, or an administrator intervened',
  '57P03': 'the server is starting up or shutting down; wait, and look at its log',
  '57P04': 'the database was dropped',
  '58': 'the server cannot use one of its files; look at its log and its disk',
  'XX001 XX002': 'data on the disk of the server is damaged; look at its log',
  '22021 22P05': 'the database cannot store a character; its encoding must be UTF8',
  '08': 'the server or a pooler before it ended the connection; look at its log',
  ECONNREFUSED: 'no server listens there',
  'ENOTFOUND EAI_AGAIN': 'the name of the host is not found',
  'CONNECT_TIMEOUT ETIMEDOUT EHOSTUNREACH ENETUNREACH': 'no answer; check address and network',
  'ECONNRESET EPIPE CONNECTION_CLOSED': 'the server or the network ended it',
  'CERT_HAS_EXPIRED CERT_NOT_YET_VALID': 'the certificate of the server is not valid now',
  ERR_TLS_CERT_ALTNAME_INVALID: 'the certificate of the server is for another name',
  'DEPTH_ZERO_SELF SELF_SIGNED UNABLE_TO_': 'the certificate is of no authority in sslrootcert',
  ERR_SSL_: 'TLS failed; does the server require a certificate in sslcert?',
};
