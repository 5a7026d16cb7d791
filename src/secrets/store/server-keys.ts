import { arrayLiteral, type Database } from '../../platform/db/sql.ts';
import type { ServerKey } from '../envelope.ts';
import { readableSql } from './secrets.ts';

/**
 * Records that this server secret is in use.
 * @returns true if it is new and others were in use before
 */
export async function rememberKey(database: Database, keyId: string) {
  const [row] = await database.write(
    (sql) => sql<Array<{ others: boolean }>>`
    insert into secrets.server_keys (key_id)
    values (${keyId})
    on conflict do nothing
    returning exists (select from secrets.server_keys) as others`,
  );
  return row?.others ?? false;
}

/**
 * The server secrets that are configured or were ever used with this database, by key id, and how
 * many readable secrets and requests need each. `missing`: not configured, though secrets need it.
 * `retired`: neither configured nor needed. `unknown`: no server secret is configured at all.
 * @param current null if SERVER_SECRET is not set, which only a command allows
 * @param most counts no more for each key, so that the cost does not grow with their number; null
 * for no limit
 */
export async function listKeys(
  database: Database,
  current: ServerKey | null,
  previous: readonly ServerKey[],
  most: number | null,
) {
  const keys = current ? [current, ...previous] : previous;
  const configured = new Set(keys.map(({ id }) => id));
  type UsedKey = Readonly<{ key_id: string; first_used_at: Date | null }>;
  const stateOf = (id: string, secrets: number) => {
    if (id === current?.id) return 'current';
    if (configured.has(id)) return 'previous';
    if (configured.size === 0) return 'unknown';
    return secrets > 0 ? 'missing' : 'retired';
  };
  // Keys without secrets are included: a rotation begins with configuring the new one on every
  // replica.
  const known = await database.list(
    (sql) => sql<UsedKey[]>`
    select key_id, first_used_at
    from secrets.server_keys
    full join unnest(${arrayLiteral([...configured])}::text[]) as configured (key_id)
    using (key_id)
    order by first_used_at, key_id`,
  );
  // One statement for each key: Citus has no lateral join with a limit.
  return Promise.all(
    known.map(async (key) => {
      const [{ secrets }] = await database.list(
        (sql) => sql<[{ secrets: number }]>`
        select count(*)::int4 as secrets from (
          (select id from secrets.secrets where key_id = ${key.key_id} and ${readableSql(sql)}
          limit ${most}::int8)
          union all
          (select id from secrets.requests where key_id = ${key.key_id} and expires_at > now()
          limit ${most}::int8)) one`,
      );
      return {
        ...key,
        secrets,
        state: stateOf(key.key_id, secrets),
      };
    }),
  );
}
