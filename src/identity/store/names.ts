import { Duplicate } from '../../platform/db/errors.ts';
import type { Database, Sql } from '../../platform/db/pool.ts';
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

type Namesakes = Readonly<Record<'both' | 'username' | 'email', boolean>>;

/** Whether one user has both names, and whether any has one of them as a name or an address. */
export async function findNamesakes(
  database: Database,
  { username, email }: Pick<User, 'username' | 'email'>,
) {
  const name = accountKey(username);
  const address = accountKey(email);
  const [found] = await database.read(
    (sql) => sql<[Namesakes]>`
      select coalesce(bool_or(username_key = ${name} and email_key = ${address}), false) as both,
        coalesce(bool_or(${name} in (username_key, email_key)), false) as username,
        coalesce(bool_or(${address} in (username_key, email_key)), false) as email
      from identity.users
      where (username_key in (${name}, ${address}) or email_key in (${name}, ${address}))
        and deleted_at is null`,
  );
  return found;
}
