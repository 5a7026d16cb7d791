import { isAscii, isUtf8, transcode } from 'node:buffer';

/**
 * Characters that could move the cursor, redraw the screen or reverse a text (CWE-117, CWE-150).
 */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu;

/** @returns one line: each run of control and invisible formatting characters is a space */
export const toOneLine = (text: string) => text.replace(UNSAFE, ' ');

/** Writes what could control a terminal as `\u…`, which in JSON means the same. */
export const escapeUnsafe = (text: string) =>
  text.replace(UNSAFE, (found) =>
    found.replace(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
  );

/** The halfwidth sound marks of kana are no marks, but NFKC makes marks of them. */
const MARK = String.raw`[\p{M}\uff9e\uff9f]`;
const LONG_RUN = new RegExp(`(?<!${MARK})${MARK}{31}`, 'u');

/**
 * Whether the text has at most 30 combining marks in a row (UAX #15, stream-safe text). Only such a
 * text may be normalized: the time to sort a run grows with the square of its length (CWE-407).
 */
export const isStreamSafe = (text: string) => !LONG_RUN.test(text);

/**
 * Without the spaces and tabs around it. To replace these at the end would search from each of
 * those within the text, in the square of their number (CWE-1333).
 */
export const trimBlanks = (text: string) => /[^ \t](?:.*[^ \t])?/s.exec(text)?.[0] ?? '';

/** Only the canonical form: lower case, with hyphens (RFC 9562). */
export const isUuid = (text: string) => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text);

/**
 * A byte order mark stays in the text. Through UTF-16, because `TextDecoder` of Node 20 takes as
 * long as `JSON.parse` for text that is not ASCII.
 * @throws TypeError if the bytes are not UTF-8
 */
export function decodeUtf8(bytes: Buffer) {
  // Otherwise, different invalid bytes would become the same character.
  if (!isUtf8(bytes)) throw new TypeError('not UTF-8');
  if (isAscii(bytes)) return bytes.toString('latin1');
  return transcode(bytes, 'utf8', 'utf16le').toString('utf16le');
}
