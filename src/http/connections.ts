import type { IncomingMessage, ServerResponse } from 'node:http';
import type { BlockList, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { canonicalAddress, isTrusted, networkOf } from './address.ts';
import { eventOf } from './reply.ts';

const MAX_CONNECTIONS = 4_096;
const MAX_PER_NETWORK = MAX_CONNECTIONS / 4;
/** Unfinished requests of a connection, all but the first of which wait (pipelining), and all that wait. */
const [MAX_RUNNING, MAX_WAITING] = [6, 256];

export interface Connection {
  readonly socket: Socket;
  readonly address: string;
  /** Null for a trusted proxy. */
  readonly network: string | null;
  running: number; // exchanges that are not finished
  latest: { readonly request: IncomingMessage; readonly response: ServerResponse } | null;
}

/**
 * The open connections of a listener. At a limit, a new connection replaces the one that has been idle for longest, or
 * otherwise the one that has sent a reply for longest, so that connections of one client cannot exclude other clients.
 * @param countClosed gets `connections`, `network` or `pipelining`, the limit because of which a connection was closed
 */
export function createConnections(trustedProxies: BlockList, countClosed: (limit: string) => void) {
  const all = new Map<Duplex, Connection>();
  /** Connections without a request in progress, the longest idle first. */
  const idle = new Set<Connection>();
  const sending = new Set<Connection>(); // a reply of known length, the one that began first comes first
  let waiting = 0;
  const remove = (connection: Connection) => {
    all.delete(connection.socket);
    idle.delete(connection);
    sending.delete(connection);
    connection.socket.destroy();
  };
  return {
    all,
    sending,
    open(socket: Socket): void {
      const address = canonicalAddress(socket.remoteAddress ?? '');
      // The limit of a network does not apply to a trusted proxy, because it carries all of its clients.
      const network = isTrusted(address, trustedProxies) ? null : networkOf(address);
      const share = [...all.values()].filter((one) => one.network === network);
      const isShareTaken = network !== null && share.length >= MAX_PER_NETWORK;
      if (isShareTaken || all.size >= MAX_CONNECTIONS) {
        countClosed(isShareTaken ? 'network' : 'connections');
        const replaced = [...idle, ...sending].find(
          (one) => !isShareTaken || one.network === network,
        );
        if (!replaced) return void socket.destroy();
        remove(replaced);
      }
      const connection = { socket, address, network, running: 0, latest: null };
      all.set(socket, connection);
      idle.add(connection);
      socket.on('close', () => remove(connection));
    },
    begin(connection: Connection, latest: NonNullable<Connection['latest']>): void {
      connection.running += 1;
      connection.latest = latest;
      idle.delete(connection);
    },
    /** Waits for earlier replies: one is prepared at a time. @returns whether the connection is still open */
    async turn(connection: Connection, response: ServerResponse): Promise<boolean> {
      waiting += 1;
      if (connection.running > MAX_RUNNING || waiting > MAX_WAITING) {
        countClosed('pipelining');
        remove(connection);
      } else await eventOf(response, 'socket', connection);
      waiting -= 1;
      return !connection.socket.destroyed;
    },
    finish(connection: Connection): void {
      connection.running -= 1;
      sending.delete(connection);
      if (connection.running === 0 && all.has(connection.socket)) idle.add(connection);
    },
  };
}

/** Whether an error can be sent for rejected input: no other reply has begun, or the last one is complete. */
export function isFree({ running, latest }: Connection): boolean {
  if (!latest) return true;
  if (running > 1) return false;
  return latest.request.complete ? latest.response.writableFinished : !latest.response.headersSent;
}
