/**
 * For a text from elsewhere, which could move the cursor or forge a line (CWE-150).
 * @returns one line: each run of control and invisible formatting characters is a space
 */
export const toOneLine = (text: string): string =>
  text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ');

/** Only the canonical form: lower case, with hyphens (RFC 9562). */
export const isUuid = (text: string): boolean =>
  /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text);

/** Fatal: otherwise, different invalid bytes would become the same character. */
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * A byte order mark stays in the text.
 * @throws TypeError if the bytes are not UTF-8
 */
export const decodeUtf8 = (bytes: Uint8Array): string => utf8.decode(bytes);
