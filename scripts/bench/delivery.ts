/**
 * Delivery to a local target: events per second and processor time per event, by body, without an
 * order and in the order of 100 pages. The events wait before a measurement begins.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { BODIES, type Body } from './bodies.ts';
import { cellsOf, compare, type Comparison, type Report, type Row } from './compare.ts';
import { measureInTurn, openTargets, startProcessorTime } from './measure.ts';
import type { Bench, Measurement, Target } from './measure.ts';
import { createClient, type Service, startProgram, TOKEN } from './service.ts';

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
  const { received, seconds } = await readReceived(receiver);
  if (received !== events) throw new Error(`of ${events} events ${received} were delivered`);
  const rate = (received - 1) / seconds;
  return { rate, p50: null, p99: null, ...cpu, memory: null };
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
      const figures = await measureInTurn(bench.rounds, targets, async (target) => {
        const measurement = await deliver(bench, target, receiver, body, events);
        return { requests: events, measurement };
      });
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
