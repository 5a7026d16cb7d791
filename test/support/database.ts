/** A database per test file, on the PostgreSQL of the run. */
import { randomBytes } from 'node:crypto';
import { after } from 'node:test';
import { tmpdir } from 'node:os';
import type { Sql } from 'postgres';
import { connect, databaseUrl, startPostgres } from '../../scripts/postgres.ts';
import { makeTemporary, removeTemporary } from '../../scripts/temporary.ts';

export interface TestDatabase {
  url: string;
  /** One connection, for looking at what the code under test has done. */
  sql: Sql;
  drop(): Promise<void>;
}

/** Brings the template, from which every test database is copied, to the state that the tests expect. */
async function prepare(url: string): Promise<void> {
  void url;
}

/**
 * At a file's top level it lives until the file's tests have ended; given the context of a test, as long as that.
 * (Inside a `before` hook, node:test would take what `after` is told for the end of the hook.)
 */
export async function createDatabase(t: { after(fn: () => Promise<void>): void } = { after }): Promise<TestDatabase> {
  const undo: (() => Promise<unknown>)[] = [];
  const drop = async () => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  // Before anything is awaited: only until then does node:test know which test or file is asking.
  t.after(drop);

  const { server, template } = await place();
  const name = `test_${randomBytes(8).toString('hex')}`;
  await execute(server, (sql) => sql`create database ${sql(name)} template ${sql(template)}`);
  undo.push(() => execute(server, (sql) => sql`drop database ${sql(name)} with (force)`));
  const url = databaseUrl(server, name);
  const sql = connect(url);
  undo.push(() => sql.end());
  return { url, sql, drop };
}

/** Made once per run, before the test files, which only copy it. */
export async function createTemplate(server: string): Promise<string> {
  const name = `template_${randomBytes(8).toString('hex')}`;
  await execute(server, (sql) => sql`create database ${sql(name)} template template0`);
  await prepare(databaseUrl(server, name));
  // A database can be copied only while nobody is connected to it.
  await execute(server, (sql) => sql`alter database ${sql(name)} with allow_connections false`);
  return name;
}

export async function dropTemplate(server: string, name: string): Promise<void> {
  await execute(server, (sql) => sql`drop database ${sql(name)} with (force)`);
}

async function execute(url: string, statement: (sql: Sql) => Promise<unknown>): Promise<void> {
  const sql = connect(url);
  try {
    await statement(sql);
  } finally {
    await sql.end();
  }
}

interface Place {
  server: string;
  template: string;
}

let own: Promise<Place> | undefined;

function place(): Promise<Place> {
  const { TEST_POSTGRES_URL: server, TEST_POSTGRES_TEMPLATE: template } = process.env;
  if (server !== undefined && template !== undefined) return Promise.resolve({ server, template });
  own ??= startOwn(server);
  return own;
}

/** For a test file that is run by itself. */
async function startOwn(given: string | undefined): Promise<Place> {
  const directory = makeTemporary(tmpdir(), 'gatehouse-test');
  const running = given ? undefined : await startPostgres({ directory, durable: false, maxConnections: 300 });
  running?.unref();
  const server = running?.url ?? given ?? '';
  const template = await createTemplate(server);
  // All tests have ended when this process has nothing left to do.
  process.once('beforeExit', async () => {
    await dropTemplate(server, template);
    await running?.stop();
    removeTemporary(directory);
  });
  return { server, template };
}
