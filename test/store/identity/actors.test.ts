/**
 * A change is made with the rights that its caller has at that moment, whatever the request has
 * waited for.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { ISql } from 'postgres';
import { connect } from '../../../scripts/postgres.ts';
import { createRoutes } from '../../../src/identity/routes.ts';
import { ask, startGatehouse } from '../../support/gatehouse.ts';
import { startIdentity } from '../../support/api-users.ts';
import { untilSql } from '../../support/connections.ts';
import { newName, storeUser } from '../../support/stored-users.ts';
import { assertError, assertSuccess, PASSWORD } from '../../support/users.ts';

const routes = await createRoutes(null);

const { databaseUrl, sql, admin, call, add, enter } = await startIdentity(
  { after },
  { SELF_DELETION: 'on' },
);
const other = connect(databaseUrl);
after(() => other.end());

/** A connection, or a transaction of one. */
type Held = ISql<{}>;

interface Scene {
  /** The credential of the caller, its user and its row. */
  readonly bearer: string;
  readonly user: string;
  readonly id: string;
  /** A user with a session and a key. */
  readonly target: { id: string; token: string; session: string; key: string };
  /** Sent in the caller's name. */
  readonly name: string;
}
type Kind = 'session' | 'key' | 'key without a user';

async function scene(kind: Kind): Promise<Scene> {
  const chief = await storeUser(sql, true);
  const target = await storeUser(sql);
  // Another session of the caller, which does not count.
  await sql`insert into identity.sessions (id, token_digest, user_id, expires_at)
    values (gen_random_uuid(), sha256(gen_random_uuid()::text::bytea), ${chief.user_id},
      now() + interval '1 day')`;
  if (kind === 'key without a user')
    await sql`update identity.api_keys
      set user_id = null, created_by = ${chief.user_id}, rights = '{verify,read,revoke}'
      where id = ${chief.key_id}`;
  const isSession = kind === 'session';
  return {
    bearer: isSession ? chief.session : chief.key,
    user: chief.user_id,
    id: isSession ? chief.session_id : chief.key_id,
    target: {
      id: target.user_id,
      token: target.session,
      session: target.session_id,
      key: target.key_id,
    },
    name: newName(),
  };
}

/** How rights end, and what the caller is told. */
type Loss = readonly [
  what: string,
  status: 401 | 403,
  end: (held: Held, scene: Scene) => PromiseLike<unknown>,
];
const OF_USER: readonly Loss[] = [
  [
    'the user is disabled',
    401,
    (held, { user }) => held`update identity.users set enabled = false where id = ${user}`,
  ],
  [
    'the user is deleted',
    401,
    (held, { user }) => held`update identity.users set deleted_at = now() where id = ${user}`,
  ],
  [
    'the user is demoted',
    403,
    (held, { user }) => held`update identity.users set super_admin = false where id = ${user}`,
  ],
];
const OF_SESSION: readonly Loss[] = [
  [
    'the session is revoked',
    401,
    (held, { id }) => held`update identity.sessions set revoked = true where id = ${id}`,
  ],
  [
    'the session is logged out',
    401,
    (held, { id }) => held`update identity.sessions set logged_out = true where id = ${id}`,
  ],
  [
    'the session expires',
    401,
    (held, { id }) => held`update identity.sessions set expires_at = now() where id = ${id}`,
  ],
  [
    'the session is deleted',
    401,
    (held, { id }) => held`update identity.sessions set deleted_at = now() where id = ${id}`,
  ],
  [
    "the user's sessions end",
    401,
    (held, { user }) =>
      held`update identity.users set sessions_end_at = clock_timestamp() where id = ${user}`,
  ],
  [
    'all sessions end',
    401,
    (held) => held`update identity.global_revocation set sessions_end_at = clock_timestamp()`,
  ],
];
const OF_KEY: readonly Loss[] = [
  [
    'the key is revoked',
    401,
    (held, { id }) => held`update identity.api_keys set revoked = true where id = ${id}`,
  ],
  [
    'the key expires',
    401,
    (held, { id }) => held`update identity.api_keys set expires_at = now() where id = ${id}`,
  ],
  [
    'the key is deleted',
    401,
    (held, { id }) => held`update identity.api_keys set deleted_at = now() where id = ${id}`,
  ],
];
const LOSSES: Readonly<Record<Kind, readonly Loss[]>> = {
  session: [...OF_USER, ...OF_SESSION],
  key: [...OF_USER, ...OF_KEY],
  'key without a user': [...OF_USER.slice(0, 2), ...OF_KEY],
};

/** Every change that each kind of caller may make. */
type Change = readonly [
  route: string,
  kinds: readonly Kind[],
  request: (scene: Scene) => readonly [path: string, body?: unknown],
];
const ALL: readonly Kind[] = ['session', 'key', 'key without a user'];
const newUser = (name: string) => ({
  username: name,
  email: `${name}@example.org`,
  password: PASSWORD,
});
const CHANGES: readonly Change[] = [
  [
    'POST /api/auth/password',
    ['session'],
    () => [
      '/api/auth/password',
      { current_password: PASSWORD, new_password: 'another passphrase' },
    ],
  ],
  ['POST /api/auth/delete', ['session'], () => ['/api/auth/delete', { password: PASSWORD }]],
  [
    'POST /api/user/',
    ['session'],
    ({ name }) => ['/api/user/', { ...newUser(name), super_admin: true }],
  ],
  ['POST /api/user/', ['key'], ({ name }) => ['/api/user/', newUser(name)]],
  [
    'PATCH /api/user/{user_id}',
    ['session', 'key'],
    ({ target }) => [`/api/user/${target.id}`, { first_name: 'Changed' }],
  ],
  [
    'PATCH /api/user/{user_id}',
    ['session', 'key'],
    ({ target }) => [`/api/user/${target.id}`, { enabled: false }],
  ],
  [
    'PATCH /api/user/{user_id}',
    ['session'],
    ({ target }) => [`/api/user/${target.id}`, { super_admin: true }],
  ],
  [
    'PATCH /api/user/{user_id}',
    ['session', 'key'],
    ({ user }) => [`/api/user/${user}`, { first_name: 'Changed' }],
  ],
  ['DELETE /api/user/{user_id}', ['session', 'key'], ({ target }) => [`/api/user/${target.id}`]],
  [
    'POST /api/user/{user_id}/password',
    ['session'],
    ({ target }) => [`/api/user/${target.id}/password`, { password: 'another passphrase' }],
  ],
  [
    'POST /api/user/{user_id}/secure',
    ['session'],
    ({ target }) => [`/api/user/${target.id}/secure`],
  ],
  ['POST /api/key/', ['session'], () => ['/api/key/', {}]],
  ['POST /api/key/', ['session'], () => ['/api/key/', { user_id: null }]],
  ['POST /api/key/', ['session'], ({ target }) => ['/api/key/', { user_id: target.id }]],
  [
    'DELETE /api/key/{key_id}/revoke',
    ['session', 'key'],
    ({ target }) => [`/api/key/${target.key}/revoke`],
  ],
  [
    'DELETE /api/session/revoke',
    ALL,
    ({ target }) => [`/api/session/revoke?session=${target.token}`],
  ],
  [
    'DELETE /api/session/{session_id}/revoke',
    ALL,
    ({ target }) => [`/api/session/${target.session}/revoke`],
  ],
  [
    'DELETE /api/session/revoke/all/user',
    ALL,
    ({ target }) => [`/api/session/revoke/all/user?user=${target.id}`],
  ],
  ['DELETE /api/session/revoke/all', ALL, () => ['/api/session/revoke/all']],
];

test('every route that changes something for a caller is tried here', () => {
  const changing = routes.filter(({ method, security }) => method !== 'GET' && security.length > 0);
  assert.deepEqual(
    [...new Set(CHANGES.map(([route]) => route))].sort(),
    changing.map(({ method, pattern }) => `${method} ${pattern}`).sort(),
  );
});

const TABLES = ['users', 'sessions', 'api_keys', 'global_revocation', 'audit'];
/** All that is stored, except the use of a credential. */
const stored = async (by: Held) => {
  const rows = TABLES.map(
    (table) => by`
    select (to_jsonb(x) - 'last_seen_at' - 'last_used_at')::text as text
      from ${by(`identity.${table}`)} x order by 1`,
  );
  return (await Promise.all(rows)).map((found) => found.map(({ text }) => String(text)));
};
const isWaiting = async () =>
  (
    await sql`select from pg_stat_activity where datname = current_database()
      and wait_event_type = 'Lock'`
  ).length > 0;
/**
 * In one statement, and in a transaction: these are tried with everything that ends rights, and the
 * others with a part.
 */
const THOROUGH = ['DELETE /api/session/{session_id}/revoke', 'PATCH /api/user/{user_id}'];
const PART = ['the user is demoted', 'the session is revoked', 'the key is revoked'];

for (const [index, [route, kinds, request]] of CHANGES.entries()) {
  for (const kind of kinds) {
    const losses = LOSSES[kind].filter(([what]) => THOROUGH.includes(route) || PART.includes(what));
    test(`${route} (${index + 1}) by a ${kind} that loses its rights while it waits changes nothing`, async (t) => {
      for (const [what, status, end] of losses) {
        const all = await scene(kind);
        const [method = ''] = route.split(' ');
        const [path, body] = request(all);
        await t.test(what, async () => {
          let isDone = false;
          const { answer, before } = await other.begin(async (held) => {
            await end(held, all);
            const sent = call(all.bearer, method, path, body).finally(() => {
              isDone = true;
            });
            await untilSql(async () => isDone || (await isWaiting()), 'it waits, or is answered');
            return { answer: () => sent, before: await stored(held) };
          });
          assertError(await answer(), status, status === 401 ? 'unauthorized' : 'forbidden');
          assert.deepEqual(await stored(sql), before);
        });
        await sql`update identity.global_revocation set sessions_end_at = null`;
      }
    });
  }
}

test('a user is not created after the administrator is disabled while passwords are hashed', async (t) => {
  const environment = { PASSWORD_SCRYPT: 'ln=13,r=8,p=3', PASSWORD_HASHES: '1' };
  const slow = (await startGatehouse(t, ['identity'], databaseUrl, environment)).url.identity;
  const chief = await enter({ super_admin: true });
  const target = await add();
  const send = (method: string, path: string, body: unknown) =>
    ask(method, `${slow}/api/user/${path}`, { bearer: chief.token, body });
  // They fill the queue, and lose the rights too.
  const changes = Array.from({ length: 16 }, () =>
    send('POST', `${target.id}/password`, { password: PASSWORD }),
  );
  await Promise.race(changes);
  const creation = send('POST', '', { ...newUser('latecomer'), super_admin: true });
  assertSuccess(await call(admin.token, 'PATCH', `/api/user/${chief.id}`, { enabled: false }));
  const { count } = await sql`select from identity.audit where actor_id = ${chief.id}`;
  assertError(await creation, 401, 'unauthorized');
  const statuses = (await Promise.all(changes)).map(({ status }) => status);
  assert.ok(statuses.includes(401), String(statuses));
  assert.equal((await sql`select from identity.audit where actor_id = ${chief.id}`).count, count);
  assert.equal((await sql`select from identity.users where username = 'latecomer'`).count, 0);
});
