import type { Database, Sql } from '../../platform/db/pool.ts';

/** The function `emit`, with which other programs store events. */
const emitSql = (sql: Sql) => sql`function webhook.emit(text, text, jsonb, text, text)`;

/** Stores what `emit` needs of the settings of a process, if it differs. */
export const storeSettings = (
  database: Database,
  given: Readonly<{ has_target: boolean; events: readonly string[]; max_body_bytes: number }>,
) =>
  database.write(
    (sql) => sql`
    insert into webhook.process_settings as s (has_target, events, max_body_bytes)
    select has_target, events, max_body_bytes
    from json_to_record(${JSON.stringify(given)}::text::json)
      as given (has_target boolean, events text[], max_body_bytes int4)
    on conflict (id) do update set has_target = excluded.has_target, events = excluded.events,
      max_body_bytes = excluded.max_body_bytes
    where (s.has_target, s.events, s.max_body_bytes)
      is distinct from (excluded.has_target, excluded.events, excluded.max_body_bytes)`,
  );

/** @returns what a role may do in the schema, such as "select"; undefined for an unknown role */
export async function rightsOf(database: Database, role: string) {
  const [found] = await database.list(
    (sql) => sql<Array<{ rights: string | null }>>`
    select (
      select string_agg(distinct privilege, ', ' order by privilege)
      from pg_class c, unnest(array['select', 'insert', 'update', 'references', 'delete',
        'truncate', 'trigger']) as privilege
      where relnamespace = 'webhook'::regnamespace
        and case when privilege in ('select', 'insert', 'update', 'references')
          then has_any_column_privilege(r.oid, c.oid, privilege)
          else has_table_privilege(r.oid, c.oid, privilege) end) as rights
    from pg_roles r
    where rolname = ${role}`,
  );
  return found;
}

/** Idempotent. @param role that exists */
export const grantEmit = (database: Database, role: string, token_id: string) =>
  database.transaction(async (sql) => {
    await sql`grant usage on schema webhook to ${sql(role)}`;
    await sql`grant execute on ${emitSql(sql)} to ${sql(role)}`;
    await sql`insert into webhook.emitters ${sql({ role, token_id })} on conflict do nothing`;
  });

/** @returns whether the role had the right. Without another token, it may not call `emit` either */
export const revokeEmit = (database: Database, role: string, tokenId: string) =>
  database.transaction(async (sql) => {
    const { count } = await sql`
      delete from webhook.emitters where role = ${role} and token_id = ${tokenId}`;
    const [known] = await sql<Array<{ exists: boolean }>>`
      select exists (select from pg_roles where rolname = ${role})
        and not exists (select from webhook.emitters where role = ${role}) as exists`;
    if (known?.exists) {
      await sql`revoke execute on ${emitSql(sql)} from ${sql(role)}`;
      await sql`revoke usage on schema webhook from ${sql(role)}`;
    }
    return count === 1;
  });

export type Emitter = Readonly<{
  role: string;
  token_id: string;
  token: string; // its name
  state: 'active' | 'no such role' | 'token revoked';
  granted_at: Date;
}>;

export const listEmitters = (database: Database) =>
  database.list(
    (sql) => sql<Emitter[]>`
    select e.role, token_id, t.name as token, granted_at,
      case when t.revoked_at is not null then 'token revoked'
        when r.oid is null then 'no such role' else 'active' end as state
    from webhook.emitters e
    join webhook.tokens t on t.id = e.token_id
    left join pg_roles r on r.rolname = e.role
    order by e.role, t.name, token_id`,
  );
