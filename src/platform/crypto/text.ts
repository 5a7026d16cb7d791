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
  if (/[+/]/.test(text) && /[-_]/.test(text)) return null;
  const [, digits = null, padding = ''] = /^([^=]*)(={0,2})$/.exec(text) ?? [];
  if (digits === null || (padding !== '' && text.length % 4 !== 0)) return null;
  return fromBase64url(digits.replaceAll('+', '-').replaceAll('/', '_'));
}
