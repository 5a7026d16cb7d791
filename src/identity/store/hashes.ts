import { sha256Hex } from '../../platform/crypto/token.ts';
import type { Database } from '../../platform/db/pool.ts';
import { hasChanged } from './rows.ts';

/** Stores the same password at another cost. @returns whether it was still the one that was read */
export const replaceHash = (database: Database, id: string, before: string | null, after: string) =>
  hasChanged(
    database.write(
      (sql) => sql`
      update identity.users
      set password_hash = ${after}
      where id = ${id}
        and password_hash = ${before}`,
    ),
  );

/**
 * A hash of another program, the same one for a name as long as it is there: of the user whose id
 * follows the digest of the name. So the kinds of hashes are met as often as users have them.
 * @returns null if no user has one
 */
export async function findImportedHash(database: Database, name: string) {
  const id = sha256Hex(name).slice(0, 32);
  const [row] = await database.read(
    (sql) => sql<[{ hash: string | null }]>`
      select coalesce(
        (select password_hash from identity.users
          where password_hash like 'imported$%' and id >= ${id}::text::uuid order by id limit 1),
        (select password_hash from identity.users
          where password_hash like 'imported$%' order by id limit 1)) as hash`,
  );
  return row.hash;
}
