/**
 * Who may call each row of identity's API, and about whom. This table is the policy that the
 * documents promise; the service has one of its own.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { Sql } from 'postgres';
import { createApiKey, createSessionToken } from '../../../src/identity/token.ts';
import {
  assertComplete,
  assertRefused,
  assertTable,
  bearer,
  declarationOf,
  type Line,
  linesOf,
  nameOf,
  OPEN,
  type Row,
  rowOf,
  send,
  type Sent,
  start,
} from '../../support/contract.ts';
import { ask, AUTH_TOKEN, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { ORIGIN } from '../../support/portal.ts';
import { newName, type Person, storeUser } from '../../support/stored-users.ts';
import { PASSWORD, sessionOf } from '../../support/users.ts';

/** These take no credential. What they answer is tested with what they do. */
const WITHOUT = [
  ...OPEN,
  ...['POST /api/auth/login', 'POST /api/auth/logout', 'POST /api/auth/session'],
];

/**
 * `not recent`: signed in eleven minutes ago. `without factor`: by the password alone, although the
 * user has a second factor. `temporary`: with a password that must be changed. `key`: an API key;
 * `to verify`: with only this right.
 */
const CALLERS = [
  'user',
  'user, temporary',
  'admin',
  'admin, not recent',
  'admin, without factor',
  'admin, temporary',
  'key of user',
  'key of admin',
  'key of nobody',
  'key of admin to verify',
  'key of admin to read',
  'key of admin to revoke',
  'key that provisions',
] as const;
type Caller = (typeof CALLERS)[number];

/**
 * For each caller, in their order, below `/api/`. It is about the caller (`self`), another user
 * (`other`), one who does not exist (`none`), a disabled administrator (`disabled`), a key that has
 * no user (`program`), or everyone or nobody (`all`). After a plus, what the body asks for: `on` to
 * enable, `admin` to make an administrator. 401 is `signin_too_old`.
 */
const POLICY = linesOf(`
  GET    auth/verify                 self        200 403 200 200 200 403 200 200 200 200 403 403 200
  POST   auth/password               self        200 200 200 200 401 200 403 403 403 403 403 403 403
  GET    auth/export                 self        200 200 200 200 401 200 403 403 403 403 403 403 403
  POST   auth/delete                 self        200 403 200 401 401 403 403 403 403 403 403 403 403
  GET    user/                       all         200 200 200 200 200 200 200 200 200 403 200 403 403
  POST   user/                       all         403 403 201 201 401 201 403 201 403 403 403 403 201
  POST   user/                       all+admin   403 403 201 401 401 403 403 403 403 403 403 403 403
  GET    user/{user_id}              self        200 200 200 200 200 200 200 200 --- 403 200 403 ---
  GET    user/{user_id}              other       403 403 200 200 200 200 403 200 200 403 200 403 403
  GET    user/{user_id}              none        403 403 404 404 404 404 403 404 404 403 404 403 403
  GET    user/by-name                self        200 200 200 200 200 200 200 200 --- 403 200 403 ---
  GET    user/by-name                other       403 403 200 200 200 200 403 200 200 403 200 403 403
  GET    user/by-name                none        403 403 404 404 404 404 403 404 404 403 404 403 403
  PATCH  user/{user_id}              self+name   200 200 200 200 200 200 200 200 --- 403 403 403 ---
  PATCH  user/{user_id}              other+name  403 403 200 200 200 200 403 200 403 403 403 403 200
  PATCH  user/{user_id}              self+flag   403 403 200 200 401 200 403 200 --- 403 403 403 ---
  PATCH  user/{user_id}              other+flag  403 403 200 200 401 200 403 200 403 403 403 403 200
  PATCH  user/{user_id}              none+flag   403 403 404 404 401 404 403 404 403 403 403 403 404
  PATCH  user/{user_id}              self+admin  403 403 200 401 401 403 403 403 --- 403 403 403 ---
  PATCH  user/{user_id}              other+admin 403 403 200 401 401 403 403 403 403 403 403 403 403
  PATCH  user/{user_id}              disabled+on 403 403 200 401 401 403 403 403 403 403 403 403 403
  DELETE user/{user_id}              self        403 403 200 200 401 200 403 200 --- 403 403 403 ---
  DELETE user/{user_id}              other       403 403 200 200 401 200 403 200 403 403 403 403 403
  DELETE user/{user_id}              none        403 403 404 404 401 404 403 404 403 403 403 403 403
  POST   user/{user_id}/password     self        403 403 403 401 401 403 403 403 --- 403 403 403 ---
  POST   user/{user_id}/password     other       403 403 200 401 401 403 403 403 403 403 403 403 403
  POST   user/{user_id}/password     none        403 403 404 401 401 403 403 403 403 403 403 403 403
  POST   user/{user_id}/secure       self        403 403 403 401 401 403 403 403 --- 403 403 403 ---
  POST   user/{user_id}/secure       other       403 403 200 401 401 403 403 403 403 403 403 403 403
  POST   user/{user_id}/secure       none        403 403 404 401 401 403 403 403 403 403 403 403 403
  POST   user/{user_id}/link         self        403 403 403 401 401 403 403 403 --- 403 403 403 ---
  POST   user/{user_id}/link         other       403 403 201 401 401 403 403 403 403 403 403 403 201
  POST   user/{user_id}/link         none        403 403 404 401 401 403 403 403 403 403 403 403 404
  DELETE user/{user_id}/link         self        403 403 200 401 401 403 403 403 --- 403 403 403 ---
  DELETE user/{user_id}/link         other       403 403 200 401 401 403 403 403 403 403 403 403 200
  DELETE user/{user_id}/link         none        403 403 404 401 401 403 403 403 403 403 403 403 404
  POST   key/                        self        201 403 201 401 401 403 403 403 --- 403 403 403 ---
  POST   key/                        other       403 403 201 401 401 403 403 403 403 403 403 403 201
  POST   key/                        none        403 403 404 401 401 403 403 403 403 403 403 403 404
  POST   key/                        all         403 403 201 401 401 403 403 403 403 403 403 403 403
  GET    key/                        all         200 200 200 200 200 200 200 200 403 403 200 403 403
  GET    key/                        self        200 200 200 200 200 200 200 200 --- 403 200 403 ---
  GET    key/                        other       403 403 200 200 200 200 403 200 403 403 200 403 200
  DELETE key/{key_id}/revoke         self        200 200 200 200 200 200 200 200 --- 403 403 200 ---
  DELETE key/{key_id}/revoke         other       403 403 200 200 200 200 403 200 403 403 403 200 200
  DELETE key/{key_id}/revoke         program     403 403 200 200 200 200 403 200 403 403 403 200 403
  DELETE key/{key_id}/revoke         none        404 404 404 404 404 404 404 404 404 404 404 404 404
  GET    session/                    all         200 200 200 200 200 200 200 200 200 403 200 403 403
  GET    session/                    self        200 200 200 200 200 200 200 200 --- 403 200 403 ---
  GET    session/                    other       403 403 200 200 200 200 403 200 200 403 200 403 403
  GET    session/info                other       200 200 200 200 200 200 200 200 200 200 200 200 200
  DELETE session/revoke              other       200 200 200 200 200 200 200 200 200 200 200 200 200
  DELETE session/{session_id}/revoke self        200 200 200 200 200 200 200 200 --- 403 403 200 ---
  DELETE session/{session_id}/revoke other       403 403 200 200 200 200 403 200 200 403 403 200 403
  DELETE session/{session_id}/revoke none        404 404 404 404 404 404 404 404 404 404 404 404 404
  DELETE session/revoke/all          all         403 403 200 200 200 200 403 200 200 403 403 200 403
  DELETE session/revoke/all/user     self        200 200 200 200 200 200 200 200 --- 403 403 200 ---
  DELETE session/revoke/all/user     other       403 403 200 200 200 200 403 200 200 403 403 200 403
  DELETE session/revoke/all/user     none        403 403 404 404 404 404 403 404 404 403 403 404 403
  GET    test/                       self        200 200 200 200 200 200 200 200 403 403 200 403 403
  GET    audit/                      all         403 403 200 200 200 200 403 200 403 403 200 403 403
`).map((line) => ({ ...line, name: line.name.replace(' ', ' /api/') }));

const running = await start(
  ({ service, environment }) => service === 'identity' && !environment.OIDC,
);

/** @returns the credential of the caller, and who it is */
async function callerOf(sql: Sql, caller: Caller): Promise<Person & { credential: string }> {
  const person = await storeUser(sql, caller.includes('admin'));
  const { user_id, key_id, session, key } = person;
  if (caller.endsWith('temporary'))
    await sql`update identity.users set password_generated = true, password_set_at = now()
      where id = ${user_id}`;
  if (caller.endsWith('without factor'))
    await sql`update identity.users set second_factor = true where id = ${user_id}`;
  if (caller.endsWith('not recent'))
    await sql`update identity.sessions set authenticated_at = now() - interval '11 minutes'
      where user_id = ${user_id}`;
  if (caller === 'key of nobody')
    await sql`update identity.api_keys set user_id = null where id = ${key_id}`;
  if (caller.includes(' to '))
    await sql`update identity.api_keys set rights = ${`{${caller.split(' to ')[1]}}`}
      where id = ${key_id}`;
  if (caller === 'key that provisions')
    await sql`update identity.api_keys set user_id = null, rights = '{provision,verify}'
      where id = ${key_id}`;
  return { ...person, credential: caller.startsWith('key') ? key : session };
}

/** Whom a line of the table is about. */
async function subjectOf(sql: Sql, about: string, self: Person): Promise<Person> {
  if (about.startsWith('other')) return storeUser(sql);
  if (about.startsWith('disabled')) {
    const person = await storeUser(sql, true);
    await sql`update identity.users set enabled = false where id = ${person.user_id}`;
    return person;
  }
  if (about === 'program') {
    const person = await storeUser(sql);
    await sql`update identity.api_keys set user_id = null where id = ${person.key_id}`;
    return person;
  }
  if (!about.startsWith('none')) return self;
  return { ...self, user_id: randomUUID(), key_id: randomUUID(), session_id: randomUUID() };
}

/** What a line of the table asks for. */
function requestOf(name: string, about: string, { user_id, session, ...ids }: Person): Sent {
  const [subject, wish = ''] = about.split('+');
  const path = { user_id, ...ids };
  const wishes: Readonly<Record<string, object>> = {
    name: { first_name: 'Ada' },
    flag: { verified: true },
    on: { enabled: true },
    admin: { super_admin: true },
  };
  const username = newName();
  const bodies: Readonly<Record<string, object>> = {
    'POST /api/auth/password': { current_password: PASSWORD, new_password: 'another passphrase' },
    'POST /api/auth/delete': { password: PASSWORD },
    'POST /api/user/': { username, email: `${username}@example.org`, ...wishes[wish] },
    'PATCH /api/user/{user_id}': { ...wishes[wish] },
    'POST /api/user/{user_id}/password': { password: 'another passphrase' },
    'POST /api/user/{user_id}/link': {},
    'POST /api/key/': { user_id: subject === 'all' ? null : user_id, rights: ['verify'] },
  };
  const isFiltered = subject !== 'all' && /^GET \/api\/(key|session)\/$|\/all\/user$/.test(name);
  const byToken = /\/session\/(info|revoke)$/.test(name) ? `session=${session}` : '';
  const isNamed = name.endsWith('/by-name');
  const byName = isNamed ? `name=${user_id}` : byToken;
  const query = isFiltered ? `user=${user_id}` : byName;
  return { path, query, ...(bodies[name] ? { body: bodies[name] } : {}) };
}

/** Only the row for proxies takes it. */
const SESSION_COOKIE = 'a session as the cookie of a proxy';

/** Credentials that no row takes, by what they are. */
async function deadCredentials(
  url: string,
  sql: Sql,
): Promise<Readonly<Record<string, Sent['headers']>>> {
  const expired = await storeUser(sql);
  const revoked = await storeUser(sql);
  const out = await storeUser(sql);
  const disabled = await storeUser(sql);
  const deleted = await storeUser(sql);
  const active = await storeUser(sql);
  await sql`update identity.sessions set expires_at = now() where user_id = ${expired.user_id}`;
  await sql`update identity.sessions set revoked = true where user_id = ${revoked.user_id}`;
  await ask('POST', `${url}/api/auth/logout`, { body: { session: out.session } });
  await sql`update identity.users set enabled = false where id = ${disabled.user_id}`;
  await sql`update identity.users set deleted_at = now() where id = ${deleted.user_id}`;
  await sql`update identity.api_keys set revoked = true where user_id = ${revoked.user_id}`;
  await sql`update identity.api_keys set expires_at = now() where user_id = ${expired.user_id}`;
  return {
    none: {},
    empty: { authorization: 'Bearer ' },
    'without a scheme': { authorization: active.session },
    'of another scheme': { authorization: `Basic ${active.session}` },
    'two tokens': { authorization: `Bearer ${active.session} ${active.session}` },
    'a right one behind a wrong one': { ...bearer('session:x'), 'x-api-key': active.key },
    'a malformed session': bearer('session:nonsense'),
    'a malformed key': bearer('key:nonsense'),
    'an unknown session': bearer(createSessionToken()),
    'an unknown key': bearer(createApiKey()),
    'an expired session': bearer(expired.session),
    'a revoked session': bearer(revoked.session),
    'a session that was logged out': bearer(out.session),
    'the session of a disabled user': bearer(disabled.session),
    'the session of a deleted user': bearer(deleted.session),
    'an expired key': bearer(expired.key),
    'a revoked key': { 'x-api-key': revoked.key },
    'the key of a disabled user': bearer(disabled.key),
    'the key of a deleted user': bearer(deleted.key),
    'the id of a session': bearer(active.session_id),
    "a session's token as X-API-Key": { 'x-api-key': active.session },
    'the token of secrets': bearer(AUTH_TOKEN),
    'the token of webhook': bearer(WEBHOOK_TOKEN),
    [SESSION_COOKIE]: { cookie: `session=${active.session}` },
    'a cookie of the pages': { cookie: `__Host-gatehouse=${'A'.repeat(43)}` },
  };
}

/** The rows of the pages have a table of their own. */
const api = running.map(({ served }) =>
  served.filter((row) => !row.failurePage && !/^\/(login|account)/.test(row.pattern)),
);

const [withoutPages = [], withPages = []] = api;
const declared = new Set(withPages.map(declarationOf));
/** Without pages, only the rows that are declared otherwise than with them. */
const tried = [withoutPages.filter((row) => !declared.has(declarationOf(row))), withPages];

for (const [index, { name: variant, url, call, database }] of running.entries()) {
  const { sql } = database ?? assert.fail();
  const rows = tried[index] ?? [];
  const linesAbout = (some: readonly Row[] = []) =>
    POLICY.filter(({ name }) => some.some((row) => nameOf(row) === name));
  const lines = linesAbout(rows);

  test(`${variant}: each row of the API is in the table, or takes no credential`, () =>
    assertComplete(api[index] ?? [], linesAbout(api[index]), WITHOUT));

  test(`${variant}: what each caller gets`, async () => {
    const { host } = new URL(ORIGIN);
    const request = async (caller: Caller, { name, about }: Line) => {
      const { credential, ...self } = await callerOf(sql, caller);
      const subject = await subjectOf(sql, about, self);
      return { ...requestOf(name, about, subject), headers: { ...bearer(credential), host } };
    };
    await assertTable({ call, rows }, lines, CALLERS, request, 'signin_too_old');
    // "Revoke all" above would have ended them.
    assert.ok((await sql`select from identity.sessions where not revoked`).length > 0);
  });

  test(`${variant}: any other credential is 401, and changes nothing`, async () => {
    const dead = await deadCredentials(url, sql);
    const subject = await storeUser(sql);
    // A row decides before it reads what it is about, so one of its lines is enough.
    for (const line of new Map(lines.map((one) => [one.name, one])).values()) {
      const row = rowOf(rows, line);
      for (const [what, headers = {}] of Object.entries(dead)) {
        if (what === SESSION_COOKIE && row.pattern === '/api/auth/verify') continue;
        const sent = { ...requestOf(line.name, line.about, subject), headers };
        assertRefused(await send(call, row, sent), row, [401, 'unauthorized'], [], what);
      }
      // It learns nothing of what is wrong with the rest.
      const wrong = { path: { user_id: 'x', key_id: 'x', session_id: 'x' }, query: 'x=1' };
      const answer = await send(call, row, { ...wrong, ...(row.body.schema ? { body: '{' } : {}) });
      assertRefused(answer, row, [401, 'unauthorized'], [], 'wrong in all parts');
    }
    assert.equal((await sessionOf(url, subject.session)).id, subject.session_id);
  });
}
