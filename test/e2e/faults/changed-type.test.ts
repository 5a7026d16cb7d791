/** A column gets another type while statements that return it are prepared, again and again. */
import { setTimeout as sleep } from 'node:timers/promises';
import { withConnection } from '../../../scripts/postgres.ts';
import { scenario } from './scenario.ts';

const CHANGES = 20;
/** Columns that the services read at each request, by the tables they are in. */
const COLUMNS = [
  ['identity.users', 'first_name'],
  ['identity.sessions', 'user_agent'],
  ['secrets.secrets', 'key_id'],
  ['webhook.tokens', 'name'],
  ['webhook.events', 'event'],
] as const;

scenario('a column type changed under load', async ({ database, load, random }) => {
  await withConnection(database.server().url, async (sql) => {
    for (let change = 0; change < CHANGES; change += 1) {
      const type = change % 2 ? 'text' : 'varchar(400)';
      for (const [table, column] of COLUMNS) {
        await sql.unsafe(`alter table ${table} alter column ${column} type ${type}`);
        await sleep(random() * 100);
      }
    }
  });
  await load.progress(50);
});
