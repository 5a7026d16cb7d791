import type { ServerResponse } from 'node:http';
import type { BlockList, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Metrics } from '../../runtime/metrics.ts';
import { canonicalAddress, isTrusted, networkOf } from './address.ts';
import { waitForEvent } from './reply.ts';

const MAX_CONNECTIONS = 4_096;
const MAX_PER_NETWORK = MAX_CONNECTIONS / 4;
/** Unfinished requests of a connection, all but the first of which wait (pipelining). */
const MAX_RUNNING = 6;
/** Requests that wait, of all connections and of those of a network. */
const MAX_WAITING = 256;
const MAX_WAITING_PER_NETWORK = MAX_WAITING / 4;

export interface Connection {
  readonly socket: Socket;
  readonly address: string;
  /** Null for a trusted proxy. */
  readonly network: string | null;
  running: number; // exchanges that are not finished
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
        const replaced = [...idle, ...sending].find(
          ({ network }) => limit === 'connections' || network === connection.network,
        );
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
      connection.running += 1;
      connection.latest = response;
      idle.delete(connection);
    },
    /**
     * Waits for earlier replies: one is prepared at a time.
     * @returns whether the connection is still open
     */
    async turn(connection: Connection, response: ServerResponse) {
      if (connection.running > MAX_RUNNING || hasTooManyWaiting(all, connection.network)) {
        countClosed([name, 'pipelining']);
        remove(connection);
      } else {
        await waitForEvent(response, 'socket', connection);
      }
      return !connection.socket.destroyed;
    },
    finish(connection: Connection) {
      connection.running -= 1;
      sending.delete(connection);
      if (connection.running === 0 && all.has(connection.socket)) addIdle(connection);
    },
  };
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
    running: 0,
    latest: null,
  };
}

function limitReached(all: ReadonlyMap<Duplex, Connection>, network: string | null) {
  const share = [...all.values()].filter((one) => one.network === network);
  if (network !== null && share.length >= MAX_PER_NETWORK) return 'network';
  return all.size >= MAX_CONNECTIONS ? 'connections' : null;
}

function hasTooManyWaiting(all: ReadonlyMap<Duplex, Connection>, network: string | null) {
  let waiting = 0;
  let ofNetwork = 0;
  for (const one of all.values()) {
    const own = Math.max(0, one.running - 1);
    waiting += own;
    if (network !== null && one.network === network) ofNetwork += own;
  }
  return waiting > MAX_WAITING || ofNetwork > MAX_WAITING_PER_NETWORK;
}

/**
 * Whether an error can be sent for rejected input: no other reply has begun, or the last one is
 * complete.
 */
export function isFree({ running, latest }: Connection) {
  if (!latest) return true;
  if (running > 1) return false;
  return latest.req.complete ? latest.writableFinished : !latest.headersSent;
}
