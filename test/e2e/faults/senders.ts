/** Senders of signed events, who repeat each event until it is acknowledged. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { choose, createRandom, SEED } from './random.ts';

export const SIGNING_SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';

/** The event names that handler.mjs knows, most of them successful. */
const NAMES = [
  ...Array.from({ length: 6 }, () => 'succeeds'),
  'fails at first',
  'takes its time',
  'always fails',
];

export interface Senders {
  readonly token: string;
  /** The present URLs of the receivers. */
  readonly urls: string[];
  /** Event ids by delivery id. */
  readonly acknowledged: Map<string, string>;
  /** Delivery ids of events that were sent again. */
  readonly repeated: Set<string>;
  isSending: boolean;
}

/** Sends events of all kinds until `isSending` is false. */
export async function runSender(senders: Senders, sender: number): Promise<void> {
  const { urls } = senders;
  const random = createRandom(SEED + 1 + sender);
  const sent: Array<readonly [id: string, body: string]> = [];
  for (let number = 0; senders.isSending; number += 1) {
    const id = `msg_${sender}_${number}`;
    const type = choose(random, NAMES);
    const body = JSON.stringify({ type, number });
    await deliver(senders, id, body, () => urls[(sender + number) % urls.length] ?? '');
    // Repeating a dead event would redeliver it, as specified.
    if (type !== 'always fails') sent.push([id, body]);
    const duplicate = random() < 0.05 ? choose(random, sent) : undefined;
    if (duplicate) await deliver(senders, ...duplicate, () => urls[number % urls.length] ?? '');
    await sleep(30);
  }
}

/** Repeats an event until it is acknowledged, as senders do. */
export async function deliver(
  senders: Senders,
  id: string,
  body: string,
  url: () => string,
): Promise<void> {
  const { token, acknowledged, repeated } = senders;
  for (; senders.isSending; await sleep(50)) {
    const eventId = await post(token, url(), id, body);
    if (eventId === null) {
      repeated.add(id);
      continue;
    }
    const first = acknowledged.get(id) ?? eventId;
    assert.equal(eventId, first, `${id} was acknowledged under two ids`);
    acknowledged.set(id, eventId);
    return;
  }
}

/** @returns the id of the event, or null if it was not acknowledged */
async function post(token: string, url: string, id: string, body: string): Promise<string | null> {
  const time = String(Math.floor(Date.now() / 1000));
  const hmac = createHmac('sha256', Buffer.from(SIGNING_SECRET.slice('whsec_'.length), 'base64'));
  const headers = {
    authorization: `Bearer ${token}`,
    'content-type': 'application/json',
    'webhook-id': id,
    'webhook-timestamp': time,
    'webhook-signature': `v1,${hmac.update(`${id}.${time}.${body}`).digest('base64')}`,
  };
  try {
    const options = { method: 'POST', headers, body, signal: AbortSignal.timeout(20_000) };
    const response = await fetch(`${url}/webhook`, options);
    const reply: { id?: string } = JSON.parse(await response.text());
    const isExpected = response.status === 200 || response.status === 503;
    assert.ok(isExpected, `${response.status} ${JSON.stringify(reply)}`);
    return response.status === 200 ? (reply.id ?? null) : null;
  } catch (error) {
    if (error instanceof assert.AssertionError) throw error;
    return null;
  }
}
