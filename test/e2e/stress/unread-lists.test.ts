/**
 * What clients cost that stop reading the list of 100,000 secrets. Its memory:
 * test/api/secrets/list.test.ts.
 */
import assert from 'node:assert/strict';
import { untilSql } from '../../support/connections.ts';
import { ask, AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';
import { test } from '../../support/until.ts';

const SECRETS = 100_000;
const CLIENTS = 20;
const { sql, secrets: base, url } = await launch(['secrets']);
const client = secretsClient(base);

// Rows like those of short passwords: 285 incompressible bytes.
await sql`
  insert into secrets.secrets (id, key_id, commitment, blob, tag, expires_at)
  select gen_random_uuid(), 'key', sha256(mark),
    (select substring(string_agg(sha512(mark || n::text::bytea), '') from 1 for 285)
      from generate_series(1, 5) n),
    sha256(mark), now() + interval '1 day'
  from (
    select (random()::text || n)::bytea as mark from generate_series(1, ${SECRETS}::int) n
  ) marks`;

/** How many requests are under way. */
async function inFlight(): Promise<number> {
  const { text } = await ask('GET', `${url.metrics}/metrics`);
  return Number(/^gatehouse_requests_in_flight\{service="secrets"\} ([0-9]+)$/m.exec(text)?.[1]);
}

/** Resolves with the head of the response; the body is left unread. */
async function beginList(): Promise<Response> {
  const headers = { authorization: `Bearer ${AUTH_TOKEN}` };
  const response = await fetch(`${base}/api/store`, { headers });
  assert.equal(response.status, 200);
  return response;
}

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

test(`${CLIENTS} clients that stop reading a list: no connection held, no other request delayed`, async () => {
  const [first, ...others] = await Promise.all(Array.from({ length: CLIENTS }, beginList));
  await untilQuiet();
  assert.ok((await connections()).length <= 8, 'as docs/scaling.md says');
  assert.equal(await inFlight(), CLIENTS, 'every list is still under way');

  for (let round = 0; round < 20; round += 1) {
    const text = `while others do not read ${round}`;
    const { id, secret } = await client.keep(text, { max_reads: 1 });
    assert.equal((await client.decrypt(id, secret)).json.password, text);
  }
  await untilQuiet();
  assert.equal(await inFlight(), CLIENTS);

  const list: unknown = await first?.json();
  assert.ok(Array.isArray(list) && list.length === SECRETS, 'the list is whole');
  await Promise.all(others.map((other) => other.body?.cancel()));
  await untilSql(async () => (await inFlight()) === 0, 'every visit has ended');
});
