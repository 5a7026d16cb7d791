/** What the process would give to a service, for tests that call a service's own functions. */
import { PassThrough } from 'node:stream';
import { createLimiter } from '../../src/platform/runtime/limiter.ts';
import { createLog } from '../../src/platform/runtime/log.ts';
import { createMetrics } from '../../src/platform/runtime/metrics.ts';
import type { ServiceContext, Site } from '../../src/platform/runtime/context.ts';

export const SITE: Site = {
  SITE_NAME: 'Gatehouse',
  SITE_LINKS: [],
  SITE_FOOTER: null,
  SITE_COLOR: null,
  SITE_LOGO_FILE: null,
};

export const quiet = (more: Partial<ServiceContext> = {}): ServiceContext => ({
  log: createLog('silent', () => {}),
  metrics: createMetrics(),
  site: SITE,
  MAX_BODY_BYTES: 65_536,
  hashing: createLimiter(2, 32, 'a password hash'),
  isServing: () => true,
  announce: () => {},
  handOut: async (_name, secret) => secret,
  stdout: new PassThrough(),
  ...more,
});
