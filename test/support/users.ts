/** Users made the way the command makes them, and the exact form of what identity says. */
import assert from 'node:assert/strict';
import type { Database } from '../../src/platform/db/pool.ts';
import { Failure } from '../../src/platform/http/route/errors.ts';
import { validate } from '../../src/platform/http/route/schema.ts';
import { COMMAND_LINE } from '../../src/identity/store/audit.ts';
import { createUser, newUserSchema } from '../../src/identity/users.ts';
import { openConnections } from './connections.ts';
import { type Answer, ask } from './gatehouse.ts';
import type { Owner } from './owner.ts';

/** Of every user that `addUser` makes, unless told otherwise. */
export const PASSWORD = 'a passphrase for tests';
export const CHEAP = { minLength: 8, words: [], cost: { logN: 4, r: 8, p: 1 } };

/** The service's own connections, for tests that call its functions. */
export const openIdentity = (owner: Owner, url: string): Database =>
  openConnections(owner, url, 'identity');

export const CHEAP_PASSWORDS = { passwords: CHEAP };

/** What `createIdentity` takes, without the sign-in pages. */
export const IDENTITY_OPTIONS = {
  ...CHEAP_PASSWORDS,
  sessionSeconds: 3_600,
  idleSeconds: 0,
  portal: null,
  factorSecrets: [],
  selfDeletion: false,
  retentionSeconds: 86_400,
  auditSeconds: 7 * 86_400,
};

/** @returns the new user's id */
export async function addUser(
  database: Database,
  username: string,
  more: Record<string, unknown> = {},
): Promise<string> {
  const given = { username, email: `${username}@example.org`, password: PASSWORD, ...more };
  const taken = validate(newUserSchema, given, 'invalid_body');
  assert.ok(!(taken instanceof Failure), JSON.stringify(taken));
  const user = await createUser(database, COMMAND_LINE, taken, CHEAP_PASSWORDS);
  assert.ok(!(user instanceof Failure), JSON.stringify(user));
  return user.id;
}

/** The session of a token, as the API shows it to the holder of the token. */
export async function sessionOf(
  identityUrl: string,
  token: string,
): Promise<{ id: string; user_id: string; user: { id: string } }> {
  const answer = await ask('POST', `${identityUrl}/api/auth/session`, { body: { session: token } });
  assert.equal(answer.status, 200, answer.text);
  return answer.json.data;
}

export const isOpen = async (identityUrl: string, token: string): Promise<boolean> =>
  (await ask('GET', `${identityUrl}/api/test/`, { bearer: token })).status === 200;

/** What a member is, as JSON. */
const UUID = /^"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"$/;
const TEXT = /^"/;
const EMAIL = /^"[^@\s]+@[^@\s]+"$/;
const BOOLEAN = /^(true|false)$/;
const TIME = /^"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"$/;
const LIST = /^\[/;
const OBJECT = /^\{/;
const orNull = ({ source }: RegExp) => new RegExp(`${source}|^null$`);
type Fields = Readonly<Record<string, RegExp>>;

/** The specification's tables "User", and its groups, and "Session". */
const USER: Fields = {
  id: UUID,
  first_name: TEXT,
  last_name: TEXT,
  username: TEXT,
  email: EMAIL,
  enabled: BOOLEAN,
  verified: BOOLEAN,
  super_admin: BOOLEAN,
  groups: LIST,
  created_at: TIME,
  updated_at: TIME,
  deleted_at: orNull(TIME),
};
const SESSION: Fields = {
  id: UUID,
  user_id: UUID,
  revoked: BOOLEAN,
  logged_out: BOOLEAN,
  expires_at: TIME,
  ip: orNull(TEXT),
  user_agent: orNull(TEXT),
  last_seen_at: TIME,
  created_at: TIME,
  updated_at: TIME,
  deleted_at: orNull(TIME),
  user: OBJECT,
};

function assertFields(value: Record<string, unknown>, fields: Fields): void {
  assert.deepEqual(Object.keys(value).sort(), Object.keys(fields).sort());
  for (const [name, kind] of Object.entries(fields))
    assert.match(JSON.stringify(value[name]), kind, name);
}

export const assertUser = (value: Record<string, unknown>): void => assertFields(value, USER);

export function assertSession(value: { user_id: string; user: { id: string } }): void {
  assertFields({ ...value }, SESSION);
  assertUser(value.user);
  assert.equal(value.user_id, value.user.id);
}

/** The envelope, with exactly its members. */
export function assertSuccess(
  answer: Answer,
  kind: 'plain' | 'paged' = 'plain',
  status = 200,
): void {
  assert.equal(answer.status, status, answer.text);
  assertHead(answer);
  const isPaged = kind === 'paged';
  const members = [...(isPaged ? ['_links'] : []), '_meta', 'data'];
  assert.deepEqual(Object.keys(answer.json).sort(), members);
  const about = [...(isPaged ? ['pagination'] : []), 'request_id'];
  assert.deepEqual(Object.keys(answer.json._meta).sort(), about);
}

export function assertRevoked(answer: Answer, message: string): void {
  assertSuccess(answer);
  assert.deepEqual(answer.json.data, { message, status: 'REVOKED' });
}

/**
 * An error in its one schema.
 * @param fields the paths of the fields that are to blame; none: no member `fields` at all
 */
export function assertError(
  answer: Answer,
  status: number,
  code: string,
  fields: readonly string[] = [],
): void {
  assert.deepEqual([answer.status, answer.json?.error?.code], [status, code], answer.text);
  assertHead(answer);
  assert.deepEqual(Object.keys(answer.json).sort(), ['_meta', 'data', 'error']);
  assert.deepEqual(Object.keys(answer.json._meta), ['request_id']);
  assert.equal(answer.json.data, null);
  const members = ['code', ...(fields.length > 0 ? ['fields'] : []), 'message'];
  assert.deepEqual(Object.keys(answer.json.error).sort(), members);
  assert.ok(answer.json.error.message.length > 10);
  const faults: Array<{ path: string; message: string }> = answer.json.error.fields ?? [];
  const paths = faults.map((fault) => fault.path);
  assert.deepEqual(paths, fields);
  for (const fault of faults) assert.deepEqual(Object.keys(fault).sort(), ['message', 'path']);
  assert.equal(answer.headers.get('www-authenticate'), status === 401 ? 'Bearer' : null);
  const wait = answer.headers.get('retry-after') ?? '';
  assert.equal(/^[1-9][0-9]*$/.test(wait), status === 503 || status === 429);
}

function assertHead(answer: Answer): void {
  assert.equal(answer.headers.get('content-type'), 'application/json; charset=utf-8');
  assert.equal(answer.headers.get('cache-control'), 'no-store');
  assert.equal(typeof answer.json._meta.request_id, 'string');
  assert.equal(answer.json._meta.request_id, answer.headers.get('x-request-id'));
}
