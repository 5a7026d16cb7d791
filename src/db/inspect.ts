import type { Schema } from './schema.ts';
import type { Database, Sql } from './pool.ts';

/** A schema, compared with the steps that this program knows. */
export interface SchemaState {
  readonly exists: boolean;
  /** Names of the steps that were applied, in order. */
  readonly applied: readonly string[];
  /** Names of the steps that `migrate` would apply. */
  readonly pending: readonly string[];
}

export const readSchema = (database: Database, schema: Schema) =>
  database.maintain((sql) => schemaOf(sql, schema));

async function schemaOf(sql: Sql, { name: schema, steps }: Schema): Promise<SchemaState> {
  const [ledger] = await sql<
    [{ found: boolean }]
  >`select to_regclass(${schema} || '.migrations') is not null as found`;
  const rows = ledger.found
    ? await sql<
        Array<{ name: string }>
      >`select name from ${sql(schema)}.migrations order by version`
    : [];
  const pending = (await steps()).slice(rows.length).map(({ name }) => name);
  return { exists: ledger.found, applied: rows.map(({ name }) => name), pending };
}

/** What `check` reports of a database. */
export async function inspectDatabase(database: Database, schema: Schema) {
  return database.maintain(async (sql) => {
    const rows = await sql<
      [
        {
          version: string;
          number: number;
          name: string;
          role: string;
          encrypted: boolean;
          standby: boolean;
          pid: number;
          creates: boolean;
        },
      ]
    >`
      select current_setting('server_version') as version, current_setting('server_version_num')::int4 as number,
        current_database() as name, current_user as role, pg_is_in_recovery() as standby, pg_backend_pid() as pid,
        coalesce((select ssl from pg_stat_ssl where pid = pg_backend_pid()), false) as encrypted,
        coalesce((select has_schema_privilege(oid, 'create') from pg_namespace where nspname = ${schema.name}),
          has_database_privilege(current_database(), 'create')) as creates`;
    // A pooler makes up the process id that it sends at the start of a connection.
    const [server, isPooled] = [rows[0], rows.state.pid !== rows[0].pid];
    const before = performance.now();
    const [clock] = await sql<
      [{ now: number }]
    >`select extract(epoch from clock_timestamp())::float8 * 1000 as now`;
    const [after, now] = [performance.now(), performance.timeOrigin + performance.now()];
    const missing = await missingRights(sql, schema.name);
    const isUnreadable = missing.some((right) =>
      /^usage on |^select on \w+\.migrations$/.test(right),
    );
    const state = isUnreadable ? null : await schemaOf(sql, schema);
    return {
      server,
      isPooled,
      missing,
      /** Null if the role may not read it. */
      state,
      /** By how many milliseconds the server's clock is ahead of this machine's, and how exact that is. */
      clock: { ahead: clock.now - (now - (after - before) / 2), within: (after - before) / 2 },
    };
  });
}

/** @returns what `serve` needs and the role lacks, such as `insert on identity.users`; nothing without the schema */
async function missingRights(sql: Sql, schema: string): Promise<string[]> {
  const rows = await sql<Array<{ missing: string }>>`
    select 'usage on schema ' || n.nspname as missing from pg_namespace n
    where n.nspname = ${schema} and not has_schema_privilege(n.oid, 'usage')
    union all
    select format('%s on %I.%I', privilege, n.nspname, c.relname) from pg_namespace n
      join pg_class c on c.relnamespace = n.oid and c.relkind in ('r', 'p'),
      unnest(array['select', 'insert', 'update', 'delete']) as privilege
    where n.nspname = ${schema} and not has_table_privilege(c.oid, privilege)
    order by 1`;
  return rows.map(({ missing }) => missing);
}
