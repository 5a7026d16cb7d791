import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { BlockList, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Metrics } from '../../runtime/metrics.ts';
import { canonicalAddress, isTrusted, networkOf } from './address.ts';
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
  /** To the last request that has arrived. */
  latest: ServerResponse | null;
}

type Options = Readonly<{
  name: string;
  trustedProxies: BlockList;
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
export function createConnections({ name, trustedProxies, metrics }: Options) {
  const countClosed = metrics.counter('gatehouse_connections_closed_total', CLOSED, LABELS);
  const all = new Map<Duplex, Connection>();
  const idle = new Set<Connection>(); // without a complete head to answer, the longest idle first
  const sending = new Set<Connection>(); // a reply of known length, the earliest first
  const waiting = createBudget(MAX_WAITING); // of which a network has a share
  const { pause, addIdle } = createPauses(idle);
  const remove = (connection: Connection) => {
    all.delete(connection.socket);
    idle.delete(connection);
    sending.delete(connection);
    connection.socket.destroy();
  };
  return {
    all,
    sending,
    pause,
    open(socket: Socket) {
      const connection = connectionOf(socket, trustedProxies);
      const limit = limitReached(all, connection.network);
      if (limit !== null) {
        countClosed([name, limit]);
        const replaced = findReplaceable([...idle, ...sending], limit, connection.network);
        if (!replaced) {
          socket.destroy();
          return;
        }
        remove(replaced);
      }
      all.set(socket, connection);
      addIdle(connection);
      socket.on('close', () => remove(connection));
    },
    begin(connection: Connection, response: ServerResponse) {
      connection.latest = response;
      idle.delete(connection);
    },
    /**
     * Waits until the earlier replies of the connection are sent: one is prepared at a time.
     * @param network of the client
     * @returns whether the connection is still open
     */
    async turn(connection: Connection, network: string, response: ServerResponse) {
      const place = waiting.open(network, 0);
      if (place.growTo(1)) {
        countClosed([name, 'pipelining']);
        remove(connection);
        return false;
      }
      await waitForSocket(response, connection.socket);
      place.release();
      return !connection.socket.destroyed;
    },
    finish(connection: Connection, response: ServerResponse) {
      sending.delete(connection);
      const isLast = connection.latest === response;
      if (isLast && all.has(connection.socket)) addIdle(connection);
    },
  };
}

const findReplaceable = (
  candidates: readonly Connection[],
  limit: 'network' | 'connections',
  network: string | null,
) => candidates.find((one) => limit === 'connections' || one.network === network);

/** Node gives a response the socket once the earlier ones are sent. */
async function waitForSocket(response: ServerResponse, socket: Socket) {
  const over = new AbortController();
  socket.setMaxListeners(MAX_WAITING);
  const either = [once(response, 'socket', over), once(socket, 'close', over)];
  await Promise.race(either).catch(() => {});
  over.abort();
}

function createPauses(idle: Set<Connection>) {
  const paused = new Set<string | null>(); // networks
  const idleOf = (from: string | null) => [...idle].filter(({ network }) => network === from);
  return {
    /**
     * Reads no further requests for a while.
     * @param from a network, or null for trusted proxies
     */
    async pause(from: string | null, end: Promise<void>) {
      paused.add(from);
      for (const { socket } of idleOf(from)) socket.pause();
      await end;
      paused.delete(from);
      for (const { socket } of idleOf(from)) socket.resume();
    },
    addIdle(connection: Connection) {
      const { socket, network } = connection;
      idle.add(connection);
      // Node resumes a new socket at the end of this turn.
      if (paused.has(network)) process.nextTick(() => socket.pause());
    },
  };
}

function connectionOf(socket: Socket, trustedProxies: BlockList) {
  const address = canonicalAddress(socket.remoteAddress ?? '');
  // A trusted proxy carries all of its clients: no limit of a network applies to it.
  const network = isTrusted(address, trustedProxies) ? null : networkOf(address);
  return {
    socket,
    address,
    network,
    latest: null,
  };
}

function limitReached(all: ReadonlyMap<Duplex, Connection>, network: string | null) {
  const share = [...all.values()].filter((one) => one.network === network);
  if (network !== null && share.length >= MAX_PER_NETWORK) return 'network';
  return all.size >= MAX_CONNECTIONS ? 'connections' : null;
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
