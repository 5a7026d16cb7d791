/**
 * Changes of the schema, and of the server's memory of statements, while all three services serve.
 */
import assert from 'node:assert/strict';
import { launch } from '../support/gatehouse.ts';
import { startLoad } from '../support/load.ts';
import { test, until } from '../support/until.ts';

test('column types change under load: no request fails, no acknowledged write is lost', async (t) => {
  const { url, log, sql } = await launch(['identity', 'secrets', 'webhook'], {}, t);
  const load = await startLoad(url, 8);
  const runFurther = async () => {
    const enough = load.rounds() + 16;
    await until(() => load.rounds() >= enough, 'further rounds');
  };
  await runFurther();
  for (const length of [400, 401, 402, 403]) {
    await sql.unsafe(`alter table identity.users alter column first_name type varchar(${length})`);
    await sql.unsafe(`alter table secrets.secrets alter column key_id type varchar(${length})`);
    await sql.unsafe(`alter table webhook.tokens alter column name type varchar(${length})`);
    await runFurther();
  }
  assert.deepEqual(load.problems(), {});
  await load.stopAndCompare(sql);
  assert.deepEqual(
    log().filter(({ error }) => error !== undefined),
    [],
  );
});
