/**
 * Schemas are brought up to date by any number of replicas, one step at a time, whole or not at
 * all. The steps of the schemas are files of SQL, and docs/schema.sql is what they make.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, type TestContext } from 'node:test';
import { pathToFileURL } from 'node:url';
import { connect } from '../../../scripts/postgres.ts';
import type { Database } from '../../../src/platform/db/pool.ts';
import {
  isCurrent,
  migrate,
  requireCurrent,
  type DatabaseSchema,
} from '../../../src/platform/db/schema.ts';
import { Unavailable } from '../../../src/platform/runtime/errors.ts';
import { createDatabase, type TestDatabase, createEmptyDatabase } from '../../support/database.ts';
import { openConnections, untilSql } from '../../support/connections.ts';
import { test } from '../../support/until.ts';
import { describeSchemas, SCHEMA_FILE } from '../../../scripts/schema.ts';
import { SCHEMA as IDENTITY } from '../../../src/identity/migrations.ts';
import { SCHEMA as SECRETS } from '../../../src/secrets/migrations.ts';
import { SCHEMA as WEBHOOK } from '../../../src/webhook/migrations.ts';
import { root } from '../../support/process.ts';

const folder = mkdtempSync(join(tmpdir(), 'gatehouse-steps-'));
after(() => rmSync(folder, { recursive: true }));

/** @returns the name of the step */
function writeStep(name: string, ...statements: readonly string[]): string {
  writeFileSync(join(folder, `${name}.sql`), statements.map((text) => `${text};\n`).join(''));
  return name;
}

/** Each step leaves a row behind, so that one which ran twice would be seen. */
const STEPS = [
  writeStep(
    'first',
    'create table house.locks (name text primary key, taken_at timestamptz not null)',
    'create table house.traces (step integer)',
    'insert into house.traces values (1)',
  ),
  writeStep(
    'second',
    'insert into house.traces values (2)',
    'alter table house.traces add column note text',
  ),
  writeStep('third', 'insert into house.traces values (3)'),
];
const house = (steps: readonly string[]): DatabaseSchema => ({
  name: 'house',
  folder: pathToFileURL(`${folder}/`),
  steps,
});
const HOUSE = house(STEPS);
const migrateTo = (database: Database, steps: readonly string[]) => migrate(database, house(steps));

const open = (t: TestContext, { url }: TestDatabase) => openConnections(t, url, 'house');
const traces = async ({ sql }: TestDatabase) =>
  (await sql<Array<{ step: number }>>`select step from house.traces order by step`).map(
    ({ step }) => step,
  );

test('eight replicas on an empty database apply each step once, and none fails', async (t) => {
  const file = await createDatabase(t);
  const replicas = Array.from({ length: 8 }, () => open(t, file));
  const applied = await Promise.all(replicas.map((replica) => migrateTo(replica, STEPS)));
  assert.equal(
    applied.reduce((sum, count) => sum + count),
    STEPS.length,
  );
  assert.deepEqual(await traces(file), [1, 2, 3]);
  const ledger = await file.sql`select version, name from house.migrations order by version`;
  assert.deepEqual(
    [...ledger],
    [
      { version: 1, name: 'first' },
      { version: 2, name: 'second' },
      { version: 3, name: 'third' },
    ],
  );
});

test('a current schema is left unchanged', async (t) => {
  const file = await createDatabase(t);
  const database = open(t, file);
  assert.equal(await migrateTo(database, STEPS.slice(0, 2)), 2);
  assert.equal(await migrateTo(database, STEPS.slice(0, 2)), 0);
  assert.equal(await migrateTo(database, STEPS), 1, 'only what is new is applied');
  assert.equal(
    await migrateTo(database, STEPS.slice(0, 1)),
    0,
    'an older program leaves newer steps alone',
  );
  assert.deepEqual(await traces(file), [1, 2, 3]);
});

test('a step that waits for a table lets other statements pass, and succeeds later', async (t) => {
  const file = await createDatabase(t);
  await migrateTo(open(t, file), STEPS.slice(0, 1));
  const other = connect(file.url);
  t.after(() => other.end({ timeout: 0 }));
  const reader = await other.reserve();
  await reader`begin`;
  await reader`select from house.traces`;
  const applied = migrateTo(open(t, file), STEPS);
  const waits = async () =>
    (
      await file.sql`select from pg_locks l join pg_database d on d.oid = l.database
          where not granted and mode = 'AccessExclusiveLock' and datname = current_database()`
    ).length > 0;
  for (let round = 0; round < 2; round += 1) {
    await untilSql(waits, 'the step waits');
    // It stands in a queue behind the step, and comes to its end although the reader is still
    // there.
    await file.sql.begin(async (sql) => {
      await sql`set local lock_timeout = '15s'`;
      await sql`insert into house.traces values (10)`;
    });
  }
  await reader`commit`;
  reader.release();
  assert.equal(await applied, 2);
  assert.deepEqual(await traces(file), [1, 2, 3, 10, 10], 'each once, however often it was tried');
});

test('a role without DDL privileges finds the schema current', async (t) => {
  const file = await createDatabase(t);
  await migrateTo(open(t, file), STEPS);
  const role = `reader_${process.pid}_${Date.now()}`;
  await file.sql.unsafe(
    `create role ${role} login password 'word'; grant usage on schema house to ${role};
      grant select on all tables in schema house to ${role}`,
  );
  const url = new URL(file.url);
  Object.assign(url, { username: role, password: 'word' });
  try {
    assert.equal(await migrateTo(openConnections(t, url.href, 'reader'), STEPS), 0);
  } finally {
    // Roles belong to the whole server, so this one does not go with the database.
    await file.sql.unsafe(`drop owned by ${role}; drop role ${role}`);
  }
});

const failing: ReadonlyArray<readonly [what: string, statement: string]> = [
  ['that PostgreSQL does not understand', 'create nonsense'],
  [
    'that runs into rows which are there',
    'create unique index traces_step on house.traces ((step * 0))',
  ],
];

for (const [what, statement] of failing) {
  test(`a step with a statement ${what} fails once and leaves nothing behind`, async (t) => {
    const file = await createDatabase(t);
    const database = open(t, file);
    await migrateTo(database, STEPS.slice(0, 1));
    // What a sequence gives out is not taken back when a transaction rolls back: it counts the
    // tries.
    await file.sql`create sequence tries`;
    const broken = writeStep(
      'broken',
      `select nextval('tries')`,
      'create table house.half (n integer)',
      'insert into house.traces values (4)',
      statement,
    );
    let outcome: unknown;
    const attempt = migrateTo(database, [...STEPS.slice(0, 1), broken]).then(
      () => {
        outcome = 'applied';
      },
      (error: unknown) => {
        outcome = error;
      },
    );
    const tries = async () => Number((await file.sql`select last_value from tries`)[0]?.last_value);
    await untilSql(
      async () => outcome !== undefined || (await tries()) > 5,
      'the step failed or was tried over and over',
    );
    const count = await tries();
    // Without its sequence, the step fails in a way that ends any loop.
    await file.sql`drop sequence tries`;
    await attempt;
    assert.equal(count, 1, 'tried over and over');
    assert.ok(outcome instanceof Unavailable || outcome instanceof Error, String(outcome));
    const [half] = await file.sql`select to_regclass('house.half') is null as gone,
        (select max(version) from house.migrations) as version`;
    assert.deepEqual({ ...half }, { gone: true, version: 1 });
    assert.deepEqual(await traces(file), [1]);
  });
}

test('a schema is current with all steps or more, not with fewer or none', async (t) => {
  const file = await createDatabase(t);
  const database = open(t, file);
  const judge = () => isCurrent(database, HOUSE);
  assert.equal(await judge(), false, 'nothing is there');
  await file.sql`create schema house`;
  assert.equal(await judge(), false, 'an empty schema');
  await migrateTo(database, STEPS.slice(0, 2));
  assert.equal(await judge(), false, 'a step is missing');
  await assert.rejects(
    requireCurrent(database, HOUSE),
    (error) =>
      error instanceof Unavailable &&
      error.isTemporary &&
      /run "gatehouse migrate"/.test(error.message),
  );
  await migrateTo(database, STEPS);
  assert.equal(await judge(), true);
  await migrateTo(database, [...STEPS, writeStep('newer', 'select 1')]);
  assert.equal(await judge(), true, 'a newer program was here');
  await requireCurrent(database, HOUSE);
});

const SCHEMAS = [IDENTITY, SECRETS, WEBHOOK];

const described = readFileSync(join(root, SCHEMA_FILE), 'utf8');

for (const { name, folder, steps } of SCHEMAS) {
  test(`each file of ${name} is a step, and there is no other`, () => {
    assert.deepEqual(
      readdirSync(folder).sort(),
      steps.map((step) => `${step}.sql`),
    );
  });
}

test('docs/schema.sql describes the migrated schemas', async (t) => {
  const { sql } = await createDatabase(t);
  assert.equal(await describeSchemas(sql), described, 'run: make schema');
});

test('without the program, the files make the same on an empty database, as psql -f runs them', async (t) => {
  const { sql } = await createEmptyDatabase(t);
  for (const { folder, steps } of SCHEMAS) {
    for (const step of steps) {
      await sql.unsafe(readFileSync(new URL(`${step}.sql`, folder), 'utf8')).simple();
    }
  }
  // The program keeps the numbers of the steps that it has applied in a table of its own.
  const ledgers = /\ncreate table \w+\.migrations \([^;]*;\n/g;
  assert.equal(described.match(ledgers)?.length, SCHEMAS.length);
  assert.equal(await describeSchemas(sql), described.replace(ledgers, ''));
});
