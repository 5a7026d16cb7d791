/**
 * A change and its line in the trail commit together: where one cannot be written, neither is
 * there.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test, type TestContext } from 'node:test';
import { EVENTS } from '../../../src/identity/store/audit.ts';
import { type Answer, ask, launch, logIn } from '../../support/gatehouse.ts';
import { addUser, assertError, openIdentity, PASSWORD, sessionOf } from '../../support/users.ts';

const { identity, sql, databaseUrl } = await launch(['identity']);
const database = openIdentity({ after }, databaseUrl);
const ada = await addUser(database, 'ada');

/** Lets PostgreSQL refuse these rows, as a full disk or a lost right would. */
async function refuse(
  t: TestContext,
  table: string,
  when: 'insert' | 'update',
  condition = 'true',
): Promise<void> {
  const name = `refuse_${randomUUID().replaceAll('-', '')}`;
  await sql.unsafe(`
    create function public.${name}() returns trigger language plpgsql as
      $$ begin raise exception 'refused' using errcode = 'disk_full'; end $$;
    create trigger ${name} before ${when} on ${table} for each row
      when (${condition}) execute function public.${name}()`);
  t.after(async () => {
    await sql.unsafe(`drop function public.${name}() cascade`);
  });
}

const TABLES = ['users', 'sessions', 'api_keys', 'throttles', 'global_revocation', 'audit'];

async function everything(): Promise<Record<string, string[]>> {
  const tables = await Promise.all(
    TABLES.map(async (table) =>
      (await sql`select x::text as text from ${sql(`identity.${table}`)} x order by 1`).map(
        ({ text }) => String(text),
      ),
    ),
  );
  return Object.fromEntries(TABLES.map((table, index) => [table, tables[index] ?? []]));
}

const changeFrom = (current_password: string) => ({
  current_password,
  new_password: 'another passphrase',
});

type Act = () => Promise<Answer>;

/** Everything that can be done, with a user and sessions of its own. */
async function acts(): Promise<ReadonlyArray<readonly [what: string, act: Act]>> {
  const name = `user-${randomUUID()}`;
  const user = await addUser(database, name);
  const bearer = await logIn(identity);
  const send =
    (method: string, path: string, body?: unknown, as: string | null = bearer): Act =>
    () =>
      ask(method, `${identity}/api/${path}`, {
        ...(as === null ? {} : { bearer: as }),
        ...(body === undefined ? {} : { body }),
      });
  const own = await logIn(identity, name, PASSWORD);
  const other = await logIn(identity, name, PASSWORD);
  const { id } = await sessionOf(identity, other);
  const key = (await ask('POST', `${identity}/api/key/`, { bearer, body: { user_id: user } })).json
    .data.id;
  return [
    ['a login', send('POST', 'auth/login', { username: name, password: PASSWORD }, null)],
    ['a failed login', send('POST', 'auth/login', { username: name, password: 'wrong' }, null)],
    [
      'a failed login of nobody',
      send('POST', 'auth/login', { username: `no-${name}`, password: 'wrong' }, null),
    ],
    ['a logout', send('POST', 'auth/logout', { session: other }, null)],
    ['a revocation by token', send('DELETE', `session/revoke?session=${other}`)],
    ['a revocation by id', send('DELETE', `session/${id}/revoke`)],
    ["a revocation of a user's sessions", send('DELETE', `session/revoke/all/user?user=${user}`)],
    ['a revocation of all sessions', send('DELETE', 'session/revoke/all')],
    ['a change of the own password', send('POST', 'auth/password', changeFrom(PASSWORD), own)],
    [
      'a failed change of the own password',
      send('POST', 'auth/password', changeFrom('wrong'), own),
    ],
    [
      'setting a password',
      send('POST', `user/${user}/password`, { password: 'another passphrase' }),
    ],
    [
      'a new user',
      send('POST', 'user/', { username: `new-${name}`, email: `new-${name}@example.org` }),
    ],
    ['a change of a user', send('PATCH', `user/${user}`, { first_name: 'Ada' })],
    ['disabling a user', send('PATCH', `user/${user}`, { enabled: false })],
    ['deleting a user', send('DELETE', `user/${user}`)],
    ['a new key', send('POST', 'key/', {})],
    ['a revocation of a key', send('DELETE', `key/${key}/revoke`)],
  ];
}

test('without a line in the trail nothing is changed, whatever was asked for', async (t) => {
  const all = await acts();
  await refuse(t, 'identity.audit', 'insert');
  for (const [what, act] of all) {
    const before = await everything();
    const answer = await act();
    assert.equal(answer.status, 500, `${what} answered ${answer.text}`);
    assertError(answer, 500, 'service_failed');
    assert.deepEqual(await everything(), before, what);
  }
});

test('while the trail cannot be written, right and wrong passwords get the same reply', async (t) => {
  await refuse(t, 'identity.audit', 'insert');
  const told = new Set<string>();
  for (const password of [PASSWORD, 'wrong']) {
    const answer = await ask('POST', `${identity}/api/auth/login`, {
      body: { username: 'ada', password },
    });
    told.add(JSON.stringify([answer.status, answer.json.error]));
  }
  assert.equal(told.size, 1);
});

test('a change with several rows in the trail fails if the last cannot be written', async (t) => {
  const bearer = await logIn(identity);
  const own = await logIn(identity, 'ada', PASSWORD);
  await logIn(identity, 'ada', PASSWORD);
  await ask('POST', `${identity}/api/key/`, { bearer, body: { user_id: ada } });
  const changes: ReadonlyArray<
    readonly [
      event: (typeof EVENTS)[number],
      method: string,
      path: string,
      body: unknown,
      as: string,
    ]
  > = [
    ['key.revoked', 'DELETE', `user/${ada}`, undefined, bearer],
    ['session.revoked', 'DELETE', `user/${ada}`, undefined, bearer],
    ['session.revoked', 'PATCH', `user/${ada}`, { enabled: false }, bearer],
    ['session.revoked', 'POST', `user/${ada}/password`, { password: 'another passphrase' }, bearer],
    ['session.revoked', 'POST', 'auth/password', changeFrom(PASSWORD), own],
  ];
  for (const [event, method, path, body, as] of changes) {
    await t.test(`${method} ${path.replace(ada, '…')} without ${event}`, async (inner) => {
      await refuse(inner, 'identity.audit', 'insert', `new.event = '${event}'`);
      const before = await everything();
      assertError(
        await ask(method, `${identity}/api/${path}`, {
          bearer: as,
          ...(body === undefined ? {} : { body }),
        }),
        500,
        'service_failed',
      );
      assert.deepEqual(await everything(), before);
    });
  }
});

test('without the change there is no line in the trail', async (t) => {
  const all = await acts();
  // What is refused here is what every one of them changes besides the trail itself.
  for (const [table, when] of [
    ['users', 'insert'],
    ['users', 'update'],
    ['sessions', 'insert'],
    ['sessions', 'update'],
    ['api_keys', 'insert'],
    ['api_keys', 'update'],
    ['throttles', 'insert'],
    ['global_revocation', 'update'],
  ] as const) {
    await refuse(t, `identity.${table}`, when);
  }
  for (const [what, act] of all) {
    const before = await everything();
    assertError(await act(), 500, 'service_failed');
    assert.deepEqual(await everything(), before, what);
  }
});

test('without a failure, each change succeeds and has its entry', async () => {
  const { length } = await acts();
  for (let index = 0; index < length; index += 1) {
    const [what, act] = (await acts())[index] ?? [];
    const [before] = await sql`select count(*)::int as n from identity.audit`;
    const answer = await act?.();
    assert.ok(answer && answer.status < 500, `${what} answered ${answer?.text}`);
    const [now] = await sql`select count(*)::int as n from identity.audit`;
    assert.ok(now?.n > before?.n, `${what} left no line`);
  }
});
