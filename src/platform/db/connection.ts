import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { Overloaded } from '../runtime/errors.ts';
import type { DatabaseAddress } from './url.ts';
import type { Client } from './client.ts';
import { endsConnection, isConflict, isStale, translate } from './errors.ts';

export type Work<T> = (sql: Sql) => Promise<T>;
/**
 * Work may run again after an error that undid it: a serialization failure, a deadlock, a lock, a
 * stale statement.
 */
export type Run = <T>(work: Work<T>) => Promise<T>;

export type Connection = ReturnType<typeof createConnection>;

/** Calls of one connection, under way or waiting. */
const MAX_PENDING = 1_024;
const MAX_TRIES = 5;
/** Before all hosts are tried again: a standby that rejects connections is busy. */
const SEARCH_PAUSE_MS = 100;

/** Opens a client, which calls `onEnd` when it must not be used any more. */
type Open = (onEnd: (client: Client) => void) => Client;

/**
 * A connection that opens a new client when the last one ends or its statements are stale.
 * @param name for messages
 */
export function createConnection(open: Open, address: DatabaseAddress, name: string) {
  const { attempt, retry, retire, current } = createCurrentClient(open, address);
  let pending = 0;
  /** Bytes of the client a second ago. */
  let last = { received: 0, sent: 0, silentSeconds: 0 };
  return {
    async run<T>(work: Work<T>) {
      if (pending >= MAX_PENDING) {
        throw new Overloaded(`too many calls wait for the database connection "${name}"`);
      }
      pending += 1;
      try {
        return await retry(work);
      } catch (error) {
        throw translate(error, address);
      } finally {
        pending -= 1;
      }
    },
    /** Opens it if it is not open. */
    async ready() {
      await attempt(async () => {}).catch((error: unknown) => {
        throw translate(error, address);
      });
    },
    /** How many calls are under way or wait. */
    pending: () => pending,
    /**
     * Called each second. Ends a client that has been silent for too long. Counts its calls, not
     * the time: a process that was suspended has received nothing either.
     */
    watch() {
      const client = current();
      const { received, sent } = client?.bytes() ?? last;
      const hasReceived = received !== last.received;
      // A single call that sends has received all replies so far: between two statements of a
      // transaction, none is due.
      const hasSentAlone = pending === 1 && sent !== last.sent;
      const isSilent = pending > 0 && !hasReceived && !hasSentAlone;
      const silentSeconds = isSilent ? last.silentSeconds + 1 : 0;
      last = { received, sent, silentSeconds };
      if (client && silentSeconds >= address.limits.DATABASE_DEAD_AFTER) retire(client);
    },
  };
}

/** The client in use: it is opened when it is needed, and again after its end. */
function createCurrentClient(open: Open, { hosts, limits }: DatabaseAddress) {
  let current: Client | null = null;

  /** @param seconds after which calls that still wait for the client fail */
  function retire(client: Client, seconds = 0) {
    if (current !== client) return;
    current = null;
    setTimeout(() => client.close(0), seconds * 1_000).unref();
  }

  /** Tries the other hosts if a client cannot be opened. */
  async function attempt<T>(work: Work<T>, hostsLeft = hosts.length - 1): Promise<T> {
    current ??= open(retire);
    const client = current;
    let isReady = false;
    client.calls += 1;
    try {
      const sql = await client.ready;
      isReady = true;
      return await work(sql);
    } catch (error) {
      if (endsConnection(error)) retire(client);
      // Other calls on it may finish.
      else if (isStale(error)) retire(client, limits.DATABASE_DEAD_AFTER);
      if (isReady) throw error;
      if (hostsLeft > 0) return await attempt(work, hostsLeft - 1);
      if (hosts.length > 1) await sleep(SEARCH_PAUSE_MS);
      throw error;
    } finally {
      client.calls -= 1;
      if (client.calls === 0 && current !== client) void client.close(0);
    }
  }

  return {
    attempt,
    retire,
    current: () => current,
    /** Repeats work after a stale statement, and after a conflict with a short random pause. */
    async retry<T>(work: Work<T>) {
      for (let tries = 1; ; tries += 1) {
        try {
          return await attempt(work);
        } catch (error) {
          if (tries >= MAX_TRIES) throw error;
          if (isStale(error)) continue;
          if (!isConflict(error)) throw error;
          await sleep(Math.random() * 10 * 2 ** tries);
        }
      }
    },
  };
}
