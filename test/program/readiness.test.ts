/**
 * A service is ready only if requests can read and write, and the probe says which of these fails.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { untilSql } from '../support/connections.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { ask, type Gatehouse, startGatehouse } from '../support/gatehouse.ts';
import { SERVICES } from '../support/settings.ts';

const UNREADY = { identity: 500, secrets: 503, webhook: 503 } as const;

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

test('on a read-only database, without disk space or a connection for requests, no service is ready', async (t) => {
  const { sql, url } = await createEmptyDatabase(t);
  const name = new URL(url).pathname.slice(1);
  const role = `limited_${name}`;
  await sql.unsafe(
    `create role ${role} login password 'limited'; grant create, temporary on database ${name} to ${role}`,
  );
  const own = Object.assign(new URL(url), { username: role, password: 'limited' });
  const gatehouse = await startGatehouse(t, SERVICES, own.href);
  await untilReady(gatehouse);
  for (const [set, reset, problem] of [
    // As on a standby.
    [
      `alter database ${name} set default_transaction_read_only = on`,
      `alter database ${name} reset default_transaction_read_only`,
      /25006: the server accepts no/,
    ],
    // Like a full disk for a statement that needs space, where an update in place still succeeds.
    [
      `alter database ${name} set temp_file_limit = 0`,
      `alter database ${name} reset temp_file_limit`,
      /53400: a limit in the configuration/,
    ],
    // One for each probe, and none for requests.
    [
      `alter role ${role} connection limit ${SERVICES.length}`,
      `alter role ${role} connection limit -1`,
      /SQLSTATE 53300: no connection is left/,
    ],
  ] as const) {
    // A changed default applies to new connections.
    const change = async (statement: string) => {
      await sql.unsafe(`set default_transaction_read_only = off; ${statement}`);
      await sql`select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name like 'gatehouse-%'`;
    };
    await change(set);
    await assertUnready(gatehouse, problem);
    await change(reset);
    await untilReady(gatehouse);
  }
  // The database, and with it what the role owns, is dropped before.
  await gatehouse.stop();
  await sql.unsafe(`drop owned by ${role} cascade; drop role ${role}`);
});
