import { bindRoutes, publicRead, route, routeDefaults } from '../http/route/route.ts';
import { livez } from '../http/site/built-in-routes.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { addProcessMetrics } from '../runtime/metrics.ts';

/**
 * The service behind METRICS_PORT, which stores nothing. On a listener of its own, because metrics
 * are for the operator and not for the services' callers.
 */
export const METRICS = {
  name: 'metrics',
  style: { wrapping: 'bare', unavailable: 'unavailable' },
  async start({ metrics }: ServiceContext) {
    addProcessMetrics(metrics);
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
    return { routes: bindRoutes([row, livez], null) };
  },
} as const;
