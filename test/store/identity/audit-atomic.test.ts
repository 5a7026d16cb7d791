/**
 * A change and its line in the trail commit together: where one cannot be written, neither is
 * there.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test, type TestContext } from 'node:test';
import { type Answer, ask, launch } from '../../support/gatehouse.ts';
import { storeUser } from '../../support/stored-users.ts';
import { assertError, PASSWORD } from '../../support/users.ts';

const { identity, sql } = await launch(['identity']);

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

const TABLES = ['users', 'sessions', 'api_keys', 'throttles', 'global_revocation', 'audit'];

async function everything(): Promise<Record<string, string[]>> {
  const found: Record<string, string[]> = {};
  for (const table of TABLES) {
    const rows = await sql`select x::text as text from ${sql(`identity.${table}`)} x order by 1`;
    found[table] = rows.map(({ text }) => String(text));
  }
  return found;
}

const changeFrom = (current_password: string) => ({
  current_password,
  new_password: 'another passphrase',
});

type Act = () => Promise<Answer>;

const send =
  (bearer: string | null, method: string, path: string, body?: unknown): Act =>
  () =>
    ask(method, `${identity}/api/${path}`, {
      ...(bearer === null ? {} : { bearer }),
      ...(body === undefined ? {} : { body }),
    });

/** Everything that can be done, with a user and sessions of its own. */
async function acts(): Promise<ReadonlyArray<readonly [what: string, act: Act]>> {
  const { session: admin } = await storeUser(sql, true);
  const { user_id: user, username, session: own, key_id: key } = await storeUser(sql);
  const other = await sql`
    insert into identity.sessions (id, token_digest, user_id, expires_at)
    values (gen_random_uuid(), sha256(gen_random_uuid()::text::bytea), ${user},
      now() + interval '1 day')
    returning id`;
  const logIn = (name: string, password: string) =>
    send(null, 'POST', 'auth/login', { username: name, password });
  const email = `new-${username}@example.org`;
  return [
    ['a login', logIn(username, PASSWORD)],
    ['a failed login', logIn(username, 'wrong')],
    ['a failed login of nobody', logIn(`no-${username}`, 'wrong')],
    ['a logout', send(null, 'POST', 'auth/logout', { session: own })],
    ['a revocation by token', send(admin, 'DELETE', `session/revoke?session=${own}`)],
    ['a revocation by id', send(admin, 'DELETE', `session/${other[0]?.id}/revoke`)],
    ["the end of a user's sessions", send(admin, 'DELETE', `session/revoke/all/user?user=${user}`)],
    ['the end of all sessions', send(admin, 'DELETE', 'session/revoke/all')],
    ['a change of the own password', send(own, 'POST', 'auth/password', changeFrom(PASSWORD))],
    ['a failed one', send(own, 'POST', 'auth/password', changeFrom('wrong'))],
    ['setting a password', send(admin, 'POST', `user/${user}/password`, { password: PASSWORD })],
    ['a new user', send(admin, 'POST', 'user/', { username: `new-${username}`, email })],
    ['a change of a user', send(admin, 'PATCH', `user/${user}`, { first_name: 'Ada' })],
    ['disabling a user', send(admin, 'PATCH', `user/${user}`, { enabled: false })],
    ['deleting a user', send(admin, 'DELETE', `user/${user}`)],
    ['a new key', send(admin, 'POST', 'key/', {})],
    ['a revocation of a key', send(admin, 'DELETE', `key/${key}/revoke`)],
  ];
}

async function assertNothingDone(what: string, act: Act): Promise<void> {
  const before = await everything();
  const answer = await act();
  assert.equal(answer.status, 500, `${what}: ${answer.text}`);
  assertError(answer, 500, 'service_failed');
  assert.deepEqual(await everything(), before, what);
}

test('without a line in the trail nothing is changed, whatever was asked for', async (t) => {
  const all = await acts();
  await refuse(t, 'audit', 'insert');
  for (const [what, act] of all) await assertNothingDone(what, act);
});

test('without the change there is no line in the trail', async (t) => {
  const all = await acts();
  // What is refused here is what every one of them changes besides the trail itself.
  for (const table of ['users', 'sessions', 'api_keys']) {
    await refuse(t, table, 'insert');
    await refuse(t, table, 'update');
  }
  await refuse(t, 'throttles', 'insert');
  await refuse(t, 'global_revocation', 'update');
  for (const [what, act] of all) await assertNothingDone(what, act);
});

test('a change with several rows in the trail fails if one of them cannot be written', async (t) => {
  const { session: admin } = await storeUser(sql, true);
  const { user_id: user, session } = await storeUser(sql);
  for (const [event, bearer, method, path, body] of [
    ['key.revoked', admin, 'DELETE', `user/${user}`],
    ['session.revoked', admin, 'DELETE', `user/${user}`],
    ['session.revoked', admin, 'PATCH', `user/${user}`, { enabled: false }],
    ['session.revoked', admin, 'POST', `user/${user}/password`, { password: PASSWORD }],
    ['session.revoked', session, 'POST', 'auth/password', changeFrom(PASSWORD)],
  ] as const) {
    await t.test(`${method} ${path.replace(user, '…')} without ${event}`, async (inner) => {
      await refuse(inner, 'audit', 'insert', `new.event = '${event}'`);
      await assertNothingDone(event, send(bearer, method, path, body));
    });
  }
});

test('without a failure, each change succeeds and has its entry', async () => {
  const { length } = await acts();
  const entries = async () => (await sql`select from identity.audit`).length;
  for (let index = 0; index < length; index += 1) {
    const [what, act] = (await acts())[index] ?? assert.fail();
    const before = await entries();
    const answer = await act();
    assert.ok(answer.status < 500, `${what}: ${answer.text}`);
    assert.ok((await entries()) > before, `${what} left no line`);
  }
});
