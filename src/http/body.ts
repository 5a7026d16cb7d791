import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { type ErrorCode, Failure } from './errors.ts';
import { type JsonSchema, type Shape, type Validation, validate } from './shape.ts';

/** What a row says about its request body. */
export interface BodyRule<Body> {
  /** `null` where no body is read. */
  readonly schema: JsonSchema | null;
  readonly errors: readonly ErrorCode[];
  /** Judges the head, before a byte of the body is read. */
  accepts(headers: IncomingHttpHeaders): Failure | null;
  parse(raw: Buffer): Validation<Body>;
}

export const noBody: BodyRule<null> = { schema: null, errors: [], accepts: () => null, parse: () => ({ ok: true, value: null }) };

/**
 * A JSON body in UTF-8.
 * @param contentType 'required' insists on `application/json` or `…+json`; 'any' does not, for people with plain `curl -d`
 */
export function json<Body>(shape: Shape<Body>, contentType: 'any' | 'required' = 'any'): BodyRule<Body> {
  return {
    schema: shape.schema,
    errors: ['invalid_body', 'body_too_large', 'unsupported_media_type'],
    accepts(headers) {
      // A compressed body could unfold to any size; nobody needs one for 64 KiB.
      const encoding = headers['content-encoding'];
      if (encoding !== undefined && encoding !== '' && encoding !== 'identity') return new Failure('unsupported_media_type');
      if (contentType === 'any' || isJson(headers['content-type'])) return null;
      return new Failure('unsupported_media_type', { message: 'Send the body with "Content-Type: application/json".' });
    },
    parse(raw) {
      if (raw.length === 0) return { ok: false, errors: [{ path: '', message: 'a JSON body is required' }] };
      const parsed = parseJson(raw);
      return parsed.ok ? validate(shape, parsed.value, '') : parsed;
    },
  };
}

function isJson(contentType: string | undefined): boolean {
  const mediaType = (contentType ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? '';
  return mediaType === 'application/json' || /^[a-z]+\/[a-z0-9.!#$&^_+-]+\+json$/.test(mediaType);
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The engine's own message quotes the input, which may hold a secret: it is never passed on. */
function parseJson(raw: Buffer): Validation<unknown> {
  let text: string;
  try {
    text = utf8.decode(raw);
  } catch {
    return { ok: false, errors: [{ path: '', message: 'the body must be encoded in UTF-8' }] };
  }
  try {
    const value: unknown = JSON.parse(text);
    return { ok: true, value };
  } catch {
    return { ok: false, errors: [{ path: '', message: 'the body must be valid JSON' }] };
  }
}

/** The client went away before its body was complete: there is nobody left to answer. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone';
}

const LEFT = 'the client left before its body was complete';

/**
 * Reads a body to its limit and no further, whether its length was announced or not.
 * @returns the bytes, or `body_too_large`; throws `ClientGone`
 */
export async function readBody(request: IncomingMessage, limit: number): Promise<Buffer | Failure> {
  if (Number(request.headers['content-length'] ?? 0) > limit) return new Failure('body_too_large');
  // Who left while the credential was looked up sends no further event.
  if (request.destroyed) throw new ClientGone(LEFT);
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const settle = (done: () => void) => {
      request.off('data', onData).off('end', onEnd).off('close', onGone).off('error', onGone);
      done();
    };
    const onData = (chunk: Buffer) => {
      size += chunk.length;
      if (size <= limit) return void chunks.push(chunk);
      request.pause();
      settle(() => resolve(new Failure('body_too_large')));
    };
    const onEnd = () => settle(() => resolve(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks)));
    const onGone = () => settle(() => reject(new ClientGone(LEFT)));
    request.on('data', onData).on('end', onEnd).on('close', onGone).on('error', onGone);
  });
}
