/** The rights that docs/database.md grants to a role that cannot create tables. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withConnection } from '../../scripts/postgres.ts';
import { runCommand } from '../support/commands.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { readDocument } from '../support/documents.ts';
import { ask, logIn, startGatehouse, variables, WEBHOOK_TOKEN } from '../support/gatehouse.ts';
import { secretsClient } from '../support/secrets.ts';
import { SERVICES } from '../support/settings.ts';

test('with the rights of database.md, a role that creates no tables serves, with new ones too', async (t) => {
  const { sql, url } = await createEmptyDatabase(t);
  const role = `app_${new URL(url).pathname.slice(1)}`;
  await sql.unsafe(`create role ${role} login password 'app'`);
  // The database, and with it the rights of the role, is dropped before.
  t.after(() =>
    withConnection(process.env.TEST_POSTGRES_URL ?? '', async (other) => {
      await other.unsafe(`drop role ${role}`);
    }),
  );
  const own = new URL(url);
  own.username = role;
  own.password = 'app';
  const [, statements = ''] =
    /```sql\n(grant usage on schema identity[\s\S]*?)```/.exec(readDocument('docs/database.md')) ??
    [];
  assert.ok(statements.includes('alter default privileges'));

  const run = async (words: readonly string[], databaseUrl: string) =>
    runCommand(words, { ...variables(databaseUrl), MIGRATE: 'off' });
  assert.equal((await run(['migrate'], url)).code, 0);
  const without = await run(['check'], own.href);
  assert.deepEqual(
    [without.code, without.stdout.match(/^failed\s+\S+ rights/gm)?.length],
    [1, SERVICES.length],
    without.stdout,
  );
  for (const service of SERVICES)
    await sql.unsafe(statements.replaceAll('identity', service).replaceAll('to app', `to ${role}`));
  const checked = await run(['check'], own.href);
  assert.equal(checked.code, 0, checked.stdout);

  const { url: at } = await startGatehouse(t, SERVICES, own.href, { MIGRATE: 'off' });
  assert.equal(
    (await ask('GET', `${at.identity}/api/test/`, { bearer: await logIn(at.identity) })).status,
    200,
  );
  const { id, secret } = await secretsClient(at.secrets).keep('text');
  assert.equal((await secretsClient(at.secrets).decrypt(id, secret)).json.password, 'text');
  assert.equal(
    (
      await ask('POST', `${at.webhook}/webhook`, {
        bearer: WEBHOOK_TOKEN,
        body: { event: 'x', data: { page_id: 'p' } },
      })
    ).status,
    200,
  );
  for (const service of SERVICES) {
    await sql.unsafe(`create table ${service}.later (id serial, name text)`);
    await withConnection(own.href, async (app) => {
      await app.unsafe(
        `insert into ${service}.later (name) values ('x'); update ${service}.later set name = 'y'; delete from ${service}.later`,
      );
      await assert.rejects(app.unsafe(`create table ${service}.own ()`), /permission denied/);
    });
  }
});
