/**
 * `make bench PART=growth`: the latency of calls with 10,000, 1,000,000 and 10,000,000 rows in each
 * table, in alternation, with the pages that PostgreSQL reads for one call and its plan. Writes a
 * part of `docs/scaling.md`.
 *
 *   node --import tsx scripts/bench/growth.ts [--sizes=10000,1000000,10000000] [--rounds=5]
 */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { connect, type PostgresServer } from '../postgres.ts';
import { table, writeBlock } from './blocks.ts';
import { root } from './builds.ts';
import { createDatabase, withPostgres } from './database.ts';
import { conditionsOf } from './document.ts';
import { fillIdentity, fillSecrets, fillWebhook } from './growth-fill.ts';
import { CASES, type GrowthCase, type Ports, storeKnownSecrets } from './growth-cases.ts';
import { type Executed, executed, logPlans } from './growth-plans.ts';
import {
  createClient,
  median,
  type Service,
  type ServiceName,
  spread,
  startServices,
  stopAll,
} from './service.ts';

const SERVICES: readonly ServiceName[] = ['identity', 'secrets', 'webhook'];
/** Nothing but a full count may grow by more. */
const LIMIT = 1.5;
const TABLES = [
  'identity.users',
  'identity.sessions',
  'identity.api_keys',
  'identity.audit',
  'secrets.secrets',
  'webhook.events',
  'webhook.outcomes',
] as const;

interface Subject {
  readonly size: number;
  readonly url: string;
  ports: Ports;
}

type TableSize = Readonly<{ name: string; table: number; indexes: number }>;

async function startAll(
  url: string,
  environment: Readonly<Record<string, string>> = {},
): Promise<[Ports, Service[]]> {
  // Nothing that was loaded is removed during the run.
  const days = String(90 * 86_400);
  const settings = {
    SESSION_RETENTION: days,
    EVENT_RETENTION: days,
    WEBHOOK_RATE: '1000000',
    ...environment,
  };
  const services = await Promise.all(SERVICES.map((name) => startServices([name], url, settings)));
  const [identity, secrets, webhook] = services.map((service) => createClient(service).send);
  if (!identity || !secrets || !webhook) throw new Error('three services');
  return [{ identity, secrets, webhook }, services];
}

/** Loads a database of this size. The services have created their tables and their first rows. */
async function prepare(server: PostgresServer, size: number): Promise<Subject> {
  const url = await createDatabase(server.url, `growth_${size}`);
  const command = [join(root, 'dist/cli.js'), 'migrate'];
  execFileSync(process.execPath, command, {
    env: { PATH: process.env.PATH, DATABASE_URL: url },
    stdio: 'ignore',
  });
  const [ports, services] = await startAll(url);
  await storeKnownSecrets(size, ports.secrets);
  await Promise.all(services.map((service) => service.stop()));
  const sql = connect(url);
  try {
    for (const [name, fill] of Object.entries({ fillIdentity, fillSecrets, fillWebhook })) {
      const startedAt = performance.now();
      await fill(sql, size);
      console.log(
        `${size} rows, ${name}: ${((performance.now() - startedAt) / 1_000).toFixed(0)} s`,
      );
    }
    await sql`vacuum analyze`;
  } finally {
    await sql.end();
  }
  return { size, url, ports };
}

async function tableSizes({ url, size }: Subject): Promise<TableSize[]> {
  const sql = connect(url);
  try {
    return await Promise.all(
      TABLES.map(async (name): Promise<TableSize> => {
        const [row] = await sql<[{ table: number; indexes: number }]>`
        select pg_table_size(${name})::float8 / n as table,
        pg_indexes_size(${name})::float8 / n as indexes
        from (select count(*) as n from ${sql(name)}) counted`;
        return { name, ...row };
      }),
    );
  } catch (error) {
    throw new Error(`the sizes of the tables with ${size} rows: ${String(error)}`);
  } finally {
    await sql.end();
  }
}

/**
 * Calls twice, for the same rows, and measures the second time: full counts in between have pushed
 * the rows out of PostgreSQL's memory.
 * @returns the median latency in milliseconds
 */
async function measure(
  { size, ports }: Subject,
  { send, requests, isCount }: GrowthCase,
): Promise<number> {
  for (let number = 0; number < requests && !isCount; number += 1) await send(ports, size, number);
  const times: number[] = [];
  for (let number = 0; number < requests; number += 1)
    times.push((await send(ports, size, number)).ms);
  return median(times);
}

interface Result {
  readonly one: GrowthCase;
  /** By size, in milliseconds, one for each round. */
  readonly times: number[][];
  /** The first size again, in the same rounds: what differs from the first is noise. */
  readonly again: number[];
  readonly executed: Executed[];
}

const divided = (values: readonly number[], divisors: readonly number[]): number[] =>
  values.map((value, round) => value / (divisors[round] ?? Number.NaN));

function reportOf(
  results: readonly Result[],
  subjects: readonly Subject[],
  sizes: readonly TableSize[],
): string {
  const shown = (size: number) => size.toLocaleString('en-US');
  const larger = subjects.slice(1);
  const head = [
    'call',
    `${shown(subjects[0]?.size ?? 0)} rows, ms`,
    'against itself',
    ...larger.map(({ size }) => `${shown(size)} rows`),
    `pages, ${subjects.map(({ size }) => shown(size)).join(' / ')}`,
  ];
  const rows = results.map(({ one, times, again, executed: found }) => {
    const [small = []] = times;
    const ratios = times.slice(1).map((values) => {
      const ratio = divided(values, small);
      const isOver = !one.isCount && median(ratio) > Math.max(LIMIT, ...divided(again, small));
      return `${spread(ratio)} times${isOver ? ' **(over the limit)**' : ''}`;
    });
    const pages = found.map((each) => shown(each.pages)).join(' / ');
    const name = `${one.name}${one.isCount ? ', with a full count' : ''}`;
    return [name, spread(small), spread(divided(again, small)), ...ratios, pages];
  });
  const plans = results.map(({ one, executed: found }) => {
    const byPlan = new Map<string, string[]>();
    for (const [index, { plan }] of found.entries()) {
      const text = plan.join(', ');
      byPlan.set(text, [...(byPlan.get(text) ?? []), shown(subjects[index]?.size ?? 0)]);
    }
    const texts = [...byPlan].map(
      ([text, at]) => `${byPlan.size > 1 ? `${at.join(', ')} rows: ` : ''}${text}`,
    );
    return `- ${one.name}: ${texts.join('; ')}`;
  });
  const bytes = sizes.map(({ name, ...size }) => [
    `\`${name}\``,
    size.table.toFixed(0),
    size.indexes.toFixed(0),
  ]);
  return `${table([head, ...rows])}
How each call reads its tables: node types and indexes of PostgreSQL's plans, the same at every size
unless said:

${plans.join('\n')}

Bytes per row with ${shown(subjects.at(-1)?.size ?? 0)} rows, freshly loaded:

${table([['table', 'table', 'indexes'], ...bytes])}`;
}

const { values: options } = parseArgs({
  options: {
    sizes: { type: 'string', default: '10000,1000000,10000000' },
    rounds: { type: 'string', default: '5' },
  },
});
const wanted = options.sizes.split(',').map(Number);
const rounds = Number(options.rounds);
if (
  wanted.some((size) => !Number.isInteger(size) || size < 10_000) ||
  !Number.isInteger(rounds) ||
  rounds < 1
) {
  process.stderr.write(
    '--sizes is a list of whole numbers of at least 10,000, --rounds a positive whole number\n',
  );
  process.exit(2);
}

/** The first round is a warm-up. The smallest size is measured twice, to show the noise. */
async function measureInTurn(subjects: readonly Subject[], smallest: Subject): Promise<Result[]> {
  const results = CASES.map((one): Result => ({
    one,
    times: subjects.map(() => []),
    again: [],
    executed: [],
  }));
  for (let round = 0; round <= rounds; round += 1) {
    for (const { one, times, again } of results) {
      for (const [index, subject] of subjects.entries()) {
        const ms = await measure(subject, one);
        if (round > 0) times[index]?.push(ms);
      }
      const ms = await measure(smallest, one);
      if (round > 0) again.push(ms);
    }
  }
  return results;
}

/** Adds what PostgreSQL reads for one call of each case. */
async function readPlans(subject: Subject, results: readonly Result[], directory: string) {
  await logPlans(subject.url);
  [subject.ports] = await startAll(subject.url);
  for (const { one, executed: found } of results) {
    // PostgreSQL settles on a plan after five executions of a prepared statement.
    for (let number = 0; number < 8; number += 1) {
      await one.send(subject.ports, subject.size, number);
    }
    const log = join(directory, 'state/postgres.log');
    found.push(await executed(log, one.statements, () => one.send(subject.ports, subject.size, 8)));
  }
  await stopAll();
}

await withPostgres(async (postgres, directory) => {
  const sql = connect(postgres.url);
  try {
    await sql`alter system set max_wal_size = '8GB'`;
    await sql`select pg_reload_conf()`;
    const [{ server_version: postgresVersion }] = await sql<
      [{ server_version: string }]
    >`show server_version`;
    const subjects: Subject[] = [];
    for (const size of wanted) subjects.push(await prepare(postgres, size));
    const smallest = subjects[0];
    const largest = subjects.at(-1);
    if (!smallest || !largest) throw new Error('no size');
    const sizes = await tableSizes(largest);
    await sql`checkpoint`;
    for (const subject of subjects) [subject.ports] = await startAll(subject.url);
    const results = await measureInTurn(subjects, smallest);
    await stopAll();
    for (const subject of subjects) await readPlans(subject, results, directory);
    const [machine, versions] = conditionsOf({ postgresVersion, rounds, seconds: 0 });
    const text = reportOf(results, subjects, sizes);
    console.log(`\n${machine}\n${versions}\n\n${text}`);
    writeBlock(
      'docs/scaling.md',
      'growth',
      `${machine}, ${versions}, ${rounds} rounds in alternation.\n\n${text}`,
    );
  } finally {
    await stopAll();
    await sql.end();
  }
});
