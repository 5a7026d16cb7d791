/**
 * Statements that wait until a test lets them go on. They wait for an advisory lock, and without
 * `lock_timeout`, which would end them soon.
 */
import assert from 'node:assert/strict';
import type { Sql } from 'postgres';
import { connect } from '../../scripts/postgres.ts';
import { untilLocked, untilSql } from './connections.ts';
import type { Owner } from './owner.ts';

export type Hold = Awaited<ReturnType<typeof holdStatements>>;

/**
 * Creates `wait_for(number)`, and `wait_in_trigger(number)` for triggers: they wait while the
 * number is held.
 */
export async function createWaits(sql: Sql) {
  await sql`
    create function wait_for(number integer) returns void language plpgsql
    set lock_timeout = 0 as 'begin perform pg_advisory_xact_lock_shared(number); end'`;
  await sql`
    create function wait_in_trigger() returns trigger language plpgsql as
      'begin perform wait_for(tg_argv[0]::integer); return new; end'`;
}

export async function holdStatements(owner: Owner, url: string, number = 1) {
  const holder = connect(url);
  owner.after(() => holder.end({ timeout: 0 }));
  await holder`select pg_advisory_lock(${number})`;
  const areWaiting = async (count: number) => {
    const waiting = await holder`
      select from pg_locks where locktype = 'advisory' and not granted and database =
        (select oid from pg_database where datname = current_database())`;
    return waiting.length >= count;
  };
  return {
    /** Resolves when so many statements wait. */
    met: (count = 1) => untilSql(() => areWaiting(count), `${count} statements wait`),
    async release() {
      await holder`select pg_advisory_unlock(${number})`;
    },
  };
}

/**
 * Sends requests while a lock on a table blocks each write and no read.
 * @param count so many of them must wait for it, and none be answered, before `end`
 * @param end gets the connection that holds the lock
 */
export async function whileLocked<T>(
  { url, sql }: Readonly<{ url: string; sql: Sql }>,
  table: string,
  count: number,
  send: () => ReadonlyArray<Promise<T>>,
  end: (blocker: Sql) => PromiseLike<unknown>,
): Promise<T[]> {
  const blocker = connect(url);
  try {
    await blocker`begin`;
    await blocker.unsafe(`lock table ${table} in share mode`);
    let isAnswered = false;
    const pending = Promise.all(send()).finally(() => {
      isAnswered = true;
    });
    await untilLocked(sql, count);
    assert.equal(isAnswered, false);
    await end(blocker);
    return await pending;
  } finally {
    await blocker.end();
  }
}
