import { Duplicate } from '../../platform/db/errors.ts';
import type { Sql } from '../../platform/db/pool.ts';
import type { User } from '../model.ts';
import { accountKey } from '../names.ts';
import { takeNamedLock } from './rights.ts';

/**
 * After a change of them, in its transaction: no username may be the e-mail address of another
 * user, because both sign in. An index compares only one column. The lock makes concurrent changes
 * see each other.
 * @throws Duplicate
 */
export async function checkNames(sql: Sql, { id, username, email }: User) {
  const key = accountKey(username);
  await takeNamedLock(sql, 'names');
  const [other] = await sql<Array<{ has_address: boolean }>>`
    select email_key = ${key} as has_address
    from identity.users
    where (email_key = ${key} or username_key = ${accountKey(email)})
      and id <> ${id}
      and deleted_at is null`;
  if (other) throw new Duplicate(other.has_address ? 'users_username_key' : 'users_email_key');
}
