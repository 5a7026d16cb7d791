/**
 * Schemas are brought up to date by any number of replicas, one step at a time, whole or not at
 * all. The steps of the schemas are files of SQL, and docs/schema.sql is what they make.
 */
import assert from 'node:assert/strict';
import { writeFileSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, type TestContext } from 'node:test';
import { pathToFileURL } from 'node:url';
import { connect } from '../../../scripts/postgres.ts';
import { describeSchemas, SCHEMA_FILE } from '../../../scripts/schema.ts';
import { SCHEMA as IDENTITY } from '../../../src/identity/migrations.ts';
import { isCurrent, migrate, requireCurrent } from '../../../src/platform/db/schema.ts';
import { SCHEMA as SECRETS } from '../../../src/secrets/migrations.ts';
import { SCHEMA as WEBHOOK } from '../../../src/webhook/migrations.ts';
import { openConnections, untilSql } from '../../support/connections.ts';
import { createDatabase, createEmptyDatabase } from '../../support/database.ts';
import { makeDirectory } from '../../support/directories.ts';
import { root } from '../../support/process.ts';
import { test } from '../../support/until.ts';

const folder = makeDirectory({ after }, 'steps');

/** Each step leaves a row behind, so that one which ran twice would be seen. */
const STEPS = {
  first: `create table house.traces (step integer); insert into house.traces values (1)`,
  second: `insert into house.traces values (2); alter table house.traces add column note text`,
  third: 'insert into house.traces values (3)',
  newer: 'select 1',
  // A sequence counts the tries: what it gives out is not taken back.
  broken: `select nextval('tries'); insert into house.traces values (4); create nonsense`,
  twice: `select nextval('tries'); insert into house.traces values (4);
    create unique index on house.traces ((step * 0))`,
};
for (const [name, text] of Object.entries(STEPS)) writeFileSync(join(folder, `${name}.sql`), text);
type Step = keyof typeof STEPS;
const house = (...steps: readonly Step[]) => ({
  name: 'house',
  folder: pathToFileURL(`${folder}/`),
  steps,
});
const ALL = ['first', 'second', 'third'] as const;

async function createHouse(t: TestContext) {
  const { url, sql } = await createEmptyDatabase(t);
  const open = () => openConnections(t, url, 'house');
  const database = open();
  const traces = async () =>
    (await sql`select step from house.traces order by step`).map(({ step }) => step);
  return {
    url,
    sql,
    open,
    traces,
    migrateTo: (...steps: Step[]) => migrate(database, house(...steps)),
    database,
  };
}

test('eight replicas on an empty database apply each step once, and none fails', async (t) => {
  const { sql, open, traces } = await createHouse(t);
  const replicas = Array.from({ length: 8 }, () => migrate(open(), house(...ALL)));
  const applied = (await Promise.all(replicas)).reduce((sum, count) => sum + count);
  assert.deepEqual([applied, await traces()], [3, [1, 2, 3]]);
  const ledger = await sql`select version, name from house.migrations order by version`;
  assert.deepEqual(
    ledger.map(({ version, name }) => `${version} ${name}`),
    ['1 first', '2 second', '3 third'],
  );
});

test('what is new is applied; a schema is current with all steps or more, not with fewer', async (t) => {
  const { sql, database, traces, migrateTo } = await createHouse(t);
  const isUpToDate = () => isCurrent(database, house(...ALL));
  assert.equal(await isUpToDate(), false, 'nothing is there');
  await sql`create schema house`;
  assert.equal(await isUpToDate(), false, 'an empty schema');
  assert.deepEqual([await migrateTo('first', 'second'), await isUpToDate()], [2, false]);
  const outdated = { message: /run "gatehouse migrate"/, isTemporary: true };
  await assert.rejects(requireCurrent(database, house(...ALL)), outdated);
  assert.deepEqual([await migrateTo('first', 'second'), await migrateTo(...ALL)], [0, 1]);
  assert.equal(await isUpToDate(), true);
  assert.deepEqual([await migrateTo(...ALL, 'newer'), await migrateTo('first')], [1, 0]);
  await requireCurrent(database, house(...ALL));
  assert.deepEqual(await traces(), [1, 2, 3]);
});

test('a step that waits for a table lets other statements pass, and succeeds later', async (t) => {
  const { url, sql, traces, migrateTo } = await createHouse(t);
  await migrateTo('first');
  const reader = connect(url);
  t.after(() => reader.end({ timeout: 0 }));
  await reader`begin`;
  await reader`select from house.traces`;
  const applied = migrateTo(...ALL);
  const isWaiting = async () =>
    (
      await sql`select from pg_locks l join pg_database d on d.oid = l.database
        where not granted and mode = 'AccessExclusiveLock' and datname = current_database()`
    ).length > 0;
  for (let round = 0; round < 2; round += 1) {
    await untilSql(isWaiting, 'the step waits');
    // It stands in a queue behind the step, and ends although the reader is still there.
    await sql`insert into house.traces values (10)`;
  }
  await reader`commit`;
  assert.deepEqual([await applied, await traces()], [2, [1, 2, 3, 10, 10]]);
});

test('a role without DDL privileges creates no schema, and finds one that is current', async (t) => {
  const { url, sql, migrateTo } = await createHouse(t);
  const role = `reader_${new URL(url).pathname.slice(1)}`;
  await sql.unsafe(`create role ${role} login password 'word'`);
  const own = Object.assign(new URL(url), { username: role, password: 'word' });
  const reader = openConnections(t, own.href, 'reader');
  await assert.rejects(migrate(reader, house(...ALL)), /SQLSTATE 42501/);
  await migrateTo(...ALL);
  await sql.unsafe(`grant usage on schema house to ${role};
    grant select on all tables in schema house to ${role}`);
  const applied = await migrate(reader, house(...ALL));
  // Roles belong to the whole server, so this one does not go with the database.
  await sql.unsafe(`drop owned by ${role}; drop role ${role}`);
  assert.equal(applied, 0);
});

for (const step of ['broken', 'twice'] as const) {
  test(`a ${step} step fails once and leaves nothing behind`, async (t) => {
    const { sql, traces, migrateTo } = await createHouse(t);
    await migrateTo('first');
    await sql`create sequence tries`;
    let isOver = false;
    const attempt = assert.rejects(migrateTo('first', step)).finally(() => {
      isOver = true;
    });
    const tries = async () => (await sql`select last_value::int from tries`)[0]?.last_value;
    await untilSql(async () => isOver || (await tries()) > 5, 'it failed or was tried again');
    assert.equal(await tries(), 1);
    // Without its sequence, the step fails in a way that ends any loop.
    await sql`drop sequence tries`;
    await attempt;
    const [{ version } = {}] = await sql`select max(version) as version from house.migrations`;
    assert.deepEqual([version, await traces()], [1, [1]]);
  });
}

const SCHEMAS = [IDENTITY, SECRETS, WEBHOOK];
const described = readFileSync(join(root, SCHEMA_FILE), 'utf8');

test('each file of a schema is a step, and there is no other', () => {
  for (const { folder: files, steps } of SCHEMAS) {
    const names = steps.map((step) => `${step}.sql`);
    assert.deepEqual(readdirSync(files).sort(), names);
  }
});

test('docs/schema.sql describes the migrated schemas', async (t) => {
  const { sql } = await createDatabase(t);
  assert.equal(await describeSchemas(sql), described, 'run: make schema');
});

test('without the program, the files make the same on an empty database, as psql -f runs them', async (t) => {
  const { sql } = await createEmptyDatabase(t);
  for (const { folder: files, steps } of SCHEMAS)
    for (const step of steps)
      await sql.unsafe(readFileSync(new URL(`${step}.sql`, files), 'utf8')).simple();
  // The program keeps the numbers of the steps that it has applied in a table of its own.
  const ledgers = /\ncreate table \w+\.migrations \([^;]*;\n/g;
  assert.equal(described.match(ledgers)?.length, SCHEMAS.length);
  assert.equal(await describeSchemas(sql), described.replace(ledgers, ''));
});
