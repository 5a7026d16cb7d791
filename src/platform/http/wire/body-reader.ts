import type { IncomingMessage } from 'node:http';
import { finished } from 'node:stream';
import { Failure } from '../route/errors.ts';
import { createBudget, type Reservation } from './budget.ts';

/** The client disconnected before its body was complete, so no reply is sent. */
export class ClientGone extends Error {}

/** Bytes of all requests whose credential is being checked. */
const MAX_HELD_BYTES = 8 * 1024 * 1024;
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
    limit: number,
    network: string,
    isAnonymous: boolean,
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

  return { held: createBudget(MAX_HELD_BYTES), read };
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
    if (total > buffer.length) {
      const length = Math.min(limit, 2 * total);
      const failure = memory.growTo(length);
      if (failure) return failure;
      buffer = Buffer.concat([buffer], length);
    }
    size += chunk.copy(buffer, size);
    return null;
  }

  return new Promise((resolve, reject) => {
    const startedAt = performance.now();
    const finish = (outcome: Buffer | Failure) => {
      clearInterval(timer);
      request.off('data', onData);
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
    request.on('data', onData);
    finished(request, (error) => {
      if (error) reject(new ClientGone());
      finish(buffer.subarray(0, size));
    });
  });
}
