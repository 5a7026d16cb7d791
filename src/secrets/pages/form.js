/** Parts of the forms for a text or a file. */
import { envelopeLength, safeName } from '/pages/envelope.js';
import { element, showFieldProblem, showProblem, showTitle } from '/pages/page.js';
import { qrPicture } from '/pages/qr.js';

/** @import { About, Content } from '/pages/envelope.js' */
/** @typedef {{ control: HTMLTextAreaElement | HTMLInputElement, message: string }} Mistake */

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

/** What padding and encoding leave of an envelope, at least. */
const ENVELOPE_SHARE = 0.66;

/** @param {number} maxBytes that the service stores */
export function showFileLimit(maxBytes) {
  const most = formatSize(ENVELOPE_SHARE * maxBytes);
  element('file-hint', HTMLElement).textContent =
    `At most about ${most}. Or drop it here. Its name and type are encrypted, too.`;
}

/** @param {File} file @returns {About} */
const aboutFile = ({ name, type }) => ({
  kind: 'file',
  name: safeName(name),
  type: type || 'application/octet-stream',
});

/** @param {About} about @param {number} size @param {number} maxBytes @param {boolean} isEndToEnd */
function sizeProblem(about, size, maxBytes, isEndToEnd) {
  if ((isEndToEnd ? envelopeLength(about, size) : size) <= maxBytes) return '';
  const most = formatSize((isEndToEnd ? ENVELOPE_SHARE : 1) * maxBytes);
  return `${formatSize(size)} is too much: the limit is about ${most}.`;
}

/**
 * A file that is dropped anywhere on the form is chosen. Its size is shown, and a larger one
 * refused, at once.
 * @param {HTMLFormElement} form @param {HTMLInputElement} file
 * @param {HTMLInputElement} isFile checked for a file
 * @param {() => number} maxBytes that the service stores
 */
export function acceptFile(form, file, isFile, maxBytes) {
  file.addEventListener('change', () => {
    const chosen = file.files?.[0];
    element('file-size', HTMLElement).textContent = chosen ? `${formatSize(chosen.size)}.` : '';
    const refused = chosen && sizeProblem(aboutFile(chosen), chosen.size, maxBytes(), true);
    showFieldProblem(file, refused ?? '', false);
  });
  form.addEventListener('dragover', (event) => {
    const hasFiles = event.dataTransfer?.types.includes('Files') === true;
    if (hasFiles && !isFile.disabled) event.preventDefault();
  });
  form.addEventListener('drop', (event) => {
    const files = event.dataTransfer?.files;
    if (!files || files.length === 0 || isFile.disabled) return;
    event.preventDefault();
    if (files.length > 1) return showProblem('Drop one file only.');
    file.files = files;
    if (!isFile.checked) isFile.click();
    file.dispatchEvent(new Event('change'));
  });
}

/**
 * @param {HTMLTextAreaElement} text @param {HTMLInputElement} file @param {boolean} isFile
 * @returns the control that is empty, with what to do; null if none is
 */
export function missingContent(text, file, isFile) {
  if (isFile) return file.files?.[0] ? null : { control: file, message: 'Choose a file.' };
  return text.value === '' ? { control: text, message: 'Enter the text to share.' } : null;
}

/**
 * Half of a character (a lone surrogate) has no UTF-8 form: another one would arrive in its place.
 * @param {string} text @returns what to do, or the empty string
 */
export const brokenCharacter = (text) =>
  /\p{Surrogate}/u.test(text)
    ? 'This text holds half of a character, which cannot be sent. Delete it, or paste the text again.'
    : '';

/**
 * @param {HTMLTextAreaElement} text @param {HTMLInputElement} file @param {boolean} isFile
 * @param {number} maxBytes that the service stores
 * @param {boolean} isEndToEnd
 * @returns {Promise<Content | Mistake>}
 */
export async function readContent(text, file, isFile, maxBytes, isEndToEnd) {
  const chosen = isFile ? file.files?.[0] : undefined;
  const broken = chosen ? '' : brokenCharacter(text.value);
  if (broken !== '') return { control: text, message: broken };
  const typed = new TextEncoder().encode(text.value);
  /** @type {About} */
  const about = chosen ? aboutFile(chosen) : { kind: 'text' };
  const size = chosen ? chosen.size : typed.length;
  const message = sizeProblem(about, size, maxBytes, isEndToEnd);
  if (message !== '') return { control: isFile ? file : text, message };
  if (!chosen) return { about, bytes: typed };
  const bytes = await chosen.arrayBuffer().catch(() => null);
  const unreadable = 'This file cannot be read. Choose it again.';
  return bytes ? { about, bytes: new Uint8Array(bytes) } : { control: file, message: unreadable };
}

/** Shows one part of the page, and moves the focus to its heading. @param {string} id */
export function showOnly(id) {
  for (const part of document.querySelectorAll('main > form, main > section'))
    if (part instanceof HTMLElement) part.hidden = part.id !== id;
  const heading = element(id, HTMLElement).querySelector('h1');
  showTitle(heading?.textContent ?? '');
  heading?.focus();
}
