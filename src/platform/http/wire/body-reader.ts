import type { IncomingMessage } from 'node:http';
import { Failure } from '../route/errors.ts';

/** The client disconnected before its body was complete, so no reply is sent. */
export class ClientGone extends Error {}

/** Bodies that are waited for. One that arrives with its head does not count. */
const MAX_BODIES = 1_024;
/** Bytes of all bodies. A route that accepts larger bodies raises it to two of them. */
const MAX_BYTES = 16 * 1024 * 1024;
const MAX_ANONYMOUS_BYTES = MAX_BYTES / 2;
/** Bytes that arrive before the credential of their request is checked. */
const MAX_UNCHECKED_BYTES = MAX_BYTES / 2;
/** A body of this size may arrive as a whole during that check. */
const SMALL_BODY = 8 * 1024;
/** What one network may have of either. */
const SHARE = 1 / 4;
/** A body that is not complete after the grace must have arrived at this rate. */
const GRACE_SECONDS = 2;
const MIN_BYTES_PER_SECOND = 1_024;

const NO_BYTES: Buffer = Buffer.alloc(0);
const NOTHING_HELD: HeldBody = { failure: null, release() {} };
const ALL_TAKEN = new Failure('overloaded', {
  message: 'Too many request bodies are being received. Nothing was stored. Try again soon.',
});
const SHARE_TAKEN = new Failure('overloaded', {
  message:
    'Too many request bodies of your network are being received. Complete some, then try again.',
});
const TOO_SLOW = `The request body must arrive with at least ${MIN_BYTES_PER_SECOND} bytes per second. Send it again.`;

export type BodyReader = ReturnType<typeof createBodyReader>;
/** Memory of a request that is counted until it is released. */
export type HeldBody = Readonly<{ failure: Failure | null; release: () => void }>;
type BodyTerms = Readonly<{ limit: number; network: string; isAnonymous: boolean }>;

/**
 * Bounds the memory of unfinished bodies in a process. Clients without a credential have a budget
 * of their own, so that they cannot use up that of the others. Likewise bodies whose request waits
 * for its turn or for the check of its credential.
 */
export function createBodyReader() {
  const admitAnonymous = createBudget(MAX_ANONYMOUS_BYTES);
  const admitCaller = createBudget(MAX_BYTES);
  const admitUnchecked = createBudget(MAX_UNCHECKED_BYTES, Infinity);

  /**
   * Node reads up to 64 KiB together with a head, and then more. Counts what has arrived, and stops
   * the socket until the body is read.
   * @param request of which only the head was handled
   */
  async function hold(request: IncomingMessage, network: string): Promise<HeldBody> {
    // By then, Node has parsed what came with the head.
    await null;
    const length = Number(request.headers['content-length']);
    const isSmall = length <= SMALL_BODY;
    const isMoreToCome = !isSmall && !request.complete;
    if (isMoreToCome) request.socket.pause();
    const bytes = isSmall ? length : request.readableLength;
    if (bytes === 0) return NOTHING_HELD;
    const memory = admitUnchecked(network, bytes);
    if (memory instanceof Failure) return { failure: memory, release() {} };
    const failure = memory.reserve(bytes);
    // Drops it.
    if (failure) request.resume();
    return { failure, release: memory.release };
  }

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
    // A client that left while its credential was checked causes no further event.
    if (request.destroyed) throw new ClientGone();
    // A small body mostly arrives with its head, and then there is nothing to wait for.
    if (request.readableLength === length) {
      begin();
      const body: unknown = request.read();
      request.resume(); // to the end of the request
      return Buffer.isBuffer(body) ? body : NO_BYTES;
    }
    const memory = isAnonymous ? admitAnonymous(network, limit) : admitCaller(network, limit);
    if (memory instanceof Failure) return memory;
    begin();
    return receive(request, limit, memory.reserve).finally(memory.release);
  }

  return { hold, read };
}

/** How many bodies there are, and the bytes of their buffers. */
interface Usage {
  bodies: number;
  bytes: number;
}

/** @returns admits a body, and then reserves its memory until it is released */
function createBudget(size: number, maxBodies = MAX_BODIES) {
  const total: Usage = { bodies: 0, bytes: 0 };
  const shares = new Map<string, Usage>();
  let maxBytes = size;
  return (network: string, limit: number) => {
    const share = shares.get(network) ?? { bodies: 0, bytes: 0 };
    if (total.bodies >= maxBodies) return ALL_TAKEN;
    if (share.bodies >= maxBodies * SHARE) return SHARE_TAKEN;
    maxBytes = Math.max(maxBytes, 2 * limit);
    shares.set(network, share);
    let reserved = 0;
    let isReleased = false;
    const add = (bodies: number, bytes: number) => {
      reserved += bytes;
      for (const usage of [total, share]) {
        usage.bodies += bodies;
        usage.bytes += bytes;
      }
    };
    add(1, 0);
    return {
      reserve(bytes: number) {
        if (total.bytes + bytes > maxBytes) return ALL_TAKEN;
        // A share has room for at least one body, however large it may be.
        if (share.bytes + bytes > Math.max(maxBytes * SHARE, limit)) return SHARE_TAKEN;
        add(0, bytes);
        return null;
      },
      release() {
        if (isReleased) return;
        isReleased = true;
        add(-1, -reserved);
        if (share.bodies === 0) shares.delete(network);
      },
    };
  };
}

const tooLarge = (limit: number) =>
  new Failure('body_too_large', {
    message: `The request body is too large. Send at most ${limit} bytes.`,
  });

function receive(
  request: IncomingMessage,
  limit: number,
  reserve: (bytes: number) => Failure | null,
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
      const failure = reserve(length - buffer.length);
      if (failure) return failure;
      buffer = size === 0 ? chunk : Buffer.concat([buffer.subarray(0, size), chunk], length);
    }
    size = total;
    return null;
  }

  return new Promise((resolve, reject) => {
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
