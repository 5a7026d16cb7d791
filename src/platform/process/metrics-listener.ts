import { bindRoutes, publicRead, route, routeDefaults } from '../http/route/route.ts';
import { livez } from '../http/site/probes.ts';
import type { Metrics } from '../runtime/metrics.ts';

/** The service behind METRICS_PORT. It stores nothing. */
export function startMetrics(metrics: Metrics) {
  const row = route({
    ...publicRead,
    query: routeDefaults.query,
    pattern: '/metrics',
    summary: 'Prometheus metrics',
    handle: async () => ({
      text: metrics.text(),
      contentType: 'text/plain; version=0.0.4; charset=utf-8',
    }),
  });
  return {
    routes: bindRoutes([row, livez], null),
    storage: null,
    jobs: [],
  };
}
