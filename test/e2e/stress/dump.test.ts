/** `make dump` and `make load`: one state of a database in use, complete or not at all. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import type { Sql } from 'postgres';
import { dump, load } from '../../../scripts/dump.ts';
import { createDatabase, createEmptyDatabase } from '../../support/database.ts';
import { makeDirectory } from '../../support/directories.ts';
import { logIn, startGatehouse } from '../../support/gatehouse.ts';
import { buildProgram, runProgram } from '../../support/process.ts';
import { test } from '../../support/until.ts';
import { startLoad } from '../faults/load/load.ts';
import { stopInOrder } from '../faults/scenario.ts';
import { SERVICES, startServices } from '../faults/system.ts';

const directory = makeDirectory({ after }, 'dump');

/** Characters that end a line or a column somewhere. */
const ODD =
  'tab \t, backslash \\, \\., \\N, newline \n, CR \r, U+2028 \u2028, U+0085 \u0085, € 𝄞, "quote", \'apostrophe\'';

/** A digest of every row of each table. */
async function contents(sql: Sql): Promise<Readonly<Record<string, string>>> {
  const tables = await sql<Array<{ name: string }>>`
    select format('%I.%I', schemaname, tablename) as name from pg_tables
    where schemaname in ('identity', 'secrets', 'webhook') and tablename <> 'migrations'
    order by 1`;
  const digests: Record<string, string> = {};
  for (const { name } of tables) {
    const [row] = await sql.unsafe(
      `select count(*) || ' ' || coalesce(md5(string_agg(t::text, '|' order by t::text)), '') as digest from ${name} t`,
    );
    digests[name] = String(row?.digest);
  }
  return digests;
}

test('a dump under load is one state, and its copy serves', async (t) => {
  const source = await createDatabase(t);
  const live = await startServices(t, source.url, () => source.url);
  const clients = await startLoad(t, live);
  await clients.progress(50);
  const early = join(directory, 'early.dump');
  await dump(source.url, early);
  // What refers to another table's row was written after it: a mixture of two states would be
  // rejected.
  const mixed = await createEmptyDatabase(t);
  await load(mixed.url, early);
  await clients.stop();
  t.diagnostic(await clients.check());
  await stopInOrder(SERVICES.map(live.running));
  await source.sql`update identity.users set first_name = ${ODD} where username = 'admin'`;

  const late = join(directory, 'late.dump');
  await dump(source.url, late);
  assert.equal(statSync(late).mode & 0o777, 0o600);
  const copy = await createEmptyDatabase(t);
  await load(copy.url, late);
  const expected = await contents(source.sql);
  assert.deepEqual(await contents(copy.sql), expected);
  assert.deepEqual(
    [...(await copy.sql`select sequencename from pg_sequences`)],
    [],
    'a sequence would have to be dumped, too',
  );
  assert.ok(Object.keys(expected).length >= 20, 'every table is compared');
  const program = buildProgram();
  const { code, stdout } = await runProgram(t, program, ['migrate'], { DATABASE_URL: copy.url });
  assert.deepEqual(
    [code, stdout],
    [0, 'identity: is up to date\nsecrets: is up to date\nwebhook: is up to date\n'],
  );
  const again = await startGatehouse(t, SERVICES, copy.url);
  assert.ok(await logIn(again.url.identity));
});

test('the embedded database of make start: load, and dump again', async (t) => {
  const source = await createDatabase(t);
  await source.sql`insert into secrets.throttles (key, attempts, window_ends_at) values ('\\x00ff', 2, now())`;
  const file = join(directory, 'moved.dump');
  await dump(source.url, file);
  const checkout = makeDirectory(t, 'checkout');
  for (const name of ['scripts', 'src'])
    cpSync(join(import.meta.dirname, '../../..', name), join(checkout, name), { recursive: true });
  symlinkSync(join(import.meta.dirname, '../../../node_modules'), join(checkout, 'node_modules'));
  writeFileSync(join(checkout, 'package.json'), '{"type":"module"}');
  const run = (action: string, path: string) =>
    spawnSync('node', ['--import', 'tsx', 'scripts/dump.ts', action, path], {
      cwd: checkout,
      encoding: 'utf8',
      env: { PATH: process.env.PATH },
    });
  const loaded = run('load', file);
  assert.deepEqual([loaded.status, loaded.stderr], [0, '']);
  const again = join(checkout, 'again.dump');
  const dumped = run('dump', again);
  assert.deepEqual([dumped.status, dumped.stderr], [0, '']);
  const sorted = (path: string) => readFileSync(path, 'utf8').split('\n').sort();
  assert.deepEqual(sorted(again), sorted(file));
  assert.match(loaded.stdout, /^[1-9][0-9]* rows read from /);
});

test('a file that is not complete, not a dump, or of a newer release changes nothing', async (t) => {
  const source = await createDatabase(t);
  const whole = join(directory, 'whole.dump');
  await dump(source.url, whole);
  const text = readFileSync(whole, 'utf8');
  for (const [name, content, message] of [
    ['cut', text.slice(0, text.lastIndexOf('{')), /The file is not complete/],
    ['cut-value', text.slice(0, -3), /The file is not complete/],
    ['cut-row', `${text.slice(0, text.search(/^\[/m) + 5)}\n`, /The file is not complete/],
    ['empty', '', /was not written by "make dump"/],
    ['other', 'drop schema identity;\n', /was not written by "make dump"/],
    [
      'newer',
      text.replace(/"webhook":\[/, '"webhook":["a later step",'),
      /is of another release: this one does not know the step "a later step" of webhook/,
    ],
    [
      'foreign',
      text.replace('"table":"identity.users"', '"table":"pg_catalog.pg_authid"'),
      /a table that does not fit: pg_catalog\.pg_authid/,
    ],
    [
      'wrong-row',
      text.replace(/("table":"identity.users".*\n)/, '$1["no such row"]\n'),
      /SQLSTATE 2|is not complete/,
    ],
    ['lost-row', text.replace(/^\[.*\n/m, ''), /The file is not complete/],
  ] as const) {
    const file = join(directory, name);
    writeFileSync(file, content);
    const target = await createEmptyDatabase(t);
    await assert.rejects(load(target.url, file), message, name);
    const left =
      await target.sql`select from pg_namespace where nspname in ${target.sql(SERVICES)}`;
    assert.equal(left.length, 0, name);
  }
});

test('a database with data is not loaded into, a file is not overwritten, and a failure leaves none', async (t) => {
  const source = await createDatabase(t);
  const file = join(directory, 'once.dump');
  await dump(source.url, file);
  const before = [readFileSync(file, 'utf8'), await contents(source.sql)];
  await assert.rejects(dump(source.url, file), /exists\. Name a new file/);
  await assert.rejects(
    load(source.url, file),
    /The database has a schema "identity" already\. Load into a new database\./,
  );
  assert.deepEqual([readFileSync(file, 'utf8'), await contents(source.sql)], before);
  const none = join(directory, 'none.dump');
  const empty = await createEmptyDatabase(t);
  await assert.rejects(dump(empty.url, none), /has no schema of Gatehouse/);
  await assert.rejects(dump('nonsense', none), /DATABASE_URL must be postgres:/);
  assert.deepEqual([existsSync(none), existsSync(`${none}.part`)], [false, false]);
});
