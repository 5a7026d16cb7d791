/**
 * The SQL of docs/database.md and docs/postgresql.md: rights of a role, and queries for operators.
 */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { withConnection } from '../../scripts/postgres.ts';
import { runCommand } from '../support/commands.ts';
import { createDatabase, type TestDatabase } from '../support/database.ts';
import { readDocument } from '../support/documents.ts';
import {
  ask,
  assertStatus,
  logIn,
  startGatehouse,
  variables,
  WEBHOOK_TOKEN,
} from '../support/gatehouse.ts';
import { secretsClient } from '../support/secrets.ts';
import { SERVICES } from '../support/settings.ts';
import { pause, test } from '../support/until.ts';

const { sql, url } = await createDatabase();
const QUERIES = [...readDocument('docs/postgresql.md').matchAll(/```sql\n([^]*?)```/g)].map(
  ([, text = '']) => text,
);
const [locks = ''] = QUERIES.filter((text) => text.includes('pg_blocking_pids'));

test('each query for an operator runs', async () => {
  await sql`create extension pgstattuple`;
  await sql`create extension pg_stat_statements`;
  assert.ok(QUERIES.length >= 12);
  for (const text of QUERIES) {
    const failed = await sql.unsafe(text).then(
      () => null,
      (error: { code: string }) => error.code,
    );
    // The server of the tests does not preload it: then only the names in the query are checked.
    const isPreloaded = !text.includes('pg_stat_statements');
    assert.equal(failed, isPreloaded ? null : '55000', text);
  }
});

test('the query for locks says who waits for whom', async () => {
  await withConnection(url, async (holder) => {
    const [{ pid } = { pid: 0 }] = await holder`select pg_backend_pid() as pid`;
    await holder`begin`;
    await holder`lock table identity.users in access exclusive mode`;
    const waiting = withConnection(url, async (other) => other`select from identity.users`);
    const begun = Date.now();
    // Tests of other databases of the server also wait for locks. A row can show the previous
    // statement of its session: PostgreSQL reads the statements before it looks for the blockers.
    const findRow = async () =>
      (await sql.unsafe(locks)).find(
        (row) => row.holder === pid && row.query === 'select from identity.users',
      );
    let row = await findRow();
    while (row === undefined) {
      await pause(begun, () => 'for the lock');
      row = await findRow();
    }
    assert.equal(row.state, 'idle in transaction');
    await holder`rollback`;
    await waiting;
  });
});

const [, GRANTS = ''] =
  /```sql\n(grant usage on schema identity[\s\S]*?)```/.exec(readDocument('docs/database.md')) ??
  [];

/** A role without any right. @returns its URL, and how to give it those of the document */
async function addRole(t: TestContext, { sql, url }: TestDatabase) {
  const role = `app_${new URL(url).pathname.slice(1)}`;
  await sql.unsafe(`create role ${role} login password 'app'`);
  // The database, and with it the rights of the role, is dropped before.
  const server = process.env.TEST_POSTGRES_URL ?? '';
  t.after(() => withConnection(server, (other) => other.unsafe(`drop role ${role}`)));
  const grant = (service: string) =>
    sql.unsafe(GRANTS.replaceAll('identity', service).replaceAll('to app', `to ${role}`));
  const own = Object.assign(new URL(url), { username: role, password: 'app' }).href;
  return { role, own, grant };
}

/** @returns the exit code, and state and detail of each line of `check` by what it checks */
async function check(databaseUrl: string) {
  const { code, stdout } = await runCommand(['check', '--json'], variables(databaseUrl));
  const rows: Array<{ state: string; check: string; detail: string }> = JSON.parse(stdout);
  const lines = rows.map((row) => [row.check, `${row.state}: ${row.detail}`] as const);
  return { code, lines: Object.fromEntries(lines) };
}

test('with the rights of database.md, a role that creates no tables serves, with new ones too', async (t) => {
  assert.ok(GRANTS.includes('alter default privileges'));
  const database = await createDatabase(t);
  const { own, grant } = await addRole(t, database);
  for (const service of SERVICES) await grant(service);
  assert.equal((await check(own)).code, 0);

  const { url: at } = await startGatehouse(t, SERVICES, own, { MIGRATE: 'off' });
  const bearer = await logIn(at.identity);
  assertStatus(await ask('GET', `${at.identity}/api/test/`, { bearer }), 200);
  const { id, secret } = await secretsClient(at.secrets).keep('text');
  assert.equal((await secretsClient(at.secrets).decrypt(id, secret)).json.password, 'text');
  const body = { event: 'x', data: { page_id: 'p' } };
  const sent = await ask('POST', `${at.webhook}/webhook`, { bearer: WEBHOOK_TOKEN, body });
  assertStatus(sent, 200);
  for (const service of SERVICES) {
    await database.sql.unsafe(`create table ${service}.later (id serial, name text)`);
    await withConnection(own, async (app) => {
      await app.unsafe(
        `insert into ${service}.later (name) values ('x'); update ${service}.later set name = 'y'; delete from ${service}.later`,
      );
      await assert.rejects(app.unsafe(`create table ${service}.own ()`), /permission denied/);
    });
  }
});

test('check names the rights that a role lacks', async (t) => {
  const database = await createDatabase(t);
  const { role, own, grant } = await addRole(t, database);
  await grant('secrets');
  await database.sql.unsafe(`
    revoke delete on secrets.secrets from ${role}; drop schema webhook cascade`);
  const { code, lines } = await check(own);
  const said = `failed: the role ${role} lacks delete on secrets.secrets`;
  assert.deepEqual([code, lines['secrets rights']], [1, said]);
  assert.match(
    lines['identity rights'] ?? '',
    / lacks .*insert on identity\.users.*usage on schema identity$/,
  );
  assert.match(
    lines['webhook schema'] ?? '',
    /; the role may not create it: run "gatehouse migrate" as the owner$/,
  );
});
