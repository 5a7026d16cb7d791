/**
 * Accepting events, each a new one and answered after its commit, compared with one insert of one
 * row.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Report } from './compare.ts';
import { writeRequests } from './load.ts';
import type { Bench, Target } from './measure.ts';
import { type LoadCase, measureCase } from './operation.ts';
import { createClient, TOKEN } from './service.ts';

const PAGE_ID = '5c0f3d43-7b1f-4c1e-9f0a-2d8c1b7a6e5f';
const headers = { Authorization: `Bearer ${TOKEN}` };

/** An event of exactly this many bytes. */
function bodyOf(bytes: number): string {
  const withText = (text: string) =>
    JSON.stringify({ event: 'page.updated', data: { page_id: PAGE_ID, text } });
  return withText('x'.repeat(bytes - withText('').length));
}

const EVENT = { method: 'POST', path: '/webhook', headers } as const;
const CLIENTS = 64;
const EVENTS_PER_CLIENT = 25;

export const accept: LoadCase = {
  name: 'webhook accept',
  service: 'webhook',
  baseline: 'webhook',
  hasSizes: true,
  // The default limit per token is lower than what the database can store.
  settings: { WEBHOOK_RATE: '1000000' },
  targets: { rate: 1.6, p99: 1 },
  caveat:
    'No target is set, so nothing is delivered, and one token sends everything without a signature.' +
    ' It does not say how long such a rate lasts on a disk that flushes more slowly.',
  async prepare({ directory }, { sql, role }, bytes) {
    if (role === 'baseline') await createTable({ sql });
    const file = writeRequests(join(directory, `webhook-${bytes}`), [
      { ...EVENT, body: bodyOf(bytes) },
    ]);
    return { file, status: 200, text: '"status":"accepted"' };
  },
};

async function createTable({ sql }: Pick<Target, 'sql'>): Promise<void> {
  await sql`set client_min_messages = warning`;
  await sql`create schema if not exists baseline`;
  await sql`
    create table if not exists baseline.events (
      id uuid primary key, event text not null, body bytea not null,
        received_at timestamptz not null default now()
    )`;
}

export function webhook(bench: Bench): Promise<Report> {
  return measureCase(bench, accept, async (answered) => {
    // Requests in flight at the end of a measurement are stored but not counted. Wait until they
    // have arrived.
    await sleep(1_000);
    const remarks: string[] = [];
    // Both baselines store into one table.
    const tables = new Map<string, Array<{ target: Target; requests: number }>>();
    for (const entry of answered) {
      const key = entry.target.role === 'baseline' ? 'the baselines' : entry.target.name;
      tables.set(key, [...(tables.get(key) ?? []), entry]);
    }
    for (const [name, entries] of tables) {
      const requests = entries.reduce((sum, entry) => sum + entry.requests, 0);
      remarks.push(
        await checkStored(
          name,
          entries.map(({ target }) => target),
          requests,
        ),
      );
    }
    return remarks;
  });
}

/** @throws if an event that was acknowledged is not stored */
async function checkStored(
  name: string,
  targets: readonly Target[],
  accepted: number,
): Promise<string> {
  const [target] = targets;
  if (!target) throw new Error('no target');
  const table = target.role === 'baseline' ? 'baseline.events' : 'webhook.events';
  const countStored = async (): Promise<number> => {
    const [row] = await target.sql<
      [{ n: number }]
    >`select count(*)::int as n from ${target.sql(table)}`;
    return row.n;
  };
  const before = await countStored();
  if (before < accepted)
    throw new Error(`${name} accepted ${accepted} events and stored ${before}`);
  // Those in flight could hide a few lost events. Here every reply is awaited, so the numbers must
  // be equal.
  let sent = 0;
  for (const one of targets) sent += await sendEvents(one);
  const added = (await countStored()) - before;
  if (added !== sent) throw new Error(`${name} accepted ${sent} events and stored ${added}`);
  return (
    `webhook accept: ${name} accepted ${accepted} events and stored ${before}, including those in flight at the` +
    ` end of a measurement; of ${sent} more with every reply awaited, ${added} are stored`
  );
}

/** @returns the number of accepted events */
async function sendEvents({ service }: Target): Promise<number> {
  const jsonHeaders = { ...headers, 'Content-Type': 'application/json' };
  const body = bodyOf(1_024);
  await Promise.all(
    Array.from({ length: CLIENTS }, async () => {
      const { send, close } = createClient(service);
      for (let count = 0; count < EVENTS_PER_CLIENT; count += 1) {
        const { status, text } = await send(EVENT.method, EVENT.path, jsonHeaders, body);
        if (status !== 200) throw new Error(`an event was not accepted: ${status} ${text}`);
      }
      close();
    }),
  );
  return CLIENTS * EVENTS_PER_CLIENT;
}
