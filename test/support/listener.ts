/** The real listener on a free port, with a route table that belongs to the test. */
import { BlockList } from 'node:net';
import { json } from '../../src/platform/http/route/json-body.ts';
import {
  anonymous,
  bindRoutes,
  type Guard,
  type Route,
  route,
  routeDefaults,
} from '../../src/platform/http/route/route.ts';
import { Failure } from '../../src/platform/http/route/errors.ts';
import { createBodyReader } from '../../src/platform/http/wire/body-reader.ts';
import { close, createListener, listen } from '../../src/platform/http/wire/server.ts';
import { parameterNames } from '../../src/platform/http/route/router.ts';
import { object, type Schema, text } from '../../src/platform/http/route/schema.ts';
import { createLog } from '../../src/platform/runtime/log.ts';
import { createMetrics } from '../../src/platform/runtime/metrics.ts';
import { latch } from './until.ts';
import type { Owner } from './owner.ts';

export type TestListener = Awaited<ReturnType<typeof startListener>>;

export const MAX_BODY_BYTES = 64 * 1024;

export async function startListener(
  owner: Owner,
  routes: ReadonlyArray<Route<null>>,
  trustedProxies = new BlockList(),
  answerMs = 15_000,
) {
  const lines: Array<Record<string, unknown>> = [];
  const metrics = createMetrics();
  let isLeaving = false;
  const listener = createListener({
    name: 'test',
    host: '127.0.0.1',
    port: 0,
    routes: bindRoutes(routes, null),
    style: { wrapping: 'bare', unavailable: 'unavailable' },
    maxBodyBytes: MAX_BODY_BYTES,
    bodies: createBodyReader(),
    trustedProxies,
    answerMs,
    logProbes: true,
    logRequests: 'all',
    log: createLog('info', (line) => lines.push(JSON.parse(line))),
    metrics,
    isLeaving: () => isLeaving,
  });
  const port = await listen(listener);
  owner.after(() => close(listener, 0));
  return {
    url: `http://127.0.0.1:${port}`,
    server: listener.server,
    inFlight: () =>
      Number(/^gatehouse_requests_in_flight\{.*\} ([0-9]+)$/m.exec(metrics.text())?.[1]),
    /** The metrics in Prometheus format. */
    metrics: metrics.text,
    lines: (): ReadonlyArray<Record<string, unknown>> => lines,
    /** The log lines of finished exchanges. */
    requests: () => lines.filter((line) => line.message === 'request'),
    /** Closes the listener as a shutdown does. */
    close(graceMs: number) {
      isLeaving = true;
      return close(listener, graceMs);
    },
  };
}

/** Without limits of time: a slow machine may need minutes to open all connections. */
export async function startPatient(
  owner: Owner,
  routes: ReadonlyArray<Route<null>>,
  trustedProxies = new BlockList(),
): Promise<TestListener> {
  const own = await startListener(owner, routes, trustedProxies, 240_000);
  const limits = { headersTimeout: 0, requestTimeout: 0, keepAliveTimeout: 0, timeout: 0 };
  Object.assign(own.server, limits);
  return own;
}

const bare = { ...routeDefaults, summary: 'for a test', reply: null, errors: [] } as const;

/** A route that answers GET with what the handler returns. */
export const get = (
  pattern: string,
  handle: Parameters<typeof route<null, null, unknown, unknown, null, unknown>>[0]['handle'],
): Route<null> => {
  const members = Object.fromEntries(parameterNames(pattern).map((name) => [name, text()]));
  const path: Schema<unknown> = object(members);
  return route({ ...bare, method: 'GET', pattern, path, guard: anonymous, handle });
};

/** A route that accepts `{"name": …}` and returns it. */
export const post = (
  pattern: string,
  guard: Guard<null, null> = anonymous,
  done: () => void = () => {},
): Route<null> =>
  route({
    ...bare,
    method: 'POST',
    pattern,
    guard,
    body: json(object({ name: text() })),
    async handle({ body }) {
      done();
      return { data: body.name };
    },
  });

/** Accepts `Authorization: Bearer good`. */
export const bearerGuard: Guard<null, null> = {
  security: ['bearer'],
  errors: ['unauthorized'],
  check: async ({ headers }) =>
    headers.authorization === 'Bearer good' ? null : new Failure('unauthorized'),
};

/** A guard that waits until `release` is called. */
export function slowGuard() {
  const { opened: entered, open: enter } = latch();
  const { opened: released, open: release } = latch();
  const check = async () => {
    enter();
    await released;
    return null;
  };
  const guard: Guard<null, null> = { security: [], errors: [], check };
  return { guard, entered, release };
}
