import { setTimeout as sleep } from 'node:timers/promises';
import type { Fragment, Sql } from 'postgres';
import { type Data, Unavailable } from '../runtime/errors.ts';
import { createLimiter } from '../runtime/limiter.ts';
import type { Log } from '../runtime/log.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { type Clients, createClients } from './clients.ts';
import { LOCK_MS, POOLS, type PoolName, SEARCH_SETTINGS } from './connection-settings.ts';
import { isRepeatable, Locked, translate } from './errors.ts';
import type { DatabaseAddress } from './url.ts';

export type { DatabaseAddress, Fragment, Sql };
export type Database = ReturnType<typeof createDatabase>;

/**
 * Work may run again after an error that undid it: a serialization failure, a deadlock, a lock, a
 * stale statement.
 */
export type Work<T> = (sql: Sql) => Promise<T>;
type Run = <T>(work: Work<T>) => Promise<T>;

const MAX_WAITING = 1_024; // calls of one pool
const MAX_WAIT_MS = 10_000;
const MAX_TRIES = 5;
/** How long a try waits for a lock while no other call waits for one. */
const ALONE_MS = 100;
/** The longest pause between two tries to get a lock. */
const MAX_PAUSE_MS = 500;
const PENDING_HELP = 'Statements and transactions under way or waiting, by kind of connection.';

/** Small pools of equal connections. A call has its connection for itself while it runs. */
export function createDatabase(address: DatabaseAddress, name: string, log: Log, metrics: Metrics) {
  const clients = createClients(address, name, log, metrics);
  function create(pool: PoolName) {
    const { run, pending } = createPool(clients, pool, address);
    countPending(pool, pending);
    return run;
  }
  function countPending(pool: PoolName, pending: () => number) {
    const labels = { service: name, connection: pool };
    metrics.gauge('gatehouse_database_pending', PENDING_HELP, pending, labels);
  }

  const read = create('read');
  const tryWrite = create('write');
  const list = create('list');
  const lock = createPool(clients, 'lock', address);
  const { wait, waiting } = createLockWait(lock.run, address.limits.DATABASE_LOCK_TIMEOUT);
  countPending('lock', waiting);
  /** Waits only if the work could not have its locks at once. */
  const write: Run = (work) =>
    tryWrite(work).catch((error: unknown) => {
      if (error instanceof Locked) return wait(work);
      throw error;
    });

  return {
    read,
    /** Single statements, which commit by themselves. */
    write,
    /** Throws `Locked` instead of waiting for a lock. */
    tryWrite,
    /** Statements that commit together. The work returns data: a `Failure` would commit. */
    transaction: <T extends Data>(work: Work<T>) => write((sql) => inTransaction(sql, work)),
    list,
    /** Reads whose length a caller chooses. */
    search: <T>(work: Work<T>) =>
      list((sql) => inTransaction(sql, () => limitSearch(sql).then(() => work(sql)))),
    claim: create('claim'),
    readiness: create('readiness'),
    /** Work of any length, on its own connection without statement and lock timeouts. */
    maintain: <T>(work: (sql: Sql, transaction: Run) => Promise<T>) =>
      clients
        .run('migration', (sql) => work(sql, (inner) => inTransaction(sql, inner)))
        .catch((error: unknown) => {
          throw translate(error, address, 'migration');
        }),
    /** Whether the connection for readiness is open. */
    isProbed: () => clients.isOpen('readiness'),
    /** Opens the connections that most requests need. @throws if one cannot be opened */
    ensureConnected: () =>
      Promise.all(
        Object.entries({
          read,
          write,
          list,
        }).map(([pool, run]) => (clients.isOpen(pool) ? null : run(async () => {}))),
      ),
    close: clients.close,
  };
}

function createPool(clients: Clients, pool: PoolName, address: DatabaseAddress) {
  const { size } = POOLS[pool];
  const slots = createLimiter(size, MAX_WAITING, 'a database connection', MAX_WAIT_MS);

  return {
    pending: () => slots.running() + slots.waiting(),
    async run<T>(work: Work<T>) {
      for (let tries = 1; ; tries += 1) {
        try {
          return await slots.run(() => clients.run(pool, work));
        } catch (error) {
          if (tries === MAX_TRIES || !isRepeatable(error)) throw translate(error, address, pool);
          await sleep(Math.random() * 10 * 2 ** tries);
        }
      }
    },
  };
}

/**
 * Repeats work until it gets its locks.
 * @param run on a connection where only calls that wait for a lock hold up each other, and briefly
 * @param seconds after which a call fails
 */
function createLockWait(run: Run, seconds: number) {
  let waiting = 0;
  /** Whether no other call has to wait for this one. */
  const isAlone = () => waiting === 1;
  async function repeat<T>(work: Work<T>) {
    const end = performance.now() + seconds * 1_000;
    for (let pauseMs = 10; ; pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS)) {
      try {
        return await run(async (sql) => {
          const timeoutMs = isAlone() ? ALONE_MS : LOCK_MS;
          await sql`select set_config('lock_timeout', ${String(timeoutMs)}, false)`;
          return work(sql);
        });
      } catch (error) {
        if (!(error instanceof Locked) || performance.now() >= end) throw error;
      }
      if (!isAlone()) await sleep(pauseMs);
    }
  }
  return {
    waiting: () => waiting,
    async wait<T>(work: Work<T>) {
      waiting += 1;
      try {
        return await repeat(work);
      } finally {
        waiting -= 1;
      }
    },
  };
}

/**
 * Not `begin` of `postgres` 3.4.9, which sends its `rollback` into an ended connection and throws
 * where no caller can catch it. Here all further work after the connection's end fails, because no
 * client reconnects. A simple query is not prepared: the driver would send a `commit` again that
 * its server process does not know, and PostgreSQL would roll back without an error.
 */
async function inTransaction<T>(sql: Sql, work: Work<T>) {
  await sql`begin isolation level read committed`.simple();
  try {
    const result = await work(sql);
    const { command } = await sql`commit`.simple();
    if (command !== 'COMMIT') throw new Unavailable('the transaction was rolled back');
    return result;
  } catch (error) {
    // Fails if the connection has ended, and the transaction with it.
    await sql`rollback`.simple().catch(() => {});
    throw error;
  }
}

/** Until the end of the transaction. */
const limitSearch = async (sql: Sql) => sql`
  select set_config(key, value, true)
  from json_each_text(${JSON.stringify(SEARCH_SETTINGS)}::text::json)`;
