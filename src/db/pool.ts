import postgres, { type Sql } from 'postgres';
import type { Log } from '../runtime/log.ts';
import { type Client, connect, type DatabaseAddress } from './connection.ts';
import { createLimiter } from '../runtime/limiter.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { Overloaded, Unavailable } from '../runtime/errors.ts';
import { codeOf, constraintOf, endsConnection, isUniqueViolation, isTemporary, withRetry } from './retry.ts';

export type { DatabaseAddress, Sql };
/** A part of a statement. */
export type Fragment = postgres.Fragment;

/** A unique index refused the row; `constraint` says which. The one failure of a statement that is the caller's affair. */
export class Duplicate extends Error {
  override readonly name = 'Duplicate';
  readonly constraint: string;
  constructor(constraint: string) {
    super('a unique index refused the row');
    this.constraint = constraint;
  }
}

/** The database refuses what a statement brings, and would again. Nothing of it was done. */
export class Rejected extends Unavailable {}

type Work<T> = (sql: Sql) => Promise<T>;
type Transaction = <T>(work: Work<T>) => Promise<T>;

/**
 * A few connections, each a lane with a purpose. A client of `postgres` 3.4.9 with several connections keeps dead slots
 * in its queue and slows down as it serves; a client of one connection pipelines, is faster, and stays level. So no
 * client here ever has more than one.
 */
export interface Database {
  /** Point reads by an index: many at once, answered in order. */
  read<T>(work: Work<T>): Promise<T>;
  /** Single statements that commit by themselves. */
  write<T>(work: Work<T>): Promise<T>;
  /** Lists and other reads that may take long, so that they hold up nobody else. */
  list<T>(work: Work<T>): Promise<T>;
  /**
   * Several statements that commit together. The work may run more than once, and must return plain data: a returned
   * failure would commit.
   */
  transaction: Transaction;
  /** A connection of its own without time limits, closed afterwards: for changes of the schema. */
  maintain<T>(work: (sql: Sql, transaction: Transaction) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

/** How many statements may be under way or waiting in one lane; more are refused. */
const MAX_PENDING = 1_024;
const TRANSACTION_LANES = 2;
const TRANSACTIONS_WAITING = 256;
/** Longer than STATEMENT_MS: a statement that is older means that the connection is dead, whatever TCP believes. */
const DEAD_AFTER_MS = 15_000;

export function createDatabase(address: DatabaseAddress, name: string, log: Log, metrics: Metrics): Database {
  const create = (lane: string, isPlannedOnce = false) => createLane((onEnd) => connect(address, name, log, onEnd, isPlannedOnce), (error) => translate(error, address), name, lane, metrics);
  const lanes = { read: create('read', true), write: create('write', true), list: create('list') };
  const transactionLanes = Array.from({ length: TRANSACTION_LANES }, (_, index) => create(`transaction ${index + 1}`));
  const free = [...transactionLanes];
  const all = [...Object.values(lanes), ...transactionLanes];
  const maintaining = new Set<Client>();
  let isClosed = false;
  const gate = createLimiter(TRANSACTION_LANES, TRANSACTIONS_WAITING, 'a database transaction');
  return {
    read: (work) => lanes.read.run(({ sql }) => work(sql)),
    write: (work) => lanes.write.run(({ sql }) => withRetry(() => work(sql))),
    list: (work) => lanes.list.run(({ sql }) => work(sql)),
    transaction: (work) =>
      gate.run(async () => {
        const lane = free.pop();
        if (!lane) throw new Error('internal error: the gate let in more transactions than there are lanes');
        try {
          return await lane.run((client) => withRetry(() => inTransaction(client, work)));
        } finally {
          free.push(lane);
        }
      }),
    async maintain(work) {
      if (isClosed) throw closedForGood();
      const client = connect(address, name, log, (ended) => void ended.close(0));
      maintaining.add(client);
      try {
        // As a statement: a startup parameter of 0 would be left out, and the role's own limit would hold.
        await client.sql`set statement_timeout = 0`;
        return await work(client.sql, (inner) => inTransaction(client, inner));
      } catch (error) {
        throw translate(error, address);
      } finally {
        maintaining.delete(client);
        await client.close(2);
      }
    },
    async close() {
      isClosed = true;
      await Promise.all([...all.map((lane) => lane.close()), ...[...maintaining].map((client) => client.close(2))]);
    },
  };
}

/**
 * A lane has one connection and here one user, so the statements can be sent as they are. `begin` of `postgres` 3.4.9
 * would send its own `rollback` into a connection that has ended, and throw where nobody can catch it. Whatever the
 * work still tries after such an end fails, because a client never opens a second connection.
 */
async function inTransaction<T>({ sql }: Client, work: Work<T>): Promise<T> {
  await sql`begin isolation level read committed`;
  try {
    const result = await work(sql);
    await sql`commit`;
    return result;
  } catch (error) {
    // Where this fails the connection is gone, and with it the transaction.
    await sql`rollback`.catch(() => {});
    throw error;
  }
}

interface Lane {
  run<T>(work: (client: Client) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

/** One connection at a time; the next statement after its end opens a new one. */
function createLane(
  open: (onEnd: (client: Client) => void) => Client,
  translated: (error: unknown) => unknown,
  service: string,
  lane: string,
  metrics: Metrics,
): Lane {
  let current: Client | null = null;
  let isClosed = false;
  const retire = (client: Client) => {
    if (current === client) current = null;
    client.ended = true;
    // Everyone who still waits on it is answered now.
    void client.close(0);
  };
  const pending = new Map<symbol, { readonly client: Client; readonly since: number }>();
  metrics.gauge('gatehouse_database_pending', 'Statements and transactions under way or waiting, by connection.', { service, lane }, () => pending.size);
  const sweeper = setInterval(() => {
    const oldest = pending.values().next().value;
    if (oldest && performance.now() - oldest.since > DEAD_AFTER_MS) retire(oldest.client);
  }, 1_000);
  sweeper.unref();
  return {
    async run(work) {
      if (pending.size >= MAX_PENDING) throw new Overloaded(`too many are waiting for the ${lane} lane of the database`);
      if (isClosed) throw closedForGood();
      const client = (current ??= open(retire));
      const key = Symbol();
      pending.set(key, { client, since: performance.now() });
      try {
        return await work(client);
      } catch (error) {
        // The server has said that it closes, or the connection is gone: nobody else shall try it.
        if (endsConnection(error)) retire(client);
        throw translated(error);
      } finally {
        pending.delete(key);
      }
    },
    async close() {
      isClosed = true;
      clearInterval(sweeper);
      await current?.close(2);
    },
  };
}

/** Work that goes on after the shutdown must not open a connection that nobody would close. */
const closedForGood = () => new Unavailable('the connections to the database are closed', true);

/** A foreign error ends here: its message and its `detail` may quote values, so only its code goes on. */
function translate(error: unknown, { host, port, sslmode }: DatabaseAddress): unknown {
  if (isUniqueViolation(error)) return new Duplicate(constraintOf(error) ?? '');
  const code = codeOf(error);
  if (error instanceof postgres.PostgresError) {
    const words = `the database refused (SQLSTATE ${code}${HINTS[code] ?? ''})`;
    return ABOUT_DATA.test(code) ? new Rejected(words, false) : new Unavailable(words, isTemporary(error));
  }
  if (code === 'unknown') return error;
  const tls = sslmode === 'disable' ? '' : `, sslmode=${sslmode}`;
  return new Unavailable(`the database at ${host}:${port} did not answer (${code}${tls})`, isTemporary(error));
}

/** SQLSTATE classes: a value, a constraint, a limit, what somebody's trigger has raised; and a damaged row. */
const ABOUT_DATA = /^(22|23|54|P0|XX00[12])/;

/** What an operator most often has to mend. */
const HINTS: Readonly<Record<string, string>> = {
  '28P01': ': the user or the password of the database URL is wrong',
  '28000': ': the server does not let this user in; see its pg_hba.conf',
  '3D000': ': the database of the database URL does not exist',
  '42501': ': the role lacks a right that is needed',
  '42P01': ': a table is missing; run "gatehouse migrate"',
};
