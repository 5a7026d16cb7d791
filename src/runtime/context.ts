import type { Writable } from 'node:stream';
import type { Limiter } from './limiter.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';

/** What the process provides to each service. */
export interface ServiceContext {
  readonly log: Log;
  readonly metrics: Metrics;
  /** This service's share of the slots of the process: each password hash takes memory and a thread. */
  readonly hashing: Limiter;
  /** False until the first run is done, and again once the process shuts down. */
  readonly isServing: () => boolean;
  /** Shows the operator something once, as plain text outside the log: a first password or token. */
  readonly announce: (text: string) => void;
  /** For what is not a log line. */
  readonly stdout: Writable;
}
