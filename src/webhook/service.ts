import { deriveServerKey, type ServerKey } from '../crypto/box.ts';
import { digest } from '../crypto/token.ts';
import { createReadiness } from '../db/schema.ts';
import type { Database } from '../db/pool.ts';
import type { RequestInfo } from '../http/call.ts';
import { createGuessLimit } from '../http/guesses.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { createRateLimit, createRecentMap } from '../runtime/rate.ts';
import { createCounter } from './counts.ts';
import type { KnownToken } from './store/tokens.ts';
import { SCHEMA } from './schema.ts';
import type { TargetSettings, WebhookSettings } from './settings.ts';

/** @param secret WEBHOOK_SECRET, or one of WEBHOOK_SECRET_PREVIOUS */
export const createSigningKey = (secret: string): ServerKey =>
  deriveServerKey(secret, 'gatehouse/webhook/v1/');
/** The first seals, all of them open. */
export type SigningKeys = readonly [ServerKey, ...ServerKey[]];

/** What the handlers of the extended variant work with. */
export type WebhookService = ReturnType<typeof createWebhook>;

export function createWebhook(
  { secrets, target, delivery, rate, maxSignedBytes }: WebhookSettings,
  database: Database,
  context: ServiceContext,
) {
  const { log, metrics } = context;
  const received = 'Webhook events accepted, by source and by whether they are duplicates.';
  const service = {
    ...context,
    database,
    maxSignedBytes,
    /** Open signing secrets; the first also seals them. None without WEBHOOK_SECRET. */
    signingKeys: secrets.map(createSigningKey),
    limitGuesses: createGuessLimit(),
    /** By network and digest. Null: looked up again at the next request. */
    senders: createRecentMap<Readonly<{ caller: KnownToken; until: number }> | null>(1_000),
    /** Null without a target: events stay stored. `isSelected` applies WEBHOOK_EVENTS, `isOrdered` is WEBHOOK_ORDER. */
    delivery: target && {
      isSelected: createSelector(delivery.events),
      isOrdered: delivery.isOrdered,
      targetKey: targetKeyOf(target),
      target: `${target.kind} ${target.label}`,
      pauses: delivery.pauses,
    },
    /** Tells the worker that events are due. Does nothing while there is none. */
    notifyWorker: () => {},
    /** The operator whom a trusted proxy names; null if there is none. Replaced if INBOX_USERS is set. */
    namedOperator: (_request: RequestInfo): string | null => null,
    limitRate: createRateLimit(rate, rate).take,
    countReceived: metrics.counter('gatehouse_events_received_total', received, [
      'source',
      'status',
    ]),
    /** Tokens whose last use is not written yet: a job does that, outside of requests. */
    pendingLastSeen: new Set<string>(),
    /** Bytes of events that wait for their commit. */
    uncommittedBytes: 0,
    openStreams: 0,
    countEvents: createCounter(database),
    readiness: createReadiness(database, SCHEMA, log),
  };
  const uncommitted = 'Bytes of webhook events that wait for their commit.';
  metrics.gauge('gatehouse_events_waiting_bytes', uncommitted, {}, () => service.uncommittedBytes);
  return service;
}

/** Under which the state of a target is kept: another target, in a later setting, begins without failures. */
export const targetKeyOf = ({ kind, id }: TargetSettings): string =>
  digest(`${kind} ${id}`).toString('base64url');

/** @param patterns event names in which `*` stands for any characters; none selects every event */
export function createSelector(patterns: readonly string[]): (event: string) => boolean {
  return (event) => patterns.length === 0 || patterns.some((pattern) => matches(pattern, event));
}

/** Searches piece by piece: a regular expression could take exponential time for a crafted event name. */
function matches(pattern: string, event: string): boolean {
  const [first = '', ...pieces] = pattern.split('*');
  const last = pieces.pop();
  if (last === undefined) return event === pattern;
  if (!event.startsWith(first)) return false;
  let end = first.length;
  for (const piece of pieces) {
    const found = event.indexOf(piece, end);
    if (found < 0) return false;
    end = found + piece.length;
  }
  return event.endsWith(last) && event.length - last.length >= end;
}
