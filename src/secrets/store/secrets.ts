import { sharedStatement } from '../../platform/db/share-statement.ts';
import {
  alignToKeys,
  arrayLiteral,
  type Database,
  type Fragment,
  hexBytes,
  removeBatch,
  type Sql,
} from '../../platform/db/sql.ts';
import { type Envelope, LOCKED, type Terms } from '../envelope.ts';
import type { LinkState, OwnLink, Receipt } from '../replies.ts';

type KeyId = Readonly<{
  id: string;
  key_id: string; // the server secret it was encrypted under
}>;
export type StoredSecret = Terms & Envelope;
type Link = Omit<LinkState, 'expires_at'> &
  Omit<StoredSecret, 'id' | 'blob'> &
  Readonly<{ blob: Buffer | null }>;

export const readableSql = (sql: Sql) =>
  sql`blob is not null and (expires_at is null or expires_at > now())`;
/**
 * The content is removed with the end, so that nothing is left to decrypt. The commitment
 * recognizes its link.
 */
export const noContentSql = (sql: Sql) => sql`blob = null, tag = null`;

export const isOwnSql = (sql: Sql, creator: string | null) =>
  sql`(${creator}::text is null or creator = ${creator})`;

const statusSql = (sql: Sql) =>
  sql`coalesce(ending, case when expires_at <= now() then 'expired' else 'stored' end)`;

/**
 * The time in so many seconds, by the database's clock, which decides every expiry. In whole
 * milliseconds, because the ciphertext is bound to the result.
 */
export const timeIn = sharedStatement('read', async (sql, seconds: readonly number[]) => {
  const [{ now }] = await sql<[{ now: Date }]>`select date_trunc('milliseconds', now()) as now`;
  return seconds.map((wait) => new Date(now.getTime() + wait * 1000));
});

export type NewSecret = StoredSecret & Readonly<{ creator: string | null }>;

export const insertSecret = sharedStatement(
  'write',
  async (sql, secrets: readonly NewSecret[]) => {
    // All in one parameter, which is decoded once: as members of JSON they would take twice the
    // time. Base64 is shorter than hexadecimal, the only other form that the driver sends.
    const blobs = Buffer.concat(secrets.map(({ blob }) => blob)).toString('base64');
    let end = 0;
    const given = secrets.map(({ blob: { length }, commitment, tag, ...others }) => {
      const start = end + 1;
      end += length;
      // The spread last: V8 takes microseconds for members that follow one.
      return {
        commitment: hexBytes(commitment),
        tag: tag && hexBytes(tag),
        start,
        length,
        ...others,
      };
    });
    // `stringify` alone is faster than `jsonRows`, and no text here has lone surrogates.
    const rows = JSON.stringify(given);
    await sql`
      with sent as materialized (select decode(${blobs}, 'base64') as blobs)
      insert into secrets.secrets
        (id, key_id, commitment, blob, tag, expires_at, max_reads, creator)
      select id, key_id, commitment, substring(blobs from start for length), tag, expires_at,
        max_reads, creator
      from sent, json_to_recordset(${rows}::text::json) as given (
        id uuid, key_id text, commitment bytea, start int4, length int4, tag bytea,
        expires_at timestamptz, max_reads int4, creator text)`;
    return secrets.map(() => undefined);
  },
  { bytesOf: ({ blob }) => blob.length },
);

const idOf = ({ id }: { id: string }) => id;

/** The row while it has its content. This is not counted as a read. */
export const findSecret = sharedStatement('read', async (sql, ids: readonly string[]) => {
  const rows = await sql<Array<StoredSecret & Readonly<{ expired: boolean; found_at: Date }>>>`
    select id, key_id, commitment, blob, tag, expires_at, max_reads,
      coalesce(expires_at <= now(), false) as expired, now() as found_at
    from secrets.secrets
    where id = any (${arrayLiteral(ids)}::uuid[]) and blob is not null`;
  return alignToKeys(ids, rows, idOf);
});

type Reader = Pick<StoredSecret, 'id' | 'commitment'> &
  Readonly<{
    /** Whether nobody would get the text. */
    isLate: () => boolean;
    /** By the database's clock: a server that was suspended may run the statement much later. */
    until: Date;
  }>;

/**
 * Finds, checks and uses up one read and updates the receipt, in one statement. Of any number of
 * simultaneous readers, as many succeed as there are reads left. A statement updates a row once, so
 * readers of one secret never share one.
 * @returns what is left after this read; null if it did not succeed
 */
export const useUpRead = sharedStatement(
  'write',
  async (sql, readers: readonly Reader[]) => {
    // The statement may have waited for its connection or a lock. Sorted, so that two replicas
    // rarely deadlock; a deadlock is retried.
    const sorted = readers
      .filter(({ isLate }) => !isLate())
      .sort((one, other) => (one.id < other.id ? -1 : 1));
    if (sorted.length === 0) return readers.map(() => null);
    const ids = arrayLiteral(sorted.map(idOf));
    const commitments = arrayLiteral(sorted.map(({ commitment }) => commitment));
    const ends = arrayLiteral(sorted.map(({ until }) => until.toISOString()));
    const isLastSql = sql`reads + 1 >= max_reads`; // null without a limit
    const updated = await sql<Array<Pick<Receipt, 'id' | 'reads' | 'max_reads' | 'expires_at'>>>`
        update secrets.secrets set reads = reads + 1, last_read_at = at,
          blob = case when ${isLastSql} then null else blob end,
          tag = case when ${isLastSql} then null else tag end,
          ending = case when ${isLastSql} then 'read' end,
          ended_at = case when ${isLastSql} then at end
        from now() as at, unnest(${ids}::uuid[], ${commitments}::bytea[],
          ${ends}::timestamptz[]) as reader (reader_id, sent, until)
        where id = any (${ids}::uuid[]) and id = reader_id and commitment = sent and at < until
          and (max_reads is null or reads < max_reads) and ${readableSql(sql)}
        returning id, reads::float8 as reads, max_reads, expires_at`;
    return alignToKeys(readers.map(idOf), updated, idOf);
  },
  { keyOf: idOf, areKeysUnique: true },
);

/** @returns the key id of the secret, or null if there is no such secret */
export async function countFailedRead(database: Database, id: string) {
  const [row] = await database.write(
    (sql) => sql<Array<{ key_id: string }>>`
    update secrets.secrets set failed_reads = failed_reads + 1
    where id = ${id}
    returning key_id`,
  );
  return row?.key_id ?? null;
}

/** The newest secrets, and requests without an answer, for which a condition holds. */
const receiptsSql = (sql: Sql, condition: Fragment, limit: number) => sql`
    select id, ${statusSql(sql)} as status, created_at, expires_at, max_reads,
      reads::float8 as reads, last_read_at, failed_reads::float8 as failed_reads
    from (
      (select id, ending, created_at, expires_at, max_reads, reads, last_read_at, failed_reads
      from secrets.secrets
      where ${condition}
      order by created_at desc
      limit ${limit})
      union all
      (select id, coalesce(ending, case when expires_at > now() then 'requested' end), created_at,
        expires_at, max_reads, 0, null, 0
      from secrets.requests
      where ${condition} and answer_key is null
      order by created_at desc
      limit ${limit})
    ) known
    order by created_at desc
    limit ${limit}`;

/** @param creator null for every secret, otherwise only secrets of this creator */
export async function findReceipt(database: Database, id: string, creator: string | null) {
  const [row] = await database.read(
    (sql) => sql<Receipt[]>`${receiptsSql(sql, sql`id = ${id} and ${isOwnSql(sql, creator)}`, 1)}`,
  );
  return row ?? null;
}

/** What a user shared or asked for, with the titles of requests. */
export const listOwn = (database: Database, creator: string, limit: number) =>
  database.list(
    (sql) => sql<OwnLink[]>`
    select own.*, title
    from (${receiptsSql(sql, sql`creator = ${creator}`, limit)}) own
    left join secrets.requests using (id)
    order by own.created_at desc`,
  );

/** @param commitments the content is returned only for one of these, so that a guess is cheap */
export async function findLink(database: Database, id: string, commitments: readonly Buffer[]) {
  const [row] = await database.read(
    (sql) => sql<Link[]>`
    select key_id, commitment, tag, ${statusSql(sql)} as status,
      case when commitment = any (${arrayLiteral(commitments)}::bytea[]) then blob end as blob,
      coalesce(substring(blob from 1 for 1) = ${Buffer.of(LOCKED)}, false) as passphrase,
      reads::float8 as reads, max_reads, expires_at,
      coalesce(ended_at, case when expires_at <= now() then expires_at end) as ended_at
    from secrets.secrets
    where id = ${id}`,
  );
  return row ?? null;
}

/** The server secrets that the secret or the request with this id needs, or needed. */
export const findKeyIds = (database: Database, id: string) =>
  database.read(
    (sql) => sql<Array<KeyId & { readonly is_needed: boolean }>>`
    select id, key_id, ${readableSql(sql)} as is_needed
    from secrets.secrets
    where id = ${id}
    union all
    select id, key_id, expires_at > now()
    from secrets.requests
    where id = ${id}`,
  );

/**
 * Idempotent.
 * @returns null if the secret does not exist, was read as often as allowed, has expired, or belongs
 * to another creator
 */
export async function deleteSecret(database: Database, id: string, creator: string | null) {
  const [row] = await database.write(
    (sql) => sql<Array<KeyId & { readonly is_new: boolean }>>`
    update secrets.secrets set ${noContentSql(sql)}, ending = 'deleted',
      ended_at = coalesce(ended_at, at)
    from now() as at where id = ${id} and (ending = 'deleted' or (${readableSql(sql)}))
      and ${isOwnSql(sql, creator)}
    returning id, key_id, ended_at = at as is_new`,
  );
  return row ?? null;
}

/** Readable secrets in Base64url, with an id greater than `after`, sorted by id. */
export async function listSecrets(database: Database, after: string, limit: number) {
  const rows = await database.list(
    (sql) => sql<Array<{ id: string; blob: Buffer }>>`
    select id, blob
    from secrets.secrets
    where id > ${after} and ${readableSql(sql)}
    order by id
    limit ${limit}`,
  );
  // In SQL this takes ten times as long as the rest.
  return rows.map(({ id, blob }) => ({ id, secret: blob.toString('base64url') }));
}

/**
 * Removes the content of expired secrets. Replicas may run it at once: each row is returned to one
 * of them.
 */
export const expireSecrets = (database: Database, limit: number) =>
  database.write(
    (sql) => sql<KeyId[]>`
    update secrets.secrets set ${noContentSql(sql)}, ending = 'expired', ended_at = expires_at
    where blob is not null and id = any (array(
      select id
      from secrets.secrets
      where blob is not null and expires_at <= now()
      order by expires_at
      limit ${limit}))
    returning id, key_id`,
  );

/** Removes receipts of secrets that ended more than `seconds` ago. @returns how many */
export const removeReceipts = (database: Database, seconds: number, limit: number) =>
  removeBatch(
    database,
    'secrets.secrets',
    'id',
    (sql) => sql`
      select id
      from secrets.secrets
      where blob is null and ended_at <= now() - make_interval(secs => ${seconds})
      order by ended_at
      limit ${limit}`,
  );
