import { once, setMaxListeners } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { BlockList, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { createCounts } from '../../runtime/counts.ts';
import { canonicalAddress, isIn, networkOf } from './address.ts';
import { createBudget } from './budget.ts';
import type { ListenerOptions } from './exchange.ts';
import { createHeldBodies } from './held-bodies.ts';

const MAX_CONNECTIONS = 4_096;
const MAX_PER_NETWORK = MAX_CONNECTIONS / 4;
/** Requests that wait for the replies to earlier ones of their connection (pipelining). */
const MAX_WAITING = 256;

export interface Connection {
  readonly socket: Socket;
  readonly address: string;
  /** Null for a trusted proxy: it carries all of its clients, and no limit of a network applies. */
  readonly network: string | null;
  /** Aborted when the connection has ended. */
  readonly gone: AbortSignal;
  /** To the last request that has arrived. */
  latest: ServerResponse | null;
}

const CLOSED =
  'Connections closed because of a limit on all connections, on a network, or on waiting requests.';
const LABELS = ['service', 'limit'];

/**
 * The open connections of a listener. At a limit, a new connection replaces the one that has been
 * idle for longest, or otherwise the one that has sent a reply for longest, so that connections of
 * one client cannot exclude other clients.
 */
export function createConnections({ name, trustedProxies, bodies, metrics }: ListenerOptions) {
  const countClosed = metrics.counter('gatehouse_connections_closed_total', CLOSED, LABELS);
  const all = new Map<Duplex, Connection>();
  const openOf = createCounts<string | null>(); // by network
  const { idle, addIdle, hold } = createHeldBodies<Connection>(bodies.held);
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
    hold,
    open(socket: Socket) {
      const connection = connectionOf(socket, trustedProxies);
      const { network } = connection;
      const isFull = network !== null && openOf.of(network) >= MAX_PER_NETWORK;
      if (isFull || all.size >= MAX_CONNECTIONS) {
        countClosed([name, isFull ? 'network' : 'connections']);
        const replaced = [...idle, ...sending].find((one) => !isFull || one.network === network);
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
      }
      // Node gives a response the socket once the earlier ones are sent.
      await once(response, 'socket', { signal: connection.gone }).catch(() => {});
      place.release();
      return all.has(connection.socket);
    },
    finish(connection: Connection, response: ServerResponse) {
      sending.delete(connection);
      if (connection.latest === response && all.has(connection.socket)) addIdle(connection);
    },
  };
}

function connectionOf(socket: Socket, trustedProxies: BlockList): Connection {
  const address = canonicalAddress(socket.remoteAddress ?? '');
  const leaving = new AbortController();
  const gone = leaving.signal;
  setMaxListeners(MAX_WAITING, gone);
  socket.on('close', () => leaving.abort());
  return {
    socket,
    address,
    network: isIn(trustedProxies, address) ? null : networkOf(address),
    gone,
    latest: null,
  };
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
