export const uuidToBytes = (uuid: string): Buffer => Buffer.from(uuid.replaceAll('-', ''), 'hex');

/**
 * Strict Base64url without padding (RFC 4648, section 5), unlike `Buffer.from`: each value has one
 * encoding.
 */
export function fromBase64url(text: string) {
  const bytes = Buffer.from(text, 'base64url');
  return bytes.toString('base64url') === text ? bytes : null;
}

/** Strict Base64 or Base64url, padded or not: for credentials, whose encoding is not specified. */
export function fromAnyBase64(text: string) {
  const bytes = Buffer.from(text, 'base64');
  const padded = bytes.toString('base64');
  const url = bytes.toString('base64url');
  const encodings = [padded, unpadded(bytes), url, url.padEnd(padded.length, '=')];
  return encodings.includes(text) ? bytes : null;
}

/** Base64 without padding. */
export const unpadded = (bytes: Buffer) => bytes.toString('base64').replace(/=+$/, '');
