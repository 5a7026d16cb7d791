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

  const server = await place();
  const name = `test_${randomBytes(8).toString('hex')}`;
  await execute(server, (sql) => sql`create database ${sql(name)} template template0`);
  undo.push(() => execute(server, (sql) => sql`drop database ${sql(name)} with (force)`));
  const url = databaseUrl(server, name);
  const sql = connect(url);
  undo.push(() => sql.end());
  return { url, sql, drop };
}

async function execute(url: string, statement: (sql: Sql) => Promise<unknown>): Promise<void> {
  const sql = connect(url);
  try {
    await statement(sql);
  } finally {
    await sql.end();
  }
}

let own: Promise<string> | undefined;

/** The server of the run, or one for a test file that is run by itself. */
function place(): Promise<string> {
  const given = process.env.TEST_POSTGRES_URL;
  return given ? Promise.resolve(given) : (own ??= startOwn());
}

async function startOwn(): Promise<string> {
  const directory = makeTemporary(tmpdir(), 'gatehouse-test');
  const running = await startPostgres({ directory, durable: false, maxConnections: 300 });
  running.unref();
  // All tests have ended when this process has nothing left to do.
  process.once('beforeExit', async () => {
    await running.stop();
    removeTemporary(directory);
  });
  return running.url;
}
