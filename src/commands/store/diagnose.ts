import { type DatabaseSchema, versionOf } from '../../platform/db/schema.ts';
import { compareClocks } from '../../platform/db/clock.ts';
import type { Database, Sql } from '../../platform/db/pool.ts';

export type SchemaState = Awaited<ReturnType<typeof schemaOf>>;

export const readSchema = (database: Database, schema: DatabaseSchema) =>
  database.maintain((sql) => schemaOf(sql, schema));

/** A schema, compared with the steps that this program knows. */
async function schemaOf(sql: Sql, { name: schema, steps }: DatabaseSchema) {
  const exists = (await versionOf(sql, schema)) >= 0;
  const rows = exists
    ? await sql<Array<{ name: string }>>`
        select name from ${sql(schema)}.migrations order by version`
    : [];
  return {
    exists,
    /** Names of the steps that were applied, in order. */
    applied: rows.map(({ name }) => name),
    /** Names of the steps that `migrate` would apply. */
    pending: steps.slice(rows.length),
  };
}

/** What `check` reports of a database. */
export async function inspectDatabase(database: Database, schema: DatabaseSchema) {
  return database.maintain(async (sql) => {
    const rows = await sql<[Server]>`
      select current_setting('server_version') as version,
        current_setting('server_version_num')::int4 as number,
        current_database() as name, current_user as role,
        pg_is_in_recovery() as standby, pg_backend_pid() as pid,
        coalesce((select ssl from pg_stat_ssl where pid = pg_backend_pid()), false) as encrypted,
        coalesce(
          (select has_schema_privilege(oid, 'create') from pg_namespace
           where nspname = ${schema.name}),
          has_database_privilege(current_database(), 'create')) as creates`;
    const [server] = rows;
    const clock = await compareClocks(sql);
    const missing = await missingRights(sql, schema.name);
    const isUnreadable = missing.some((right) =>
      /^usage on |^select on \w+\.migrations$/.test(right),
    );
    return {
      server,
      // A pooler makes up the process id that it sends at the start of a connection.
      isPooled: rows.state.pid !== server.pid,
      missing,
      /** Null if the role may not read it. */
      state: isUnreadable ? null : await schemaOf(sql, schema),
      clock,
    };
  });
}

type Server = Readonly<
  Record<'version' | 'name' | 'role', string> &
    Record<'number' | 'pid', number> &
    Record<'encrypted' | 'standby' | 'creates', boolean>
>;

/**
 * @returns what `serve` needs and the role lacks, such as `insert on identity.users`; nothing
 * without the schema
 */
async function missingRights(sql: Sql, schema: string) {
  const rows = await sql<Array<{ missing: string }>>`
    select 'usage on schema ' || n.nspname as missing
    from pg_namespace n
    where n.nspname = ${schema}
      and not has_schema_privilege(n.oid, 'usage')
    union all
    select format('%s on %I.%I', privilege, n.nspname, c.relname)
    from pg_namespace n
      join pg_class c on c.relnamespace = n.oid
        and c.relkind in ('r', 'p'),
      unnest(array['select', 'insert', 'update', 'delete']) as privilege
    where n.nspname = ${schema}
      and not has_table_privilege(c.oid, privilege)
    order by 1`;
  return rows.map(({ missing }) => missing);
}
