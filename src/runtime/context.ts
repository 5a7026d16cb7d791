import type { Limiter } from './limiter.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';

/** What the process gives to each service that runs in it. */
export interface ServiceContext {
  readonly log: Log;
  readonly metrics: Metrics;
  /** Each password hash takes its memory and a thread, so their number is limited for all services together. */
  readonly hashing: Limiter;
  /** False until the first run is done, and once the process shuts down. */
  readonly isServing: () => boolean;
  /** Tells the operator something once, as plain text outside the log: a first password or token. */
  readonly announce: (line: string) => void;
  /** Standard output, for what is not a log line. Resolves once the line has left the process. */
  readonly print: (line: string) => Promise<void>;
}
