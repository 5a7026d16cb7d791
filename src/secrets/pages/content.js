/** The text or the file that a form takes. */
import { envelopeLength, safeName } from '/pages/envelope.js';
import { brokenCharacter, formatSize } from '/pages/form.js';
import { element, showFieldProblem, showProblem } from '/pages/page.js';

/** @import { About, Content } from '/pages/envelope.js' */
/** @typedef {{ control: HTMLTextAreaElement | HTMLInputElement, message: string }} Mistake */

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

/**
 * @param {About} about @param {number} size of the content @param {number} maxBytes
 * @param {boolean} isEndToEnd
 */
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
