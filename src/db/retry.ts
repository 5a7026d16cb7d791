/**
 * SQLSTATEs that say "the same transaction may succeed when tried again": a serialisation failure and a deadlock.
 * PostgreSQL at READ COMMITTED seldom reports the first; compatible distributed engines do.
 */
const AGAIN = new Set(['40001', '40P01']);
/** "Somebody else has just made it": unique violation, and schema, table or object that already exists. */
const MADE = new Set(['23505', '42P06', '42P07', '42710']);
/** The server is there but cannot serve yet: starting up, shutting down, no place left for a connection, read-only after a failover. */
const NOT_YET = new Set(['57P03', '57P01', '57P02', '53300', '25006']);
/** A connection that failed before or while it served. */
const CONNECTION = new Set([
  'ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'ENOENT',
  'CONNECT_TIMEOUT', 'CONNECTION_CLOSED', 'CONNECTION_ENDED', 'CONNECTION_DESTROYED', 'ERR_SOCKET_CLOSED',
]);
/** Few: a request is waiting, and a conflict that lasts is not cured by a hundred tries. */
const TRIES = 5;

/** The SQLSTATE, or the code of a connection error; never the message, which may quote a value. */
export function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : 'unknown';
}

/** The constraint that a statement violated, if that is what happened. */
export function constraintOf(error: unknown): string | null {
  return error instanceof Error && 'constraint_name' in error && typeof error.constraint_name === 'string' ? error.constraint_name : null;
}

export const lostCreationRace = (error: unknown): boolean => MADE.has(codeOf(error));
export const isUniqueViolation = (error: unknown): boolean => codeOf(error) === '23505';
/** After these the connection is of no more use: the server ends it, or it has ended. */
export const endsConnection = (error: unknown): boolean => NOT_YET.has(codeOf(error)) || CONNECTION.has(codeOf(error));
/** Whether waiting may help, as opposed to a wrong password or a missing database. */
export const isTemporary = (error: unknown): boolean => endsConnection(error) || AGAIN.has(codeOf(error));

/** Runs short work again, after a short random pause, when the database asks for that. */
export async function withRetry<T>(work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work();
    } catch (error) {
      if (attempt >= TRIES || !AGAIN.has(codeOf(error))) throw error;
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 10 * 2 ** attempt));
    }
  }
}
