import type { Writable } from 'node:stream';
import type { LimiterShare } from './limiter.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';

/** How pages look, by the names of the variables. */
export type Site = Readonly<{
  SITE_NAME: string;
  SITE_FOOTER: string | null;
  SITE_LINKS: readonly string[];
  SITE_COLOR: string | null;
  SITE_LOGO_FILE: Readonly<{ text: Buffer; contentType: string }> | null;
}>;

/** What the process provides to each service. */
export type ServiceContext = Readonly<{
  log: Log;
  metrics: Metrics;
  /**
   * This service's share of the slots of the process: each password hash takes memory and a thread.
   */
  hashing: LimiterShare;
  site: Site;
  /** What a request with a credential may send, unless its route says otherwise. */
  MAX_BODY_BYTES: number;
  /** False until the first run is done, while the process drains, and once it shuts down. */
  isServing: () => boolean;
  /** Tells the operator something once, as plain text outside the log. */
  announce: (text: string) => void;
  /**
   * Writes a generated secret to the operator's file of this name, if there is one.
   * @returns what to announce of it
   */
  handOut: (name: string, secret: string) => Promise<string>;
  /** For output other than log lines. */
  stdout: Writable;
}>;
