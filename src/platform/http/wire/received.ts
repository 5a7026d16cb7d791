import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { BlockList } from 'node:net';
import type { CallerIds, ErrorCode, FailurePage } from '../route/errors.ts';
import { clientAddress, networkOf } from './address.ts';

/** A body that takes too long to arrive is refused earlier, with an error of its own. */
const ANSWER_MS = 16_000;

/**
 * W3C Trace Context, 3.2: version 00 has exactly these members, later ones may have more, and ff is
 * invalid.
 */
const TRACEPARENT =
  /^(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?$/;

/** What becomes known of a request, for its log line and an error. */
export interface Progress {
  route: string;
  /** What its row declares. */
  errors?: readonly ErrorCode[];
  failurePage?: FailurePage | undefined;
  /** For the log. */
  callerIds?: CallerIds | undefined;
  /** The kind of a credential that was refused. */
  credential?: string | undefined;
  /** Missing, logged as status 0, if the client left before there was a reply. */
  reply?: Readonly<{ status: number; reason?: ErrorCode }>;
}

export type Sender = Readonly<{ address: string; network: string | null; gone: AbortSignal }>;
type Options = Readonly<{ trustedProxies: BlockList; answerMs?: number }>;

/** What the head of a request says. Plain data: no socket. */
export type ReceivedRequest = Readonly<ReturnType<typeof receive>>;

/** @param connection of a trusted proxy if it has no network */
export function receive(
  { headers, method = '' }: Pick<IncomingMessage, 'headers' | 'method'>,
  connection: Sender,
  { trustedProxies, answerMs = ANSWER_MS }: Options,
) {
  const { 'x-forwarded-for': forwarded, traceparent } = headers;
  const given = String(headers['x-request-id'] ?? '');
  const requestId = /^[A-Za-z0-9._-]{1,128}$/.test(given) ? given : randomUUID();
  const traceId = TRACEPARENT.exec(String(traceparent ?? ''))?.[1];
  const isFromProxy = connection.network === null;
  const startedAt = performance.now();
  const address = isFromProxy
    ? clientAddress(connection.address, String(forwarded ?? ''), trustedProxies)
    : connection.address;
  const progress: Progress = { route: '(none)' };
  return {
    method,
    headers,
    requestId,
    /** In the log lines about the request. */
    ids: { request_id: requestId, trace_id: traceId },
    /** The client's address, which trusted proxies may have forwarded. */
    address,
    network: connection.network ?? networkOf(address), // throttles count by it
    /** Whether a trusted proxy sent the request, whose `X-Forwarded-` headers are believed. */
    isFromProxy,
    startedAt,
    /** Without a reply by then, the client gets an error. */
    endsAt: startedAt + answerMs,
    /** Aborted when the client has disconnected. */
    gone: connection.gone,
    progress,
  };
}
