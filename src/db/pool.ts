import { setTimeout as sleep } from 'node:timers/promises';
import postgres, { type Sql } from 'postgres';
import type { Log } from '../runtime/log.ts';
import { type DatabaseAddress, hostList } from './address.ts';
import { type Client, connect, type Kind, LOCK_MS } from './connection.ts';
import { createLimiter } from '../runtime/limiter.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { codeOf, Overloaded, Unavailable } from '../runtime/errors.ts';
import { endsConnection, isStale, isTemporary, LOCK_NOT_AVAILABLE, withRetry } from './retry.ts';

export type { DatabaseAddress, Sql };
export type Fragment = postgres.Fragment; // a part of a statement

/** A unique index rejected the row: the only failure of a statement that callers handle. */
export class Duplicate extends Error {
  override readonly name = 'Duplicate';
  readonly constraint: string;
  constructor(constraint: string) {
    super('a unique index rejected the row');
    this.constraint = constraint;
  }
}

/** The database rejected a value of the statement, and would again. None of it was done. */
export class Rejected extends Unavailable {}

/** Another session holds a lock that the work needs. None of it was done. */
export class Locked extends Unavailable {}

type Work<T> = (sql: Sql) => Promise<T>;
/** Work may run again after an error that undid it: a serialization failure, a deadlock, a lock, a stale statement. */
type Run = <T>(work: Work<T>) => Promise<T>;

/** `try` throws `Locked` at once. `wait` begins where calls wait for locks. By default, a call tries and then waits. */
export type Locks = 'try' | 'wait';

export type Database = ReturnType<typeof createDatabase>;

const [MAX_PENDING, MAX_WAITING_TRANSACTIONS] = [1_024, 256]; // calls per connection, under way or waiting
const [ALONE_MS, MAX_PAUSE_MS] = [100, 500]; // a try of the only call that waits for a lock; a pause between tries
const SEARCH_PAUSE_MS = 100; // before all hosts are tried again: a standby that rejects connections is busy

/**
 * One connection for each purpose. A client of `postgres` 3.4.9 with several connections keeps dead slots in its queue
 * and becomes slower under load; a client with one connection pipelines and does not.
 */
export function createDatabase(address: DatabaseAddress, name: string, log: Log, metrics: Metrics) {
  const clients = new Set<Client>();
  const connections: Array<ReturnType<typeof createConnection>> = [];
  const watchdog = setInterval(() => connections.forEach((one) => one.watch()), 1_000).unref();
  let [isClosed, index] = [false, 0];

  /** Connects to the last host that was usable, or otherwise to the next one. */
  function open(kind: Kind, onEnd: (client: Client) => void): Client {
    const [tried, host] = [index, address.hosts[index]];
    // Work that continues after the shutdown must not open a connection, because nothing would close it.
    if (isClosed || !host) throw new Unavailable('the database connections are closed', true);
    const ended = (client: Client) => {
      clients.delete(client);
      onEnd(client);
    };
    const client = connect(address, host, name, log, ended, kind);
    clients.add(client);
    // After a failover, a connection to the former primary would read outdated data.
    const leaveOthers = () => [...clients].forEach((one) => one.host !== host && void one.close(0));
    const skip = () => void (index === tried && (index = (tried + 1) % address.hosts.length));
    client.ready.then(leaveOthers, skip);
    return client;
  }
  function create(purpose: string, kind: Kind = 'other') {
    const connection = createConnection((onEnd) => open(kind, onEnd), address, purpose);
    const help = 'Statements and transactions under way or waiting, by connection.';
    metrics.gauge(
      'gatehouse_database_pending',
      help,
      { service: name, connection: purpose },
      connection.pending,
    );
    connections.push(connection);
    return connection;
  }

  const [read, write] = [create('read', 'read'), create('write', 'write')];
  const [first, second] = [
    create('transaction 1', 'transaction'),
    create('transaction 2', 'transaction'),
  ];
  const limiter = createLimiter(2, MAX_WAITING_TRANSACTIONS, 'a database transaction');
  const transact: Run = (work) =>
    limiter.run(() => (first.pending() === 0 ? first : second).run(work));
  const waiting = create('lock', 'transaction');
  const slot = createLimiter(1, MAX_PENDING, 'a database lock');
  /** Repeats the work, on a connection where calls that wait for a lock hold up only each other, and briefly. */
  const wait: Run = (work) => {
    const end = performance.now() + address.limits.DATABASE_LOCK_TIMEOUT * 1_000;
    return waiting.run(async (sql) => {
      for (let pause = 0; ; pause = Math.min(2 * pause + 10, MAX_PAUSE_MS)) {
        if (waiting.pending() > 1) await sleep(pause);
        try {
          return await slot.run(async () => {
            const limit = waiting.pending() > 1 ? LOCK_MS : ALONE_MS;
            await sql`select set_config('lock_timeout', ${String(limit)}, false)`;
            return work(sql);
          }, pause === 0);
        } catch (error) {
          if (codeOf(error) !== LOCK_NOT_AVAILABLE || performance.now() >= end) throw error;
        }
      }
    });
  };
  const orWait = <T>(run: Run, work: Work<T>): Promise<T> =>
    run(work).catch((error) => (error instanceof Locked ? wait(work) : Promise.reject(error)));
  return {
    read: read.run, // point reads by an index
    /** Single statements, which commit by themselves. */
    write: <T>(work: Work<T>, locks?: Locks): Promise<T> =>
      locks ? (locks === 'try' ? write.run : wait)(work) : orWait(write.run, work),
    list: create('list').run, // lists and other reads that may take long
    search: create('search', 'search').run, // reads whose length a caller chooses, with a shorter time limit
    claim: create('claim', 'claim').run, // claims of work, which lists must not delay
    readiness: create('readiness', 'readiness').run, // readiness checks, which requests must not delay
    /** Several statements that commit together. The work returns plain data: a returned `Failure` would commit. */
    transaction: <T>(work: Work<T>): Promise<T> =>
      orWait(transact, (sql) => inTransaction(sql, work)),
    /** A connection of its own without time limits, closed afterwards: for changes of the schema. */
    async maintain<T>(work: (sql: Sql, transaction: Run) => Promise<T>): Promise<T> {
      if (address.hosts.length > 1) await write.ready();
      const client = open('migration', (ended) => void ended.close(0));
      try {
        const sql = await client.ready;
        return await work(sql, (inner) => inTransaction(sql, inner));
      } catch (error) {
        throw translate(error, address);
      } finally {
        await client.close(2);
      }
    },
    /** Opens the connections for reads, writes and transactions that are not open. @throws if one cannot be opened */
    async ensureConnected(): Promise<void> {
      await Promise.all([read, write, first].map((one) => one.ready()));
    },
    async close(): Promise<void> {
      isClosed = true;
      clearInterval(watchdog);
      await Promise.all([...clients].map((one) => one.close(2)));
    },
  };
}

/**
 * Not `begin` of `postgres` 3.4.9, which sends its `rollback` into an ended connection and throws where no caller
 * can catch it. Here all further work after the connection's end fails, because no client reconnects.
 */
async function inTransaction<T>(sql: Sql, work: Work<T>): Promise<T> {
  await sql`begin isolation level read committed`;
  try {
    const result = await work(sql);
    await sql`commit`;
    return result;
  } catch (error) {
    await sql`rollback`.catch(() => {}); // fails if the connection has ended, and the transaction with it
    throw error;
  }
}

/** Opens a new client when the last one has ended or its prepared statements are stale. */
function createConnection(
  open: (onEnd: (client: Client) => void) => Client,
  address: DatabaseAddress,
  purpose: string,
) {
  let current: Client | null = null;
  let pending = 0;
  /** Calls that still wait for the client fail after this time. */
  function retire(client: Client, seconds = 0): void {
    if (current !== client) return;
    current = null;
    setTimeout(() => void client.close(0), seconds * 1_000).unref();
  }
  async function attempt<T>(work: Work<T>, hostsLeft = address.hosts.length - 1): Promise<T> {
    const client = (current ??= open(retire));
    let isReady = false;
    client.calls += 1;
    try {
      const sql = await client.ready;
      isReady = true;
      return await work(sql);
    } catch (error) {
      if (endsConnection(error)) retire(client);
      else if (isStale(error)) retire(client, address.limits.DATABASE_DEAD_AFTER); // others on it may finish
      if (!isReady && hostsLeft > 0) return await attempt(work, hostsLeft - 1);
      if (!isReady && address.hosts.length > 1) await sleep(SEARCH_PAUSE_MS);
      throw error;
    } finally {
      client.calls -= 1;
      if (client.calls === 0 && current !== client) void client.close(0);
    }
  }

  let last = { received: 0, sent: 0, silentSeconds: 0 };
  /** Called each second. Counts its calls, not the time: a process that was suspended has received nothing either. */
  function watch(): void {
    const { received, sent } = current?.bytes() ?? last;
    // A single call that sends has received all replies so far: between two statements of a transaction, none is due.
    const isSilent =
      pending > 0 && received === last.received && (pending > 1 || sent === last.sent);
    last = { received, sent, silentSeconds: isSilent ? last.silentSeconds + 1 : 0 };
    if (current && last.silentSeconds >= address.limits.DATABASE_DEAD_AFTER) retire(current);
  }

  return {
    async run<T>(work: Work<T>): Promise<T> {
      if (pending >= MAX_PENDING)
        throw new Overloaded(`too many calls wait for the database connection "${purpose}"`);
      pending += 1;
      try {
        return await withRetry<Work<T>, T>(attempt, work);
      } catch (error) {
        throw translate(error, address);
      } finally {
        pending -= 1;
      }
    },
    ready: () =>
      attempt(async () => {}).catch((error) => Promise.reject(translate(error, address))),
    pending: () => pending,
    watch,
  };
}

/** Foreign errors end here: their message and `detail` may quote values, so only the code is kept. */
function translate(error: unknown, { hosts, sslmode }: DatabaseAddress): unknown {
  const code = codeOf(error);
  if (error instanceof postgres.PostgresError) {
    if (code === '23505') return new Duplicate(error.constraint_name ?? '');
    const message = `the database returned an error (SQLSTATE ${code}${HINTS[code] ?? ''})`;
    if (code === LOCK_NOT_AVAILABLE) return new Locked(message, true);
    return ABOUT_DATA.test(code)
      ? new Rejected(message, false)
      : new Unavailable(message, isTemporary(error));
  }
  if (code === 'unknown') return error;
  const tls = sslmode === 'disable' ? '' : `, sslmode=${sslmode}`;
  const failed = `the connection to the database at ${hostList(hosts)} failed`;
  return new Unavailable(`${failed} (${code}${tls})`, isTemporary(error));
}

/** SQLSTATEs of a value, a constraint, a limit, an exception of a trigger, and a corrupted row. */
const ABOUT_DATA = /^(22|23|54|P0|XX00[12])/;

const HINTS: Readonly<Record<string, string>> = {
  '28P01': ': the user or the password in the database URL is wrong',
  '28000': ': the server does not accept this user; check its pg_hba.conf',
  '55P03': ': another session holds a lock for too long',
  '3D000': ': the database in the database URL does not exist',
  '42501': ': the role lacks a required privilege',
  '42P01': ': a table is missing; run "gatehouse migrate"',
};
