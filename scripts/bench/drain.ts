/**
 * `make bench-drain`: how long 10,000 waiting events take to be delivered to a handler that does nothing, beside 1,000,000
 * done ones, in turn with the same 10,000 alone, on this machine, now. Ratios first, because absolute figures are the
 * machine's. A round counts only when every event was delivered once and is done.
 */
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { readConfig } from '../../test/support/settings.ts';
import { migrate } from '../../src/db/migrate.ts';
import { createDatabase, type Database } from '../../src/db/pool.ts';
import { createLog } from '../../src/runtime/log.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';
import { createHandler } from '../../src/webhook/targets/handler.ts';
import { MIGRATIONS, SCHEMA } from '../../src/webhook/migrations.ts';
import { createToken } from '../../src/webhook/tokens.ts';
import { startWorker } from '../../src/webhook/worker.ts';
import { connect, databaseUrl, startPostgres } from '../postgres.ts';
import { makeTemporary, removeTemporary } from '../temporary.ts';
import { median, spread } from './service.ts';

const ROUNDS = 3;
const WAITING = Number(process.env.DRAIN_WAITING ?? 10_000);
const DONE = Number(process.env.DRAIN_DONE ?? 1_000_000);
const MOST = 1.2;
/** As the service has them. */
const SETTINGS = { concurrency: 10, timeoutMs: 30_000, maxAttempts: 12, backoffBase: 1 };

interface Subject {
  readonly history: number;
  readonly database: Database;
  readonly sql: Sql;
  readonly seconds: number[];
}

async function prepare(server: string, history: number): Promise<Subject> {
  const name = `drain_${history}`;
  const administration = connect(server);
  await administration`create database ${administration(name)}`.finally(() => administration.end());
  const url = databaseUrl(server, name);
  const address = readConfig(['webhook'], 'administer', { DATABASE_URL: url }).webhook?.database;
  if (!address) throw new Error('there is an address');
  const database = createDatabase(address, SCHEMA, createLog('silent', () => {}), createMetrics());
  await migrate(database, SCHEMA, MIGRATIONS);
  await createToken(database, { name: 'bench', role: 'sender', source: 'generic' }, null);
  const sql = connect(url);
  const startedAt = performance.now();
  // Of the past 30 days, one after the other, a tenth with a failed attempt.
  await sql`
    with made as (
      insert into webhook.events (id, token_id, delivery_id, event, headers, ip, body, received_at)
      select gen_random_uuid(), (select id from webhook.tokens), 'done-' || n, 'page.updated', '{"content-type": "application/json"}', '203.0.113.' || n % 256,
        convert_to('{"event":"page.updated","data":{"page_id":"' || gen_random_uuid() || '","text":"' || repeat('x', 200) || '"}}', 'UTF8'),
        now() - interval '30 days' * (1 - n::float8 / ${history + 1}::float8)
      from generate_series(1, ${history}::int) n returning id, received_at
    ), failed as (
      insert into webhook.failures (event_id, attempt, failed_at, error) select id, 1, received_at, 'the target answered 503' from made where random() < 0.1
    ) insert into webhook.outcomes (event_id, status, attempts, ended_at) select id, 'done', 1, received_at from made`;
  await sql`vacuum analyze`;
  if (history > 0) console.log(`${history} done events: filled in ${((performance.now() - startedAt) / 1_000).toFixed(0)} s`);
  return { history, database, sql, seconds: [] };
}

/** Puts the waiting ones in, and takes the time until none is left. */
async function drain({ history, database, sql }: Subject): Promise<number> {
  if (history === 0) await sql`truncate webhook.events, webhook.outcomes, webhook.failures, webhook.work`;
  await sql`
    with made as (
      insert into webhook.events (id, token_id, event, headers, ip, body)
      select gen_random_uuid(), (select id from webhook.tokens), 'page.updated', '{"content-type": "application/json"}', '203.0.113.1',
        convert_to('{"event":"page.updated","data":{"page_id":"' || gen_random_uuid() || '","text":"' || repeat('x', 200) || '"}}', 'UTF8')
      from generate_series(1, ${WAITING}::int) returning id, received_at
    ) insert into webhook.work (event_id, received_at) select id, received_at from made`;
  await sql`checkpoint`;
  const before = await done(sql);
  let delivered = 0;
  const handler = createHandler({ module: join(import.meta.dirname, 'noop.mjs'), environment: {} });
  const startedAt = performance.now();
  const worker = startWorker(
    database,
    { deliver: (task, stop) => ((delivered += 1), handler.deliver(task, stop)), close: handler.close },
    SETTINGS,
    createLog('silent', () => {}),
    createMetrics(),
  );
  try {
    while ((await sql`select from webhook.work limit 1`).length > 0) await sleep(10);
    const seconds = (performance.now() - startedAt) / 1_000;
    const ended = (await done(sql)) - before;
    if (delivered !== WAITING || ended !== WAITING) throw new Error(`${delivered} were delivered and ${ended} are done, of ${WAITING}`);
    return seconds;
  } finally {
    await worker.stop();
  }
}

async function done(sql: Sql): Promise<number> {
  const [row] = await sql<[{ n: number }]>`select count(*)::int as n from webhook.outcomes where status = 'done'`;
  return row.n;
}

const directory = makeTemporary(tmpdir(), 'gatehouse-bench');
const postgres = await startPostgres({ directory: join(directory, 'state'), durable: true });
const subjects: Subject[] = [];
try {
  for (const history of [0, DONE]) subjects.push(await prepare(postgres.url, history));
  const [alone, beside] = subjects;
  if (!alone || !beside) throw new Error('two are compared');
  // The first round warms up and is not counted.
  for (let round = 0; round <= ROUNDS; round += 1) {
    for (const subject of subjects) {
      const seconds = await drain(subject);
      if (round > 0) subject.seconds.push(seconds);
    }
  }
  const ratio = median(beside.seconds) / median(alone.seconds);
  console.log(`Node ${process.version}, ${process.platform} ${process.arch}, ${cpus().length} processors, ${ROUNDS} rounds in turn; median (least to most)`);
  console.log(`${WAITING} waiting beside ${DONE} done / alone: ${ratio.toFixed(2)} times`);
  for (const { history, seconds } of subjects) console.log(`beside ${history}: ${spread(seconds)} s, ${(WAITING / median(seconds)).toFixed(0)} events a second`);
  if (!(ratio <= MOST)) throw new Error(`more than ${MOST} times`);
} finally {
  for (const { database, sql } of subjects) await Promise.all([database.close(), sql.end()]);
  await postgres.stop();
  removeTemporary(directory);
}
