/**
 * Delivery to a local target: events per second and processor time per event, by body, without an
 * order and in the order of 100 pages. The events wait before a measurement begins.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { BODIES, type Body } from './bodies.ts';
import { compareCpu, compareRates, compareTotalCpu } from './compare.ts';
import type { Comparison, ProfileTable, Report } from './compare.ts';
import { type Bench, type Figures, type Measurement, openTargets, type Target } from './measure.ts';
import { createClient, median, type Service, spread, startProgram, TOKEN } from './service.ts';
import { cpuMicros } from './usage.ts';

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

/** @throws if an event is not delivered exactly once */
async function deliver(
  { postgres }: Bench,
  target: Target,
  receiver: Service,
  body: Body,
  events: number,
): Promise<Measurement> {
  const { sql, service } = target;
  await sql`insert into webhook.pause (paused_by) values ('bench')`;
  await sendEvents(target, body, events);
  await sql`checkpoint`;
  const cpu = () => [cpuMicros(service.processId), cpuMicros(postgres.processId)] as const;
  const before = cpu();
  await sql`delete from webhook.pause`;
  while ((await sql`select from webhook.work limit 1`).length > 0) await sleep(50);
  const after = cpu();
  const { received, seconds } = await readReceived(receiver);
  if (received !== events) throw new Error(`of ${events} events ${received} were delivered`);
  const perEvent = (index: 0 | 1) =>
    after[index] === null || before[index] === null
      ? null
      : (after[index] - before[index]) / events;
  return {
    rate: (received - 1) / seconds,
    p50: 0,
    p99: 0,
    serverCpu: perEvent(0),
    databaseCpu: perEvent(1),
    clientCpu: null,
    memory: null,
  };
}

async function measureInTurn(
  bench: Bench,
  targets: readonly Target[],
  receiver: Service,
  body: Body,
): Promise<Figures[]> {
  const events = bench.isQuick ? 1_000 : 4_000;
  const figures = targets.map(({ name, role }): Figures => ({
    name,
    role,
    measurements: [],
    requests: 0,
  }));
  // The first round warms up.
  for (let round = 0; round <= bench.rounds; round += 1) {
    for (let position = 0; position < targets.length; position += 1) {
      const index = (round + position) % targets.length;
      const target = targets[index];
      if (!target) throw new Error('no such target');
      const measurement = await deliver(bench, target, receiver, body, events);
      if (round > 0) figures[index]?.measurements.push(measurement);
    }
  }
  return figures;
}

export async function delivery(bench: Bench): Promise<Report> {
  const isAgainst = bench.builds.length > 1;
  const comparisons: Comparison[] = [];
  const rows: string[][] = [];
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
      const figures = await measureInTurn(bench, targets, receiver, body);
      rows.push(...figures.map((one) => rowOf(name, one)));
      if (!isAgainst) continue;
      comparisons.push(compareRates(name, figures), ...compareTotalCpu(name, figures));
      comparisons.push(...compareCpu(name, figures));
    }
  }
  return { comparisons, tables: [], profiles: [tableOf(rows)] };
}

function rowOf(name: string, { name: subject, measurements }: Figures): string[] {
  const middle = (pick: (one: Measurement) => number | null) =>
    median(measurements.map((one) => pick(one) ?? 0)).toFixed(0);
  const rates = spread(
    measurements.map(({ rate }) => rate),
    0,
  );
  return [name, subject, rates, middle((one) => one.serverCpu), middle((one) => one.databaseCpu)];
}

const tableOf = (rows: readonly string[][]): ProfileTable => ({
  heading: 'delivery to a local target, 10 attempts at a time',
  rows: [['', 'build', 'events/s', 'server CPU, µs/event', 'PostgreSQL CPU, µs/event'], ...rows],
  caveat:
    'The target replies at once, on the same machine. It does not say how fast a target of your own is.',
});
