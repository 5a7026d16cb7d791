/**
 * `make schema`: writes docs/schema.sql, the schemas of the services after all steps, on a
 * PostgreSQL of its own. A test compares the file.
 */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Sql } from 'postgres';
import { arrayLiteral } from '../src/platform/db/sql.ts';
import { startPostgres, withConnection } from './postgres.ts';
import { root } from './reading.ts';
import { runMain } from './setup-error.ts';
import { makeTemporary, removeTemporary } from './temporary.ts';

export const SCHEMA_FILE = 'docs/schema.sql';
const SCHEMAS = arrayLiteral(['identity', 'secrets', 'webhook']);
const HEAD =
  '-- The schemas after all steps, as the catalogs of PostgreSQL have them. Written by: make schema\n';

interface Relation {
  readonly name: string;
  /** Of a view. */
  readonly query: string | null;
  /** Columns and constraints. */
  readonly lines: readonly string[];
  readonly options: string;
  readonly indexes: readonly string[];
}

/** @returns what the catalogs hold of tables, views and functions, in a form like SQL */
export async function describeSchemas(sql: Sql): Promise<string> {
  const relations = await sql<Relation[]>`
    select format('%I.%I', n.nspname, c.relname) as name,
      case c.relkind when 'v' then pg_get_viewdef(c.oid, true) end as query,
      coalesce(' with (' || array_to_string(c.reloptions, ', ') || ')', '') as options,
      (select json_agg(line order by kind, at, line) from (
        select 1 as kind, attnum as at, format('%I %s', attname, format_type(atttypid, atttypmod))
          || coalesce(case attgenerated when 's' then ' generated always as ' else ' default ' end
            || pg_get_expr(adbin, adrelid), '')
          || case when attnotnull then ' not null' else '' end as line
        from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum
        where attrelid = c.oid and attnum > 0 and not attisdropped
        union all
        -- From PostgreSQL 18 on, "not null" is a constraint, too.
        select 2, 0, format('constraint %I %s', conname, pg_get_constraintdef(oid))
        from pg_constraint where conrelid = c.oid and contype <> 'n') as lines) as lines,
      (select coalesce(json_agg(pg_get_indexdef(indexrelid)
          order by indexrelid::regclass::text), '[]')
        from pg_index
        where indrelid = c.oid
          and not exists (select from pg_constraint where conindid = indexrelid)) as indexes
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = any (${SCHEMAS}::text::text[]) and c.relkind in ('r', 'v')
    order by 1`;
  const functions = await sql<Array<{ text: string }>>`
    select pg_get_functiondef(oid) as text from pg_proc
    where pronamespace::regnamespace::text = any (${SCHEMAS}::text::text[]) and prokind = 'f'
    order by oid::regprocedure::text`;
  const texts = [...relations.map(textOf), ...functions.map(({ text }) => `\n${text};\n`)];
  return HEAD + texts.join('');
}

function textOf({ name, query, lines, options, indexes }: Relation): string {
  if (query !== null) return `\ncreate view ${name} as\n${query}\n`;
  const table = `\ncreate table ${name} (\n  ${lines.join(',\n  ')}\n)${options};\n`;
  return table + indexes.map((index) => `${index};\n`).join('');
}

async function main(): Promise<number> {
  const directory = makeTemporary(tmpdir(), 'gatehouse-schema');
  try {
    const server = await startPostgres({ directory, durable: false });
    try {
      const migrate = ['--import', 'tsx', 'src/cli.ts', 'migrate'];
      const env = { ...process.env, DATABASE_URL: server.url };
      execFileSync(process.execPath, migrate, { cwd: root, env });
      const text = await withConnection(server.url, describeSchemas);
      writeFileSync(join(root, SCHEMA_FILE), text);
    } finally {
      await server.stop();
    }
  } finally {
    removeTemporary(directory);
  }
  return 0;
}

if (process.argv[1] === import.meta.filename) await runMain(main);
