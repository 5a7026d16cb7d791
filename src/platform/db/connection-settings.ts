/** What each connection sets, so that no setting of the server, the database or the role counts. */

const BY_INDEX = {
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  jit: 'off',
};
/**
 * Plans once, by the indexes: planning costs more than a point read, and a plan made for a small
 * table would stay.
 */
const PLANNED_ONCE = { ...BY_INDEX, plan_cache_mode: 'force_generic_plan' };
/** A statement that meets a lock gives its connection up, and is repeated in the pool `lock`. */
export const LOCK_MS = 5;
const BRIEF_LOCKS = { lock_timeout: `${LOCK_MS}ms` };

/** Equal connections: how many at most, and what they set. */
export const POOLS = {
  /** Reads by an index, with any values. */
  read: { size: 2, settings: PLANNED_ONCE },
  /** Statements and transactions that find their rows by an index, with any values. */
  write: { size: 3, settings: { ...PLANNED_ONCE, ...BRIEF_LOCKS } },
  /** Statements and transactions that met a lock. */
  lock: { size: 1, settings: {} },
  /** Lists and other reads that may take long. */
  list: { size: 1, settings: {} },
  /**
   * Claims of work, which lists must not delay. In the order of an index, without reading all and
   * sorting.
   */
  claim: { size: 1, settings: { ...PLANNED_ONCE, enable_bitmapscan: 'off' } },
  /** Readiness checks, which requests must not delay. */
  readiness: { size: 1, settings: { work_mem: '64kB' } },
  /** For `maintain`. */
  migration: { size: 1, settings: { statement_timeout: '0' } },
};
export type PoolName = keyof typeof POOLS;

/** For a read whose length a caller chooses. */
export const SEARCH_SETTINGS = { ...BY_INDEX, statement_timeout: '2s' };

/**
 * The same for each connection, in the form that PostgreSQL shows, because `prepare` compares it.
 */
const FIXED = {
  // An acknowledged write must survive a crash.
  synchronous_commit: 'on',
  // The form of values, as they are written here and read by the driver.
  client_encoding: 'UTF8',
  standard_conforming_strings: 'on',
  array_nulls: 'on',
  bytea_output: 'hex',
  extra_float_digits: '1',
  quote_all_identifiers: 'off',
  DateStyle: 'ISO, MDY',
  IntervalStyle: 'postgres',
  TimeZone: 'UTC',
  timezone_abbreviations: 'Default',
  // A function or an operator of another schema must not come before one of PostgreSQL.
  search_path: 'pg_catalog, public, pg_temp',
  // A search by a GIN index must find all rows.
  gin_fuzzy_search_limit: '0',
  // A statement that waited for a row continues with its new version, instead of failing.
  default_transaction_isolation: 'read committed',
  // Only the limits of this program end what a request waits for.
  lock_timeout: '0',
  idle_session_timeout: '0',
  transaction_timeout: '0', // since PostgreSQL 17
};

export function settingsOf(limitSeconds: number, pool: PoolName) {
  const limit = limitSeconds % 60 === 0 ? `${limitSeconds / 60}min` : `${limitSeconds}s`;
  return {
    ...FIXED,
    statement_timeout: limit,
    idle_in_transaction_session_timeout: limit,
    ...POOLS[pool].settings,
  };
}

/**
 * The parsers of `postgres` 3.4.9 return an empty buffer for bytes in another form, and exchange
 * day and month in some dates. A wrong value must be an error instead.
 */
export const TYPES = {
  bytea: {
    to: 17,
    from: [17],
    serialize: (bytes: Uint8Array) => `\\x${Buffer.from(bytes).toString('hex')}`,
    parse(text: string) {
      const bytes = Buffer.from(text.slice(2), 'hex');
      if (!text.startsWith('\\x') || bytes.length * 2 !== text.length - 2) throw unreadable();
      return bytes;
    },
  },
  date: {
    to: 1184,
    from: [1082, 1114, 1184],
    serialize: (date: Date | string) => new Date(date).toISOString(),
    parse(text: string) {
      if (!/^\d{4}-/.test(text)) throw unreadable();
      return new Date(text);
    },
  },
};

const unreadable = () => new Error('the database returned a value in an unknown form');
