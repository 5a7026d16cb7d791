import type { Gate } from './gate.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';

/** What the process gives to each service that runs in it. */
export interface Surroundings {
  readonly log: Log;
  readonly metrics: Metrics;
  /** Each password hash takes its memory and a thread: so many at once, so many waiting, the rest is told to come back. */
  readonly hashing: Gate;
  /** False before the first run is done and from the moment the process shuts down. */
  readonly isServing: () => boolean;
  /** Tells the operator something once, in plain text, outside the log: a first password or token. */
  readonly announce: (line: string) => void;
  /** Standard output, for what is not a log line. Resolves when the line has left the process. */
  readonly print: (line: string) => Promise<void>;
}
