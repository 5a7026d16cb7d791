/** A sender of events that knows which were acknowledged, and the target that they must reach. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { connect } from '../../../../scripts/postgres.ts';
import { choose } from '../random.ts';
import type { LoadClient } from './load.ts';
import type { Requests } from './requests.ts';
import type { Owner } from '../../../support/owner.ts';
import { startRecorder } from '../../../support/recorder.ts';

interface Sent {
  readonly deliveryId: string;
  readonly text: string;
  /** Null until it is acknowledged. */
  id: string | null;
}

/** Longer than the lease of a receiver that was killed, and the delays between a few attempts. */
const DELIVERY_MS = 75_000;

/** @param databaseUrl the present URL of the server itself */
export function createWebhookClient(
  requests: Requests,
  random: () => number,
  number: number,
  bearer: string,
  target: Target,
  databaseUrl: () => string,
): LoadClient {
  const sent: Sent[] = [];
  const open: Sent[] = [];
  return {
    /** A failed event is repeated until it is acknowledged, as senders do. */
    async step() {
      const repeated = open.shift() ?? (random() < 0.1 ? choose(random, sent) : undefined);
      const deliveryId = `msg_${number}_${sent.length}`;
      const data = { page_id: `p${sent.length % 7}`, deliveryId };
      const text = JSON.stringify({ event: 'load.sent', data });
      const event = repeated ?? { deliveryId, text, id: null };
      if (!repeated) sent.push(event);
      const isAcknowledged = await deliver(requests, bearer, event);
      if (!isAcknowledged && event.id === null) open.push(event);
    },
    async check() {
      const sql = connect(databaseUrl());
      try {
        const rows = await sql<StoredEvent[]>`
          select id, delivery_id, convert_from(body, 'UTF8') as text from webhook.events
          where delivery_id like ${`msg\\_${number}\\_%`}`;
        checkStored(requests, sent, rows);
        await untilDelivered(sql, target, rows);
        checkDelivered(requests, target, rows);
      } finally {
        await sql.end({ timeout: 1 });
      }
    },
  };
}

/** @returns whether the event was acknowledged */
async function deliver(requests: Requests, bearer: string, event: Sent): Promise<boolean> {
  const about = `event ${event.deliveryId}`;
  const headers = { 'webhook-id': event.deliveryId };
  const options = { about, expected: [200], bearer, headers, body: JSON.parse(event.text) };
  const reply = await requests.send('webhook', 'POST', '/webhook', options);
  if (!reply) return false;
  const { id = '', status } = reply.body;
  if (event.id !== null && event.id !== id) {
    requests.report(`${about}: acknowledged as ${event.id} and as ${id}`);
  }
  if (event.id !== null && status !== 'duplicate') {
    requests.report(`${about}: a repetition was ${status}`);
  }
  event.id = id;
  return true;
}

interface StoredEvent {
  readonly id: string;
  readonly delivery_id: string;
  readonly text: string;
}

function checkStored(
  requests: Requests,
  sent: readonly Sent[],
  rows: readonly StoredEvent[],
): void {
  const stored = new Map(rows.map((row) => [row.delivery_id, row]));
  if (stored.size !== rows.length) {
    requests.report(`${rows.length - stored.size} delivery ids are stored twice`);
  }
  for (const { deliveryId, id, text } of sent) {
    if (id === null) continue;
    const row = stored.get(deliveryId);
    if (row?.id !== id) {
      requests.report(`event ${deliveryId}: acknowledged as ${id}, stored as ${row?.id}`);
    } else if (row.text !== text) {
      requests.report(`event ${deliveryId}: stored with another body`);
    }
  }
}

/** Ends early when no event waits for its delivery any more. */
async function untilDelivered(
  sql: Sql,
  { received }: Target,
  rows: readonly StoredEvent[],
): Promise<void> {
  const deadline = Date.now() + DELIVERY_MS;
  while (rows.some(({ id }) => !received.has(id)) && Date.now() < deadline) {
    const [work] = await sql`select event_id from webhook.work limit 1`;
    if (!work) return;
    await sleep(250);
  }
}

function checkDelivered(
  requests: Requests,
  { received }: Target,
  rows: readonly StoredEvent[],
): void {
  for (const { id, delivery_id, text } of rows) {
    const got = received.get(id);
    if (got === undefined) requests.report(`event ${delivery_id}: stored, not delivered`);
    else if (got !== text) requests.report(`event ${delivery_id}: delivered with another body`);
  }
}

export type Target = Awaited<ReturnType<typeof startTarget>>;

/** Where events are forwarded. It fails now and then. */
export async function startTarget(t: Owner, random: () => number) {
  /** Bodies by event id. */
  const received = new Map<string, string>();
  const { url, answer } = await startRecorder(t);
  answer((response, { headers, body }) => {
    const isFailing = random() < 0.05;
    if (!isFailing) received.set(String(headers['webhook-id']), body);
    response.writeHead(isFailing ? 500 : 204).end();
  });
  return { url, received };
}
