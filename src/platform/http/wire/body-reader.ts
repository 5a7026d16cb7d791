import type { IncomingMessage } from 'node:http';
import { createCounts } from '../../runtime/counts.ts';
import { Failure } from '../route/errors.ts';
import { createBudget, type Reservation } from './budget.ts';

/** The client disconnected before its body was complete, so no reply is sent. */
export class ClientGone extends Error {}

/** Bytes of all bodies. A route that accepts larger bodies raises it to two of them. */
const MAX_BYTES = 16 * 1024 * 1024;
const MAX_ANONYMOUS_BYTES = MAX_BYTES / 2;
/** Each body that is waited for counts with as much, unless its limit is lower: 1,024 bodies. */
const LEAST_BYTES = MAX_BYTES / 1_024;
/** A body that is not complete after the grace must have arrived at this rate. */
const GRACE_SECONDS = 2;
const MIN_BYTES_PER_SECOND = 1_024;

const NO_BYTES: Buffer = Buffer.alloc(0);
const TOO_SLOW = `The request body must arrive with at least ${MIN_BYTES_PER_SECOND} bytes per second. Send it again.`;

export type BodyReader = ReturnType<typeof createBodyReader>;
type BodyTerms = Readonly<{
  limit: number;
  network: string;
  isAnonymous: boolean;
}>;

/**
 * Bounds the memory of unfinished bodies in a process. Clients without a credential have a budget
 * of their own, so that they cannot use up that of the others. Likewise bodies whose request waits
 * for its turn or for the check of its credential.
 */
export function createBodyReader() {
  const ofAnonymous = createBudget(MAX_ANONYMOUS_BYTES);
  const ofCallers = createBudget(MAX_BYTES);

  /**
   * Reads a body of up to `limit` bytes; throws `ClientGone`.
   * @param begin is called once the body is accepted, before a byte of it is read
   */
  async function read(
    request: IncomingMessage,
    { limit, network, isAnonymous }: BodyTerms,
    begin: () => void,
  ) {
    const length = Number(request.headers['content-length']);
    if (length > limit) return tooLarge(limit);
    // A small body mostly arrives with its head, and then there is nothing to wait for.
    if (request.readableLength === length) {
      begin();
      const body: unknown = request.read();
      request.resume(); // to the end of the request
      return Buffer.isBuffer(body) ? body : NO_BYTES;
    }
    const memory = (isAnonymous ? ofAnonymous : ofCallers).open(network, limit);
    const most = length || limit;
    const least = Math.max(length || 0, Math.min(limit, LEAST_BYTES));
    // What waits still counts as held, so clients without a credential must not wait.
    const failure = isAnonymous ? memory.growTo(least) : await memory.growSoon(least);
    if (failure) return failure;
    begin();
    return receive(request, most, memory).finally(memory.release);
  }

  return { ...createHeldBodies(), read };
}

const tooLarge = (limit: number) =>
  new Failure('body_too_large', {
    message: `The request body is too large. Send at most ${limit} bytes.`,
  });

function receive(
  request: IncomingMessage,
  limit: number,
  memory: Reservation,
): Promise<Buffer | Failure> {
  let buffer = NO_BYTES;
  let size = 0; // of what has arrived

  /**
   * Copies into one buffer that doubles: a list of one-byte chunks would take a hundred times their
   * size.
   */
  function append(chunk: Buffer) {
    const total = size + chunk.length;
    if (total > limit) return tooLarge(limit);
    if (total <= buffer.length) {
      chunk.copy(buffer, size);
    } else {
      const length = size === 0 ? total : Math.min(limit, 2 * total);
      const failure = memory.growTo(length);
      if (failure) return failure;
      buffer = size === 0 ? chunk : Buffer.concat([buffer.subarray(0, size), chunk], length);
    }
    size = total;
    return null;
  }

  return new Promise((resolve, reject) => {
    // A client that left while the request waited causes no further event.
    if (request.destroyed) throw new ClientGone();
    const startedAt = performance.now();
    const finish = (outcome: Buffer | Failure) => {
      clearInterval(timer);
      if (outcome instanceof Failure) request.off('data', onData).pause();
      resolve(outcome);
    };
    const timer = setInterval(() => {
      const seconds = (performance.now() - startedAt) / 1000 - GRACE_SECONDS;
      const isTooSlow = size < seconds * MIN_BYTES_PER_SECOND;
      if (isTooSlow) finish(new Failure('request_timeout', { message: TOO_SLOW }));
    }, 1_000);
    const onData = (chunk: Buffer) => {
      const failure = append(chunk);
      if (failure) finish(failure);
    };
    const onGone = () => {
      clearInterval(timer);
      if (!request.readableEnded) reject(new ClientGone());
    };
    request.on('data', onData);
    request.on('end', () => finish(buffer.subarray(0, size)));
    request.on('close', onGone).on('error', onGone);
  });
}

/** Bytes of all requests whose credential is being checked. */
const MAX_HELD_BYTES = 8 * 1024 * 1024;
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
function createHeldBodies() {
  const budget = createBudget(MAX_HELD_BYTES);
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
