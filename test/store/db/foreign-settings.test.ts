/**
 * Settings of the role, the database and the server that change the form or the meaning of values:
 * each service returns the same as without them.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { Sql } from 'postgres';
import { dump, load } from '../../../scripts/dump.ts';
import { databaseUrl, startPostgres, withConnection } from '../../../scripts/postgres.ts';
import { createDatabase, createEmptyDatabase } from '../../support/database.ts';
import {
  ask as askDatabase,
  changeSettings,
  openConnections,
  PURPOSES,
} from '../../support/connections.ts';
import { runCommand } from '../../support/commands.ts';
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

type Setting = readonly [name: string, value: string];
const FIRST_VALUES: readonly Setting[] = Object.entries(FOREIGN).map(([name, [value = '']]) => [
  name,
  value,
]);

/** Settings that this server knows. */
async function known(sql: Sql, settings: readonly Setting[]) {
  const rows = await sql<Array<{ name: string }>>`select lower(name) as name from pg_settings`;
  const names = new Set(rows.map(({ name }) => name));
  return settings.filter(([name]) => names.has(name));
}

const BODY =
  '{ "event": "page.updated",\n  "data": { "page_id": "\\u00fc 42", "text": "é € 𝄞 \\\\x" } }';
const PASSWORD = "p\\x41 'ä' € 𝄞";

const isNear = (text: string, seconds: number) =>
  Math.abs(Date.parse(text) - Date.now() - seconds * 1_000) < 600_000;

/** What users do with all services; throws where a value is not what it was. */
async function useAll(t: TestContext, url: string, more: Readonly<Record<string, string>> = {}) {
  const target = await startRecorder(t);
  target.answer(reply(200, ''));
  const forward = {
    WEBHOOK_FORWARD_URL: target.url,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    SESSION_TTL: '3600',
    ...more,
  };
  const { url: at, stop, log } = await startGatehouse(t, SERVICES, url, forward);
  const again = async () => {
    await useIdentity(at.identity, url);
    await useSecrets(at.secrets);
    await useWebhook(at.webhook, target, url);
    assert.deepEqual(
      log().filter(({ level }) => level === 'error'),
      [],
    );
  };
  await again();
  return { again, stop };
}

async function useIdentity(origin: string, databaseUrl: string) {
  const session = await logIn(origin);
  const name = `user${Date.now()}`;
  const user = { username: name, email: `${name}@example.org`, password: 'a-password-of-a-user' };
  const made = await ask('POST', `${origin}/api/user/`, { bearer: session, body: user });
  assert.equal(made.status, 201, made.text);
  const list = await ask('GET', `${origin}/api/session/?limit=1`, { bearer: session });
  assert.equal(list.status, 200, list.text);
  const [newest] = list.json.data;
  assert.ok(isNear(newest.created_at, 0), newest.created_at);
  assert.ok(isNear(newest.expires_at, 3_600), newest.expires_at);
  const audit = await runCommand(['audit', 'list', '--json'], variables(databaseUrl));
  assert.equal(audit.code, 0, audit.stderr);
  const [entry] = JSON.parse(audit.stdout);
  assert.ok(isNear(entry.created_at, 0), audit.stdout);
}

async function useSecrets(origin: string) {
  const client = secretsClient(origin);
  const { id, secret, expires_at } = await client.keep(PASSWORD, {
    expires_in: 7_200,
    max_reads: 2,
  });
  assert.ok(isNear(String(expires_at), 7_200), String(expires_at));
  assert.equal((await client.decrypt(id, secret)).json.password, PASSWORD);
  const receipt = await client.receipt(id);
  assert.equal(receipt.status, 200, receipt.text);
  assert.ok(isNear(receipt.json.created_at, 0), receipt.text);
}

async function useWebhook(
  origin: string,
  target: Awaited<ReturnType<typeof startRecorder>>,
  databaseUrl: string,
) {
  const before = target.received.length;
  const answer = await ask('POST', `${origin}/webhook`, { bearer: WEBHOOK_TOKEN, body: BODY });
  assert.equal(answer.status, 200, answer.text);
  await until(() => target.received.length > before, 'the delivery');
  assert.equal(target.received.at(-1)?.body, BODY);
  const shown = await runCommand(
    ['event', 'show', answer.json.id, '--json'],
    variables(databaseUrl),
  );
  assert.equal(shown.code, 0, shown.stderr);
  const { event, body } = JSON.parse(shown.stdout);
  assert.ok(isNear(event.received_at, 0), shown.stdout);
  assert.equal(body, BODY);
}

test('settings of the database change nothing, from the first start on', async (t) => {
  const { sql, url } = await createEmptyDatabase(t);
  await sql.unsafe(HIDING);
  const name = new URL(url).pathname.slice(1);
  for (const [setting, value] of await known(sql, FIRST_VALUES))
    await sql.unsafe(`alter database ${name} set ${setting} = ${value}`);
  await useAll(t, url);
});

test('settings of the role change nothing', async (t) => {
  const { sql, url } = await createDatabase(t);
  await sql.unsafe(HIDING);
  const role = `role_${new URL(url).pathname.slice(1)}`;
  await sql.unsafe(`create role ${role} superuser login password 'role'`);
  t.after(() =>
    withConnection(process.env.TEST_POSTGRES_URL ?? '', async (other) => {
      await other.unsafe(`drop role ${role}`);
    }),
  );
  for (const [setting, value] of await known(sql, FIRST_VALUES))
    await sql.unsafe(`alter role ${role} set ${setting} = ${value}`);
  const own = new URL(url);
  own.username = role;
  own.password = 'role';
  await useAll(t, own.href);
});

test('settings of the server change nothing, also while services run', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-foreign-settings-'));
  const server = await startPostgres({ directory, durable: false });
  t.after(async () => {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  });
  const url = databaseUrl(server.url, 'own');
  await withConnection(server.url, (sql) => sql`create database own`);
  const { again, stop } = await useAll(t, url);
  const changes = await withConnection(url, async (sql) => {
    await sql.unsafe(HIDING);
    return (await known(sql, FIRST_VALUES)).map(
      ([setting, value]) => `alter system set ${setting} = ${value}`,
    );
  });
  await changeSettings(url, ...changes);
  await again();
  await stop();
  await useAll(t, url);
});

test('no value of a setting changes the form or the meaning of values', async (t) => {
  const { sql, url } = await createEmptyDatabase(t);
  await sql.unsafe(HIDING);
  const name = new URL(url).pathname.slice(1);
  const statement = `
    select '\\x00ff'::bytea as bytes, timestamptz '2026-12-11 10:09:08.007Z' as time,
      (timestamptz '2026-12-11 10:09:08.007Z')::text as time_text, (interval '26 h')::text as span,
      '{NULL}'::text[] is not null and ('{NULL}'::text[])[1] is null as has_null,
      (0.1::float8 + 0.2)::text as number, quote_ident('plain') as name, '\\a' as backslash,
      now() > timestamptz '2020-01-01 00:00Z' as is_now, '€' as text,
      json_build_object('bytes', '\\x00ff'::bytea) as json,
      current_setting('transaction_isolation') as isolation,
      (select json_object_agg(name, current_setting(name, true) order by name)
        from unnest('{lock_timeout,idle_session_timeout,idle_in_transaction_session_timeout,
          transaction_timeout,statement_timeout,synchronous_commit}'::text[]) as name) as settings`;
  const usual = openConnections(t, url, 'usual');
  const expected = new Map<string, Record<string, unknown>>();
  for (const purpose of PURPOSES)
    expected.set(purpose, await askDatabase(usual, purpose, statement));
  assert.deepEqual(expected.get('read')?.bytes, Buffer.of(0, 255));
  assert.deepEqual(expected.get('read')?.time, new Date('2026-12-11T10:09:08.007Z'));
  const settings = Object.entries(FOREIGN).flatMap(([setting, values]) =>
    values.map((value): Setting => [setting, value]),
  );
  for (const [setting, value] of await known(sql, settings)) {
    await sql.unsafe(`alter database ${name} set ${setting} = ${value}`);
    const database = openConnections(t, url, 'foreign');
    for (const purpose of PURPOSES) {
      const found = await askDatabase(database, purpose, statement);
      assert.deepEqual(found, expected.get(purpose), `${setting} = ${value}, ${purpose}`);
    }
    await database.close();
    await sql.unsafe(`alter database ${name} reset ${setting}`);
  }
});

test('a dump is the same with any settings, and is loaded with any', async (t) => {
  const source = await createDatabase(t);
  const { stop } = await useAll(t, source.url);
  await stop();
  const copy = await createEmptyDatabase(t);
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-foreign-dump-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const plain = join(directory, 'plain');
  await dump(source.url, plain);
  for (const { sql, url } of [source, copy]) {
    await sql.unsafe(HIDING);
    const name = new URL(url).pathname.slice(1);
    for (const [setting, value] of await known(sql, FIRST_VALUES))
      await sql.unsafe(`alter database ${name} set ${setting} = ${value}`);
  }
  const foreign = join(directory, 'foreign');
  const loaded = join(directory, 'loaded');
  await dump(source.url, foreign);
  await load(copy.url, plain);
  await dump(copy.url, loaded);
  const lines = (file: string) => readFileSync(file, 'utf8').split('\n').sort();
  assert.deepEqual(lines(foreign), lines(plain));
  assert.deepEqual(lines(loaded), lines(plain));
});

test('a value in another form is an error, not another value', async (t) => {
  const { url } = await createDatabase(t);
  const database = openConnections(t, url, 'changed');
  const wrong = [
    "select set_config('bytea_output', 'escape', false), '\\x4142'::bytea as value",
    "select set_config('datestyle', 'SQL, DMY', false), timestamptz '2026-12-11' as value",
    "select set_config('datestyle', 'German', false), date '2026-12-11' as value",
  ];
  for (const statement of wrong) {
    await assert.rejects(
      database.read((sql) => sql.unsafe(statement)),
      { message: 'the database returned a value in an unknown form' },
    );
  }
  const after = await database.read((sql) => sql.unsafe('select 1 as value'));
  assert.equal(after[0]?.value, 1, 'the connection is in order');
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

test('without foreign keys, nothing starts', async (t) => {
  const { sql, url } = await createEmptyDatabase(t);
  const name = new URL(url).pathname.slice(1);
  await sql.unsafe(`alter database ${name} set session_replication_role = replica`);
  const message =
    'the database does not check foreign keys; reset session_replication_role of the role, the database and the server';
  await assert.rejects(startGatehouse(t, ['identity'], url), { message: `identity: ${message}.` });
  const { code, stdout } = await runCommand(['check', 'identity'], variables(url));
  assert.deepEqual([code, stdout.includes(message)], [1, true], stdout);
});
