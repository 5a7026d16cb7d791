/**
 * The 500s of the error table, with a database that really fails: never 401, never a pretended
 * success.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { ADMIN_PASSWORD, ask, logIn, startGatehouse } from '../../support/gatehouse.ts';
import {
  assertError,
  assertSuccess,
  bearerEndpoints,
  isOpen,
  sessionOf,
} from '../../support/users.ts';

async function start(t: TestContext) {
  const database = await createDatabase(t);
  const gatehouse = await startGatehouse(t, ['identity'], database.url);
  const identity = gatehouse.url.identity;
  const bearer = await logIn(identity);
  const { id, user_id: user } = await sessionOf(identity, bearer);
  const guarded = bearerEndpoints({ token: bearer, id, user });
  const open = [
    ['/api/auth/login', { username: 'admin', password: ADMIN_PASSWORD }],
    ['/api/auth/logout', { session: bearer }],
    ['/api/auth/session', { session: bearer }],
  ] as const;
  return { ...database, gatehouse, identity, bearer, guarded, open };
}

async function assertAllFail({
  identity,
  bearer,
  guarded,
  open,
}: Awaited<ReturnType<typeof start>>) {
  for (const [method, path] of guarded)
    assertError(await ask(method, identity + path, { bearer }), 500, 'service_failed');
  for (const [path, body] of open)
    assertError(await ask('POST', identity + path, { body }), 500, 'service_failed');
}

test('with a table missing every endpoint answers 500 until it is back', async (t) => {
  const started = await start(t);
  await started.sql`alter table identity.sessions rename to hidden_sessions`;
  await assertAllFail(started);
  const answer = await ask('GET', `${started.identity}/api/test/`, { bearer: started.bearer });
  assert.doesNotMatch(answer.text, /42P01|relation|hidden|select/i, 'not explained to the caller');
  const requestId = answer.json._meta.request_id;
  const line = started.gatehouse.log().find(({ request_id }) => request_id === requestId);
  assert.match(String(line?.error), /42P01/);
  await started.sql`alter table identity.hidden_sessions rename to sessions`;
  assert.equal(await isOpen(started.identity, started.bearer), true);
});

test('a login whose account cannot be looked up is 500', async (t) => {
  const { identity, sql } = await start(t);
  await sql`alter table identity.users rename to hidden_users`;
  for (const username of ['admin', 'nobody-here']) {
    assertError(
      await ask('POST', `${identity}/api/auth/login`, {
        body: { username, password: ADMIN_PASSWORD },
      }),
      500,
      'service_failed',
    );
  }
});

test('login, logout and revocations that cannot be stored are 500 and undone', async (t) => {
  const { identity, sql, bearer, guarded, open } = await start(t);
  await sql`create function identity.refuse() returns trigger language plpgsql
    as $$ begin raise exception 'refused'; end $$`;
  for (const table of ['sessions', 'users', 'global_revocation']) {
    await sql`create trigger refuse before insert
      or update on ${sql(`identity.${table}`)} execute function identity.refuse()`;
  }
  for (const [path, body] of open.slice(0, 2))
    assertError(await ask('POST', identity + path, { body }), 500, 'service_failed');
  const revocations = guarded.filter(([method]) => method === 'DELETE');
  assert.equal(revocations.length, 4);
  for (const [method, path] of revocations)
    assertError(await ask(method, identity + path, { bearer }), 500, 'service_failed');
  const rows = await sql`select revoked, logged_out from identity.sessions`;
  assert.deepEqual([...rows], [{ revoked: false, logged_out: false }]);
  assert.equal(await isOpen(identity, bearer), true);
});

test('a stored hash that cannot be verified is 500 and no login', async (t) => {
  const { identity, sql } = await start(t);
  for (const hash of [
    '',
    'plain text',
    '$scrypt$ln=40,r=8,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',
  ]) {
    await sql`update identity.users set password_hash = ${hash}`;
    const answer = await ask('POST', `${identity}/api/auth/login`, {
      body: { username: 'admin', password: ADMIN_PASSWORD },
    });
    assert.equal(answer.status, 500, hash);
  }
  const [row] = await sql`select count(*)::int as count from identity.sessions`;
  assert.equal(row?.count, 1);
});

test('a list that fails is 500, though the caller is known', async (t) => {
  const { identity, sql, bearer } = await start(t);
  const lists = ['/api/key/', '/api/audit/'];
  // What only the lists read.
  await sql`alter table identity.api_keys rename column name to hidden_name`;
  await sql`alter table identity.audit rename column created_at to hidden_time`;
  for (const path of lists)
    assertError(await ask('GET', identity + path, { bearer }), 500, 'service_failed');
  assert.equal(await isOpen(identity, bearer), true);
  await sql`alter table identity.api_keys rename column hidden_name to name`;
  await sql`alter table identity.audit rename column hidden_time to created_at`;
  for (const path of lists)
    assert.equal((await ask('GET', identity + path, { bearer })).status, 200);
});

test('closed connections reopen by themselves, and meanwhile nothing is 401', async (t) => {
  const { identity, sql, bearer } = await start(t);
  for (let round = 0; round < 5; round += 1) {
    const asking = Array.from({ length: 8 }, () => ask('GET', `${identity}/api/test/`, { bearer }));
    // Waits for the ends, so that the probe below meets none.
    await sql`select pg_terminate_backend(pid, 60_000) from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid()`;
    for (const { status } of await Promise.all(asking))
      assert.ok(status === 200 || status === 500, String(status));
  }
  await untilSql(() => isOpen(identity, bearer), 'the connections are open again');
  assertSuccess(await ask('GET', `${identity}/readyz`));
});
