/**
 * Identity with its first administrator, and the users and keys that a test needs, made over the
 * interface alone.
 */
import assert from 'node:assert/strict';
import type { Sql } from 'postgres';
import { createDatabase } from './database.ts';
import { type Answer, ask, type Gatehouse, logIn, startGatehouse } from './gatehouse.ts';
import { assertUser, PASSWORD } from './users.ts';
import { wordsOf } from './words.ts';
import type { Owner } from './owner.ts';

/** A user of a test, with a session. */
export interface Person {
  readonly id: string;
  readonly username: string;
  readonly token: string;
}

export interface Identity extends Pick<Gatehouse, 'runJobs'> {
  readonly identity: string;
  readonly databaseUrl: string;
  /** The log lines written so far, parsed. */
  log(): Array<Record<string, unknown>>;
  /** One connection, for looking at what has been stored. */
  readonly sql: Sql;
  readonly admin: Person;
  /** One request with this bearer credential; none for null. */
  call(bearer: string | null, method: string, path: string, body?: unknown): Promise<Answer>;
  /** A user of a new name, made by the administrator. @returns its id and name */
  add(more?: Record<string, unknown>): Promise<{ id: string; username: string }>;
  /** The same, and a login. */
  enter(more?: Record<string, unknown>): Promise<Person>;
  /** A key of this person's, or, made by the administrator, of no user (null). */
  key(of: Person | null, more?: Record<string, unknown>): Promise<{ id: string; key: string }>;
}

/** @param databaseUrl another way to the same database */
export async function startIdentity(
  owner: Owner,
  environment: Readonly<Record<string, string>> = {},
  way: (databaseUrl: string) => Promise<string> = async (url) => url,
): Promise<Identity> {
  const database = await createDatabase(owner);
  const gatehouse = await startGatehouse(owner, ['identity'], await way(database.url), environment);
  const { identity } = gatehouse.url;
  const call: Identity['call'] = (bearer, method, path, body) =>
    ask(method, identity + path, {
      ...(bearer === null ? {} : { bearer }),
      ...(body === undefined ? {} : { body }),
    });
  const token = await logIn(identity);
  const admin = {
    id: String((await call(token, 'GET', '/api/test/')).json.data.user.id),
    username: 'admin',
    token,
  };
  let users = 0;
  const add: Identity['add'] = async (more) => {
    users += 1;
    const username = `user-${users}`;
    const { data } = made(
      await call(admin.token, 'POST', '/api/user/', {
        username,
        email: `${username}@example.org`,
        password: PASSWORD,
        ...more,
      }),
    );
    return { id: data.id, username: data.username };
  };
  return {
    identity,
    runJobs: gatehouse.runJobs,
    databaseUrl: database.url,
    log: gatehouse.log,
    sql: database.sql,
    admin,
    call,
    add,
    async enter(more) {
      const user = await add(more);
      return { ...user, token: await logIn(identity, user.username, PASSWORD) };
    },
    async key(of, more) {
      const { data } = made(
        await call((of ?? admin).token, 'POST', '/api/key/', {
          ...(of ? {} : { user_id: null }),
          ...more,
        }),
      );
      return { id: data.id, key: data.key };
    },
  };
}

function made(answer: Answer): { data: { id: string; username: string; key: string } } {
  assert.equal(answer.status, 201, answer.text);
  return answer.json;
}

/** 201 in the envelope, with exactly its members. */
export function assertCreated(answer: Answer): void {
  assert.equal(answer.status, 201, answer.text);
  assert.deepEqual(Object.keys(answer.json).sort(), ['_meta', 'data']);
  assert.deepEqual(Object.keys(answer.json._meta), ['request_id']);
  assert.equal(answer.json._meta.request_id, answer.headers.get('x-request-id'));
  assert.equal(answer.headers.get('cache-control'), 'no-store');
}

const KEY_MEMBERS = wordsOf(`
  created_at created_by created_by_username deleted_at expires_at groups id key last_used_at made_by
  name provision_groups revoked rights scopes updated_at user user_id
`);

/** The specification's table "ApiKey", and a name, groups, rights, the time of its last use, and who created it. */
export function assertKey({ user, ...key }: Record<string, unknown>): void {
  assert.deepEqual(Object.keys({ ...key, user }).sort(), KEY_MEMBERS);
  assert.match(String(key.id), /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  assert.deepEqual(
    [typeof key.key, typeof key.name, typeof key.revoked],
    ['string', 'string', 'boolean'],
  );
  for (const name of ['created_at', 'updated_at']) assert.match(String(key[name]), DATE_TIME);
  for (const name of ['deleted_at', 'expires_at', 'last_used_at'])
    if (key[name] !== null) assert.match(String(key[name]), DATE_TIME);
  if (user === null) return assert.equal(key.user_id, null);
  const owner: Record<string, unknown> = { ...Object(user) };
  assertUser(owner);
  assert.equal(owner.id, key.user_id);
}

const DATE_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
