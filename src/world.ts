import type { Writable } from 'node:stream';
import type { Config } from './config.ts';
import { createGate, type Gate } from './runtime/gate.ts';
import { createLog, gather, type Lines, type Log } from './runtime/log.ts';
import { createMetrics, type Metrics } from './runtime/metrics.ts';

/** Where the process writes: log lines and events as JSON on one, announcements as plain text on the other. */
export interface Output {
  readonly stdout: Writable;
  readonly stderr: NodeJS.WritableStream;
}

/** What there is once in a process. */
export interface World {
  readonly config: Config;
  readonly output: Output;
  readonly log: Log;
  readonly lines: Lines;
  readonly metrics: Metrics;
  readonly hashing: Gate;
  stopping: boolean;
}

/** How many may wait for a password hash. */
const HASHES_WAITING = 32;

export function createWorld(config: Config, output: Output): World {
  // Its own, and not what the stream holds: the plain receiver's events go the same way, and their senders wait for them.
  let unwritten = 0;
  const lines = gather(
    (text) => {
      unwritten += text.length;
      output.stdout.write(text, () => (unwritten -= text.length));
    },
    () => unwritten,
  );
  const log = createLog(config.logLevel, lines.add);
  const metrics = createMetrics();
  const hashing = createGate(config.hashesAtOnce, HASHES_WAITING, 'a password hash');
  metrics.gauge('gatehouse_password_hashes_running', {}, () => hashing.running);
  metrics.gauge('gatehouse_password_hashes_waiting', {}, () => hashing.waiting);
  return { config, output, log, lines, metrics, hashing, stopping: false };
}
