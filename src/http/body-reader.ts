import type { IncomingMessage } from 'node:http';
import { Failure } from './errors.ts';

/** The client disconnected before its body was complete, so no reply is sent. */
export class ClientGone extends Error {}

/** Bodies that are waited for. One that arrives with its head does not count. */
const MAX_BODIES = 1_024;
const MAX_BODIES_PER_NETWORK = MAX_BODIES / 4;
/** Bytes of all bodies. A route that accepts larger bodies raises it to two of them. */
const MAX_BYTES = 16 * 1024 * 1024;
/** A body that is not complete after the grace must have arrived at this rate. */
const GRACE_SECONDS = 2;
const MIN_BYTES_PER_SECOND = 1_024;

const NO_BYTES: Buffer = Buffer.alloc(0);
const ALL_TAKEN = 'Too many request bodies are being received. Nothing was stored. Try again soon.';
const TOO_SLOW = `The request body must arrive with at least ${MIN_BYTES_PER_SECOND} bytes per second. Send it again.`;

export type BodyReader = ReturnType<typeof createBodyReader>;

/**
 * Bounds the memory of unfinished bodies in a process: their number, in total and for each network,
 * and their bytes.
 * @returns a function that reads a body of up to `limit` bytes; throws `ClientGone`
 */
export function createBodyReader() {
  const receiving = new Set<ReceivedBody>();
  let bytes = 0; // of the buffers of all bodies

  /**
   * Copies into one buffer that doubles: a list of one-byte chunks would take a hundred times their
   * size.
   */
  function append(body: ReceivedBody, chunk: Buffer, limit: number) {
    const { buffer, size } = body;
    const total = size + chunk.length;
    if (total > limit) return tooLarge(limit);
    body.size = total;
    if (total <= buffer.length) {
      chunk.copy(buffer, size);
      return null;
    }
    const length = size === 0 ? total : Math.min(limit, 2 * total);
    const after = bytes + length - buffer.length;
    if (after > Math.max(MAX_BYTES, 2 * limit)) {
      return new Failure('overloaded', { message: ALL_TAKEN });
    }
    bytes = after;
    body.buffer = size === 0 ? chunk : Buffer.concat([buffer.subarray(0, size), chunk], length);
    return null;
  }

  /** @param begin is called once the body is accepted, before a byte of it is read */
  return async (request: IncomingMessage, limit: number, network: string, begin: () => void) => {
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
    if (receiving.size >= MAX_BODIES) return new Failure('overloaded', { message: ALL_TAKEN });
    const share = [...receiving].filter((one) => one.network === network);
    if (share.length >= MAX_BODIES_PER_NETWORK) {
      return new Failure('overloaded', {
        message:
          'Too many request bodies of your network are being received. Complete some, then try again.',
      });
    }
    const body = { network, buffer: NO_BYTES, size: 0 };
    receiving.add(body);
    begin();
    return receive(request, body, (chunk) => append(body, chunk, limit)).finally(() => {
      receiving.delete(body);
      bytes -= body.buffer.length;
    });
  };
}

/** `size` bytes of the buffer have arrived. */
type ReceivedBody = {
  readonly network: string;
  buffer: Buffer;
  size: number;
};

const tooLarge = (limit: number) =>
  new Failure('body_too_large', {
    message: `The request body is too large. Send at most ${limit} bytes.`,
  });

function receive(
  request: IncomingMessage,
  body: ReceivedBody,
  append: (chunk: Buffer) => Failure | null,
): Promise<Buffer | Failure> {
  return new Promise((resolve, reject) => {
    const startedAt = performance.now();
    const finish = (outcome: Buffer | Failure) => {
      clearInterval(timer);
      if (outcome instanceof Failure) request.off('data', onData).pause();
      resolve(outcome);
    };
    const timer = setInterval(() => {
      const seconds = (performance.now() - startedAt) / 1000 - GRACE_SECONDS;
      const isTooSlow = body.size < seconds * MIN_BYTES_PER_SECOND;
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
    request.on('end', () => finish(body.buffer.subarray(0, body.size)));
    request.on('close', onGone).on('error', onGone);
  });
}
