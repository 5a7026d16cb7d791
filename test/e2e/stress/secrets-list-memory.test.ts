/**
 * The list of 200,000 secrets, from a separate process: its memory, and what a client that stops
 * reading costs.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { after, type TestContext } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { ask, AUTH_TOKEN, variables } from '../../support/gatehouse.ts';
import { untilSql } from '../../support/connections.ts';
import { buildProgram, startProgram } from '../../support/process.ts';
import { secretsClient } from '../../support/secrets.ts';
import { test } from '../../support/until.ts';

const MIB = 1024 * 1024;
const SECRETS = 200_000;

const { url: databaseUrl, sql } = await createDatabase();
// Without this option, V8 lets the young generation of any busy process grow: to 32 MiB with Node
// 20 and 22, 128 with Node 24.
const smallYoungGeneration = { NODE_OPTIONS: '--max-semi-space-size=8' };
const program = startProgram({ after }, buildProgram(), ['serve', 'secrets'], {
  ...variables(databaseUrl),
  ...smallYoungGeneration,
  METRICS_PORT: '0',
});
await program.ready('secrets');
const base = await program.url('secrets');
const metrics = await program.url('metrics');
const client = secretsClient(base);

/** Rows like those of short passwords: 285 incompressible bytes. */
async function fill(rows: number): Promise<void> {
  await sql`
    insert into secrets.secrets (id, key_id, commitment, blob, tag, expires_at)
    select gen_random_uuid(), 'key', sha256(mark),
      (select substring(string_agg(sha512(mark || n::text::bytea), '') from 1 for 285)
        from generate_series(1, 5) n),
      sha256(mark), now() + interval '1 day'
    from (
      select (random()::text || n)::bytea as mark from generate_series(1, ${rows}::int) n
    ) marks`;
}

async function numbers(): Promise<{ residentBytes: number; inFlight: number }> {
  const { text } = await ask('GET', `${metrics}/metrics`);
  return {
    residentBytes: Number(/^process_resident_memory_bytes ([0-9]+)$/m.exec(text)?.[1]),
    inFlight: Number(
      /^gatehouse_requests_in_flight\{service="secrets"\} ([0-9]+)$/m.exec(text)?.[1],
    ),
  };
}

/** Resolves with the head of the response; the body is left unread. */
async function beginList(t: TestContext): Promise<IncomingMessage> {
  const request = get(`${base}/api/store`, {
    headers: { authorization: `Bearer ${AUTH_TOKEN}` },
    agent: false,
  });
  t.after(() => request.destroy());
  const response = await new Promise<IncomingMessage>((resolve, reject) =>
    request.once('response', resolve).once('error', reject),
  );
  assert.equal(response.statusCode, 200);
  return response;
}

/** Reads and discards the rest. @returns how many secrets it had */
async function readOn(
  response: IncomingMessage,
  atEachMiB: () => Promise<void> = async () => {},
): Promise<{ secrets: number; bytes: number }> {
  const seen = { secrets: 0, bytes: 0 };
  let tail = '';
  for await (const chunk of response.setEncoding('latin1')) {
    const text = tail + String(chunk);
    seen.secrets += text.split('{"id":').length - 1;
    tail = text.slice(-5);
    const before = Math.floor(seen.bytes / MIB);
    seen.bytes += String(chunk).length;
    if (Math.floor(seen.bytes / MIB) > before) await atEachMiB();
  }
  assert.equal(tail.at(-1), ']', 'the list is whole');
  return seen;
}

test('a list of 200,000 secrets: the process grows by less than 20 MiB', async (t) => {
  // Warm up first: V8 grows the heap of a busy process, whatever its work.
  await fill(SECRETS / 20);
  for (let round = 0; round < 10; round += 1)
    assert.equal((await readOn(await beginList(t))).secrets, SECRETS / 20);
  await fill(SECRETS - SECRETS / 20);

  const before = (await numbers()).residentBytes;
  let most = before;
  const look = async () => {
    most = Math.max(most, (await numbers()).residentBytes);
  };
  const { secrets, bytes } = await readOn(await beginList(t), look);
  assert.equal(secrets, SECRETS);
  assert.ok(bytes > 75 * MIB, `the list had ${bytes} bytes`);
  const inMiB = (number: number) => `${(number / MIB).toFixed(1)} MiB`;
  t.diagnostic(
    `resident before ${inMiB(before)}, at most ${inMiB(most)} during a list of ${inMiB(bytes)}`,
  );
  assert.ok(most - before < 20 * MIB, `it grew by ${((most - before) / MIB).toFixed(1)} MiB`);
});

/** The service's connections in pg_stat_activity. */
const connections = () => sql<
  Array<{ pid: number; state: string | null; began: number | null; isQuiet: boolean }>
>`
  select pid, state, extract(epoch from state_change)::float8 as began,
    state = 'idle' and xact_start is null and backend_xid is null and backend_xmin is null
      as "isQuiet"
  from pg_stat_activity
  where application_name = 'gatehouse-secrets' and datname = current_database() order by pid`;

/** Waits until all of them stay idle. None may ever be idle inside a transaction. */
async function untilQuiet(): Promise<void> {
  let last = '';
  let looks = 0;
  await untilSql(async () => {
    const rows = await connections();
    assert.deepEqual(
      rows.filter(({ state }) => state?.startsWith('idle in transaction')),
      [],
    );
    const now = JSON.stringify(rows);
    looks = now === last && rows.every(({ isQuiet }) => isQuiet) ? looks + 1 : 0;
    last = now;
    return looks === 20;
  }, 'no connection of the service does anything');
}

test('20 clients that stop reading a list: no connection held, no other request delayed', async (t) => {
  const [stored] =
    await sql`select count(*)::int as count from secrets.secrets where blob is not null`;
  const lists = await Promise.all(Array.from({ length: 20 }, () => beginList(t)));
  await untilQuiet();
  assert.ok((await connections()).length <= 8, 'as docs/scaling.md says');
  assert.equal((await numbers()).inFlight, lists.length, 'every list is still under way');

  for (let round = 0; round < 20; round += 1) {
    const text = `while others do not read ${round}`;
    const { id, secret } = await client.keep(text, { max_reads: 1 });
    assert.equal((await client.decrypt(id, secret)).json.password, text);
  }
  await untilQuiet();
  assert.equal((await numbers()).inFlight, lists.length);

  const [first, ...others] = lists;
  assert.ok(first);
  assert.equal((await readOn(first)).secrets, stored?.count);
  for (const other of others) other.destroy();
  await Promise.all(others.map((other) => other.closed || once(other, 'close')));
  await untilSql(async () => (await numbers()).inFlight === 0, 'every visit has ended');
});
