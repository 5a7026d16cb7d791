/**
 * Statements that wait until a test lets them go on. They wait for an advisory lock, and without
 * `lock_timeout`, which would end them soon.
 */
import type { Sql } from 'postgres';
import { connect } from '../../scripts/postgres.ts';
import { untilSql } from './connections.ts';
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
