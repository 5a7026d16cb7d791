import type { IncomingMessage } from 'node:http';
import type { Failure } from '../route/errors.ts';
import { createBudget } from './budget.ts';

/** Bytes of all requests whose credential is being checked. */
const MAX_BYTES = 8 * 1024 * 1024;
/** A body of this size may arrive as a whole during that check. */
const SMALL_BODY = 8 * 1024;
/** What Node reads from a connection at once, the head included. */
const READ_BYTES = 64 * 1024;
/** Then large bodies are refused instead, so that probes of the same network are answered. */
const MAX_PAUSE_MS = 1_000;
const MAX_REFUSING_MS = 10_000;

/** What has arrived of a body, counted until it is released. */
export type HeldBody = Readonly<{ failure: Failure | null; release: () => void }>;
/**
 * Leaves further requests in the kernel.
 * @param from the network of the connections, or null for those of trusted proxies
 */
type Pause = (from: string | null, end: Promise<void>) => unknown;

const NOTHING_HELD: HeldBody = { failure: null, release() {} };

/**
 * Bounds the memory of bodies before the credential of their request is checked, because Node reads
 * them together with the head. Before a network would exceed its share, its other connections are
 * not read, so that a sender may send many events at once.
 */
export function createHeldBodies() {
  const budget = createBudget(MAX_BYTES);
  const pauses: Pause[] = [];
  const full = new Set<string>(); // networks
  const hasRoom = (network: string) => budget.leftFor(network) >= READ_BYTES;

  async function pauseIfFull(network: string, from: string | null) {
    const isOver = () => hasRoom(network);
    if (isOver() || full.has(network)) return;
    full.add(network);
    const end = budget.waitUntil(isOver, MAX_PAUSE_MS);
    for (const pause of pauses) void pause(from, end);
    await end;
    // Without room by then, its bodies are refused for a while.
    await budget.waitUntil(isOver, MAX_REFUSING_MS);
    full.delete(network);
  }

  return {
    onFull(pause: Pause) {
      pauses.push(pause);
    },
    /**
     * Counts what has arrived, and stops the socket until the body is read.
     * @param request of which only the head was handled
     */
    async hold(request: IncomingMessage, network: string, from: string | null): Promise<HeldBody> {
      // By then, Node has parsed what came with the head.
      await null;
      const length = Number(request.headers['content-length']);
      const isSmall = length <= SMALL_BODY;
      const isMoreToCome = !isSmall && !request.complete;
      if (isMoreToCome) request.socket.pause();
      const bytes = isSmall ? length : request.readableLength;
      if (bytes === 0) return NOTHING_HELD;
      const memory = budget.open(network, 0);
      const failure = memory.growTo(bytes);
      // Drops it.
      if (failure) request.resume();
      void pauseIfFull(network, from);
      return { failure, release: memory.release };
    },
  };
}
