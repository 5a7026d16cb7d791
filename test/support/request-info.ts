import type { RequestInfo } from '../../src/platform/http/route/route.ts';

/** A request for calling a handler directly. */
export const REQUEST: RequestInfo = {
  requestId: 'id-1',
  ids: { request_id: 'id-1', trace_id: undefined },
  method: 'GET',
  headers: {},
  address: '192.0.2.1',
  network: '192.0.2.1',
  isFromProxy: false,
  isFromOwnPage: false,
  startedAt: 0,
  endsAt: 3_600_000,
  gone: new AbortController().signal,
  progress: { route: 'GET /' },
  route: 'GET /',
  path: '/',
  query: new URLSearchParams(),
  parameters: {},
};
