import type { Metrics } from '../runtime/metrics.ts';
import { anonymous, bindRoutes, route, routeDefaults } from './call.ts';
import { livez } from './probes.ts';

/** The service behind METRICS_PORT. It stores nothing. */
export function start({ metrics }: { readonly metrics: Metrics }) {
  const row = route({
    ...routeDefaults,
    method: 'GET',
    pattern: '/metrics',
    summary: 'Prometheus metrics',
    guard: anonymous,
    reply: null,
    handle: async () => ({
      text: metrics.text(),
      contentType: 'text/plain; version=0.0.4; charset=utf-8',
    }),
  });
  return {
    routes: bindRoutes([row, livez], null),
    storage: null,
    firstRun: async () => {},
    jobs: [],
  };
}
