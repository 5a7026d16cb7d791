/**
 * Logins of every kind that gets the same 401 after the same work, so that none tells who exists.
 */
import { after } from 'node:test';
import { hashPassword } from '../../src/identity/passwords.ts';
import type { ScryptCost } from '../../src/platform/crypto/scrypt.ts';
import { launch } from './gatehouse.ts';
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

/** Starts identity with the users, whose passwords have hashes of this cost. */
export async function startRejecting(cost: ScryptCost) {
  const PASSWORD_SCRYPT = `ln=${cost.logN},r=${cost.r},p=${cost.p}`;
  const { identity, databaseUrl, sql } = await launch(['identity'], {
    ...BEHIND_PROXY,
    PASSWORD_SCRYPT,
  });
  const database = openIdentity({ after }, databaseUrl);
  for (const kind of ['present', 'guarded', 'disabled', 'deleted', 'passwordless']) {
    for (const name of namesOf(kind)) await addUser(database, name);
  }
  const password_hash = await hashPassword(PASSWORD, cost);
  for (const [kind, state] of Object.entries({
    '%': { password_hash },
    guarded: { second_factor: true },
    disabled: { enabled: false },
    deleted: { deleted_at: new Date() },
    passwordless: { password_hash: null },
  }))
    await sql`update identity.users set ${sql(state)} where username like ${`${kind}-user-%`}`;
  return {
    sql,
    /** An attempt from a network of its own. */
    tryOne: (names: readonly string[], password: string, turn: number) =>
      loginFrom(identity, newAddress(), names[turn % NAMES] ?? '', password),
  };
}
