import type { ServerKey } from '../../crypto/envelope.ts';
import type { Database } from '../../db/pool.ts';
import { arrayLiteral } from '../../db/sql.ts';
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
 * many readable secrets need each. `missing`: not configured, though secrets need it. `retired`:
 * neither configured nor needed. `unknown`: no server secret is configured at all.
 * @param current null if SERVER_SECRET is not set, which only a command allows
 * @param most counts no more for each key, so that the cost does not grow with their number; null
 * for no limit
 */
export function listKeys(
  database: Database,
  current: ServerKey | null,
  previous: readonly ServerKey[],
  most: number | null,
) {
  const keys = current ? [current, ...previous] : previous;
  const configured = new Set(keys.map(({ id }) => id));
  type KeyCount = Readonly<{
    key_id: string;
    first_used_at: Date | null;
    secrets: number;
    state: 'current' | 'previous' | 'unknown' | 'missing' | 'retired';
  }>;
  // Keys without secrets are included: a rotation begins with configuring the new one on every
  // replica.
  return database.list(
    (sql) => sql<KeyCount[]>`
    select key_id, first_used_at, secrets,
      case when key_id = ${current?.id ?? null}::text then 'current'
        when configured.key_id is not null then 'previous'
        when ${configured.size === 0} then 'unknown'
        when secrets > 0 then 'missing' else 'retired' end as state
    from secrets.server_keys used
    full join unnest(${arrayLiteral([...configured])}::text::text[]) as configured (key_id)
    using (key_id)
    cross join lateral (select count(*)::int4 as secrets from (
      select from secrets.secrets s
      where s.key_id = coalesce(used.key_id, configured.key_id) and ${readableSql(sql)}
      limit ${most}::int8) one) counted
    order by first_used_at, key_id`,
  );
}
