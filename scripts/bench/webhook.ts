/** Accepting an event: each request is a new one, answered once it is committed, against one insert of one row. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Bench, rateAgainst, type Report, slowestAgainst, startPlain, takeTurns } from './compare.ts';
import { writeRequests } from './load.ts';
import { createClient, type Service, startServices, TOKEN } from './service.ts';

const BODY = '{"event":"page.updated","data":{"page_id":"5c0f3d43-7b1f-4c1e-9f0a-2d8c1b7a6e5f","title":"for measuring only"}}';
const EVENT = { method: 'POST', path: '/webhook', headers: { Authorization: `Bearer ${TOKEN}` }, body: BODY } as const;

/** Of those that are waited for, for each of 64 clients. */
const EACH = 25;

/** Events that are answered or rows that are stored; both styles of the plain form have one table. */
interface Counts {
  readonly ours: number;
  readonly plain: number;
}

export async function webhook(bench: Bench): Promise<Report> {
  const { sql, directory } = bench;
  await sql`create schema if not exists plain`;
  await sql`create table plain.events (id uuid primary key, event text not null, body bytea not null, received_at timestamptz not null default now())`;
  // The limit for one token would be met before the database's.
  const ours = await startServices(['webhook'], bench.postgres.url, { WEBHOOK_RATE: '1000000' });
  const plain = await startPlain(bench, 'webhook');
  const replay = { file: writeRequests(join(directory, 'webhook'), [EVENT]), status: 200, text: '"status":"accepted"' };
  const figures = await takeTurns(bench, 64, [...plain, { name: 'gatehouse', service: ours }].map((one) => ({ ...one, replay })));

  const stored = async (): Promise<Counts> => {
    const [row] = await sql<[Counts]>`select (select count(*)::int from webhook.events) as ours, (select count(*)::int from plain.events) as plain`;
    return row;
  };
  const answered = { ours: figures.at(-1)?.answers ?? 0, plain: figures.slice(0, -1).reduce((sum, { answers }) => sum + answers, 0) };
  // What was on its way at the end of a turn is stored, and not counted. Soon it will all have arrived.
  await sleep(1_000);
  const before = await stored();
  if (before.ours < answered.ours || before.plain < answered.plain) throw lost(answered, before);
  // Because of those, a few that are lost would not show; they do among these, each of which is waited for.
  const sent = { ours: await sendAll(ours), plain: 0 };
  for (const { service } of plain) sent.plain += await sendAll(service);
  const after = await stored();
  const added = { ours: after.ours - before.ours, plain: after.plain - before.plain };
  if (added.ours !== sent.ours || added.plain !== sent.plain) throw lost(sent, added);
  return {
    findings: [rateAgainst('webhook accept, 64 clients', figures, 2), slowestAgainst('webhook accept, 64 clients', figures, 1)],
    figures: [['webhook accept, 64 clients', figures]],
    remarks: [`webhook accept: ${answered.ours} events were answered by gatehouse and ${before.ours} are stored, ${answered.plain} and ${before.plain} by the plain form; of ${sent.ours} more, each of which was waited for, exactly so many`],
  };
}

const lost = (answered: Counts, rows: Counts) => new Error(`answered 200 were ${JSON.stringify(answered)} events, and stored are ${JSON.stringify(rows)}`);

/** As many at once as before. @returns how many were answered 200, which is all */
async function sendAll(service: Service): Promise<number> {
  const counts = await Promise.all(
    Array.from({ length: 64 }, async () => {
      const { ask, close } = createClient(service);
      for (let count = 0; count < EACH; count += 1) {
        const { status, text } = await ask(EVENT.method, EVENT.path, { ...EVENT.headers, 'Content-Type': 'application/json' }, EVENT.body);
        if (status !== 200) throw new Error(`an event is not accepted: ${status} ${text}`);
      }
      close();
      return EACH;
    }),
  );
  return counts.reduce((sum, count) => sum + count, 0);
}
