/**
 * What a request costs as work grows: with more connections, more replicas on one database, and
 * more rows. Figures of this build alone.
 */
import type { Sql, TransactionSql } from 'postgres';
import { bearerCheck } from './bearer.ts';
import { median, type Report, type Row } from './compare.ts';
import { type Bench, measure, openDatabase, type Subject, type Target } from './measure.ts';
import type { LoadCase } from './operation.ts';
import { decryptCase, encryptCase } from './secrets.ts';
import { startServices } from './service.ts';
import { accept } from './webhook.ts';

const CLIENTS = 64;
const CONNECTIONS = [1, 8, CLIENTS, 512];
const REPLICAS = [2, 4];
/** Shorter than elsewhere: there are many measurements. */
const SECONDS = 1;
const ROWS = [1_000_000, 10_000_000];

interface Data {
  /** Of one service, which share the rows. */
  readonly cases: readonly LoadCase[];
  /** Stores the rows with the numbers from `first` to `last`. */
  fill(sql: TransactionSql, first: number, last: number): Promise<unknown>;
}

/** The next id, because random ones would take ten times as long to insert. */
const id = (sql: TransactionSql) => sql`lpad(to_hex(n), 32, '0')::uuid`;

const DATA: readonly Data[] = [
  {
    cases: [bearerCheck],
    fill: (sql, first, last) => sql`
      insert into identity.sessions (id, token_digest, user_id, expires_at)
      select ${id(sql)}, decode(lpad(to_hex(n), 64, '0'), 'hex'), user_id, expires_at
      from (select user_id, expires_at from identity.sessions limit 1) as one,
        generate_series(${first}::int, ${last}::int) as n`,
  },
  {
    cases: [encryptCase, decryptCase],
    fill: (sql, first, last) => sql`
      insert into secrets.secrets (id, key_id, commitment, blob, tag, expires_at, max_reads)
      select ${id(sql)}, key_id, commitment, substr(blob, 1, 100), tag,
        now() + interval '1 day' + n * interval '1 millisecond', max_reads
      from (select * from secrets.secrets where blob is not null limit 1) as one,
        generate_series(${first}::int, ${last}::int) as n`,
  },
  {
    cases: [accept],
    // They wait: no target is set.
    fill: (sql, first, last) => sql`
      with stored as (
        insert into webhook.events (id, token_id, event, body, received_at)
        select ${id(sql)}, token_id, event, substr(body, 1, 100),
          now() - n * interval '1 millisecond'
        from (select * from webhook.events limit 1) as one,
          generate_series(${first}::int, ${last}::int) as n
        returning id, token_id, received_at
      )
      insert into webhook.work (event_id, token_id, received_at)
      select id, token_id, received_at from stored`,
  },
];

/**
 * The median of the rounds. All replicas are under load at once.
 * @returns microseconds of all processes for one request
 */
async function cost(bench: Bench, clients: number, replicas: readonly Subject[]): Promise<number> {
  const costs: number[] = [];
  for (let round = 0; round <= bench.rounds; round += 1) {
    const share = clients / replicas.length;
    const measured = await Promise.all(
      replicas.map((replica) => measure(bench, share, SECONDS, replica)),
    );
    const requests = measured.reduce((sum, one) => sum + one.requests, 0);
    const server = measured.reduce(
      (sum, one) => sum + one.requests * (one.measurement.serverCpu ?? 0),
      0,
    );
    // Each of them has measured the time of the one PostgreSQL.
    const [first] = measured;
    const database = (first?.requests ?? 0) * (first?.measurement.databaseCpu ?? 0);
    // The first round is a warm-up.
    if (round > 0) costs.push((server + database) / requests);
  }
  return median(costs);
}

/** @returns a starter of replicas on one new database */
async function replicasOn(bench: Bench, { service, settings, name }: LoadCase) {
  const [build] = bench.builds;
  if (build === undefined) throw new Error('no build');
  const { url: databaseUrl, sql } = await openDatabase(bench);
  const start = async (): Promise<Target> => {
    const program = await startServices([service], databaseUrl, settings, build);
    return { name, role: 'ours', service: program, sql, databaseUrl, build };
  };
  return { sql, start };
}

async function prepared(bench: Bench, target: Target, one: LoadCase): Promise<Subject> {
  const [variant] = one.variants;
  if (variant === undefined) throw new Error(`${one.name}: nothing to send`);
  return { ...target, replay: await variant.prepare(bench, target) };
}

/** Without indexes, which are created again at the end, and without triggers: that is faster. */
async function fillTables(sql: Sql, fill: (sql: TransactionSql) => Promise<unknown>) {
  const indexes = await sql<Array<{ name: string; definition: string }>>`
    select format('%I.%I', schemaname, indexname) as name, indexdef as definition
    from pg_indexes
    where schemaname in ('identity', 'secrets', 'webhook') and not exists (
      select from pg_constraint where conindid = format('%I.%I', schemaname, indexname)::regclass
    )`;
  await sql.begin(async (transaction) => {
    await transaction`set local session_replication_role = replica`;
    await transaction`set local maintenance_work_mem = '1 GB'`;
    for (const { name } of indexes) await transaction.unsafe(`drop index ${name}`);
    await fill(transaction);
    for (const { definition } of indexes) await transaction.unsafe(definition);
  });
  await sql`vacuum (analyze)`;
  await sql`checkpoint`;
}

async function rowsOf(bench: Bench, { cases, fill }: Data): Promise<Row[]> {
  const [model] = cases;
  if (model === undefined) throw new Error('no case');
  const { sql, start } = await replicasOn(bench, model);
  const targets = [await start()];
  const figures = new Map(cases.map((one) => [one, [] as number[]]));
  const measureAll = async (clients: number) => {
    for (const [one, costs] of figures) {
      const subjects: Subject[] = [];
      for (const target of targets) subjects.push(await prepared(bench, target, one));
      costs.push(await cost(bench, clients, subjects));
    }
  };
  for (const clients of CONNECTIONS) await measureAll(clients);
  for (const count of REPLICAS) {
    while (targets.length < count) targets.push(await start());
    await measureAll(CLIENTS);
  }
  for (const { service } of targets.splice(1)) await service.stop();
  let stored = 0;
  for (const count of ROWS) {
    const first = stored + 1;
    await fillTables(sql, (transaction) => fill(transaction, first, count));
    stored = count;
    await measureAll(CLIENTS);
  }
  for (const { service } of targets) await service.stop();
  return [...figures].map(([{ name }, costs]) => [name, ...costs.map((one) => one.toFixed(0))]);
}

export async function growth(bench: Bench): Promise<Report> {
  const head = [
    '',
    ...CONNECTIONS.map((count) => `${count} connection${count === 1 ? '' : 's'}`),
    ...REPLICAS.map((count) => `${count} replicas`),
    ...ROWS.map((count) => `${count / 1_000_000} million rows`),
  ];
  const rows: Row[] = [];
  for (const data of DATA) rows.push(...(await rowsOf(bench, data)));
  return {
    comparisons: [],
    tables: [
      {
        heading: 'Processor time of server and PostgreSQL for one request, in µs',
        rows: [head, ...rows],
        caveat:
          'Measured for 1 s. Replicas and rows: with 64 connections in all. The rows are sessions, secrets and events that wait for delivery, and' +
          ' those of the requests are in memory. Without them, the tables hold what the requests need, and what they stored before.',
      },
    ],
  };
}
