import { createHmac } from 'node:crypto';
import http, {
  type ClientRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
} from 'node:http';
import https from 'node:https';
import { urlToHttpOptions } from 'node:url';
import { brotliDecompressSync, constants, unzipSync } from 'node:zlib';
import { hasPrivateAddress, publicLookup } from '../../platform/http/wire/private-address.ts';
import { watchReuse } from '../../platform/runtime/reused-connection.ts';
import type { Deliverer, LeasedEvent, Result } from '../model.ts';
import { standardKey } from '../signatures.ts';
import { isKeepable } from '../places.ts';
import { describeFailure, describeStatus, stageOf } from '../failures.ts';

export const PRIVATE_TARGET =
  'the target is a private address; set WEBHOOK_FORWARD_ALLOW_PRIVATE=on to allow it';

type Destination = Readonly<{ url: URL; secret: string | null; allowPrivate: boolean }>;

/**
 * POSTs the raw body. Any 2xx is success. Redirects are not followed. Of the reply's body, the
 * beginning is kept.
 * @param given `secret` signs the requests by Standard Webhooks; null for no signature
 */
export function createForwardTarget(
  { url, secret, allowPrivate }: Destination,
  concurrency: number,
): Deliverer {
  const { Agent, request } = url.protocol === 'https:' ? https : http;
  const agent = new Agent({ keepAlive: true, maxSockets: concurrency });
  const fixed = {
    ...urlToHttpOptions(url),
    method: 'POST',
    agent,
    lookup: allowPrivate ? undefined : publicLookup(PRIVATE_TARGET),
  };
  const key = secret === null ? null : standardKey(secret);
  return {
    async deliver(event, signal) {
      try {
        if (!allowPrivate && hasPrivateAddress(url)) return { error: PRIVATE_TARGET };
        const given = { ...fixed, headers: forwardHeaders(event, key) };
        const result = await send(request(given), event.body, signal);
        if (result) return result;
        // On a connection of its own, which cannot have been closed before.
        const repeated = request({ ...given, agent: false });
        return (await send(repeated, event.body, signal)) ?? { error: describeFailure() };
      } catch (error) {
        return { error: describeFailure(error) };
      }
    },
    close: async () => agent.destroy(),
  };
}

/** How much of a reply is read, and for how long, so that the connection can be reused. */
const MAX_BYTES = 16_384;
const BODY_MS = 1_000;

/**
 * @returns once the reply has ended, or enough of it is read; null if the target had closed the
 * kept connection before: this is no attempt
 */
function send(request: ClientRequest, body: Buffer, signal: AbortSignal) {
  return new Promise<Result | null>((resolve) => {
    const wasClosed = watchReuse(request);
    let isAnswered = false;
    let unfinished: string | undefined;
    // Not the option `signal`, which costs processor time in each request.
    signal.addEventListener('abort', () => {
      unfinished = stageOf(request);
      request.destroy();
    });
    request.once('response', (response) => {
      isAnswered = true;
      const parts: Buffer[] = [];
      let size = 0;
      const answer = () => resolve(resultOf(response, Buffer.concat(parts)));
      // A long or slow reply closes the connection. The status is known already, and decides.
      const timer = setTimeout(() => response.destroy(), BODY_MS);
      response.on('error', () => {});
      response.once('close', () => {
        clearTimeout(timer);
        answer();
      });
      response.on('data', (chunk: Buffer) => {
        if (size < KEPT_BYTES) parts.push(chunk);
        size += chunk.length;
        if (size >= KEPT_BYTES) answer();
        if (size > MAX_BYTES) response.destroy();
      });
    });
    request.once('upgrade', (response, socket) => {
      socket.destroy();
      resolve(resultOf(response, Buffer.alloc(0)));
    });
    const fail = (error?: Error) => {
      if (isAnswered) return;
      if (unfinished !== undefined) return resolve({ error: unfinished, unfinished });
      if (wasClosed()) return resolve(null);
      resolve({ error: describeFailure(error) });
    };
    request.once('error', fail).once('close', fail);
    request.end(body);
  });
}

/** Stock servers accept a header of 8 KiB, and the encoded name may have nine. */
const MAX_NAME_BYTES = 1_024;

/** The name as far as it fits, in whole characters. The body or a kept header has all of it. */
function encodedName(event: string) {
  let encoded = '';
  for (const character of event) {
    const next = encodeURIComponent(character);
    if (encoded.length + next.length > MAX_NAME_BYTES) break;
    encoded += next;
  }
  return encoded;
}

/**
 * The sender's headers that were kept with the event, and ours, which replace them except for the
 * content type and the user agent.
 * @param key signs by Standard Webhooks; null for no signature
 */
export function forwardHeaders(
  {
    id,
    event,
    headers,
    body,
    attempt,
  }: Pick<LeasedEvent, 'id' | 'event' | 'headers' | 'body' | 'attempt'>,
  key: Buffer | null,
) {
  const time = String(Math.floor(Date.now() / 1000));
  const sent = Object.entries(headers).filter(([name]) => isKeepable(name));
  const named = {
    'content-type': 'application/json',
    'user-agent': 'gatehouse-webhook',
    ...Object.fromEntries(sent),
    'content-length': String(body.length),
    'gatehouse-event': encodedName(event),
    'gatehouse-attempt': String(attempt),
  };
  // The signature of the sender covers its own id and time.
  if (key === null && headers['webhook-signature'] !== undefined) return named;
  const own = { ...named, 'webhook-id': id, 'webhook-timestamp': time };
  if (key === null) return own;
  const mac = createHmac('sha256', key).update(`${id}.${time}.`).update(body).digest('base64');
  return { ...own, 'webhook-signature': `v1,${mac}` };
}

function resultOf({ statusCode = 0, headers }: IncomingMessage, body: Buffer): Result {
  const isSuccess = statusCode >= 200 && statusCode < 300;
  return {
    answer_status: statusCode,
    answer: answerText(headers, body),
    error: isSuccess ? null : describeStatus(statusCode),
    retryAfter: secondsOf(headers['retry-after']),
  };
}

/**
 * Seconds or a date (RFC 9110, 10.2.3), of any length.
 * @returns null for neither, and for a time that is over
 */
function secondsOf(retryAfter = '') {
  const isSeconds = /^[0-9]+$/.test(retryAfter);
  const seconds = isSeconds ? Number(retryAfter) : (Date.parse(retryAfter) - Date.now()) / 1000;
  return seconds > 0 ? seconds : null;
}

/** How much of the reply of a target is kept. */
const KEPT_BYTES = 1_024;
/** What so much of an encoded reply may stand for. */
const MAX_DECODED_BYTES = 2_097_152;

const unzip = (body: Buffer) =>
  unzipSync(body, { maxOutputLength: MAX_DECODED_BYTES, finishFlush: constants.Z_SYNC_FLUSH });
const finishFlush = constants.BROTLI_OPERATION_FLUSH;
/** A beginning can be decoded, too. */
const DECODERS = new Map([
  ['identity', (body: Buffer) => body],
  ['gzip', unzip],
  ['x-gzip', unzip],
  ['deflate', unzip],
  [
    'br',
    (body: Buffer) =>
      brotliDecompressSync(body, { maxOutputLength: MAX_DECODED_BYTES, finishFlush }),
  ],
]);

/**
 * Many targets encode an answer, although the request does not ask for it.
 * @param body the beginning of it
 */
function answerText(
  { 'content-encoding': coding = 'identity' }: IncomingHttpHeaders,
  body: Buffer,
) {
  const beginning = body.subarray(0, KEPT_BYTES);
  if (beginning.length === 0) return '';
  try {
    const decoded = DECODERS.get(coding.toLowerCase())?.(beginning);
    if (decoded) return decoded.toString('utf8', 0, KEPT_BYTES);
  } catch {
    // Not in this encoding, or too large.
  }
  return `The answer is in the encoding ${coding}, which cannot be read.`;
}
