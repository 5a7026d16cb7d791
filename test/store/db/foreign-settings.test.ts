/**
 * Settings of the role, the database or the server that change the form or the meaning of values:
 * the services return the same as without them.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { Sql } from 'postgres';
import { dump, load } from '../../../scripts/dump.ts';
import { databaseUrl, withConnection } from '../../../scripts/postgres.ts';
import { createEmptyDatabase } from '../../support/database.ts';
import { ask as askDatabase, openConnections, PURPOSES } from '../../support/connections.ts';
import { runCommand } from '../../support/commands.ts';
import { makeDirectory } from '../../support/directories.ts';
import { ask, logIn, startGatehouse, variables, WEBHOOK_TOKEN } from '../../support/gatehouse.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { secretsClient } from '../../support/secrets.ts';
import { SERVICES } from '../../support/settings.ts';
import { until } from '../../support/until.ts';

/** A function that a program of the same database may have: it hides one of PostgreSQL. */
const HIDING = `
  create schema if not exists oracle;
  create or replace function oracle.now() returns timestamptz language sql
    as $$ select timestamptz '2000-01-01' $$`;

/** Other values of settings, in SQL. */
const FOREIGN: Readonly<Record<string, readonly string[]>> = {
  bytea_output: ["'escape'"],
  datestyle: ["'German'", "'SQL, DMY'", "'Postgres, YMD'"],
  intervalstyle: ["'iso_8601'", "'sql_standard'"],
  timezone: ["'Asia/Kathmandu'"],
  timezone_abbreviations: ["'Australia'"],
  extra_float_digits: ["'-15'"],
  array_nulls: ['off'],
  client_encoding: ["'LATIN1'"],
  standard_conforming_strings: ['off'],
  quote_all_identifiers: ['on'],
  search_path: ['oracle, pg_catalog'],
  synchronous_commit: ['off'],
  gin_fuzzy_search_limit: ['1'],
  default_transaction_isolation: ["'serializable'", "'repeatable read'"],
  default_transaction_deferrable: ['on'],
  // Long: they hold until the first statement of a connection has changed them.
  lock_timeout: ["'1min'"],
  idle_session_timeout: ["'1min'"],
  idle_in_transaction_session_timeout: ["'1min'"],
  transaction_timeout: ["'1min'"],
  statement_timeout: ["'1min'"],
  transform_null_equals: ['on'],
  backslash_quote: ['on'],
  xmlbinary: ['hex'],
  lc_numeric: ["'C'"],
  plan_cache_mode: ['force_custom_plan'],
  row_security: ['off'],
};

/**
 * Creates the function, and sets each setting that this server knows, to its last value at most.
 */
async function setAll(sql: Sql, at = 0) {
  await sql.unsafe(HIDING);
  const rows = await sql<Array<{ name: string }>>`select lower(name) as name from pg_settings`;
  for (const { name } of rows) {
    const values = FOREIGN[name] ?? [];
    const value = values[at] ?? values.at(-1);
    if (value !== undefined) await set(sql, name, value);
  }
}

/** For connections that begin later. */
async function set(sql: Sql, setting: string, value: string) {
  const [row] = await sql`select current_database() as name`;
  await sql.unsafe(`alter database ${row?.name} set ${setting} = ${value}`);
}

const BODY =
  '{ "event": "page.updated",\n  "data": { "page_id": "\\u00fc 42", "text": "é € 𝄞 \\\\x" } }';
const PASSWORD = "p\\x41 'ä' € 𝄞";

function assertNear(time: unknown, seconds = 0) {
  const differenceMs = Math.abs(Date.parse(String(time)) - Date.now() - seconds * 1_000);
  assert.ok(differenceMs < 600_000, String(time));
}

/** What users do with all services. Fails where a value is not what it was. */
async function useAll(t: TestContext, url: string) {
  const target = await startRecorder(t);
  target.answer(reply(200, ''));
  const { url: at, log } = await startGatehouse(t, SERVICES, url, {
    WEBHOOK_FORWARD_URL: target.url,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    SESSION_TTL: '3600',
  });
  const command = async (...words: string[]) => {
    const { code, stdout, stderr } = await runCommand([...words, '--json'], variables(url));
    assert.equal(code, 0, stderr);
    return JSON.parse(stdout);
  };

  const bearer = await logIn(at.identity);
  const list = await ask('GET', `${at.identity}/api/session/?limit=1`, { bearer });
  assertNear(list.json.data[0].created_at);
  assertNear(list.json.data[0].expires_at, 3_600);
  const [entry] = await command('audit', 'list');
  assertNear(entry.created_at);

  const secrets = secretsClient(at.secrets);
  const kept = await secrets.keep(PASSWORD, { expires_in: 7_200, max_reads: 2 });
  assertNear(kept.expires_at, 7_200);
  assert.equal((await secrets.decrypt(kept.id, kept.secret)).json.password, PASSWORD);
  assertNear((await secrets.receipt(kept.id)).json.created_at);

  const sent = await ask('POST', `${at.webhook}/webhook`, { bearer: WEBHOOK_TOKEN, body: BODY });
  assert.equal(sent.status, 200, sent.text);
  await until(() => target.received.length > 0, 'the delivery');
  const { event, body } = await command('event', 'show', sent.json.id);
  assertNear(event.received_at);
  assert.deepEqual([target.received[0]?.body, body], [BODY, BODY]);
  assert.deepEqual(
    log().filter(({ level }) => level === 'error'),
    [],
  );
}

test('settings of the database change nothing from the first start on, and nothing in a dump', async (t) => {
  const source = await createEmptyDatabase(t);
  const copy = await createEmptyDatabase(t);
  const plain = await createEmptyDatabase(t);
  await setAll(source.sql);
  await setAll(copy.sql);
  await useAll(t, source.url);
  const directory = makeDirectory(t, 'foreign-dump');
  const dumped = async (url: string, name: string) => {
    const file = join(directory, name);
    await dump(url, file);
    return readFileSync(file, 'utf8').split('\n').sort();
  };
  const lines = await dumped(source.url, 'source');
  for (const [name, { url }] of Object.entries({ copy, plain })) {
    await load(url, join(directory, 'source'));
    assert.deepEqual(await dumped(url, name), lines, name);
  }
});

test('no value of a setting changes the form or the meaning of values', async (t) => {
  const { sql, url } = await createEmptyDatabase(t);
  const statement = `
    select '\\x00ff'::bytea as bytes, timestamptz '2026-12-11 10:09:08.007Z' as time,
      (timestamptz '2026-12-11 10:09:08.007Z')::text as time_text, (interval '26 h')::text as span,
      '{NULL}'::text[] is not null and ('{NULL}'::text[])[1] is null as has_null,
      (0.1::float8 + 0.2)::text as number, quote_ident('plain') as name, '\\a' as backslash,
      now() > timestamptz '2020-01-01 00:00Z' as is_now, '€' as text,
      json_build_object('bytes', '\\x00ff'::bytea) as json,
      current_setting('transaction_isolation') as isolation,
      current_setting('application_name') as application,
      json_build_object('idle', current_setting('idle_in_transaction_session_timeout'),
        'statement', current_setting('statement_timeout'),
        'commit', current_setting('synchronous_commit')) as limits,
      (select json_object_agg(name, current_setting(name, true) order by name)
        from unnest('{lock_timeout,idle_session_timeout,idle_in_transaction_session_timeout,
          transaction_timeout,statement_timeout,synchronous_commit}'::text[]) as name) as settings`;
  const usual = openConnections(t, url, 'settings');
  const expected = new Map<string, Record<string, unknown>>();
  for (const purpose of PURPOSES)
    expected.set(purpose, await askDatabase(usual, purpose, statement));
  const { bytes, time, isolation, application, limits } = expected.get('list') ?? {};
  assert.deepEqual(
    [bytes, time, isolation, application, limits],
    [
      Buffer.of(0, 255),
      new Date('2026-12-11T10:09:08.007Z'),
      'read committed',
      'gatehouse-settings',
      { idle: '10s', statement: '10s', commit: 'on' },
    ],
  );
  // All at once: each connection is new, and none of them hides another.
  for (const round of [0, 1, 2]) {
    await setAll(sql, round);
    const database = openConnections(t, url, 'settings');
    for (const purpose of PURPOSES) {
      const found = await askDatabase(database, purpose, statement);
      assert.deepEqual(found, expected.get(purpose), `round ${round}, ${purpose}`);
    }
    await database.close();
  }
});

test('a value in another form is an error, not another value', async (t) => {
  const { url } = await createEmptyDatabase(t);
  const database = openConnections(t, url, 'changed');
  for (const columns of [
    "set_config('bytea_output', 'escape', false), '\\x4142'::bytea",
    "set_config('datestyle', 'SQL, DMY', false), timestamptz '2026-12-11'",
    "set_config('datestyle', 'German', false), date '2026-12-11'",
  ]) {
    const message = 'the database returned a value in an unknown form';
    await assert.rejects(askDatabase(database, 'read', `select ${columns}`), { message });
  }
  assert.deepEqual(await askDatabase(database, 'read', 'select 1 as value'), { value: 1 });
});

test('in a database whose encoding lacks characters, nothing starts', async (t) => {
  const name = `latin_${process.pid}`;
  const server = process.env.TEST_POSTGRES_URL ?? '';
  const run = (statement: string) => withConnection(server, (sql) => sql.unsafe(statement));
  t.after(() => run(`drop database ${name} with (force)`));
  await run(`create database ${name} template template0 encoding 'LATIN1' lc_collate 'C'
    lc_ctype 'C'`);
  await assert.rejects(startGatehouse(t, ['webhook'], databaseUrl(server, name)), {
    message:
      'webhook: the encoding of the database lacks characters; create a database with the encoding UTF8.',
  });
});

test('without foreign keys, nothing starts, and check says why', async (t) => {
  const { sql, url } = await createEmptyDatabase(t);
  await set(sql, 'session_replication_role', 'replica');
  const message =
    'the database does not check foreign keys; reset session_replication_role of the role, the database and the server';
  await assert.rejects(startGatehouse(t, ['identity'], url), { message: `identity: ${message}.` });
  const { code, stdout } = await runCommand(['check', 'identity'], variables(url));
  assert.deepEqual([code, stdout.includes(message)], [1, true], stdout);
});
