/** A database per test file, on the PostgreSQL of the run. */
import { randomBytes } from 'node:crypto';
import { after } from 'node:test';
import type { Sql } from 'postgres';
import { connect, databaseUrl } from '../../scripts/postgres.ts';
import type { Owner } from './owner.ts';

export interface TestDatabase {
  url: string;
  /** One connection, for looking at what the code under test has done. */
  sql: Sql;
  drop(): Promise<void>;
}

/**
 * A copy of the database that `make test` migrates once per run. At a file's top level it lives
 * until the file's tests have ended; given a test's context, as long as that test. (In a `before`
 * hook, `after` would mean the hook's end.)
 */
export const createDatabase = (t: Owner = { after }): Promise<TestDatabase> =>
  create(t, process.env.TEST_TEMPLATE);

/** A database without any schema, for tests of the migrations and of a first start. */
export const createEmptyDatabase = (t: Owner = { after }): Promise<TestDatabase> =>
  create(t, 'template0');

/** A copy of a database without connections, as a backup restores it. */
export const copyDatabase = (url: string, t: Owner = { after }): Promise<TestDatabase> =>
  create(t, new URL(url).pathname.slice(1));

async function create(t: Owner, template: string | undefined): Promise<TestDatabase> {
  const undo: Array<() => Promise<unknown>> = [];
  const drop = async () => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  // Before anything is awaited: only until then does node:test know which test or file is asking.
  t.after(drop);

  const server = process.env.TEST_POSTGRES_URL;
  if (!server || !template)
    throw new Error('This test needs the PostgreSQL of a run: make test FILES="…"');
  const name = `test_${randomBytes(8).toString('hex')}`;
  // Workers of Citus know a database by the name that it has on the coordinator.
  const workers = process.env.TEST_WORKER_URLS?.split(' ') ?? [];
  for (const node of [server, ...workers]) {
    // One connection for both: PostgreSQL starts a process for each.
    const maintenance = connect(node);
    undo.push(() => maintenance.end());
    // Copying files takes two thirds of the time of copying by the log.
    await maintenance`create database ${maintenance(name)} template ${maintenance(template)}
      strategy file_copy`;
    undo.push(() => maintenance`drop database ${maintenance(name)} with (force)`);
  }
  const url = databaseUrl(server, name);
  const sql = connect(url);
  undo.push(() => sql.end());
  return { url, sql, drop };
}
