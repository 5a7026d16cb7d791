/** Parts of the forms and of what they lead to. */
import { element, showTitle } from '/pages/page.js';
import { qrPicture } from '/pages/qr.js';

/** Without characters that are mistaken for each other. */
const LETTERS = 'abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789';

/** 24 characters of 56: 139 bits. */
export const createPassword = () => pick(LETTERS, 24);

/** Easy to read out on the phone: five groups of four characters of 32, 100 bits. */
export const createPassphrase = () =>
  Array.from({ length: 5 }, () => pick('abcdefghijkmnpqrstuvwxyz23456789', 4)).join('-');

/** @param {string} letters at most 256 @param {number} count */
function pick(letters, count) {
  const limit = 256 - (256 % letters.length);
  let text = '';
  while (text.length < count) {
    // A byte beyond the last multiple would make some letters likelier than others.
    for (const byte of crypto.getRandomValues(new Uint8Array(count))) {
      if (byte < limit && text.length < count) text += letters[byte % letters.length];
    }
  }
  return text;
}

/** @param {number} bytes */
export function formatSize(bytes) {
  if (bytes < 1_024) return `${bytes} bytes`;
  if (bytes < 1_048_576) return `${Math.floor(bytes / 102.4) / 10} KiB`;
  return `${Math.floor(bytes / 104_857.6) / 10} MiB`;
}

/**
 * @param {HTMLElement} figure
 * @param {string | null} text null to remove the picture
 * @returns whether there is one
 */
export function drawQr(figure, text) {
  const drawn = text === null ? null : qrPicture(text);
  figure.replaceChildren();
  if (!drawn) return false;
  const create = (/** @type {string} */ name, /** @type {Record<string, string>} */ attributes) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const { size, path } = drawn;
  const label = { role: 'img', 'aria-label': 'The link as a QR code' };
  const picture = create('svg', { viewBox: `0 0 ${size} ${size}`, ...label });
  // Always dark on light, because not every scanner reads inverted codes.
  const background = create('rect', { width: String(size), height: String(size), fill: '#fff' });
  picture.append(background, create('path', { d: path, fill: '#000' }));
  figure.append(picture);
  return true;
}

/**
 * Half of a character (a lone surrogate) has no UTF-8 form: another one would arrive in its place.
 * @param {string} text @returns what to do, or the empty string
 */
export const brokenCharacter = (text) =>
  /\p{Surrogate}/u.test(text)
    ? 'This text holds half of a character, which cannot be sent. Delete it, or paste the text again.'
    : '';

/** Shows one part of the page, and moves the focus to its heading. @param {string} id */
export function showOnly(id) {
  for (const part of document.querySelectorAll('main > form, main > section'))
    if (part instanceof HTMLElement) part.hidden = part.id !== id;
  const heading = element(id, HTMLElement).querySelector('h1');
  showTitle(heading?.textContent ?? '');
  heading?.focus();
}
