/**
 * Logins of every kind that gets the same 401 after the same work, so that none tells who exists.
 */
import { after } from 'node:test';
import type { Sql } from 'postgres';
import { hashPassword } from '../../src/identity/passwords.ts';
import type { ScryptCost } from '../../src/platform/crypto/scrypt.ts';
import { createDatabase } from './database.ts';
import { type Answer, startGatehouse } from './gatehouse.ts';
import { BEHIND_PROXY, loginFrom, newAddress } from './logins.ts';
import { addUser, openIdentity, PASSWORD } from './users.ts';

/** Names take turns, so that nothing is throttled. */
const NAMES = 4;
const namesOf = (kind: string) =>
  Array.from({ length: NAMES }, (_, index) => `${kind}-user-${index}`);

export const KINDS: ReadonlyArray<
  readonly [what: string, names: readonly string[], password: string]
> = [
  ['an unknown name', namesOf('unknown'), PASSWORD],
  ['a wrong password', namesOf('present'), 'not the password'],
  ['a wrong password of a user with a second factor', namesOf('guarded'), 'not the password'],
  ['a disabled user with the right password', namesOf('disabled'), PASSWORD],
  ['a disabled user with a wrong password', namesOf('disabled'), 'not the password'],
  ['a deleted user with the right password', namesOf('deleted'), PASSWORD],
  ['a user without a password', namesOf('passwordless'), PASSWORD],
];

/** An attempt from a network of its own. */
export type TryOne = (names: readonly string[], password: string, turn: number) => Promise<Answer>;

/** Starts identity with the users, whose passwords have hashes of this cost. */
export async function startRejecting({
  logN,
  r,
  p,
}: ScryptCost): Promise<{ sql: Sql; tryOne: TryOne }> {
  const { url: databaseUrl, sql } = await createDatabase({ after });
  const { url } = await startGatehouse({ after }, ['identity'], databaseUrl, {
    ...BEHIND_PROXY,
    PASSWORD_SCRYPT: `ln=${logN},r=${r},p=${p}`,
  });
  const database = openIdentity({ after }, databaseUrl);
  for (const kind of ['present', 'guarded', 'disabled', 'deleted', 'passwordless']) {
    for (const name of namesOf(kind)) await addUser(database, name);
  }
  const stored = await hashPassword(PASSWORD, { logN, r, p });
  await sql`update identity.users set password_hash = ${stored} where username like '%-user-%'`;
  await sql`update identity.users set second_factor = true where username like 'guarded-%'`;
  await sql`update identity.users set enabled = false where username like 'disabled-%'`;
  await sql`update identity.users set deleted_at = now() where username like 'deleted-%'`;
  await sql`update identity.users set password_hash = null where username like 'passwordless-%'`;
  const tryOne: TryOne = (names, password, turn) =>
    loginFrom(url.identity, newAddress(), names[turn % NAMES] ?? '', password);
  return { sql, tryOne };
}
