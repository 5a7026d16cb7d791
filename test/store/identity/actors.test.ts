/**
 * A change is made with the rights that its caller has at that moment, whatever the request has
 * waited for. It commits together with its line in the trail: where one cannot be written, neither
 * is there.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test, type TestContext } from 'node:test';
import type { TransactionSql } from 'postgres';
import { connect } from '../../../scripts/postgres.ts';
import { createTotpKey } from '../../../src/identity/factors/codes.ts';
import { createRoutes } from '../../../src/identity/routes.ts';
import { COMMAND_LINE } from '../../../src/identity/store/audit.ts';
import { addTotp } from '../../../src/identity/store/signin/factors.ts';
import { findUser } from '../../../src/identity/store/users.ts';
import { sealSecret } from '../../../src/platform/crypto/service-secret.ts';
import { startIdentity } from '../../support/api-users.ts';
import { meanwhile } from '../../support/meanwhile.ts';
import { newName, type Person, storedIn, storeUser } from '../../support/stored-users.ts';
import { assertError, openIdentity, PASSWORD } from '../../support/users.ts';

const routes = await createRoutes(null);

const { databaseUrl, sql, call } = await startIdentity({ after }, { SELF_DELETION: 'on' });
const other = connect(databaseUrl);
after(() => other.end());
const database = openIdentity({ after }, databaseUrl);

type Kind = 'session' | 'key' | 'key without a user';
/** `user` and `id`: of the caller, and of its session or key. */
type Scene = Readonly<{ bearer: string; user: string; id: string; target: Person }>;

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
  return kind === 'session'
    ? { bearer: chief.session, user: chief.user_id, id: chief.session_id, target }
    : { bearer: chief.key, user: chief.user_id, id: chief.key_id, target };
}

/** How rights end: a change of the caller's row in a table, and what the caller is told. */
type Loss = readonly [what: string, status: 401 | 403, table: string, set: string];
const DISABLED: Loss = ['the user is disabled', 401, 'users', 'enabled = false'];
const DELETED: Loss = ['the user is deleted', 401, 'users', 'deleted_at = now()'];
const DEMOTED: Loss = ['the user is demoted', 403, 'users', 'super_admin = false'];
const KEY_REVOKED: Loss = ['the key is revoked', 401, 'api_keys', 'revoked = true'];
const KEY_EXPIRES: Loss = ['the key expires', 401, 'api_keys', 'expires_at = now()'];
const KEY_DELETED: Loss = ['the key is deleted', 401, 'api_keys', 'deleted_at = now()'];
const REVOKED: Loss = ['the session is revoked', 401, 'sessions', 'revoked = true'];
const ENDED = 'sessions_end_at = clock_timestamp()';
const LOSSES: Readonly<Record<Kind, readonly Loss[]>> = {
  session: [
    ...[DISABLED, DELETED, DEMOTED, REVOKED],
    ['the session is logged out', 401, 'sessions', 'logged_out = true'],
    ['the session expires', 401, 'sessions', 'expires_at = now()'],
    ['the session is deleted', 401, 'sessions', 'deleted_at = now()'],
    ["the user's sessions end", 401, 'users', ENDED],
    ['all sessions end', 401, 'global_revocation', ENDED],
  ],
  key: [DISABLED, DELETED, DEMOTED, KEY_REVOKED, KEY_EXPIRES, KEY_DELETED],
  'key without a user': [DISABLED, DELETED, KEY_REVOKED, KEY_EXPIRES, KEY_DELETED],
};
/** Tried with every change; the others with those that are made in one statement, or in several. */
const PART: readonly Loss[] = [DEMOTED, REVOKED, KEY_REVOKED];
const THOROUGH = ['DELETE /api/session/{session_id}/revoke', 'PATCH /api/user/{user_id}'];

type About = (scene: Scene) => Readonly<{ id?: string; query?: string; body?: unknown }>;
/** Every change that each kind of caller may make. `id` is the parameter of the path. */
type Change = readonly [route: string, kinds: readonly Kind[], about?: About];
const SESSION: readonly Kind[] = ['session'];
const PERSONAL: readonly Kind[] = ['session', 'key'];
const ALL: readonly Kind[] = ['session', 'key', 'key without a user'];
const newUser = (more = {}) => {
  const username = newName();
  return { username, email: `${username}@example.org`, password: PASSWORD, ...more };
};
const NEW_PASSWORD = { current_password: PASSWORD, new_password: 'another passphrase' };
const ofTarget =
  (body?: unknown): About =>
  ({ target }) => ({ id: target.user_id, body });
const CHANGES: readonly Change[] = [
  ['POST /api/auth/password', SESSION, () => ({ body: NEW_PASSWORD })],
  ['POST /api/auth/delete', SESSION, () => ({ body: { password: PASSWORD } })],
  ['POST /api/user/', SESSION, () => ({ body: newUser({ super_admin: true }) })],
  ['POST /api/user/', ['key'], () => ({ body: newUser() })],
  ['PATCH /api/user/{user_id}', PERSONAL, ofTarget({ first_name: 'Changed' })],
  ['PATCH /api/user/{user_id}', PERSONAL, ofTarget({ enabled: false })],
  ['PATCH /api/user/{user_id}', SESSION, ofTarget({ super_admin: true })],
  [
    'PATCH /api/user/{user_id}',
    PERSONAL,
    ({ user }) => ({ id: user, body: { first_name: 'Changed' } }),
  ],
  ['DELETE /api/user/{user_id}', PERSONAL, ofTarget()],
  ['POST /api/user/{user_id}/password', SESSION, ofTarget({ password: 'another passphrase' })],
  ['POST /api/user/{user_id}/secure', SESSION, ofTarget()],
  ['POST /api/key/', SESSION, () => ({ body: {} })],
  ['POST /api/key/', SESSION, () => ({ body: { user_id: null } })],
  ['POST /api/key/', SESSION, ({ target }) => ({ body: { user_id: target.user_id } })],
  ['DELETE /api/key/{key_id}/revoke', PERSONAL, ({ target }) => ({ id: target.key_id })],
  ['DELETE /api/session/revoke', ALL, ({ target }) => ({ query: `?session=${target.session}` })],
  ['DELETE /api/session/{session_id}/revoke', ALL, ({ target }) => ({ id: target.session_id })],
  [
    'DELETE /api/session/revoke/all/user',
    ALL,
    ({ target }) => ({ query: `?user=${target.user_id}` }),
  ],
  ['DELETE /api/session/revoke/all', ALL],
];

test('every route that changes something for a caller is tried here', () => {
  const changing = routes.filter(({ method, security }) => method !== 'GET' && security.length > 0);
  assert.deepEqual(
    [...new Set(CHANGES.map(([route]) => route))].sort(),
    changing.map(({ method, pattern }) => `${method} ${pattern}`).sort(),
  );
});

type Sent = Parameters<typeof call>;
function requestOf(all: Scene, [route, , about]: Change): Sent {
  const { id = '', query = '', body } = about?.(all) ?? {};
  const [method = '', pattern = ''] = route.split(' ');
  return [all.bearer, method, pattern.replace(/\{\w+\}/, id) + query, body];
}

/** The caller loses its rights while the request waits for the transaction that takes them. */
async function assertLost(kind: Kind, change: Change, loss: Loss): Promise<void> {
  const [what, status, table, set] = loss;
  const all = await scene(kind);
  const row = table === 'users' ? all.user : all.id;
  let before: string[][] = [];
  const [answer = assert.fail()] = await meanwhile(
    other,
    async (held) => {
      const { count } = await held`
        update identity.${held(table)} set ${held.unsafe(set)}
        where ${table === 'global_revocation'} or to_jsonb(${held(table)}) ->> 'id' = ${row}`;
      assert.equal(count, 1);
    },
    () => [call(...requestOf(all, change))],
    async (held) => {
      before = await storedIn(held);
    },
  );
  assertError(answer, status, status === 401 ? 'unauthorized' : 'forbidden');
  assert.deepEqual(await storedIn(sql), before, what);
  await sql`update identity.global_revocation set sessions_end_at = null`;
}

for (const [index, change] of CHANGES.entries()) {
  const [route, kinds] = change;
  for (const kind of kinds) {
    test(`${route} (${index + 1}) by a ${kind} that loses its rights while it waits changes nothing`, async (t) => {
      for (const loss of LOSSES[kind])
        if (THOROUGH.includes(route) || PART.includes(loss))
          await t.test(loss[0], () => assertLost(kind, change, loss));
    });
  }
}

// --- Changes and the trail

/** Lets PostgreSQL refuse these rows, as a full disk or a lost right would. */
async function refuse(t: TestContext, table: string, when: string, condition = 'true') {
  const name = `refuse_${randomUUID().replaceAll('-', '')}`;
  await sql.unsafe(`
    create function public.${name}() returns trigger language plpgsql as
      $$ begin raise exception 'refused' using errcode = 'disk_full'; end $$;
    create trigger ${name} before ${when} on identity.${table} for each row
      when (${condition}) execute function public.${name}()`);
  t.after(async () => {
    await sql.unsafe(`drop function public.${name}() cascade`);
  });
}

/** What also leaves an entry: what needs no right, and what fails. */
const OTHERS: ReadonlyArray<(by: Person) => Sent> = [
  ({ username }) => [null, 'POST', '/api/auth/login', { username, password: PASSWORD }],
  ({ username }) => [null, 'POST', '/api/auth/login', { username, password: 'wrong' }],
  () => [null, 'POST', '/api/auth/login', { username: newName(), password: 'wrong' }],
  ({ session }) => [null, 'POST', '/api/auth/logout', { session }],
  ({ session }) => [
    session,
    'POST',
    '/api/auth/password',
    { ...NEW_PASSWORD, current_password: 'wrong' },
  ],
];

/** Everything that can be done, each with users of its own. The last one ends all sessions. */
async function requests(): Promise<Sent[]> {
  const all: Sent[] = [];
  for (const sentBy of OTHERS) all.push(sentBy(await storeUser(sql)));
  for (const change of CHANGES) {
    const [, [kind = 'session']] = change;
    all.push(requestOf(await scene(kind), change));
  }
  return all;
}

async function assertNothingDone(...sent: Sent): Promise<void> {
  const before = await storedIn(sql);
  assertError(await call(...sent), 500, 'service_failed');
  assert.deepEqual(await storedIn(sql), before, sent.slice(1, 3).join(' '));
}

test('without a line in the trail nothing is changed, and with one each change succeeds', async (t) => {
  const all = await requests();
  await t.test('without', async (inner) => {
    await refuse(inner, 'audit', 'insert');
    for (const sent of all) await assertNothingDone(...sent);
  });
  const entries = async () => (await sql`select from identity.audit`).length;
  for (const sent of all) {
    const before = await entries();
    const answer = await call(...sent);
    assert.ok(answer.status < 500, answer.text);
    assert.ok((await entries()) > before, `${sent.slice(1, 3).join(' ')} left no line`);
  }
});

test('without the change there is no line in the trail', async (t) => {
  const all = await requests();
  // What is refused here is what every one of them changes besides the trail itself.
  for (const table of ['users', 'sessions', 'api_keys']) {
    await refuse(t, table, 'insert');
    await refuse(t, table, 'update');
  }
  await refuse(t, 'throttles', 'insert');
  await refuse(t, 'global_revocation', 'update');
  for (const sent of all) await assertNothingDone(...sent);
});

test('a change with several rows in the trail fails if one of them cannot be written', async (t) => {
  const { session: admin } = await storeUser(sql, true);
  const { user_id: user, session } = await storeUser(sql);
  const path = `/api/user/${user}`;
  const several: ReadonlyArray<readonly [event: string, sent: Sent]> = [
    ['key.revoked', [admin, 'DELETE', path]],
    ['session.revoked', [admin, 'DELETE', path]],
    ['session.revoked', [admin, 'PATCH', path, { enabled: false }]],
    ['session.revoked', [admin, 'POST', `${path}/password`, { password: PASSWORD }]],
    ['session.revoked', [session, 'POST', '/api/auth/password', NEW_PASSWORD]],
  ];
  for (const [event, sent] of several) {
    await t.test(`${sent[1]} without ${event}`, async (inner) => {
      await refuse(inner, 'audit', 'insert', `new.event = '${event}'`);
      await assertNothingDone(...sent);
    });
  }
});

for (const [what, change] of [
  ['', null],
  ['once it has a second factor', sql`second_factor = true`],
  ['after the password has changed', sql`updated_at = now() + interval '1 s'`],
] as const) {
  test(`the password alone sets up ${change ? 'no' : 'an'} app for an account ${what}`, async () => {
    const { user_id: user } = await storeUser(sql);
    // As a sign-in by password alone sets up the first app: without a caller.
    const enrol = async () => {
      const checkedAt = (await findUser(database, user))?.updated_at ?? assert.fail();
      const key = createTotpKey('identity-secret-for-tests-0123456789abcdef');
      return addTotp(database, COMMAND_LINE, sealSecret(key, 'c2VjcmV0', user), 1, checkedAt);
    };
    const hold = (held: TransactionSql) =>
      held`update identity.users set ${change ?? sql`enabled = enabled`} where id = ${user}`;
    const [added] = await meanwhile(sql, hold, () => [enrol()]);
    assert.equal(added === null, change !== null);
    const apps = await sql`select from identity.totp where user_id = ${user}`;
    assert.equal(apps.length, change ? 0 : 1);
  });
}
