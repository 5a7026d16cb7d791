/** Statements that were planned for a small table use the index when the table is large. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { startGatehouse } from '../../support/gatehouse.ts';
import { observe } from '../../support/plans.ts';
import { secretsClient } from '../../support/secrets.ts';
import { until } from '../../support/until.ts';

const file = await createDatabase();
const observatory = await observe({ after }, file);
const client = secretsClient(
  (await startGatehouse({ after }, ['secrets'], observatory.url)).url.secrets,
);

test('a read scans no other row, and storing none, even before PostgreSQL has analyzed the table', async () => {
  const read = async (times: number) => {
    for (let time = 0; time < times; time += 1) {
      const { id, secret } = await client.keep('text', { max_reads: 1 });
      assert.equal((await client.decrypt(id, secret)).status, 200);
    }
  };
  // No statement is replanned after this.
  await read(10);
  await client.keep('another');
  await file.sql`
    insert into secrets.secrets
    select (jsonb_populate_record(s, jsonb_build_object('id', gen_random_uuid()))).*
      from secrets.secrets s,
      generate_series(1, 2000) where blob is not null`;
  observatory.scans();
  await read(3);
  const scans = observatory.scans().filter(({ table }) => table === 'secrets.secrets');
  assert.ok(scans.length >= 6, 'a look and a use for each');
  const stores = scans.filter(({ statement }) => statement.startsWith('with sent'));
  assert.deepEqual(stores, []);
  for (const { node, rows, statement } of scans)
    assert.ok(rows <= 1, `${node} of ${rows} rows for ${statement}`);
});

test('what a process counts at startup and every minute does not grow with the number of secrets', async (t) => {
  await file.sql`
    insert into secrets.secrets
    select (jsonb_populate_record(s, jsonb_build_object('id', gen_random_uuid()))).*
    from secrets.secrets s, generate_series(1, 25000)
    where id = (select id from secrets.secrets where blob is not null limit 1)`;
  await file.sql`
    insert into secrets.requests (id, key_id, tag, kind, title, public_key, digest, key_digest,
      max_reads, seconds, expires_at)
    select gen_random_uuid(), key_id, '', 'text', '', '', '', '', 1, 60, now() + interval '1 h'
    from secrets.server_keys, generate_series(1, 25000)`;
  await file.sql`vacuum analyze secrets.secrets, secrets.requests`;
  observatory.scans();
  const again = await startGatehouse(t, ['secrets'], observatory.url);
  await until(() => again.log().some(({ state }) => state === 'current'), 'the report');
  const tables = ['secrets.secrets', 'secrets.requests'];
  const counts = observatory.scans().filter(({ table }) => tables.includes(table));
  assert.deepEqual(new Set(counts.map(({ table }) => table)), new Set(tables));
  for (const { node, rows, statement } of counts)
    assert.ok(rows <= 10_000, `${node} of ${rows} rows for ${statement}`);
  assert.equal(again.log().find(({ state }) => state === 'current')?.secrets, 20_000);
});
