import type { SealedSecret } from '../../../platform/crypto/service-secret.ts';
import type { Database, Sql } from '../../../platform/db/sql.ts';
import { audited, COMMAND_LINE } from '../audit.ts';
import { takeNamedLock } from '../rights.ts';

/** `signs`: since when it signs; until then it is only published, so that programs know it. */
export type StoredKey = SealedSecret & Readonly<{ created_at: Date; is_waiting: boolean }>;

/** Programs read the keys at most once an hour. */
const WAITING_SECONDS = 3_600;
/** The longest life of an ID token is a day; then its key still verifies it as long again. */
const VERIFYING_SECONDS = 48 * 3_600;

/** The newest first. */
export const listKeys = (database: Database) =>
  database.read(
    (sql) => sql<StoredKey[]>`
    select id, key_id, client_key, commitment, blob, created_at,
      created_at > now() - make_interval(secs => ${WAITING_SECONDS}) as is_waiting
    from identity.oidc_keys
    order by created_at desc, id`,
  );

const insertKey = (sql: Sql, key: SealedSecret) =>
  audited(
    sql,
    { event: 'signing_key.created', actor: COMMAND_LINE },
    sql`insert into identity.oidc_keys ${sql(key)} returning id, null::uuid as user_id`,
  );

/** Of replicas that start together, one inserts its key. */
export const insertFirstKey = (database: Database, key: SealedSecret) =>
  database.transaction(async (sql) => {
    await takeNamedLock(sql, 'first signing key');
    const { count } = await sql`select from identity.oidc_keys limit 1`;
    if (count === 0) await insertKey(sql, key);
  });

/** @param isNow whether all others end at once, with the ID tokens that they have signed */
export const rotateKey = (database: Database, key: SealedSecret, isNow: boolean) =>
  database.transaction(async (sql) => {
    if (isNow) await sql`delete from identity.oidc_keys`;
    await insertKey(sql, key);
  });

/** Removes keys that have signed no valid token any more. @returns how many */
export async function removeOldKeys(database: Database) {
  const seconds = WAITING_SECONDS + VERIFYING_SECONDS;
  const { count } = await database.write(
    (sql) => sql`
    delete from identity.oidc_keys k
    where exists (
      select from identity.oidc_keys later
      where later.created_at > k.created_at
        and later.created_at < now() - make_interval(secs => ${seconds}))`,
  );
  return count;
}
