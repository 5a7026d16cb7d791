import type { ServerKey } from '../crypto/box.ts';
import { digest } from '../crypto/token.ts';
import { isReady } from '../db/migrate.ts';
import type { Database } from '../db/pool.ts';
import { Failure } from '../http/errors.ts';
import type { Log } from '../runtime/log.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { Overloaded } from '../runtime/errors.ts';
import { MIGRATIONS, SCHEMA } from './migrations.ts';
import { createRate } from './rules.ts';
import { openSecret, type SealedSecret, sealSecret } from './signing.ts';
import { type Acceptance, insertEvent, type NewEvent, type Plan } from './store/events.ts';
import { findSender, insertPending, type Sender } from './store/tokens.ts';

/**
 * What handlers work with. The two variants differ in who may send and where an event goes, and in nothing else.
 */
export interface WebhookService {
  readonly log: Log;
  /** Null in the plain variant, which keeps nothing. */
  readonly inbox: Inbox | null;
  /** @returns who presents this token, or null when it is not one */
  admit(token: string | null): Promise<Sender | null>;
  /** Counts a request of this sender, and says how long the next has to wait; 0 for not at all. */
  secondsToWait(tokenId: string): number;
  /** @returns the signing secrets themselves, of those that can be opened */
  openSecrets(sealed: readonly SealedSecret[]): readonly string[];
  /** Tells the operator that a signing secret of this token cannot be opened, and the sender to come back. */
  keyMissing(tokenId: string): Failure<'key_unknown'>;
  /** Keeps a signing secret for an operator to confirm. */
  keepPending(tokenId: string, secret: string): Promise<Failure<'key_unknown'> | null>;
  /** Resolves once the event is safe. */
  accept(event: NewEvent, pageId: string | null, requestId: string): Promise<Acceptance | 'another body'>;
  ready(): Promise<boolean>;
}

/** What operators see and do. */
export interface Inbox {
  readonly database: Database;
  /** Event streams that are open. */
  readonly streams: { open: number };
  /** There is work for the worker. Null where nothing delivers. */
  readonly notify: (() => void) | null;
  readonly isServing: () => boolean;
}

export interface ExtendedOptions {
  /** Null without WEBHOOK_SECRET. */
  readonly signingKey: ServerKey | null;
  /** What becomes of an event of this name, about this page. */
  readonly planFor: (event: string, pageId: string | null) => Plan;
  /** Events a second for each token. */
  readonly rate: number;
  /** Tokens whose use is to be noted, away from any request's path. */
  readonly pendingLastSeen: Set<string>;
  /** There is work for the worker. Null where nothing delivers. */
  readonly notify: (() => void) | null;
}

/** Bodies that wait for their commit; beyond it, senders are told to come back. */
const MAX_WAITING_BYTES = 32 * 1024 * 1024;

/** Tokens and events in the database. */
export function createExtended(database: Database, { signingKey, planFor, rate, pendingLastSeen, notify }: ExtendedOptions, { log, metrics, isServing }: ServiceContext): WebhookService {
  let waitingBytes = 0;
  metrics.gauge('gatehouse_events_waiting_bytes', 'Bytes of webhook events that wait for their commit.', {}, () => waitingBytes);
  const countReceived = metrics.counter('gatehouse_events_received_total', 'Webhook events accepted, by source and whether they came before.', ['source', 'status']);
  const keyMissing = (tokenId: string) => {
    log.error('WEBHOOK_SECRET is missing, or is not the one that signing secrets are sealed under', { token_id: tokenId });
    return new Failure('key_unknown', { message: 'The server cannot check the signatures of this sender. Nothing was stored. Tell the operator.' });
  };
  return {
    log,
    inbox: { database, streams: { open: 0 }, notify, isServing },
    async admit(token) {
      const sender = token === null ? null : await findSender(database, digest(token));
      if (sender?.last_seen_is_old) pendingLastSeen.add(sender.id);
      return sender;
    },
    secondsToWait: createRate(rate),
    keyMissing,
    openSecrets: (sealed) => sealed.flatMap((one) => (signingKey && openSecret(signingKey, one)) ?? []),
    async keepPending(tokenId, secret) {
      if (!signingKey) return keyMissing(tokenId);
      await insertPending(database, tokenId, sealSecret(signingKey, secret));
      log.warn('a sender has handed over its signing secret; it counts once it is confirmed with: gatehouse token confirm', { token_id: tokenId });
      return null;
    },
    async accept(event, pageId) {
      if (waitingBytes + event.body.length > MAX_WAITING_BYTES) throw new Overloaded('too many bytes are waiting to be stored');
      waitingBytes += event.body.length;
      try {
        const plan = planFor(event.event, pageId);
        const outcome = await insertEvent(database, event, plan);
        if (outcome === 'another body') return outcome;
        countReceived([event.source, outcome.status]);
        if (plan.kind === 'work') notify?.();
        return outcome;
      } finally {
        waitingBytes -= event.body.length;
      }
    },
    ready: async () => isServing() && isReady(database, SCHEMA, MIGRATIONS),
  };
}
