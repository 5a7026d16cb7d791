import { codeOf, Unavailable } from '../runtime/errors.ts';
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

/** Another session holds a lock that the work needs. None of it was done. */
export class Locked extends Unavailable {}

/**
 * A serialization failure and a deadlock. READ COMMITTED seldom reports the first; distributed
 * databases do.
 */
const CONFLICTS = new Set(['40001', '40P01']);
/**
 * A table has changed since the statement was prepared, or a pooler has deallocated the statement.
 */
const STALE = new Set(['0A000', '26000', '42804', '42883']);
/**
 * The connection failed, or the server starts, stops, has no connection left or became read-only by
 * a failover.
 */
const CONNECTION_LOST = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOENT',
  'CONNECT_TIMEOUT',
  'CONNECTION_CLOSED',
  'CONNECTION_ENDED',
  'CONNECTION_DESTROYED',
  'ERR_SOCKET_CLOSED',
  '57P03',
  '57P01',
  '57P02',
  '53300',
  '25006',
]);
/**
 * Connection trouble, no disk space or memory, a conflict, a lock, and the time limits of a
 * statement or session.
 */
const PASSING = /^(08|53|40001|40P01|55P03|57014|57P05|25P0[34])/;
/** A statement waited for a lock longer than its connection allows. */
export const LOCK_NOT_AVAILABLE = '55P03';

/** Whether the connection can no longer be used. After a FATAL error, the server closes it. */
export const endsConnection = (error: unknown) =>
  CONNECTION_LOST.has(codeOf(error)) ||
  (error instanceof Error && 'severity' in error && error.severity === 'FATAL');
/** Whether the statement must be prepared again, on a new connection. None of it was done. */
export const isStale = (error: unknown) => STALE.has(codeOf(error));
/** Whether the work was undone, and may succeed if it is repeated. */
export const isRepeatable = (error: unknown) => isStale(error) || CONFLICTS.has(codeOf(error));
/** Whether waiting may help, as opposed to a wrong password or a missing database. */
const isTemporary = (code: string) => CONNECTION_LOST.has(code) || PASSING.test(code);

/**
 * Foreign errors end here: their message and `detail` may quote values, so only the code is kept.
 */
export function translate(error: unknown, { hosts, sslmode }: DatabaseAddress): unknown {
  const code = codeOf(error);
  if (isServerError(error)) {
    if (code === '23505') return new Duplicate(error.constraint_name ?? '');
    const message = `the database returned an error (SQLSTATE ${code}${HINTS[code] ?? ''})`;
    if (code === LOCK_NOT_AVAILABLE) return new Locked(message);
    if (ABOUT_DATA.test(code)) return new Rejected(message, isTemporary(code));
    return new Unavailable(message, isTemporary(code));
  }
  if (code === 'unknown') return error;
  const tls = sslmode === 'disable' ? '' : `, sslmode=${sslmode}`;
  return new Unavailable(
    `the connection to the database at ${hostList(hosts)} failed (${code}${tls})`,
    isTemporary(code),
  );
}

/** By its name: this module is loaded at the start, before the driver. */
const isServerError = (error: unknown): error is Error & { readonly constraint_name?: string } =>
  error instanceof Error && error.name === 'PostgresError';

/**
 * SQLSTATEs of a value, a constraint, a limit, an exception of a trigger, and a corrupted row.
 * Citus returns the last two if the node of a row does not answer.
 */
const ABOUT_DATA = /^(22|23|54|P0|XX00[12]|XX000|08006)/;

const HINTS: Readonly<Record<string, string>> = {
  '28P01': ': the user or the password in the database URL is wrong',
  '28000': ': the server does not accept this user; check its pg_hba.conf',
  '55P03': ': another session holds a lock for too long',
  '3D000': ': the database in the database URL does not exist',
  '42501': ': the role lacks a required privilege',
  '42P01': ': a table is missing; run "gatehouse migrate"',
};
