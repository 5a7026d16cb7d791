import { codeOf } from '../runtime/errors.ts';

/** A serialization failure and a deadlock. READ COMMITTED seldom reports the first; distributed databases do. */
const RETRYABLE = new Set(['40001', '40P01']);
/** A table has changed since the statement was prepared, or a pooler has deallocated the statement. */
const STALE = new Set(['0A000', '26000', '42804', '42883']);
/** The connection failed, or the server starts, stops, has no connection left or became read-only by a failover. */
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
/** Connection trouble, no disk space or memory, a conflict, a lock, and the time limits of a statement or session. */
const PASSING = /^(08|53|40001|40P01|55P03|57014|57P05|25P0[34])/;
/** A statement waited for a lock longer than its connection allows. */
export const LOCK_NOT_AVAILABLE = '55P03';
const MAX_TRIES = 5;

/** Whether the connection can no longer be used. After a FATAL error, the server closes it. */
export const endsConnection = (error: unknown): boolean =>
  CONNECTION_LOST.has(codeOf(error)) ||
  (error instanceof Error && 'severity' in error && error.severity === 'FATAL');
/** Whether the statement must be prepared again, on a new connection. None of it was done. */
export const isStale = (error: unknown): boolean => STALE.has(codeOf(error));
/** Whether waiting may help, as opposed to a wrong password or a missing database. */
export const isTemporary = (error: unknown): boolean =>
  CONNECTION_LOST.has(codeOf(error)) || PASSING.test(codeOf(error));

/** Repeats work while the database reports stale statements, or after a short random pause a conflict. */
export async function withRetry<W, T>(run: (work: W) => Promise<T>, work: W): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await run(work);
    } catch (error) {
      if (attempt >= MAX_TRIES || !(RETRYABLE.has(codeOf(error)) || isStale(error))) throw error;
      if (isStale(error)) continue;
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 10 * 2 ** attempt));
    }
  }
}
