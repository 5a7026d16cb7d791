import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { createCounts } from '../../runtime/counts.ts';
import type { Budget } from './budget.ts';

/** A body of this size may arrive as a whole while the credential of its request is checked. */
const SMALL_BODY = 8 * 1024;
/** What Node reads from a connection at once, the head included. */
const READ_BYTES = 64 * 1024;
/** Then large bodies are refused instead, so that probes of the same network are answered. */
const MAX_PAUSE_MS = 1_000;
const MAX_REFUSING_MS = 10_000;

/** Of a request without a body. */
const NOTHING = { failure: null, release: () => {} };

/** A connection, whose `network` is null for a trusted proxy. */
type Sender = Readonly<{ socket: Socket; network: string | null }>;

/**
 * Bounds the memory of bodies before the credential of their request is checked, because Node reads
 * them together with the head. Before a network would exceed its share, its other connections are
 * not read, so that a sender may send many events at once.
 * @param budget of the process
 */
export function createHeldBodies<Connection extends Sender>(budget: Budget) {
  const idle = new Set<Connection>();
  const full = new Set<string>(); // networks of clients
  const pauses = createCounts<string | null>(); // by the network of the connections

  function addPause(from: string | null, amount: number) {
    pauses.add(from, amount);
    for (const { socket, network } of idle) {
      if (network !== from) continue;
      if (pauses.of(from) > 0) socket.pause();
      else socket.resume();
    }
  }

  async function pauseIfFull(network: string, from: string | null) {
    const hasRoom = () => budget.leftFor(network) >= READ_BYTES;
    if (hasRoom() || full.has(network)) return;
    full.add(network);
    addPause(from, 1);
    await budget.waitUntil(hasRoom, MAX_PAUSE_MS);
    addPause(from, -1);
    // Without room by then, its bodies are refused for a while.
    await budget.waitUntil(hasRoom, MAX_REFUSING_MS);
    full.delete(network);
  }

  return {
    /** Connections without a complete head to answer, the longest idle first. */
    idle,
    addIdle(connection: Connection) {
      idle.add(connection);
      // Node resumes a new socket at the end of this turn.
      if (pauses.of(connection.network) > 0) process.nextTick(() => connection.socket.pause());
    },
    /**
     * Counts what has arrived, and stops the socket until the body is read.
     * @param request of which only the head was handled
     * @param network of the client
     */
    async hold(request: IncomingMessage, network: string, from: string | null) {
      const { 'content-length': size, 'transfer-encoding': coding } = request.headers;
      if (size === undefined && coding === undefined) return NOTHING;
      // By then, Node has parsed what came with the head.
      await null;
      const length = Number(size);
      const isSmall = length <= SMALL_BODY;
      const isMoreToCome = !isSmall && !request.complete;
      if (isMoreToCome) request.socket.pause();
      const memory = budget.open(network, 0);
      const failure = memory.growTo(isSmall ? length : request.readableLength);
      // Drops it.
      if (failure) request.resume();
      void pauseIfFull(network, from);
      return { failure, release: memory.release };
    },
  };
}

/** What has arrived of a body, counted until it is released. */
export type HeldBody = Awaited<ReturnType<ReturnType<typeof createHeldBodies>['hold']>>;
