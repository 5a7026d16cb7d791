/**
 * The words of this service, and the data that more than one module has.
 *
 * - An **event** is a request of a sender, as it was received. It never changes.
 * - Its **work** is that it waits for delivery or is being delivered. Without work, it has ended
 *   with an outcome (`done`, `dead` or `skipped`), or is only `stored`.
 * - A **run** is all attempts to deliver an event until it ends. Each redelivery begins another.
 * - A **lease** is the right to deliver an event for LEASE_SECONDS. Workers claim events under
 *   leases and renew them. An event whose lease has expired is due again.
 * - A **target** is where events are delivered: that of the process, or that of a token.
 * - A **queue** is the work of one target, by the id of the token; COMMON is that of the process.
 * - The **revision** of a token is the number of changes of its target. Who works with an earlier
 *   target stores and claims nothing.
 * - A **page** is all work of one sender with the same key, such as `data.page_id`, by its
 *   `order_key`. Its
 *   events are delivered one at a time, in the order of their numbers (`seq`). Its **tail** is the
 *   number of the last event that was stored, its **head** that of the first that has not ended.
 */
import type { SourceName } from './sources.ts';

export const STATUSES = ['stored', 'waiting', 'done', 'dead', 'skipped'] as const;
export type Status = (typeof STATUSES)[number];

export type NewEvent = Readonly<{
  id: string;
  token_id: string;
  /** The digest of the token that the sender presented. */
  token_digest: Buffer;
  /** The signing secret that verified its signature; null for a source without signatures. */
  secret_id: string | null;
  source: SourceName;
  delivery_id: string | null;
  body_digest: Buffer | null;
  event: string;
  headers: Readonly<Record<string, string>>;
  ip: string;
  body: Buffer;
  /** `waiting` is delivered, `stored` is only kept, `skipped` is not selected by WEBHOOK_EVENTS. */
  status: 'waiting' | 'stored' | 'skipped';
  order_key: string | null; // of its page
  revision: number; // of the token, by which the status and the queue were decided
  queue: string;
}>;

/** Of an event that another program stored with `webhook.emit`. */
export const OUTBOX = 'outbox';
type EventSource = SourceName | typeof OUTBOX;

/** An event under a lease, for one delivery attempt. Attempts are numbered from 1. */
export type LeasedEvent = Pick<
  NewEvent,
  'id' | 'token_id' | 'event' | 'delivery_id' | 'headers' | 'body'
> &
  Readonly<{ source: EventSource; received_at: Date; lease: string; attempt: number }>;

/** A program and its arguments. */
export type Command = readonly [string, ...string[]];

/** A target, as it is stored with a token. A token has no module. */
export type Target = Readonly<{ url: string } | { command: Command } | { module: string }> &
  TargetOptions;
export type TargetOptions = Readonly<{
  events?: readonly string[] | null | undefined; // the names; by default, as the process selects
  timeout_seconds?: number | null | undefined; // by default, that of the process
  is_signed?: boolean | undefined; // whether a secret of its own signs the requests
}>;

/** Delivers events to a target. */
export interface Deliverer {
  /** Ends soon after `signal` aborts, which it does at the time limit and at a shutdown. */
  deliver(event: LeasedEvent, signal: AbortSignal): Promise<Result>;
  close(): Promise<void>;
}

/** How an attempt ended. */
export type Result = Readonly<{
  error: string | null; // null on success
  duration_ms?: number;
  answer_status?: number | undefined; // of the target's reply, or the exit code of the program
  answer?: string | undefined; // the beginning of the reply, or the end of the output
  target?: string; // its kind and origin, program or module
  retryAfter?: number | null; // for how many seconds the target asked to wait
  unfinished?: string; // what was missing when the attempt was aborted
  wereKilled?: boolean; // whether processes that the program had left running were killed
}>;
