/** What the process would give to a service, for tests that call a service's own functions. */
import { createGate } from '../../src/runtime/gate.ts';
import { createLog } from '../../src/runtime/log.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';
import type { Surroundings } from '../../src/runtime/surroundings.ts';

export const quiet = (more: Partial<Surroundings> = {}): Surroundings => ({
  log: createLog('silent', () => {}),
  metrics: createMetrics(),
  hashing: createGate(2, 32, 'a password hash'),
  isServing: () => true,
  announce: () => {},
  print: async () => {},
  ...more,
});
