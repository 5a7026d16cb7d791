import { OperationFailed } from './command.ts';
import { withDatabase } from './database.ts';
import { isUuid } from '../crypto/text.ts';
import type { Database } from '../db/pool.ts';
import * as schema from '../identity/migrations.ts';
import { accountKey, type User } from '../identity/model.ts';
import * as settings from '../identity/settings.ts';
import { findAccount, findUser } from '../identity/store/users.ts';
import type { Hashing } from '../identity/users.ts';

export const inIdentity = <T>(work: (database: Database, hashing: Hashing) => Promise<T>): Promise<T> =>
  withDatabase(settings, schema, work);

/** By id or username. */
export async function find(database: Database, name = ''): Promise<User> {
  const id = name.toLowerCase();
  const user = isUuid(id) ? await findUser(database, id) : await findAccount(database, accountKey(name));
  if (!user) throw new OperationFailed('there is no user with this id or name; see: gatehouse user list');
  return user;
}
