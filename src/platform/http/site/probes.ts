import { Failure } from '../route/errors.ts';
import { publicRead, type ResponseStyle, route } from '../route/route.ts';
import { object, text } from '../route/schema.ts';

const probe = { ...publicRead, reply: object({ status: text() }) };

export const livez = route({
  ...probe,
  pattern: '/livez',
  summary: 'Whether the process answers',
  handle: async () => ({ data: { status: 'alive' } }),
});

/** What the probe of readiness asks of a service. */
export interface Readiness {
  isServing(): boolean;
  /** Answers within a second: null, or why requests cannot be served. */
  readiness(): Promise<string | null>;
}

/**
 * A service is ready if its database can be read and written, its schema is current, and the
 * process is neither starting nor shutting down.
 */
export const readyz = ({ unavailable }: ResponseStyle) =>
  route({
    ...probe,
    pattern: '/readyz',
    errors: [unavailable],
    summary:
      'Whether requests can be served: the database can be read and written and its schema is current',
    async handle(_call, service: Readiness) {
      const problem = service.isServing()
        ? await service.readiness()
        : 'the process is starting or shutting down';
      if (problem !== null) return new Failure(unavailable, { message: `Not ready: ${problem}.` });
      return { data: { status: 'ready' } };
    },
  });
