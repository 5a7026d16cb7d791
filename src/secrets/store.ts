import type { Database } from '../db/pool.ts';

/** A key that might open a secret: which server secret, and the commitment it and the client key give for the record. */
export interface Claim {
  readonly keyId: string;
  readonly commitment: Buffer;
}

export interface NewSecret {
  readonly id: string;
  readonly keyId: string;
  readonly commitment: Buffer;
  readonly blob: Buffer;
  readonly expiresAt: Date | null;
  readonly maxReads: number | null;
}

export interface StoredSecret {
  readonly key_id: string;
  readonly commitment: Buffer;
  readonly blob: Buffer;
  readonly expires_at: Date | null;
  readonly max_reads: number | null;
}

/** The database's time, in whole milliseconds: its clock is the only one for expiry, and the seal binds the result. */
export async function currentTime(database: Database): Promise<Date> {
  const [row] = await database.read((sql) => sql<[{ now: Date }]>`select date_trunc('milliseconds', now()) as now`);
  return row.now;
}

export async function insertSecret(database: Database, secret: NewSecret): Promise<void> {
  await database.write(
    (sql) => sql`
      insert into secrets.secrets (id, key_id, commitment, blob, expires_at, max_reads)
      values (${secret.id}, ${secret.keyId}, ${secret.commitment}, ${secret.blob}, ${secret.expiresAt}, ${secret.maxReads})`,
  );
}

/** The row, if it lives and one of the claims fits. Nothing is used up. */
export async function findSecret(database: Database, id: string, claims: readonly Claim[]): Promise<StoredSecret | null> {
  const [row] = await database.read(
    (sql) => sql<StoredSecret[]>`
      select key_id, commitment, blob, expires_at, max_reads from secrets.secrets
      where id = ${id} and blob is not null and (expires_at is null or expires_at > now())
        and commitment in ${sql(claims.map((claim) => claim.commitment))}`,
  );
  return row ?? null;
}

/** @returns the key id of a living row, whoever asks: only to tell an operator that a server secret is missing */
export async function findKeyId(database: Database, id: string): Promise<string | null> {
  const [row] = await database.read(
    (sql) => sql<Array<{ key_id: string }>>`
      select key_id from secrets.secrets
      where id = ${id} and blob is not null and (expires_at is null or expires_at > now())`,
  );
  return row?.key_id ?? null;
}

/**
 * Finds, checks and uses up one read in one statement, so that of any number of simultaneous readers as many win as
 * there are reads left. With the last read the content goes; nothing that could be opened stays behind.
 * @returns whether this reader has won one
 */
export async function useUpRead(database: Database, id: string, commitment: Buffer): Promise<boolean> {
  const result = await database.write(
    (sql) => sql`
      update secrets.secrets set
        reads = reads + 1,
        blob = case when reads + 1 < max_reads then blob end,
        commitment = case when reads + 1 < max_reads then commitment end
      where id = ${id} and commitment = ${commitment} and reads < max_reads and (expires_at is null or expires_at > now())`,
  );
  return result.count === 1;
}

export interface ListedSecret {
  readonly id: string;
  readonly blob: Buffer;
}

/** The living secrets after an id, in the order of their ids; at most `limit`. No connection is held between two calls. */
export async function listSecrets(database: Database, after: string, limit: number): Promise<ListedSecret[]> {
  return database.list(
    (sql) => sql<ListedSecret[]>`
      select id, blob from secrets.secrets
      where id > ${after} and blob is not null and (expires_at is null or expires_at > now())
      order by id limit ${limit}`,
  );
}

/** Removes what has expired or is used up. @returns how many; at most `most` of each */
export async function removeEnded(database: Database, most: number): Promise<number> {
  const expired = await database.write(
    (sql) => sql`
      delete from secrets.secrets where id in (
        select id from secrets.secrets where expires_at <= now() order by expires_at limit ${most})`,
  );
  const usedUp = await database.write(
    (sql) => sql`
      delete from secrets.secrets where id in (
        select id from secrets.secrets where blob is null order by created_at limit ${most})`,
  );
  return expired.count + usedUp.count;
}
