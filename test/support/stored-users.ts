/** Users stored by one statement, for tests that need many; and all that is stored. */
import { randomUUID } from 'node:crypto';
import type { ISql, Sql } from 'postgres';
import { hashPassword } from '../../src/identity/passwords.ts';
import { createApiKey, createSessionToken } from '../../src/identity/token.ts';
import { sha256 } from '../../src/platform/crypto/token.ts';
import { CHEAP, PASSWORD } from './users.ts';

export interface Person {
  readonly username: string;
  readonly user_id: string;
  readonly session_id: string;
  readonly key_id: string;
  readonly session: string;
  readonly key: string;
}

let names = 0;
export function newName(): string {
  names += 1;
  return `stored-${names}`;
}
const password_hash = await hashPassword(PASSWORD, CHEAP.cost);

/** A user whose password is PASSWORD, with a session and a key. */
export async function storeUser(sql: Sql, isAdministrator = false): Promise<Person> {
  const username = newName();
  const email = `${username}@example.org`;
  const ids = { user_id: randomUUID(), session_id: randomUUID(), key_id: randomUUID() };
  const session = createSessionToken();
  const key = createApiKey();
  await sql`
    with made as (
      insert into identity.users (id, username, username_key, email, email_key, first_name,
        last_name, password_hash, enabled, verified, super_admin)
      values (${ids.user_id}, ${username}, ${username}, ${email}, ${email}, '', '',
        ${password_hash}, true, true, ${isAdministrator})
      returning id
    ), session as (
      insert into identity.sessions (id, token_digest, user_id, expires_at)
      select ${ids.session_id}, ${sha256(session)}, id, now() + interval '1 day' from made
    )
    insert into identity.api_keys (id, key_digest, key_prefix, name, user_id)
    select ${ids.key_id}, ${sha256(key)}, ${key.slice(0, 12)}, '', id from made`;
  return { username, ...ids, session, key };
}

const TABLES = 'users sessions api_keys links throttles global_revocation audit'.split(' ');
/** All that identity stores, except the use of a credential. */
export async function storedIn(sql: ISql<{}>): Promise<string[][]> {
  const rows = TABLES.map(
    (table) => sql`
      select (to_jsonb(x) - 'last_seen_at' - 'last_used_at')::text as text
      from ${sql(`identity.${table}`)} x order by 1`,
  );
  return (await Promise.all(rows)).map((found) => found.map(({ text }) => String(text)));
}
