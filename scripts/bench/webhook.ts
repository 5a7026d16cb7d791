/** Accepting events, each a new one and answered after its commit, compared with one insert of one row. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Bench, compareP99, compareRates, measureRounds, type Report, startBaselines } from './compare.ts';
import { writeRequests } from './load.ts';
import { createClient, type Service, startServices, TOKEN } from './service.ts';

const PAGE = '{"page_id":"5c0f3d43-7b1f-4c1e-9f0a-2d8c1b7a6e5f","title":"for measuring only"}';
const BODY = `{"event":"page.updated","data":${PAGE}}`;
const headers = { Authorization: `Bearer ${TOKEN}` };
const EVENT = { method: 'POST', path: '/webhook', headers, body: BODY } as const;

const CLIENTS = 64;
const EVENTS_PER_CLIENT = 25;

/** Accepted events or stored rows. Both baselines share a table. */
interface Counts {
  readonly ours: number;
  readonly baseline: number;
}

export async function webhook(bench: Bench): Promise<Report> {
  const { sql, directory } = bench;
  await sql`create schema if not exists baseline`;
  await sql`
    create table baseline.events (
      id uuid primary key, event text not null, body bytea not null, received_at timestamptz not null default now()
    )`;
  // The default limit per token is lower than what the database can store.
  const ours = await startServices(['webhook'], bench.postgres.url, { WEBHOOK_RATE: '1000000' });
  const baselines = await startBaselines(bench, 'webhook');
  const replay = { file: writeRequests(join(directory, 'webhook'), [EVENT]), status: 200, text: '"status":"accepted"' };
  const subjects = [...baselines, { name: 'gatehouse', service: ours }].map((one) => ({ ...one, replay }));
  const figures = await measureRounds(bench, CLIENTS, subjects);

  const countStored = async (): Promise<Counts> => {
    const [row] = await sql<[Counts]>`
      select (select count(*)::int from webhook.events) as ours,
        (select count(*)::int from baseline.events) as baseline`;
    return row;
  };
  const accepted = {
    ours: figures.at(-1)?.requests ?? 0,
    baseline: figures.slice(0, -1).reduce((sum, { requests }) => sum + requests, 0),
  };
  // Requests in flight at the end of a measurement are stored but not counted. Wait until they have arrived.
  await sleep(1_000);
  const before = await countStored();
  if (before.ours < accepted.ours || before.baseline < accepted.baseline) throw lost(accepted, before);
  // Those could hide a few lost events. Here every reply is awaited, so the numbers must be equal.
  const sent = { ours: await sendEvents(ours), baseline: 0 };
  for (const { service } of baselines) sent.baseline += await sendEvents(service);
  const after = await countStored();
  const added = { ours: after.ours - before.ours, baseline: after.baseline - before.baseline };
  if (added.ours !== sent.ours || added.baseline !== sent.baseline) throw lost(sent, added);
  return {
    comparisons: [
      compareRates('webhook accept, 64 clients', figures, 2),
      compareP99('webhook accept, 64 clients', figures, 1),
    ],
    figures: [['webhook accept, 64 clients', figures]],
    remarks: [
      `webhook accept: gatehouse accepted ${accepted.ours} events and stored ${before.ours}, including those in flight`
        + ` at the end of a measurement; of ${sent.ours} more with every reply awaited, it stored ${added.ours}`,
      `webhook accept: the baselines accepted ${accepted.baseline} events and stored ${before.baseline}`,
    ],
  };
}

const lost = (accepted: Counts, stored: Counts) =>
  new Error(`accepted ${JSON.stringify(accepted)} events and stored ${JSON.stringify(stored)}`);

/** @returns the number of accepted events */
async function sendEvents(service: Service): Promise<number> {
  const jsonHeaders = { ...headers, 'Content-Type': 'application/json' };
  await Promise.all(Array.from({ length: CLIENTS }, async () => {
    const { send, close } = createClient(service);
    for (let count = 0; count < EVENTS_PER_CLIENT; count += 1) {
      const { status, text } = await send(EVENT.method, EVENT.path, jsonHeaders, EVENT.body);
      if (status !== 200) throw new Error(`an event was not accepted: ${status} ${text}`);
    }
    close();
  }));
  return CLIENTS * EVENTS_PER_CLIENT;
}
