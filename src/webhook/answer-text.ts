import type { IncomingHttpHeaders } from 'node:http';
import { brotliDecompressSync, constants, unzipSync } from 'node:zlib';

/** How much of the reply of a target is kept. */
export const KEPT_BYTES = 1_024;
/** What so much of an encoded reply may stand for. */
const MAX_BYTES = 2_097_152;

const unzip = (body: Buffer) =>
  unzipSync(body, { maxOutputLength: MAX_BYTES, finishFlush: constants.Z_SYNC_FLUSH });
const finishFlush = constants.BROTLI_OPERATION_FLUSH;
/** A beginning can be decoded, too. */
const DECODERS = new Map([
  ['identity', (body: Buffer) => body],
  ['gzip', unzip],
  ['x-gzip', unzip],
  ['deflate', unzip],
  ['br', (body: Buffer) => brotliDecompressSync(body, { maxOutputLength: MAX_BYTES, finishFlush })],
]);

/**
 * Many targets encode an answer, although the request does not ask for it.
 * @param body the beginning of it
 */
export function answerText(
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
