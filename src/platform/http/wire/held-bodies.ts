import type { IncomingMessage } from 'node:http';
import { createCounts } from '../../runtime/counts.ts';
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

const NOTHING_HELD: HeldBody = { failure: null, release() {} };

/**
 * Bounds the memory of bodies before the credential of their request is checked, because Node reads
 * them together with the head. Before a network would exceed its share, its other connections are
 * not read, so that a sender may send many events at once.
 */
export function createHeldBodies() {
  const budget = createBudget(MAX_BYTES);
  const full = new Set<string>(); // networks of clients
  /** By the network of the connections, or null for those of trusted proxies. */
  const pauses = createCounts<string | null>();
  const observers: Array<(from: string | null) => void> = [];

  function addPauses(from: string | null, amount: number) {
    pauses.add(from, amount);
    for (const observe of observers) observe(from);
  }

  async function pauseIfFull(network: string, from: string | null) {
    const hasRoom = () => budget.leftFor(network) >= READ_BYTES;
    if (hasRoom() || full.has(network)) return;
    full.add(network);
    addPauses(from, 1);
    await budget.waitUntil(hasRoom, MAX_PAUSE_MS);
    addPauses(from, -1);
    // Without room by then, its bodies are refused for a while.
    await budget.waitUntil(hasRoom, MAX_REFUSING_MS);
    full.delete(network);
  }

  return {
    /**
     * Whether further requests are left in the kernel.
     * @param from the network of their connections, or null for those of trusted proxies
     */
    isPaused: (from: string | null) => pauses.of(from) > 0,
    /** @param observe called when this may have changed */
    onPause(observe: (from: string | null) => void) {
      observers.push(observe);
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
