import type { Database } from '../platform/db/pool.ts';
import { Failure } from '../platform/http/route/errors.ts';
import { type Infer, nullable, object, optional, text } from '../platform/http/route/schema.ts';
import { readForeignHash } from './imported-hashes.ts';
import { invalid } from './policy.ts';
import { COMMAND_LINE } from './store/audit.ts';
import { findNamesakes } from './store/names.ts';
import { insertUser } from './store/users.ts';
import { conflictOf, type Invitation, newUserMembers } from './users.ts';

/** One user of another program. No super administrator is imported. */
export const importedUser = object(
  {
    ...newUserMembers,
    password_hash: optional(nullable(text({ max: 512 }))),
  },
  'rejected',
);

/**
 * Repeatable: a user who exists by both names is left unchanged.
 * @param invitation for a user without a hash that can be checked here, or null
 * @param isDryRun to say only what would be done
 */
export async function importUser(
  database: Database,
  { password_hash: given, ...user }: Infer<typeof importedUser>,
  invitation: Invitation | null,
  isDryRun: boolean,
) {
  const hash = given ? readForeignHash(given) : null;
  if (hash && typeof hash !== 'string' && !(hash.isKnown && invitation))
    return invalid('/password_hash', hash.problem);
  const { both, username, email } = await findNamesakes(database, user);
  if (both) return 'present';
  if (username) return invalid('/username', 'is the name or address of another user');
  if (email) return invalid('/email', 'is the address or name of another user');
  const password_hash = typeof hash === 'string' ? hash : null;
  const done = password_hash || !invitation ? 'imported' : 'invited';
  if (isDryRun) return done;
  const columns = { ...user, super_admin: false, password_hash, password_generated: false };
  const inserted = await database
    .transaction(async (sql) => {
      const { id } = await insertUser(sql, COMMAND_LINE, columns);
      if (done === 'invited') await invitation?.insert(sql, COMMAND_LINE, id);
      return id;
    })
    .catch(conflictOf);
  return inserted instanceof Failure ? inserted : done;
}
