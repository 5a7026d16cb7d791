import { domainToUnicode } from 'node:url';
import { isStreamSafe } from '../platform/runtime/text.ts';

/**
 * How names and codes are compared: as people mean them, whichever keyboard, script or program
 * wrote them. Passwords are not read in this way.
 */

/** The last five are not ignorable to Unicode, but shown as a space. */
export const UNSEEN = String.raw`\p{Cf}\p{Default_Ignorable_Code_Point}\u2800\u{13441}\u{13442}\u{16fe4}\u{1d159}`;
const EACH_UNSEEN = new RegExp(`[${UNSEEN}]`, 'gu');

/** In UTF-16 units. */
export const MAX_NAME_LENGTH = 255;

/** The key by which names are compared. A text that can be nobody's name has no one's key. */
export function accountKey(name: string) {
  const seen = name.replace(EACH_UNSEEN, '').trim();
  const canBeName = seen.length <= MAX_NAME_LENGTH && isStreamSafe(seen);
  // No name contains a control character.
  if (!canBeName) return `\u0001${name}`;
  const key = foldText(seen).trim().replace(/\s+/g, ' ');
  const domainAt = key.lastIndexOf('@') + 1;
  // Mail programs write an international domain in either of its forms (RFC 5890, 2.3.2.1).
  const domain = domainAt > 0 ? domainToUnicode(key.slice(domainAt)) : '';
  return domain === '' ? key : key.slice(0, domainAt) + foldText(domain);
}

/**
 * `Ａdmin` and `ADMIN`, `ß` and `SS`, `ς` and `Σ`, `ı` and `İ`, `٣` and `3`, and dashes and
 * apostrophes become one.
 * @param text stream-safe
 */
export function foldText(text: string) {
  // JavaScript has no full case folding. Upper case expands `ß`, but not its capital; lower case
  // has a final sigma.
  return text
    .normalize('NFKC')
    .toLowerCase()
    .toUpperCase()
    .toLowerCase()
    .replaceAll('ς', 'σ')
    .normalize('NFD')
    .replace(/[ij]\p{M}+/gu, (letter) => letter.replaceAll('\u0307', ''))
    .normalize('NFKC')
    .replace(/(?![0-9])\p{Nd}/gu, asciiDigit)
    .replace(/[\p{Pd}\u2212]/gu, '-')
    .replace(/[\u02bc\u2018\u2019\u201b\u2032]/g, "'");
}

/** The ten digits of each script follow each other (Unicode, 4.6). */
function asciiDigit(digit: string) {
  const code = digit.codePointAt(0) ?? 0;
  let zero = code;
  while (/\p{Nd}/u.test(String.fromCodePoint(zero - 1))) zero -= 1;
  return String((code - zero) % 10);
}

/** A code without the spaces, dashes and invisible marks that were typed or copied with it. */
export const typedCode = (text: string) =>
  foldText(text)
    .replace(/[^\p{L}\p{N}]/gu, '')
    .toUpperCase();
