import { arrayLiteral, batched, alignToKeys } from '../db/batch.ts';
import type { Database, Fragment, Sql } from '../db/pool.ts';

export interface NewSecret {
  readonly id: string;
  readonly keyId: string;
  readonly commitment: Buffer;
  readonly blob: Buffer;
  readonly tag: Buffer;
  readonly expiresAt: Date | null;
  readonly maxReads: number | null;
}

export interface StoredSecret {
  readonly key_id: string;
  readonly commitment: Buffer;
  readonly blob: Buffer;
  readonly tag: Buffer | null;
  readonly expires_at: Date | null;
  readonly max_reads: number | null;
  readonly expired: boolean;
}

/** What is told of a secret; it outlives the content. */
export interface Receipt {
  readonly id: string;
  readonly status: 'stored' | 'read' | 'expired' | 'deleted';
  readonly created_at: Date;
  readonly expires_at: Date | null;
  readonly max_reads: number | null;
  readonly reads: number;
  readonly last_read_at: Date | null;
  readonly failed_reads: number;
}

const living = (sql: Sql): Fragment => sql`blob is not null and (expires_at is null or expires_at > now())`;
/** The content goes with the end, so nothing that could be opened stays behind. */
const emptied = (sql: Sql): Fragment => sql`blob = null, commitment = null, tag = null`;

/** The database's time, in whole milliseconds: its clock is the only one for expiry, and the seal binds the result. */
export const currentTime = (database: Database): Promise<Date> => time(database, null);

const time = batched(
  async (database: Database, callers: readonly null[]) => {
    const [row] = await database.read((sql) => sql<[{ now: Date }]>`select date_trunc('milliseconds', now()) as now`);
    return callers.map(() => row.now);
  },
);

export const insertSecret = batched(
  async (database: Database, secrets: readonly NewSecret[]): Promise<void[]> => {
    const of = <T extends keyof NewSecret>(name: T) => arrayLiteral(secrets.map((secret) => secret[name]));
    await database.write(
      (sql) => sql`
        insert into secrets.secrets (id, key_id, commitment, blob, tag, expires_at, max_reads)
        select * from unnest(${of('id')}::text::uuid[], ${of('keyId')}::text::text[], ${of('commitment')}::text::bytea[],
          ${of('blob')}::text::bytea[], ${of('tag')}::text::bytea[], ${of('expiresAt')}::text::timestamptz[], ${of('maxReads')}::text::integer[])`,
    );
    return secrets.map(() => undefined);
  },
  { bytesOf: ({ blob }) => blob.length },
);

/** The row, if it still has its content. Nothing is used up. */
export const findSecret = batched(
  async (database: Database, ids: readonly string[]): Promise<Array<StoredSecret | null>> => {
    const rows = await database.read(
      (sql) => sql<Array<StoredSecret & { id: string }>>`
        select id, key_id, commitment, blob, tag, expires_at, max_reads, coalesce(expires_at <= now(), false) as expired
        from secrets.secrets where id = any (${arrayLiteral(ids)}::text::uuid[]) and blob is not null`,
    );
    return alignToKeys(ids, rows, ({ id }) => id);
  },
);

/**
 * Finds, checks and uses up one read, with its receipt, in one statement, so that of any number of simultaneous readers
 * as many win as there are reads left. A statement changes a row once: so readers of one secret never share one.
 * @returns whether this reader has won one
 */
export const useUpRead = batched(
  async (database: Database, readers: ReadonlyArray<{ readonly id: string; readonly commitment: Buffer }>): Promise<boolean[]> => {
    // In one order, so that two replicas seldom wait for each other's rows; where they do, one is tried again.
    const inOrder = [...readers].sort((one, other) => (one.id < other.id ? -1 : 1));
    const [ids, commitments] = [arrayLiteral(inOrder.map(({ id }) => id)), arrayLiteral(inOrder.map(({ commitment }) => commitment))];
    const won = await database.write((sql) => {
      const lastly = (end: Fragment, otherwise: Fragment) => sql`case when reads + 1 >= max_reads then ${end} else ${otherwise} end`;
      return sql<Array<{ id: string }>>`
        update secrets.secrets set
          reads = reads + 1,
          last_read_at = now(),
          blob = ${lastly(sql`null`, sql`blob`)},
          commitment = ${lastly(sql`null`, sql`commitment`)},
          tag = ${lastly(sql`null`, sql`tag`)},
          ending = ${lastly(sql`'read'`, sql`null`)},
          ended_at = ${lastly(sql`now()`, sql`null`)}
        from unnest(${ids}::text::uuid[], ${commitments}::text::bytea[]) as reader (reader_id, brought)
        where id = any (${ids}::text::uuid[]) and id = reader_id and commitment = brought and (max_reads is null or reads < max_reads) and ${living(sql)}
        returning id`;
    });
    const winners = new Set(won.map(({ id }) => id));
    return readers.map(({ id }) => winners.has(id));
  },
  { keyOf: ({ id }) => id },
);

/** @returns the key id of the secret, or null where there is no such record */
export async function countFailedRead(database: Database, id: string): Promise<string | null> {
  const [row] = await database.write(
    (sql) => sql<Array<{ key_id: string }>>`update secrets.secrets set failed_reads = failed_reads + 1 where id = ${id} returning key_id`,
  );
  return row?.key_id ?? null;
}

export async function findReceipt(database: Database, id: string): Promise<Receipt | null> {
  const [row] = await database.read(
    (sql) => sql<Receipt[]>`
      select id, coalesce(ending, case when blob is null then 'read' when expires_at <= now() then 'expired' else 'stored' end) as status, created_at, expires_at, max_reads,
        reads::float8 as reads, last_read_at, failed_reads::float8 as failed_reads
      from secrets.secrets where id = ${id}`,
  );
  return row ?? null;
}

export interface Ended {
  readonly id: string;
  readonly key_id: string;
}

/** @returns null where there is nothing to delete: never stored, read up, or expired. To delete twice is to delete once */
export async function deleteSecret(database: Database, id: string): Promise<(Ended & { readonly now: boolean }) | null> {
  const [row] = await database.write(
    (sql) => sql<Array<Ended & { now: boolean }>>`
      update secrets.secrets set ${emptied(sql)}, ending = 'deleted', ended_at = coalesce(ended_at, now())
      where id = ${id} and (ending = 'deleted' or (${living(sql)}))
      returning id, key_id, ended_at = now() as now`,
  );
  return row ?? null;
}

export interface ListedSecret {
  readonly id: string;
  readonly blob: Buffer;
}

/** The living secrets after an id, in the order of their ids; at most `limit`. No connection is held between two calls. */
export async function listSecrets(database: Database, after: string, limit: number): Promise<ListedSecret[]> {
  return database.list(
    (sql) => sql<ListedSecret[]>`select id, blob from secrets.secrets where id > ${after} and ${living(sql)} order by id limit ${limit}`,
  );
}

/** Empties what has expired. @returns at most `most`; several replicas may do this at once, and each row is told by one */
export async function expireSecrets(database: Database, most: number): Promise<Ended[]> {
  return database.write(
    (sql) => sql<Ended[]>`
      update secrets.secrets set ${emptied(sql)}, ending = 'expired', ended_at = expires_at
      where blob is not null and id = any (array(
        select id from secrets.secrets where blob is not null and expires_at <= now() order by expires_at limit ${most}))
      returning id, key_id`,
  );
}

/** Removes receipts whose secret ended more than `seconds` ago. @returns how many; at most `most` */
export async function removeReceipts(database: Database, seconds: number, most: number): Promise<number> {
  const result = await database.write(
    (sql) => sql`
      delete from secrets.secrets where id = any (array(
        select id from secrets.secrets where blob is null and ended_at <= now() - make_interval(secs => ${seconds}) order by ended_at limit ${most}))`,
  );
  return result.count;
}

/** Notes that this server secret is in use. @returns whether it is a new one, where others were in use before */
export async function rememberKey(database: Database, keyId: string): Promise<boolean> {
  const [row] = await database.write(
    (sql) => sql<Array<{ others: boolean }>>`
      insert into secrets.server_keys (key_id) values (${keyId}) on conflict do nothing
      returning exists (select from secrets.server_keys) as others`,
  );
  return row?.others ?? false;
}

export interface KeyCount {
  readonly key_id: string;
  readonly first_used_at: Date | null;
  /** How many secrets it still holds. */
  readonly secrets: number;
}

export async function countByKey(database: Database): Promise<KeyCount[]> {
  return database.list(
    (sql) => sql<KeyCount[]>`
      select key_id, first_used_at, coalesce(secrets, 0)::int as secrets
      from secrets.server_keys
      full join (select key_id, count(*) as secrets from secrets.secrets where ${living(sql)} group by key_id) held using (key_id)
      order by first_used_at, key_id`,
  );
}

/** What is counted, how many tries are let through, and for how long they count. */
export interface Limit {
  readonly key: Buffer;
  readonly tries: number;
  readonly seconds: number;
}

/** @returns until there is a try again; 0 while there is one */
export async function secondsToWait(database: Database, { key, tries }: Limit): Promise<number> {
  const [row] = await database.read(
    (sql) => sql<Array<{ wait: number }>>`
      select extract(epoch from until - now())::float8 as wait from secrets.throttles where key = ${key} and tries >= ${tries} and until > now()`,
  );
  return row?.wait ?? 0;
}

/** Counts a try, if there is one left. @returns whether there was */
export async function takeTry(database: Database, { key, tries, seconds }: Limit): Promise<boolean> {
  const result = await database.write(
    (sql) => sql`
      insert into secrets.throttles as t (key, tries, until) values (${key}, 1, now() + make_interval(secs => ${seconds}))
      on conflict (key) do update set
        tries = case when t.until > now() then t.tries + 1 else 1 end,
        until = case when t.until > now() then t.until else excluded.until end
      where t.until <= now() or t.tries < ${tries}`,
  );
  return result.count === 1;
}

/** A try that was no failure does not count. */
export async function giveBackTries(database: Database, keys: readonly Buffer[]): Promise<void> {
  await database.write((sql) => sql`update secrets.throttles set tries = tries - 1 where tries > 0 and key in ${sql(keys)}`);
}

/** Removes tries that no longer count. @returns how many rows; at most `most` */
export async function removeTries(database: Database, most: number): Promise<number> {
  const result = await database.write(
    (sql) => sql`delete from secrets.throttles where key = any (array(select key from secrets.throttles where until <= now() order by until limit ${most}))`,
  );
  return result.count;
}
