import type { ServerKey } from '../crypto/box.ts';
import { alignToKeys, arrayLiteral, batched } from '../db/batch.ts';
import type { Database, Fragment, Locks, Sql } from '../db/pool.ts';
import { dateTime, type Infer, integer, nullable, object, oneOf, uuid } from '../http/shape.ts';

export interface StoredSecret {
  readonly id: string;
  readonly key_id: string; // the server secret it was encrypted under
  readonly commitment: Buffer;
  readonly blob: Buffer;
  readonly tag: Buffer | null; // null only in a row that was altered
  readonly expires_at: Date | null;
  readonly max_reads: number | null;
}

/** `creator`: `token:ID`, `user:NAME` or `anyone`; null for AUTH_TOKEN. */
type NewSecret = StoredSecret & Readonly<{ creator: string | null }>;
type SecretKeyId = Pick<StoredSecret, 'id' | 'key_id'>;

export const count = integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
export const status = oneOf('stored', 'read', 'expired', 'deleted');
export const receiptShape = object({
  id: uuid(),
  status,
  created_at: dateTime(),
  expires_at: nullable(dateTime()),
  max_reads: nullable(count),
  reads: count,
  last_read_at: nullable(dateTime()),
  failed_reads: count,
});

export const readable = (sql: Sql): Fragment =>
  sql`blob is not null and (expires_at is null or expires_at > now())`;
/** The content is removed with the end, so that nothing is left to decrypt. The commitment recognizes its link. */
export const noContent = (sql: Sql): Fragment => sql`blob = null, tag = null`;

/** The database's clock decides every expiry. In whole milliseconds, because the ciphertext is bound to the result. */
export const currentTime = batched(async (database: Database, callers: readonly null[]) => {
  const [row] = await database.read(
    (sql) => sql<[{ now: Date }]>`select date_trunc('milliseconds', now()) as now`,
  );
  return callers.map(() => row.now);
});

export const insertSecret = batched(
  async (database: Database, secrets: readonly NewSecret[], locks?: Locks) => {
    const all = (name: keyof NewSecret) => arrayLiteral(secrets.map((secret) => secret[name]));
    const blobs = arrayLiteral(secrets.map(({ blob }) => blob.toString('base64'))); // shorter than in hexadecimal
    await database.write(
      (sql) => sql`
      insert into secrets.secrets (id, key_id, commitment, blob, tag, expires_at, max_reads, creator)
      select id, key_id, commitment, decode(blob, 'base64'), tag, expires_at, max_reads, creator
      from unnest(${all('id')}::text::uuid[], ${all('key_id')}::text::text[], ${all('commitment')}::text::bytea[],
        ${blobs}::text::text[], ${all('tag')}::text::bytea[], ${all('expires_at')}::text::timestamptz[],
        ${all('max_reads')}::text::integer[], ${all('creator')}::text::text[]
      ) as given (id, key_id, commitment, blob, tag, expires_at, max_reads, creator)`,
      locks,
    );
    return secrets.map(() => undefined);
  },
  { bytesOf: ({ blob }) => blob.length },
);

/** The row while it has its content. Uses nothing up. */
export const findSecret = batched(async (database: Database, ids: readonly string[]) => {
  const rows = await database.read(
    (sql) => sql<Array<StoredSecret & { readonly expired: boolean }>>`
    select id, key_id, commitment, blob, tag, expires_at, max_reads, coalesce(expires_at <= now(), false) as expired
    from secrets.secrets where id = any (${arrayLiteral(ids)}::text::uuid[]) and blob is not null`,
  );
  return alignToKeys(ids, rows, ({ id }) => id);
});

/**
 * Finds, checks and uses up one read and updates the receipt, in one statement. Of any number of simultaneous readers,
 * as many succeed as there are reads left. A statement updates a row once, so readers of one secret never share one.
 * @returns whether this reader succeeded
 */
export const useUpRead = batched(
  async (
    database: Database,
    readers: ReadonlyArray<Readonly<{ id: string; commitment: Buffer }>>,
    locks?: Locks,
  ) => {
    // Sorted, so that two replicas rarely deadlock; a deadlock is retried.
    const sorted = [...readers].sort((one, other) => (one.id < other.id ? -1 : 1));
    const ids = arrayLiteral(sorted.map(({ id }) => id));
    const commitments = arrayLiteral(sorted.map(({ commitment }) => commitment));
    const updated = await database.write((sql) => {
      const isLast = sql`reads + 1 >= max_reads`; // null, and so false, without a limit
      const kept = (column: string) => sql`case when ${isLast} then null else ${sql(column)} end`;
      return sql<Array<{ id: string }>>`
        update secrets.secrets set reads = reads + 1, last_read_at = now(),
          blob = ${kept('blob')}, tag = ${kept('tag')},
          ending = case when ${isLast} then 'read' end, ended_at = case when ${isLast} then now() end
        from unnest(${ids}::text::uuid[], ${commitments}::text::bytea[]) as reader (reader_id, sent)
        where id = any (${ids}::text::uuid[]) and id = reader_id and commitment = sent
          and (max_reads is null or reads < max_reads) and ${readable(sql)}
        returning id`;
    }, locks);
    const succeeded = new Set(updated.map(({ id }) => id));
    return readers.map(({ id }) => succeeded.has(id));
  },
  { keyOf: ({ id }) => id },
);

/** @returns the key id of the secret, or null if there is no such secret */
export async function countFailedRead(database: Database, id: string): Promise<string | null> {
  const [row] = await database.write(
    (sql) => sql<Array<{ key_id: string }>>`
    update secrets.secrets set failed_reads = failed_reads + 1 where id = ${id} returning key_id`,
  );
  return row?.key_id ?? null;
}

/** @param creator null for every secret, otherwise only secrets of this creator */
export async function findReceipt(database: Database, id: string, creator: string | null) {
  const [row] = await database.read(
    (sql) => sql<Array<Infer<typeof receiptShape>>>`
    select id, coalesce(ending, case when expires_at <= now() then 'expired' else 'stored' end) as status,
      created_at, expires_at, max_reads, reads::float8 as reads, last_read_at, failed_reads::float8 as failed_reads
    from secrets.secrets where id = ${id} and (${creator}::text is null or creator = ${creator})`,
  );
  return row ?? null;
}

/** Idempotent. @returns null if the secret does not exist, was read as often as allowed, or has expired */
export async function deleteSecret(database: Database, id: string, creator: string | null) {
  const [row] = await database.write(
    (sql) => sql<Array<SecretKeyId & { readonly is_new: boolean }>>`
    update secrets.secrets set ${noContent(sql)}, ending = 'deleted', ended_at = coalesce(ended_at, now())
    where id = ${id} and (ending = 'deleted' or (${readable(sql)}))
      and (${creator}::text is null or creator = ${creator})
    returning id, key_id, ended_at = now() as is_new`,
  );
  return row ?? null;
}

/** Readable secrets in Base64url, with an id greater than `after`, sorted by id. */
export async function listSecrets(database: Database, after: string, limit: number) {
  const rows = await database.list(
    (sql) => sql<Array<{ id: string; blob: Buffer }>>`
    select id, blob from secrets.secrets where id > ${after} and ${readable(sql)} order by id limit ${limit}`,
  );
  // In SQL this takes ten times as long as the rest.
  return rows.map(({ id, blob }) => ({ id, secret: blob.toString('base64url') }));
}

/** Removes the content of expired secrets. Replicas may run it at once: each row is returned to one of them. */
export const expireSecrets = (database: Database, limit: number) =>
  database.write(
    (sql) => sql<SecretKeyId[]>`
    update secrets.secrets set ${noContent(sql)}, ending = 'expired', ended_at = expires_at
    where blob is not null and id = any (array(
      select id from secrets.secrets where blob is not null and expires_at <= now()
      order by expires_at limit ${limit}))
    returning id, key_id`,
  );

/** Removes receipts of secrets that ended more than `seconds` ago. @returns how many */
export const removeReceipts = async (
  database: Database,
  seconds: number,
  limit: number,
): Promise<number> =>
  (
    await database.write(
      (sql) => sql`
    delete from secrets.secrets where id = any (array(
      select id from secrets.secrets where blob is null and ended_at <= now() - make_interval(secs => ${seconds})
      order by ended_at limit ${limit}))`,
    )
  ).count;

/** Records that this server secret is in use. @returns true if it is new and others were in use before */
export async function rememberKey(database: Database, keyId: string): Promise<boolean> {
  const [row] = await database.write(
    (sql) => sql<Array<{ others: boolean }>>`
    insert into secrets.server_keys (key_id) values (${keyId}) on conflict do nothing
    returning exists (select from secrets.server_keys) as others`,
  );
  return row?.others ?? false;
}

/**
 * The server secrets that are configured or were ever used with this database, by key id, and how many readable secrets
 * need each. `missing`: not configured, though secrets need it. `retired`: neither configured nor needed. `unknown`: no
 * server secret is configured at all.
 * @param current null if SERVER_SECRET is not set, which only a command allows
 * @param most counts no more for each key, so that the cost does not grow with their number; null for no limit
 */
export function listKeys(
  database: Database,
  current: ServerKey | null,
  previous: readonly ServerKey[],
  most: number | null,
) {
  const configured = new Set([...(current ? [current] : []), ...previous].map(({ id }) => id));
  type State = 'current' | 'previous' | 'unknown' | 'missing' | 'retired';
  type KeyCount = Readonly<{
    key_id: string;
    first_used_at: Date | null;
    secrets: number;
    state: State;
  }>;
  // Keys without secrets are included: a rotation begins with configuring the new one on every replica.
  return database.list(
    (sql) => sql<KeyCount[]>`
    select key_id, first_used_at, secrets,
      case when key_id = ${current?.id ?? null}::text then 'current' when configured.key_id is not null then 'previous'
        when ${configured.size === 0} then 'unknown' when secrets > 0 then 'missing' else 'retired' end as state
    from secrets.server_keys used
    full join unnest(${arrayLiteral([...configured])}::text::text[]) as configured (key_id)
    using (key_id) cross join lateral (select count(*)::int4 as secrets from (
      select from secrets.secrets s where s.key_id = coalesce(used.key_id, configured.key_id) and ${readable(sql)}
      limit ${most}::int8) one) counted
    order by first_used_at, key_id`,
  );
}
