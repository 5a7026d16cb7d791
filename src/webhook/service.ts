import { deriveServerKey } from '../platform/crypto/seal.ts';
import { createReadiness } from '../platform/db/readiness.ts';
import type { Database } from '../platform/db/pool.ts';
import { createCredentialCheck } from '../platform/http/credentials/guess-limit.ts';
import { createLastSeen } from '../platform/http/credentials/last-seen.ts';
import type { ServiceContext } from '../platform/runtime/context.ts';
import type { Metrics } from '../platform/runtime/metrics.ts';
import { toOneLine } from '../platform/runtime/text.ts';
import { createRateLimit, createRecentMap } from '../platform/runtime/rate-limit.ts';
import { countByStatus, readBars } from './store/inbox.ts';
import type { Source } from './sources.ts';
import { HANDSHAKE, UNKNOWN_TOKEN, type Unstored } from './store/unstored.ts';
import type { TokenCaller } from './store/tokens.ts';
import { SCHEMA } from './migrations.ts';
import type { WebhookSettings } from './settings.ts';

/** @param secret WEBHOOK_SECRET, or one of WEBHOOK_SECRET_PREVIOUS */
export const createSigningKey = (secret: string) =>
  deriveServerKey(secret, 'gatehouse/webhook/v1/');

/** Who sends events: a token, with what its source says. */
export type Sender = TokenCaller & Readonly<{ format: Source }>;

/** What the handlers of the extended variant work with. */
export type WebhookService = ReturnType<typeof createWebhook>;

export const receivedCounter = (metrics: Metrics) =>
  metrics.counter(
    'gatehouse_events_received_total',
    'Webhook events accepted, by source and by whether they are duplicates.',
    ['source', 'status'],
  );

/** Keeps the settings, but neither WEBHOOK_SECRET nor WEBHOOK_TOKEN themselves. */
export function createWebhook(
  { secrets, token, rate, ...others }: WebhookSettings,
  database: Database,
  context: ServiceContext,
) {
  const { log, metrics } = context;
  const service = {
    ...others,
    ...context,
    database,
    /** Open signing secrets; the first also seals them. None without WEBHOOK_SECRET. */
    signingKeys: secrets.map(createSigningKey),
    ...createCredentialCheck(),
    /** The cache of the guard, by network and digest. Null: its token has ended. */
    senders: createRecentMap<Readonly<{ caller: Sender; foundAt: number }> | null>(1_000),
    /** Tells a worker that events of its queue are due. Does nothing while there is none. */
    notifyWorker: (_queue?: string) => {},
    limitRate: createRateLimit(rate, rate).take,
    countReceived: receivedCounter(metrics),
    lastSeen: createLastSeen(), // of tokens
    unstored: createUnstored(metrics),
    /** Bytes of events that wait for their commit. */
    uncommittedBytes: 0,
    openStreams: 0,
    countEvents: createCounter(database),
    readiness: createReadiness(database, SCHEMA, log),
  };
  metrics.gauge(
    'gatehouse_events_waiting_bytes',
    'Bytes of webhook events that wait for their commit.',
    () => service.uncommittedBytes,
  );
  return service;
}

/**
 * Counts refused requests and handshakes until a job writes them. If that fails, the counts are
 * lost.
 */
function createUnstored(metrics: Metrics) {
  const count = metrics.counter(
    'gatehouse_events_refused_total',
    'Webhook events refused, by source and error code.',
    ['source', 'reason'],
  );
  const counted = new Map<string, Unstored>();
  return {
    /** @param detail what the client was told, or the kind of handshake */
    add(sender: Sender | undefined, reason: string, detail: string, address: string) {
      if (reason !== HANDSHAKE) count([sender?.source ?? 'unknown', reason]);
      const token_id = sender?.id ?? UNKNOWN_TOKEN;
      const key = `${token_id} ${reason}`;
      const before = counted.get(key)?.count ?? 0;
      const line = toOneLine(detail).slice(0, 300);
      counted.set(key, { token_id, reason, count: before + 1, detail: line, address });
    },
    takeAll() {
      const all = [...counted.values()];
      counted.clear();
      return all;
    },
  };
}

/** A count is used for this time, */
const USED_MS = 2_000;
/** and for so many times as long as it took: counting takes a twentieth of a connection. */
const USED_RATIO = 20;

/** Counts the events by status, and over the last hour and day. */
async function countEvents(database: Database) {
  return {
    counts: await countByStatus(database),
    minutes: await readBars(database, 'minute', 60),
    hours: await readBars(database, 'hour', 24),
  };
}

/** @returns `countEvents`, whose calls share one count, however many operators look at the inbox */
function createCounter(database: Database) {
  let shared: ReturnType<typeof countEvents> | null = null;
  const forget = () => {
    shared = null;
  };
  return () => {
    if (shared) return shared;
    const startedAt = performance.now();
    shared = countEvents(database);
    void shared.then(() => {
      const tookMs = performance.now() - startedAt;
      setTimeout(forget, Math.max(USED_MS, USED_RATIO * tookMs)).unref();
    }, forget);
    return shared;
  };
}
