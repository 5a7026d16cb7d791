/**
 * Identity with its first administrator, and the users and keys that a test needs, made over the
 * interface alone.
 */
import assert from 'node:assert/strict';
import { type Answer, ask, launch, logIn } from './gatehouse.ts';
import { assertSuccess, assertUser, PASSWORD } from './users.ts';
import { wordsOf } from './words.ts';
import type { Owner } from './owner.ts';

/** A user of a test, with a session. */
export interface Person {
  readonly id: string;
  readonly username: string;
  readonly token: string;
}

export async function startIdentity(
  owner: Owner,
  environment: Readonly<Record<string, string>> = {},
) {
  const { identity, metrics, databaseUrl, sql, runJobs, log } = await launch(
    ['identity'],
    environment,
    owner,
  );
  /** One request with this bearer credential; none for null. */
  const call = (bearer: string | null, method: string, path: string, body?: unknown) =>
    ask(method, identity + path, { ...(bearer === null ? {} : { bearer }), body });
  const token = await logIn(identity);
  const { json } = await call(token, 'GET', '/api/test/');
  const admin: Person = { id: String(json.data.user.id), username: 'admin', token };
  let users = 0;
  /** A user of a new name, made by the administrator. @returns its id and name */
  const add = async (more: Record<string, unknown> = {}) => {
    users += 1;
    const username = `user-${users}`;
    const user = { username, email: `${username}@example.org`, password: PASSWORD, ...more };
    const { data } = made(await call(admin.token, 'POST', '/api/user/', user));
    return { id: data.id, username: data.username };
  };
  return {
    identity,
    metrics,
    runJobs,
    databaseUrl,
    log,
    sql,
    admin,
    call,
    /** A login over the interface, whatever its answer. */
    login: (username: string, password = PASSWORD, otp?: string) =>
      call(null, 'POST', '/api/auth/login', { username, password, otp }),
    add,
    /** The same, and a login. */
    async enter(more?: Record<string, unknown>): Promise<Person> {
      const user = await add(more);
      return { ...user, token: await logIn(identity, user.username, PASSWORD) };
    },
    /** A key of this person's, or, made by the administrator, of no user (null). */
    async key(of: Person | null, more: Record<string, unknown> = {}) {
      const body = { ...(of ? {} : { user_id: null }), ...more };
      const { data } = made(await call((of ?? admin).token, 'POST', '/api/key/', body));
      return { id: data.id, key: data.key };
    },
  };
}

function made(answer: Answer): { data: { id: string; username: string; key: string } } {
  assert.equal(answer.status, 201, answer.text);
  return answer.json;
}

export const assertCreated = (answer: Answer): void => assertSuccess(answer, 'plain', 201);

const KEY_MEMBERS = wordsOf(`
  created_at created_by created_by_username deleted_at expires_at groups id key last_used_at made_by
  name provision_groups revoked rights scopes updated_at user user_id
`);

/**
 * The specification's table "ApiKey", and a name, groups, rights, the time of its last use, and who
 * created it.
 */
export function assertKey({ user, ...key }: Record<string, unknown>): void {
  assert.deepEqual(Object.keys({ ...key, user }).sort(), KEY_MEMBERS);
  assert.match(String(key.id), /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  const types = [typeof key.key, typeof key.name, typeof key.revoked];
  assert.deepEqual(types, ['string', 'string', 'boolean']);
  for (const name of ['created_at', 'updated_at']) assert.match(String(key[name]), DATE_TIME);
  for (const name of ['deleted_at', 'expires_at', 'last_used_at'])
    if (key[name] !== null) assert.match(String(key[name]), DATE_TIME);
  if (user === null) return assert.equal(key.user_id, null);
  const owner: Record<string, unknown> = { ...Object(user) };
  assertUser(owner);
  assert.equal(owner.id, key.user_id);
}

const DATE_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
