/**
 * What a request costs as work grows: with more connections, more rows, events that wait, and more
 * replicas on one database. Figures of this build alone.
 */
import type { Sql } from 'postgres';
import { bearerCheck } from './bearer.ts';
import { median, type Report, type Row } from './compare.ts';
import { type Bench, measure, openDatabase, type Target } from './measure.ts';
import type { LoadCase } from './operation.ts';
import { decryptCase, encryptCase } from './secrets.ts';
import { startServices } from './service.ts';
import { accept } from './webhook.ts';

const CONNECTIONS = [1, 8, 64, 512];
const REPLICAS = [1, 2, 4];
const MILLION = 1_000_000;
const CLIENTS = 64;

/** Fills a table with copies of one row, which differ in what is unique. */
const FILLS: Readonly<Record<string, (sql: Sql, rows: number) => Promise<unknown>>> = {
  'bearer check': (sql, rows) => sql`
    insert into identity.sessions (id, token_digest, user_id, expires_at)
    select gen_random_uuid(), sha256(convert_to(n::text, 'UTF8')), user_id, expires_at
    from (select user_id, expires_at from identity.sessions limit 1) as one,
      generate_series(1, ${rows}::int) as n`,
  encrypt: fillSecrets,
  decrypt: fillSecrets,
  'webhook accept': async (sql, rows) => {
    await sql`
      insert into webhook.events (id, token_id, event, headers, ip, body, received_at)
      select gen_random_uuid(), token_id, event, headers, ip, body,
        received_at + n * interval '1 microsecond'
      from (select * from webhook.events limit 1) as one, generate_series(1, ${rows}::int) as n`;
    await sql`
      insert into webhook.work (event_id, token_id, received_at)
      select id, token_id, received_at
      from webhook.events
      on conflict do nothing`;
  },
};

function fillSecrets(sql: Sql, rows: number): Promise<unknown> {
  return sql`
    insert into secrets.secrets (id, key_id, commitment, blob, tag, expires_at, max_reads)
    select gen_random_uuid(), key_id, commitment, blob, tag, expires_at + n * interval '1 second',
      max_reads
    from (select * from secrets.secrets where blob is not null limit 1) as one,
      generate_series(1, ${rows}::int) as n`;
}

/** @returns microseconds of all processes for one request */
async function cost(bench: Bench, clients: number, targets: readonly Target[], one: LoadCase) {
  const [variant] = one.variants;
  if (!variant) throw new Error('nothing to send');
  const subjects = [];
  for (const target of targets) {
    subjects.push({ ...target, replay: await variant.prepare(bench, target) });
  }
  const costs: number[] = [];
  for (let round = 0; round <= bench.rounds; round += 1) {
    // The replicas at once. Each counts PostgreSQL's time as its own, so it is divided.
    const share = Math.max(1, Math.floor(clients / subjects.length));
    const measured = await Promise.all(
      subjects.map((subject) => measure(bench, share, bench.seconds, subject)),
    );
    const requests = measured.reduce((sum, { requests: some }) => sum + some, 0);
    const server = measured.reduce(
      (sum, { requests: some, measurement }) => sum + some * (measurement.serverCpu ?? 0),
      0,
    );
    const [first] = measured;
    const database = (first?.measurement.databaseCpu ?? 0) * (first?.requests ?? 0);
    if (round > 0) costs.push((server + database) / requests);
  }
  return median(costs);
}

export async function growth(bench: Bench): Promise<Report> {
  const [build] = bench.builds;
  if (!build) throw new Error('no build');
  const rows: Row[] = [];
  for (const one of [bearerCheck, encryptCase, decryptCase, accept]) {
    const { url: databaseUrl, sql } = await openDatabase(bench);
    const start = async (): Promise<Target> => {
      const service = await startServices([one.service], databaseUrl, one.settings, build);
      return { name: one.name, role: 'ours', service, sql, databaseUrl, build };
    };
    const first = await start();
    const cells: number[] = [];
    for (const clients of CONNECTIONS) cells.push(await cost(bench, clients, [first], one));
    const fill = FILLS[one.name];
    if (!fill) throw new Error(`${one.name}: no rows`);
    await fill(sql, MILLION);
    await sql`vacuum analyze`;
    cells.push(await cost(bench, CLIENTS, [first], one));
    const targets = [first];
    for (const replicas of REPLICAS) {
      while (targets.length < replicas) targets.push(await start());
      if (replicas > 1) cells.push(await cost(bench, CLIENTS, targets, one));
    }
    for (const { service } of targets) await service.stop();
    rows.push([one.name, ...cells.map((value) => value.toFixed(0))]);
  }
  const head = [
    '',
    ...CONNECTIONS.map((count) => `${count} connections`),
    `${CLIENTS}, and a million rows`,
    ...REPLICAS.slice(1).map((count) => `the same with ${count} replicas`),
  ];
  return {
    comparisons: [],
    tables: [
      {
        heading: 'processor time of server and PostgreSQL in µs for one request',
        rows: [head, ...rows],
        caveat:
          'The rows are sessions, secrets, and events that wait for delivery. Not measured: rows that do not fit in memory.',
      },
    ],
  };
}
