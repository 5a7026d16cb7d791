import { setTimeout as sleep } from 'node:timers/promises';
import type { Fragment, Sql } from 'postgres';
import { codeOf, describeError, Unavailable } from '../runtime/errors.ts';
import { createLimiter } from '../runtime/limiter.ts';
import type { Log } from '../runtime/log.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { DatabaseAddress } from './url.ts';
import { type Client, connect } from './client.ts';
import { LOCK_MS, type Purpose } from './connection-settings.ts';
import { type Connection, createConnection, type Run, type Work } from './connection.ts';
import { LOCK_NOT_AVAILABLE, Locked, translate } from './errors.ts';

export type { DatabaseAddress, Fragment, Sql };

/**
 * `try` throws `Locked` after a few milliseconds; `wait` waits for the locks. By default, a call
 * tries, then waits.
 */
export type Locks = 'try' | 'wait';

export type Database = ReturnType<typeof createDatabase>;

const MAX_WAITING_TRANSACTIONS = 256;
/** The lock timeout while only one call waits. */
const ALONE_MS = 100;
/** The longest pause between two tries to get a lock. */
const MAX_PAUSE_MS = 500;
const PENDING_HELP = 'Statements and transactions under way or waiting, by connection.';

/**
 * One connection for each purpose. A client of `postgres` 3.4.9 with several connections keeps dead
 * slots in its queue and becomes slower under load; a client with one connection pipelines and does
 * not.
 */
export function createDatabase(address: DatabaseAddress, name: string, log: Log, metrics: Metrics) {
  const clients = createClients(address, name, log, metrics);
  const connections: Connection[] = [];
  const watchdog = setInterval(() => connections.forEach((one) => one.watch()), 1_000).unref();
  function create(purpose: Purpose, label: string = purpose) {
    const connection = createConnection((onEnd) => clients.open(purpose, onEnd), address, label);
    metrics.gauge('gatehouse_database_pending', PENDING_HELP, connection.pending, {
      service: name,
      connection: label,
    });
    connections.push(connection);
    return connection;
  }

  const read = create('read');
  const write = create('write');
  const first = create('transaction', 'transaction 1');
  const second = create('transaction', 'transaction 2');
  const limiter = createLimiter(2, MAX_WAITING_TRANSACTIONS, 'a database transaction');
  const transact: Run = (work) =>
    limiter.run(() => (first.pending() === 0 ? first : second).run(work));
  const wait = createLockWait(create('lock'), address.limits.DATABASE_LOCK_TIMEOUT);

  return {
    read: read.run,
    /** Single statements, which commit by themselves. */
    write<T>(work: Work<T>, locks?: Locks) {
      if (locks === 'try') return write.run(work);
      return locks === 'wait' ? wait(work) : waitIfLocked(wait, write.run, work);
    },
    list: create('list').run,
    search: create('search').run,
    claim: create('claim').run,
    readiness: create('readiness').run,
    /** Statements that commit together. The work returns data: a returned `Failure` would commit. */
    transaction: <T>(work: Work<T>) =>
      waitIfLocked(wait, transact, (sql) => inTransaction(sql, work)),
    /** Work of any length, on its own connection without statement and lock timeouts. */
    async maintain<T>(work: (sql: Sql, transaction: Run) => Promise<T>) {
      if (address.hosts.length > 1) await write.ready(); // finds a usable host
      const client = clients.open('migration', (ended) => ended.close(0));
      try {
        const sql = await client.ready;
        return await work(sql, (inner) => inTransaction(sql, inner));
      } catch (error) {
        throw translate(error, address);
      } finally {
        await client.close(2);
      }
    },
    /** Opens the connections that most requests need. @throws if one cannot be opened */
    async ensureConnected() {
      await Promise.all([read, write, first].map((one) => one.ready()));
    },
    async close() {
      clearInterval(watchdog);
      await clients.close();
    },
  };
}

/** The clients of a database, all connected to one server. */
function createClients(address: DatabaseAddress, name: string, log: Log, metrics: Metrics) {
  const { hosts } = address;
  const clients = new Set<Client>();
  /** The host that was usable last, or is tried next. */
  let hostIndex = 0;
  let isClosed = false;
  let latest = address;
  metrics.gauge(
    'gatehouse_database_certificate_end_seconds',
    'When sslrootcert or sslcert ends, in seconds since 1970.',
    () => latest.certificates?.endSeconds ?? NaN,
    { service: name },
  );

  return {
    open(purpose: Purpose, onEnd: (client: Client) => void) {
      const ownIndex = hostIndex;
      const host = hosts[ownIndex];
      // Work that continues after the shutdown must not open a connection, because nothing would
      // close it.
      if (isClosed || !host) throw new Unavailable('the database connections are closed');
      const ended = (client: Client) => {
        clients.delete(client);
        onEnd(client);
      };

      latest = reload(latest, log);
      const client = connect(latest, host, name, log, ended, purpose);
      clients.add(client);
      client.ready.then(
        () => {
          // After a failover, or if the address of the host has changed, a connection to the former
          // server would read outdated data, and write what is lost.
          for (const other of [...clients]) {
            const isOtherServer = other.server !== null && other.server !== client.server;
            if (other.host !== host || isOtherServer) void other.close(0);
          }
        },
        () => {
          // Unless another client has skipped it already.
          if (hostIndex === ownIndex) hostIndex = (ownIndex + 1) % hosts.length;
        },
      );
      return client;
    },
    /** Statements under way may finish within two seconds. No client is opened afterwards. */
    async close() {
      isClosed = true;
      await Promise.all([...clients].map((client) => client.close(2)));
    },
  };
}

/**
 * The password and the certificates may have been replaced. Those that were read before stay in use
 * if they cannot be read.
 */
function reload(latest: DatabaseAddress, log: Log) {
  try {
    return { ...latest, ...latest.reload(), hosts: latest.hosts };
  } catch (error) {
    log.error(
      'the database URL cannot be read again: the earlier one is used',
      describeError(error),
    );
    return latest;
  }
}

/**
 * Repeats work until it gets its locks, on a connection where calls that wait for a lock hold up
 * only each other, and briefly.
 * @param seconds after which a call fails
 */
function createLockWait(connection: Connection, seconds: number): Run {
  // The connection limits its queue.
  const slot = createLimiter(1, Infinity, 'a database lock');
  const isAlone = () => connection.pending() === 1;
  return (work) => {
    const end = performance.now() + seconds * 1_000;
    return connection.run(async (sql) => {
      const tryOnce = async () => {
        const timeoutMs = isAlone() ? ALONE_MS : LOCK_MS;
        await sql`select set_config('lock_timeout', ${String(timeoutMs)}, false)`;
        return work(sql);
      };
      for (let pauseMs = 0; ; pauseMs = Math.min(2 * pauseMs + 10, MAX_PAUSE_MS)) {
        if (!isAlone()) await sleep(pauseMs);
        try {
          // A first try has priority: its lock may be free.
          return await slot.run(tryOnce, pauseMs === 0);
        } catch (error) {
          const isLocked = codeOf(error) === LOCK_NOT_AVAILABLE;
          if (!isLocked || performance.now() >= end) throw error;
        }
      }
    });
  };
}

/** Waits for locks only if the work could not have them at once. */
async function waitIfLocked<T>(wait: Run, run: Run, work: Work<T>) {
  try {
    return await run(work);
  } catch (error) {
    if (error instanceof Locked) return wait(work);
    throw error;
  }
}

/**
 * Not `begin` of `postgres` 3.4.9, which sends its `rollback` into an ended connection and throws
 * where no caller can catch it. Here all further work after the connection's end fails, because no
 * client reconnects.
 */
async function inTransaction<T>(sql: Sql, work: Work<T>) {
  await sql`begin isolation level read committed`;
  try {
    const result = await work(sql);
    await sql`commit`;
    return result;
  } catch (error) {
    // Fails if the connection has ended, and the transaction with it.
    await sql`rollback`.catch(() => {});
    throw error;
  }
}
