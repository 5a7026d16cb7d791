import { once, setMaxListeners } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { BlockList, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { createCounts } from '../../runtime/counts.ts';
import type { Metrics } from '../../runtime/metrics.ts';
import { canonicalAddress, isTrusted, networkOf } from './address.ts';
import type { BodyReader } from './body-reader.ts';
import { createBudget } from './budget.ts';

const MAX_CONNECTIONS = 4_096;
const MAX_PER_NETWORK = MAX_CONNECTIONS / 4;
/** Requests that wait for the replies to earlier ones of their connection (pipelining). */
const MAX_WAITING = 256;

export interface Connection {
  readonly socket: Socket;
  readonly address: string;
  /** Null for a trusted proxy. */
  readonly network: string | null;
  /** Aborted when the connection has ended. Made at its first use, because it takes a kilobyte. */
  readonly gone: AbortSignal;
  /** To the last request that has arrived. */
  latest: ServerResponse | null;
}

type Options = Readonly<{
  name: string;
  trustedProxies: BlockList;
  bodies: BodyReader;
  metrics: Metrics;
}>;
const CLOSED =
  'Connections closed because of a limit on all connections, on a network, or on waiting requests.';
const LABELS = ['service', 'limit'];

/**
 * The open connections of a listener. At a limit, a new connection replaces the one that has been
 * idle for longest, or otherwise the one that has sent a reply for longest, so that connections of
 * one client cannot exclude other clients.
 */
export function createConnections({ name, trustedProxies, bodies, metrics }: Options) {
  const countClosed = metrics.counter('gatehouse_connections_closed_total', CLOSED, LABELS);
  const all = new Map<Duplex, Connection>();
  const openOf = createCounts<string | null>(); // by network
  const { idle, addIdle } = createIdle(bodies);
  const sending = new Set<Connection>(); // a reply of known length, the earliest first
  const waiting = createBudget(MAX_WAITING); // of which a network has a share

  function remove(connection: Connection) {
    if (!all.delete(connection.socket)) return;
    openOf.add(connection.network, -1);
    idle.delete(connection);
    sending.delete(connection);
    connection.socket.destroy();
  }

  return {
    all,
    sending,
    open(socket: Socket) {
      const connection = connectionOf(socket, trustedProxies);
      const { network } = connection;
      const limit = limitReached(all.size, network === null ? 0 : openOf.of(network));
      if (limit !== null) {
        countClosed([name, limit]);
        const replaced = findReplaceable([...idle, ...sending], limit, network);
        if (!replaced) {
          socket.destroy();
          return;
        }
        remove(replaced);
      }
      all.set(socket, connection);
      openOf.add(network, 1);
      addIdle(connection);
      socket.on('close', () => remove(connection));
    },
    begin(connection: Connection, response: ServerResponse) {
      connection.latest = response;
      idle.delete(connection);
    },
    /** Waits for the earlier replies of the connection. @returns whether it is still open */
    async turn(connection: Connection, network: string, response: ServerResponse) {
      const place = waiting.open(network, 0);
      if (place.growTo(1)) {
        countClosed([name, 'pipelining']);
        remove(connection);
        return false;
      }
      // Node gives a response the socket once the earlier ones are sent.
      await once(response, 'socket', { signal: connection.gone }).catch(() => {});
      place.release();
      return !connection.gone.aborted;
    },
    finish(connection: Connection, response: ServerResponse) {
      sending.delete(connection);
      if (connection.latest === response && all.has(connection.socket)) addIdle(connection);
    },
  };
}

function limitReached(open: number, share: number) {
  if (share >= MAX_PER_NETWORK) return 'network';
  return open >= MAX_CONNECTIONS ? 'connections' : null;
}

const findReplaceable = (
  candidates: readonly Connection[],
  limit: 'network' | 'connections',
  network: string | null,
) => candidates.find((one) => limit === 'connections' || one.network === network);

/** Connections without a complete head to answer, the longest idle first. */
function createIdle(bodies: BodyReader) {
  const idle = new Set<Connection>();
  bodies.onPause((from) => {
    for (const { socket, network } of idle) {
      if (network !== from) continue;
      if (bodies.isPaused(from)) socket.pause();
      else socket.resume();
    }
  });
  return {
    idle,
    addIdle(connection: Connection) {
      const { socket, network } = connection;
      idle.add(connection);
      // Node resumes a new socket at the end of this turn.
      if (bodies.isPaused(network)) process.nextTick(() => socket.pause());
    },
  };
}

function connectionOf(socket: Socket, trustedProxies: BlockList) {
  const address = canonicalAddress(socket.remoteAddress ?? '');
  // A trusted proxy carries all of its clients: no limit of a network applies to it.
  const network = isTrusted(address, trustedProxies) ? null : networkOf(address);
  let gone: AbortSignal | null = null;
  return {
    socket,
    address,
    network,
    get gone() {
      gone ??= endOf(socket);
      return gone;
    },
    latest: null,
  };
}

function endOf(socket: Socket) {
  if (socket.destroyed) return AbortSignal.abort();
  const ending = new AbortController();
  setMaxListeners(MAX_WAITING, ending.signal);
  socket.once('close', () => ending.abort());
  return ending.signal;
}

/**
 * Whether an error can be sent for rejected input: no other reply has begun, or the last one is
 * complete.
 */
export function isFree({ latest }: Connection) {
  if (!latest) return true;
  if (latest.req.complete) return latest.writableFinished;
  return latest.socket !== null && !latest.headersSent;
}
