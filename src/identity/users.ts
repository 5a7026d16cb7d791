import { randomUUID } from 'node:crypto';
import { hashPassword } from '../crypto/password.ts';
import { randomToken } from '../crypto/token.ts';
import { type Database, Duplicate } from '../db/pool.ts';
import { oneAtATime } from '../db/migrate.ts';
import type { Call, Reply } from '../http/call.ts';
import type { Fault } from '../http/errors.ts';
import { boolean, object, optional, orElse, type Read, take, text } from '../http/shape.ts';
import { commonPasswords } from './common.ts';
import { SCHEMA } from './migrations.ts';
import { type Caller, may } from './policy.ts';
import { accountKey, controlFault, emailFault, passwordFault, type User, usernameFault } from './rules.ts';
import type { IdentityOptions, IdentityService } from './service.ts';
import { type userShape, viewUser } from './shapes.ts';
import { anyUserExists, insertUser, listUsers, type NewUser } from './store.ts';

/** A super administrator sees every user, everybody else themselves. */
export async function list({ caller }: Call<Caller, unknown, unknown, null>, service: IdentityService): Promise<Reply<Array<Read<typeof userShape>>>> {
  const users = may(caller, 'list every user') ? await listUsers(service.database) : [caller.user];
  return { data: users.map(viewUser) };
}

/** What a new user needs. Names and addresses are stored as given and compared by their key. */
export const newUserShape = object(
  {
    username: text({ min: 1, max: 255, check: usernameFault }),
    email: text({ min: 3, max: 255, check: emailFault }),
    first_name: orElse(text({ max: 255, check: controlFault }), ''),
    last_name: orElse(text({ max: 255, check: controlFault }), ''),
    password: optional(text()),
    verified: orElse(boolean(), false),
    super_admin: orElse(boolean(), false),
  },
  'refused',
);

export type Creation =
  | { readonly outcome: 'created'; readonly user: User; /** Set where none was given: shown once, stored nowhere. */ readonly generatedPassword: string | null }
  | { /** `refused`: the input is wrong; `taken`: another user has the name or the address. */ readonly outcome: 'refused' | 'taken'; readonly faults: readonly Fault[] };

/** @param input as from outside; everything wrong with it comes back, and then nothing is stored */
export async function createUser(database: Database, input: unknown, passwords: IdentityOptions['passwords']): Promise<Creation> {
  const prepared = await prepareUser(input, passwords);
  if (prepared.outcome !== 'ready') return prepared;
  try {
    const user = await database.write((sql) => insertUser(sql, prepared.row));
    return { outcome: 'created', user, generatedPassword: prepared.generatedPassword };
  } catch (error) {
    if (!(error instanceof Duplicate)) throw error;
    const path = error.constraint === 'users_email_key' ? '/email' : '/username';
    return { outcome: 'taken', faults: [{ path, message: 'is taken by another user' }] };
  }
}

/**
 * The first super administrator, where there is no user at all.
 * @returns null when there is one already, whoever made it
 */
export async function createFirstAdministrator(
  database: Database,
  admin: { readonly username: string; readonly email: string; readonly password: string | null },
  passwords: IdentityOptions['passwords'],
): Promise<Creation | null> {
  const exists = await database.read(anyUserExists);
  if (exists) return null;
  const password = admin.password === null ? {} : { password: admin.password };
  const input = { username: admin.username, email: admin.email, ...password, verified: true, super_admin: true };
  const prepared = await prepareUser(input, passwords);
  if (prepared.outcome !== 'ready') return prepared;
  // Replicas that start together take turns here, and all but one find that there is a user now.
  const user = await oneAtATime(database, SCHEMA, 'first administrator', async (sql) =>
    (await anyUserExists(sql)) ? null : insertUser(sql, prepared.row),
  );
  return user && { outcome: 'created', user, generatedPassword: prepared.generatedPassword };
}

type Prepared = { readonly outcome: 'ready'; readonly row: NewUser; readonly generatedPassword: string | null } | Exclude<Creation, { outcome: 'created' }>;

async function prepareUser(input: unknown, { minLength, cost }: IdentityOptions['passwords']): Promise<Prepared> {
  const taken = take(newUserShape, input, '');
  if (!taken.ok) return { outcome: 'refused', faults: taken.faults };
  const wish = taken.value;
  const generatedPassword = wish.password === undefined ? randomToken() : null;
  const password = wish.password ?? generatedPassword ?? '';
  const fault = passwordFault(password, minLength, commonPasswords());
  if (fault !== null) return { outcome: 'refused', faults: [{ path: '/password', message: fault }] };
  const row: NewUser = {
    id: randomUUID(),
    username: wish.username,
    usernameKey: accountKey(wish.username),
    email: wish.email,
    emailKey: accountKey(wish.email),
    firstName: wish.first_name,
    lastName: wish.last_name,
    passwordHash: await hashPassword(password, cost),
    verified: wish.verified,
    superAdmin: wish.super_admin,
  };
  return { outcome: 'ready', row, generatedPassword };
}
