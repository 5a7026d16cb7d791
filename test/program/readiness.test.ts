/**
 * A service is ready only if requests can read and write, and the probe says which of these fails.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createEmptyDatabase } from '../support/database.ts';
import { ask, type Gatehouse, startGatehouse } from '../support/gatehouse.ts';
import { SERVICES } from '../support/settings.ts';
import { untilSql } from '../support/connections.ts';

const UNREADY = { identity: 500, secrets: 503, webhook: 503 } as const;
type Database = Awaited<ReturnType<typeof createEmptyDatabase>>;

/** Ends the connections of the services: a changed default applies to new ones. */
const endConnections = ({ sql }: Database) =>
  sql`select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and application_name like 'gatehouse-%'`;
const nameOf = ({ url }: Database) => new URL(url).pathname.slice(1);

async function assertUnready({ url, log }: Gatehouse, problem: RegExp): Promise<void> {
  for (const service of SERVICES) {
    const probe = () => ask('GET', `${url[service]}/readyz`);
    await untilSql(async () => problem.test((await probe()).text), `${service} says ${problem}`);
    // Shared checks, and checks one after the other.
    for (const { status } of [...(await Promise.all([probe(), probe(), probe()])), await probe()])
      assert.equal(status, UNREADY[service]);
    assert.ok(
      log().some(
        (line) =>
          line.service === service &&
          line.message === 'not ready' &&
          problem.test(String(line.error)),
      ),
    );
  }
}

async function untilReady({ url }: Gatehouse): Promise<void> {
  for (const service of SERVICES)
    await untilSql(
      async () => (await ask('GET', `${url[service]}/readyz`)).status === 200,
      `${service} is ready`,
    );
}

// As on a standby, and like a full disk for a statement that needs space, where an update in place
// still succeeds.
for (const [what, setting, value, problem] of [
  [
    'on a read-only database',
    'default_transaction_read_only',
    'on',
    /25006: the server accepts no/,
  ],
  ['without disk space', 'temp_file_limit', '0', /53400: a limit in the configuration/],
] as const) {
  test(`${what}, a service is not ready`, async (t) => {
    const database = await createEmptyDatabase(t);
    const gatehouse = await startGatehouse(t, SERVICES, database.url);
    await untilReady(gatehouse);
    const { sql } = database;
    const change = (end: string) =>
      sql.unsafe(`set default_transaction_read_only = off;
        alter database ${nameOf(database)} ${end}`);
    await change(`set ${setting} = ${value}`);
    await endConnections(database);
    await assertUnready(gatehouse, problem);
    await change(`reset ${setting}`);
    await endConnections(database);
    await untilReady(gatehouse);
  });
}

test('without a connection left for requests, a service is not ready', async (t) => {
  const database = await createEmptyDatabase(t);
  const { sql } = database;
  const url = new URL(database.url);
  const role = `limited_${nameOf(database)}`;
  await sql.unsafe(
    `create role ${role} login password 'limited'; grant create, temporary on database ${nameOf(database)} to ${role}`,
  );
  url.username = role;
  url.password = 'limited';
  const gatehouse = await startGatehouse(t, SERVICES, url.href);
  await untilReady(gatehouse);
  // One for each probe, and none for requests.
  await sql.unsafe(`alter role ${role} connection limit ${SERVICES.length}`);
  await endConnections(database);
  for (const service of SERVICES) {
    const probe = () => ask('GET', `${gatehouse.url[service]}/readyz`);
    const none = /SQLSTATE 53300: no connection is left/;
    await untilSql(async () => none.test((await probe()).text), `${service} has noticed`);
    for (let round = 0; round < 5; round += 1) {
      const { status, text } = await probe();
      assert.equal(status, UNREADY[service], text);
      assert.match(text, none);
    }
  }
  await sql.unsafe(`alter role ${role} connection limit -1`);
  await untilReady(gatehouse);
});
