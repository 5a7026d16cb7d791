/**
 * Delivery to a local target: events per second and processor time per event, by body, without an
 * order and in the order of 100 pages. The events wait before a measurement begins.
 */
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { BODIES, type Body } from './bodies.ts';
import { cellsOf, compare, type Comparison, type Report, type Row } from './compare.ts';
import { measureInTurn, openDatabase, openTargets, startProcessorTime } from './measure.ts';
import type { Bench, Measurement, Target } from './measure.ts';
import { createClient, installPackages, type Service, startProgram, TOKEN } from './service.ts';

const PAGES = 100;
const SENDERS = 16;
const headers = { Authorization: `Bearer ${TOKEN}`, 'Content-Type': 'application/json' };
const pages = Array.from({ length: PAGES }, () => randomUUID());

/** Stores events while delivery is paused. */
async function sendEvents({ service }: Target, body: Body, events: number): Promise<void> {
  const parsed: { event: string; data: object } = JSON.parse(body.text);
  const bodies = pages.map((page_id) =>
    JSON.stringify({ ...parsed, data: { ...parsed.data, page_id } }),
  );
  let sent = 0;
  const run = async () => {
    const { send, close } = createClient(service);
    while (sent < events) {
      sent += 1;
      const { status, text } = await send('POST', '/webhook', headers, bodies[sent % PAGES]);
      if (status !== 200) throw new Error(`an event was not accepted: ${status} ${text}`);
    }
    close();
  };
  await Promise.all(Array.from({ length: SENDERS }, run));
}

async function readReceived(receiver: Service) {
  const { send, close } = createClient(receiver);
  const { text } = await send('GET', '/');
  close();
  const counted: { received: number; seconds: number } = JSON.parse(text);
  return counted;
}

async function deliver(
  bench: Bench,
  target: Target,
  receiver: Service,
  body: Body,
  events: number,
): Promise<Measurement> {
  const { sql, service } = target;
  await sql`insert into webhook.pause (paused_by) values ('bench')`;
  await sendEvents(target, body, events);
  const processor = await startProcessorTime(bench, service);
  await sql`delete from webhook.pause`;
  while ((await sql`select from webhook.work limit 1`).length > 0) await sleep(50);
  const cpu = processor(events);
  return { ...(await resultOf(receiver, events)), ...cpu };
}

/** @throws if an event was not delivered exactly once */
async function resultOf(receiver: Service, events: number) {
  const { received, seconds } = await readReceived(receiver);
  if (received !== events) throw new Error(`of ${events} events ${received} were delivered`);
  return { rate: (received - 1) / seconds, p50: null, p99: null, memory: null };
}

/** The last major version that Node 20 runs. */
const PG_BOSS = 'pg-boss@10';

/** @returns pg-boss with a database of its own, which delivers to the receiver */
async function startPgBoss(bench: Bench, receiver: Service, build: Target['build']) {
  const directory = installPackages(bench.directory, PG_BOSS);
  const { url, sql } = await openDatabase(bench);
  const script = join(import.meta.dirname, 'pg-boss.mjs');
  const program = [script, directory, `http://127.0.0.1:${receiver.port}/`];
  const service = await startProgram(program, ['pg-boss'], { DATABASE_URL: url });
  return { name: PG_BOSS, role: 'baseline', service, sql, databaseUrl: url, build } as const;
}

/** As `deliver`, of pg-boss. */
async function deliverJobs(
  bench: Bench,
  { sql, service }: Target,
  receiver: Service,
  body: Body,
  events: number,
): Promise<Measurement> {
  const { send, close } = createClient(service);
  await send('POST', `/?count=${events}`, headers, body.text);
  const processor = await startProcessorTime(bench, service);
  await send('POST', '/work');
  const isWaiting = async () =>
    (await sql`select from pgboss.job where state <> 'completed' and name = 'events' limit 1`)
      .length > 0;
  while (await isWaiting()) await sleep(50);
  const cpu = processor(events);
  await send('POST', '/rest');
  close();
  return { ...(await resultOf(receiver, events)), ...cpu };
}

export async function delivery(bench: Bench): Promise<Report> {
  const isAgainst = bench.builds.length > 1;
  const comparisons: Comparison[] = [];
  const rows: Row[] = [];
  const script = new URL('receiver.mjs', import.meta.url).pathname;
  const receiver = await startProgram([script], ['receiver'], {});
  for (const order of ['none', 'page_id']) {
    const targets = await openTargets(bench, {
      name: 'delivery',
      service: 'webhook',
      settings: {
        WEBHOOK_FORWARD_URL: `http://127.0.0.1:${receiver.port}/`,
        WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
        WEBHOOK_ORDER: order,
      },
    });
    for (const body of [BODIES.invoice, BODIES.push, BODIES.pullRequest]) {
      const name = `delivery, ${body.name}, ${order === 'none' ? 'unordered' : 'in order of pages'}`;
      const events = bench.isQuick ? 1_000 : 4_000;
      const [first] = targets;
      const hasRival = !isAgainst && order === 'none' && body === BODIES.invoice && first;
      const rival = hasRival ? [await startPgBoss(bench, receiver, first.build)] : [];
      const figures = await measureInTurn(bench.rounds, [...rival, ...targets], async (target) => {
        const run = target.role === 'baseline' ? deliverJobs : deliver;
        return { requests: events, measurement: await run(bench, target, receiver, body, events) };
      });
      if (hasRival) comparisons.push(...compare(name, 'CPU', figures, { max: 0.7 }));
      rows.push(...figures.map((one) => [name, ...cellsOf(one).slice(0, 4)]));
      if (!isAgainst) continue;
      for (const measure of ['rate', 'CPU', 'server CPU', 'PostgreSQL CPU'] as const) {
        comparisons.push(...compare(name, measure, figures));
      }
    }
  }
  const table = {
    heading: 'delivery to a local target, 10 attempts at a time',
    rows: [['', 'build', 'events/s', 'server CPU, µs/event', 'PostgreSQL CPU, µs/event'], ...rows],
    caveat:
      'The target replies at once, on the same machine. Not measured: how fast a target of your own is.',
  };
  return { comparisons, tables: [table] };
}
