/**
 * `make dump` and `make load`: the data of Gatehouse as a file, without pg_dump, which the embedded
 * PostgreSQL of `make start` does not have.
 *
 *   node --import tsx scripts/dump.ts dump FILE   writes the database to a new file
 *   node --import tsx scripts/dump.ts load FILE   reads such a file into an empty database
 *
 * The database is that of DATABASE_URL, or the embedded one. A file has one JSON value per line:
 * the steps of each schema, then each table with its rows, as text. `load` applies the same steps
 * first, and `serve` the later ones. Not with COPY: the streams of `postgres` 3.4.9 for it may
 * hang, at the end of a table and after an error.
 */
import {
  createReadStream,
  createWriteStream,
  existsSync,
  readFileSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import { arrayLiteral } from '../src/platform/db/sql.ts';
import { createDatabase, type Database, type Sql } from '../src/platform/db/pool.ts';
import { type DatabaseAddress, readDatabase } from '../src/platform/db/url.ts';
import { migrate } from '../src/platform/db/schema.ts';
import { SCHEMA as IDENTITY } from '../src/identity/migrations.ts';
import { Unavailable } from '../src/platform/runtime/errors.ts';
import { createLog } from '../src/platform/runtime/log.ts';
import { createMetrics } from '../src/platform/runtime/metrics.ts';
import { Env } from '../src/platform/runtime/env.ts';
import { SCHEMA as SECRETS } from '../src/secrets/migrations.ts';
import { SCHEMA as WEBHOOK } from '../src/webhook/migrations.ts';
import { setting } from './summary.ts';
import { connect, databaseUrl, startPostgres } from './postgres.ts';
import { runMain, SetupError } from './setup-error.ts';

/** Names of the steps of each schema, in order. */
type Steps = Readonly<Record<string, readonly string[]>>;
type Row = ReadonlyArray<string | null>;
interface Column {
  /** Quoted, as in SQL. */
  readonly name: string;
  readonly type: string;
}
interface Table {
  readonly name: string;
  readonly columns: readonly Column[];
}

const SCHEMAS = [IDENTITY, SECRETS, WEBHOOK];
const MAX_ROWS = 500; // at once
const MAX_BYTES = 4 * 1024 * 1024;
const NEWLINE = 0x0a;

/** Writes one state of the database, while it is in use. @returns how many rows there are */
export async function dump(url: string, file: string): Promise<number> {
  if (existsSync(file)) throw new SetupError(`${file} exists. Name a new file.`);
  const part = `${file}.part`;
  const output = createWriteStream(part, { mode: 0o600 });
  const write = async (value: unknown): Promise<void> => {
    if (!output.write(`${JSON.stringify(value)}\n`)) await once(output, 'drain');
  };
  try {
    const rows = await withDatabase(url, (database) =>
      database.maintain((_sql, transaction) =>
        transaction(async (sql) => {
          // All tables are read as they are now.
          await sql`set transaction isolation level repeatable read read only`;
          const steps = await appliedSteps(sql);
          if (Object.keys(steps).length === 0)
            throw new SetupError('The database has no schema of Gatehouse.');
          await write({ gatehouse_dump: 1, steps });
          let count = 0;
          for (const { name, columns } of await tablesOf(sql, Object.keys(steps))) {
            await write({ table: name, columns: columns.map((column) => column.name) });
            const texts = columns.map((column) => `${column.name}::text`).join(', ');
            for await (const some of sql
              .unsafe<Row[]>(`select ${texts} from ${name}`)
              .values()
              .cursor(MAX_ROWS)) {
              for (const row of some) await write(row);
              count += some.length;
            }
          }
          await write({ rows: count });
          return count;
        }),
      ),
    );
    output.end();
    await once(output, 'close');
    renameSync(part, file);
    return rows;
  } catch (error) {
    output.destroy();
    rmSync(part, { force: true });
    throw error;
  }
}

/** Reads all of the file, or changes nothing. @returns how many rows there are */
export async function load(url: string, file: string): Promise<number> {
  const values = valuesOf(file);
  const first: unknown = (await values.next()).value;
  if (!isRecord(first) || first.gatehouse_dump !== 1)
    throw new SetupError(`${file} was not written by "make dump".`);
  const steps = readSteps(first.steps, file);
  const names = Object.keys(steps);
  return withDatabase(url, async (database) => {
    const present = Object.keys(await database.maintain(appliedSteps));
    const existing = names.find((name) => present.includes(name));
    if (existing !== undefined)
      throw new SetupError(
        `The database has a schema "${existing}" already. Load into a new database.`,
      );
    try {
      for (const schema of SCHEMAS) {
        const applied = steps[schema.name];
        if (applied) await migrate(database, { ...schema, steps: applied });
      }
      return await database.maintain((_sql, transaction) =>
        transaction((sql) => insertAll(sql, names, values)),
      );
    } catch (error) {
      // They did not exist before.
      await database.maintain((sql) =>
        sql.unsafe(names.map((name) => `drop schema if exists ${name} cascade`).join(';')),
      );
      throw error;
    }
  });
}

/** @returns the steps of the file, which this program must have */
function readSteps(given: unknown, file: string): Steps {
  const steps: Record<string, readonly string[]> = {};
  for (const [schema, names] of Object.entries(isRecord(given) ? given : {})) {
    const found = Array.isArray(names) ? names.map(String) : [];
    const known = SCHEMAS.find(({ name }) => name === schema)?.steps;
    const unknown = found.find((name, index) => known?.[index] !== name);
    if (!known || unknown !== undefined)
      throw new SetupError(
        `${file} is of another release: this one does not know the step "${unknown}" of ${schema}.`,
      );
    steps[schema] = found;
  }
  return steps;
}

async function insertAll(
  sql: Sql,
  schemas: readonly string[],
  values: AsyncGenerator<unknown, void>,
): Promise<number> {
  // In the order in which they are: each after those that it refers to.
  const tables = await tablesOf(sql, schemas);
  // The steps themselves insert some rows.
  await sql.unsafe(`truncate ${tables.map(({ name }) => name).join(', ')}`);
  let insert: ((rows: readonly Row[]) => Promise<void>) | undefined;
  let rows: Row[] = [];
  let bytes = 0;
  let count = 0;
  const flush = async () => {
    if (rows.length > 0) await insert?.(rows);
    rows = [];
    bytes = 0;
  };
  for await (const value of values) {
    if (Array.isArray(value)) {
      rows.push(value.map((one: unknown) => (one === null ? null : String(one))));
      bytes += rows.at(-1)?.reduce((sum, one) => sum + (one?.length ?? 0), 0) ?? 0;
      count += 1;
      if (rows.length >= MAX_ROWS || bytes >= MAX_BYTES) await flush();
      continue;
    }
    await flush();
    if (!isRecord(value)) break;
    // Only what came before this line can be missing.
    if (value.rows === count) return count;
    if (value.table === undefined) break;
    const table = tables.find(({ name }) => name === value.table);
    const listed = JSON.stringify(table?.columns.map(({ name }) => name));
    if (!table || listed !== JSON.stringify(value.columns))
      throw new SetupError(`The file has a table that does not fit: ${String(value.table)}.`);
    insert = (some) => insertRows(sql, table, some);
  }
  throw new SetupError('The file is not complete.');
}

async function insertRows(sql: Sql, { name, columns }: Table, rows: readonly Row[]): Promise<void> {
  const lists = columns.map((_column, index) =>
    arrayLiteral(rows.map((row) => row[index] ?? null)),
  );
  const parameters = columns.map((_column, index) => `$${index + 1}::text::text[]`).join(', ');
  const names = columns.map((column) => column.name).join(', ');
  const typed = columns.map((column) => `${column.name}::${column.type}`).join(', ');
  await sql.unsafe(
    `insert into ${name} (${names}) select ${typed} from unnest(${parameters}) as given (${names})`,
    lists,
  );
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** One value per line. Not `node:readline`, which also ends a line at U+2028. */
async function* valuesOf(file: string): AsyncGenerator<unknown, void> {
  let rest = Buffer.alloc(0);
  for await (const chunk of createReadStream(file)) {
    let data = Buffer.concat([rest, Buffer.from(chunk)]);
    for (let end = data.indexOf(NEWLINE); end >= 0; end = data.indexOf(NEWLINE)) {
      yield parsed(data.subarray(0, end).toString('utf8'));
      data = data.subarray(end + 1);
    }
    rest = data;
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

async function appliedSteps(sql: Sql): Promise<Steps> {
  const names = SCHEMAS.map(({ name }) => name);
  const found = await sql<Array<{ schema: string }>>`
    select schema from unnest(${arrayLiteral(names)}::text::text[]) as schema
    where to_regclass(schema || '.migrations') is not null order by 1`;
  const steps: Record<string, readonly string[]> = {};
  for (const { schema } of found) {
    const rows = await sql<
      Array<{ name: string }>
    >`select name from ${sql(schema)}.migrations order by version`;
    steps[schema] = rows.map(({ name }) => name);
  }
  return steps;
}

/** All tables but those of the steps, each after those that it refers to. */
async function tablesOf(sql: Sql, schemas: readonly string[]): Promise<readonly Table[]> {
  const tables = await sql<Array<Table & { id: string; needs: string[] }>>`
    select c.oid::text as id, format('%I.%I', n.nspname, c.relname) as name,
      (select json_agg(json_build_object('name', quote_ident(attname), 'type',
        format_type(atttypid, atttypmod)) order by attname)
        from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped
          and attgenerated = '') as columns,
      coalesce((select json_agg(confrelid::text) from pg_constraint
        where conrelid = c.oid and contype = 'f' and confrelid <> c.oid), '[]') as needs
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = any(${arrayLiteral(schemas)}::text::text[]) and c.relkind = 'r'
      and c.relname <> 'migrations' order by 2`;
  const ordered = new Set<(typeof tables)[number]>();
  const add = (table: (typeof tables)[number]): void => {
    for (const other of tables) if (table.needs.includes(other.id)) add(other);
    ordered.add(table);
  };
  for (const table of tables) add(table);
  return [...ordered];
}

async function withDatabase<T>(url: string, work: (database: Database) => Promise<T>): Promise<T> {
  const log = createLog('silent', () => {});
  const database = createDatabase(addressOf(url), 'dump', log, createMetrics());
  try {
    return await work(database);
  } catch (error) {
    throw error instanceof Unavailable ? new SetupError(error.message) : error;
  } finally {
    await database.close();
  }
}

function addressOf(url: string): DatabaseAddress {
  const env = new Env({ DATABASE_URL: url });
  const address = readDatabase(env, 'DATABASE_URL');
  for (const problem of env.problems.values()) throw new SetupError(problem);
  return address;
}

const root = dirname(import.meta.dirname);

/**
 * With the database of DATABASE_URL, or else the embedded one, which is started unless `make start`
 * runs.
 */
async function withUrl(work: (url: string) => Promise<void>): Promise<void> {
  const state = join(root, '.data');
  const running = join(state, 'database-url');
  const given =
    setting(process.env, 'DATABASE_URL') ??
    (existsSync(running) ? readFileSync(running, 'utf8').trim() : null);
  if (given !== null) return work(given);
  const server = await startPostgres({ directory: state, durable: true });
  try {
    const sql = connect(server.url);
    const [existing] = await sql`select from pg_database where datname = 'gatehouse'`;
    if (!existing) await sql`create database gatehouse`;
    await sql.end();
    await work(databaseUrl(server.url, 'gatehouse'));
  } finally {
    await server.stop();
  }
}

async function main([action, file]: readonly string[]): Promise<number> {
  if ((action !== 'dump' && action !== 'load') || !file)
    throw new SetupError('Name a file: make dump FILE=gatehouse.dump');
  await withUrl(async (url) => {
    const rows = await (action === 'dump' ? dump : load)(url, file);
    process.stdout.write(
      `${rows} rows ${action === 'dump' ? 'written to' : 'read from'} ${file}\n`,
    );
  });
  return 0;
}

if (process.argv[1] === import.meta.filename) await runMain(() => main(process.argv.slice(2)));
