import { randomUUID } from 'node:crypto';
import { type Database, Duplicate } from '../db/pool.ts';
import { withNamedLock } from '../db/migrate.ts';
import { Failure, type FieldError } from '../http/errors.ts';
import { boolean, object, optional, withDefault, type Infer, text } from '../http/shape.ts';
import { commonPasswords } from './common.ts';
import { SCHEMA } from './migrations.ts';
import { accountKey, controlCharError, emailError, passwordError, type User, usernameError } from './rules.ts';
import { type Actor, COMMAND_LINE } from './store/audit.ts';
import { anyUserExists, deleteUser, findUser, insertUser, type Refusal, updateUser, type UserValues } from './store/users.ts';

const members = {
  username: text({ min: 1, max: 255, check: usernameError }),
  email: text({ min: 3, max: 255, check: emailError }),
  first_name: text({ max: 255, check: controlCharError }),
  last_name: text({ max: 255, check: controlCharError }),
  verified: boolean(),
  super_admin: boolean(),
  enabled: boolean(),
};

/** What a new user needs. Names and addresses are stored as given and compared by their key. */
export const newUserShape = object(
  {
    ...members,
    first_name: withDefault(members.first_name, ''),
    last_name: withDefault(members.last_name, ''),
    password: optional(text({ description: 'Left out: the user cannot log in until one is set' })),
    verified: withDefault(boolean(), false),
    super_admin: withDefault(boolean(), false),
    enabled: withDefault(boolean(), true),
  },
  'refused',
);

/** What of a user may be changed; who may change which of these is told by `isOwnAffair`. */
export const userChangeShape = object(
  {
    username: optional(members.username),
    email: optional(members.email),
    first_name: optional(members.first_name),
    last_name: optional(members.last_name),
    verified: optional(members.verified),
    super_admin: optional(members.super_admin),
    enabled: optional(members.enabled),
  },
  'refused',
);

export type NewUser = Infer<typeof newUserShape>;
export type UserChange = Infer<typeof userChangeShape>;

/** The members that users change by themselves (ASVS 8.2.3); all others are an administrator's. */
export const isOwnAffair = (change: UserChange): boolean =>
  Object.entries(change).every(([name, value]) => value === undefined || name === 'first_name' || name === 'last_name');

/** What a new password has to pass, and how it is hashed. */
export interface Passwords {
  readonly minLength: number;
  hash(password: string): Promise<string>;
}

type Refused = Failure<'invalid_body' | 'conflict'>;
const refused = (...fields: FieldError[]) => new Failure('invalid_body', { fields });

/** @returns the hash, or what is wrong with the password */
async function hashOf(password: string, { minLength, hash }: Passwords): Promise<string | Failure<'invalid_body'>> {
  const fault = passwordError(password, minLength, commonPasswords());
  return fault === null ? hash(password) : refused({ path: '/password', message: fault });
}

async function valuesOf({ password, ...user }: NewUser, passwords: Passwords): Promise<UserValues | Failure<'invalid_body'>> {
  const hash = password === undefined ? null : await hashOf(password, passwords);
  if (hash instanceof Failure) return hash;
  return { ...user, username_key: accountKey(user.username), email_key: accountKey(user.email), password_hash: hash };
}

/** @returns the user, or what stands against it; then nothing is stored */
export async function createUser(database: Database, actor: Actor, user: NewUser, passwords: Passwords): Promise<User | Refused> {
  const values = await valuesOf(user, passwords);
  if (values instanceof Failure) return values;
  return unlessTaken(() => database.write((sql) => insertUser(sql, actor, randomUUID(), values)));
}

/**
 * The first super administrator, where there is no user at all.
 * @returns null when there is one already, whoever made it
 */
export async function createFirstAdministrator(database: Database, user: NewUser, passwords: Passwords): Promise<User | Failure<'invalid_body'> | null> {
  if (await database.read(anyUserExists)) return null;
  const values = await valuesOf(user, passwords);
  if (values instanceof Failure) return values;
  // Replicas that start together take turns here, and all but one find that there is a user now.
  return withNamedLock(database, SCHEMA, 'first administrator', async (sql) =>
    (await anyUserExists(sql)) ? null : insertUser(sql, COMMAND_LINE, randomUUID(), values),
  );
}

type NotDone = Failure<'not_found' | 'forbidden' | 'conflict'>;

/** @param change members that are left out stay as they are; none at all is no change */
export async function changeUser(database: Database, actor: Actor, id: string, change: UserChange): Promise<User | NotDone> {
  const given = Object.entries(change).filter(([, value]) => value !== undefined);
  if (given.length === 0) return outcomeOf((await findUser(database, id)) ?? 'unknown');
  const { username, email } = change;
  const values = {
    ...Object.fromEntries(given),
    ...(username === undefined ? {} : { username_key: accountKey(username) }),
    ...(email === undefined ? {} : { email_key: accountKey(email) }),
  };
  // Names of members, and whether flags were set: never a caller's text.
  const detail = given.map(([name, value]) => (typeof value === 'boolean' ? `${name}=${value}` : name)).join(' ');
  const consequences = { lessens: change.enabled === false || change.super_admin === false, endsSessions: change.enabled === false };
  return unlessTaken(async () => outcomeOf(await updateUser(database, { event: 'user.changed', actor, detail }, id, values, consequences)));
}

/** Sets another's password; all of that user's sessions end. */
export async function setPassword(database: Database, actor: Actor, id: string, password: string, passwords: Passwords): Promise<User | NotDone | Failure<'invalid_body'>> {
  const hash = await hashOf(password, passwords);
  if (hash instanceof Failure) return hash;
  return outcomeOf(await updateUser(database, { event: 'password.set', actor }, id, { password_hash: hash }, { lessens: false, endsSessions: true }));
}

export async function removeUser(database: Database, actor: Actor, id: string): Promise<User | NotDone> {
  return outcomeOf(await deleteUser(database, actor, id));
}

function outcomeOf(outcome: User | Refusal): User | NotDone {
  if (outcome === 'unknown') return new Failure('not_found', { message: 'There is no user with this id.' });
  if (outcome === 'demoted') return new Failure('forbidden');
  if (outcome === 'last administrator') {
    return new Failure('conflict', { message: 'This is the last enabled super administrator. Make another one first.' });
  }
  return outcome;
}

async function unlessTaken<T>(work: () => Promise<T>): Promise<T | Failure<'conflict'>> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Duplicate)) throw error;
    const path = error.constraint === 'users_email_key' ? '/email' : '/username';
    return new Failure('conflict', { message: 'Another user has this name or address.', fields: [{ path, message: 'is taken by another user' }] });
  }
}
