import { envelopeLength, isSupported, joinKeys, safeName, seal } from '/pages/envelope.js';
import { createPassphrase, createPassword, drawQr, formatSize } from '/pages/form.js';
import {
  callApi,
  copyOnClick,
  element,
  formatTime,
  showFieldProblem,
  showPerson,
  showProblem,
  switchSection,
  whileBusy,
} from '/pages/page.js';

/** @import { About, Content } from '/pages/envelope.js' */
/** @import { Failure, Result } from '/pages/page.js' */

const form = element('make', HTMLFormElement);
/** The token is kept only in this field. It is not stored, and only this service receives it. */
const token = element('token', HTMLInputElement);
const tokenPart = element('token-part', HTMLElement);
const secret = element('secret', HTMLTextAreaElement);
const file = element('file', HTMLInputElement);
const isFile = element('kind-file', HTMLInputElement);
const isText = element('kind-text', HTMLInputElement);
const expiry = element('expires-in', HTMLSelectElement);
const reads = element('max-reads', HTMLInputElement);
const passphrase = element('passphrase', HTMLInputElement);
const endToEnd = element('end-to-end', HTMLInputElement);
const link = element('link', HTMLTextAreaElement);
const receipt = element('receipt', HTMLTextAreaElement);
const madePassphrase = element('made-passphrase', HTMLTextAreaElement);
const CONTROLS = [token, secret, file, expiry, reads, passphrase];

/**
 * @typedef {{
 *   expires_in: { max: number },
 *   max_reads: { max: number },
 *   passphrase: { min_length: number },
 *   password: { max_bytes: number },
 *   caller: { role: string, user: string | null },
 * }} Options
 */
let maxBytes = 64_512;
let minPassphrase = 4;
let latestRequest = 0;
/** What padding and encoding leave of an envelope, at least. */
const ENVELOPE_SHARE = 0.66;

/**
 * The form offers only what the operator allows.
 * @param {boolean} isFirst before a token is entered
 */
async function loadOptions(isFirst) {
  const thisRequest = ++latestRequest;
  /** @type {Result<Options>} */
  const options = await callApi('/api/store/options', isFirst ? {} : { token: token.value });
  // The message of a later request stays.
  if (thisRequest !== latestRequest) return;
  if (!options.ok)
    return isFirst && options.code === 'unauthorized' ? undefined : showFailure(options, false);
  const { expires_in, max_reads, password, passphrase: limits, caller } = options.data;
  maxBytes = password.max_bytes;
  minPassphrase = limits.min_length;
  showFieldProblem(token, '');
  showProblem('');
  if (isFirst) tokenPart.hidden = true;
  showPerson(caller.user);
  const choices = [...expiry.options];
  for (const choice of choices) choice.disabled = Number(choice.value) > expires_in.max;
  // An operator may allow less than the shortest choice.
  if (choices.every((choice) => choice.disabled)) {
    expiry.add(new Option(`${expires_in.max} seconds`, String(expires_in.max)));
    expiry.value = String(expires_in.max);
  } else if (expiry.selectedOptions[0]?.disabled !== false) {
    expiry.value = choices.findLast((choice) => !choice.disabled)?.value ?? '';
  }
  reads.max = String(max_reads.max);
  element('file-hint', HTMLElement).textContent =
    `At most about ${formatSize(ENVELOPE_SHARE * maxBytes)}. Or drop it here. Its name and type are encrypted, too.`;
}
void loadOptions(true);
token.addEventListener('change', () => {
  void loadOptions(false);
});

if (!isSupported()) {
  element('insecure', HTMLElement).hidden = false;
  endToEnd.checked = false;
  endToEnd.disabled = true;
  isFile.disabled = true;
}

for (const kind of [isFile, isText]) {
  kind.addEventListener('change', () => {
    element('file-part', HTMLElement).hidden = !isFile.checked;
    element('text-part', HTMLElement).hidden = isFile.checked;
    // Only the envelope holds a file.
    if (isFile.checked) endToEnd.checked = true;
    endToEnd.disabled = isFile.checked || !isSupported();
  });
}

/** A file that is dropped anywhere on the form is chosen. */
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
  isFile.click();
  showFieldProblem(file, '', false);
});

element('generate', HTMLButtonElement).addEventListener('click', () => {
  secret.value = createPassword();
  secret.focus();
});
element('suggest', HTMLButtonElement).addEventListener('click', () => {
  passphrase.value = createPassphrase();
  passphrase.focus();
});

/** @typedef {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} Control */

/** @param {Control} control @param {string} message */
const problem = (control, message) => ({ control, message });

/**
 * What the form holds, or the first mistake in it.
 * @returns {Promise<Content | { control: Control, message: string }>}
 */
async function readForm() {
  if (!tokenPart.hidden && token.value === '') return problem(token, 'Enter your access token.');
  const chosen = file.files?.[0];
  if (isFile.checked && !chosen) return problem(file, 'Choose a file.');
  if (!isFile.checked && secret.value === '') return problem(secret, 'Enter the text to share.');
  const count = Number(reads.value);
  const max = Number(reads.max);
  if (!Number.isInteger(count) || count < 1 || count > max)
    return problem(reads, `Enter a number from 1 to ${max}.`);
  if (passphrase.value !== '' && passphrase.value.length < minPassphrase) {
    return problem(passphrase, `Enter at least ${minPassphrase} characters, or none.`);
  }
  /** @type {About} */
  const about =
    chosen && isFile.checked
      ? {
          kind: 'file',
          name: safeName(chosen.name),
          type: chosen.type || 'application/octet-stream',
        }
      : { kind: 'text' };
  const size =
    chosen && isFile.checked ? chosen.size : new TextEncoder().encode(secret.value).length;
  const stored = endToEnd.checked ? envelopeLength(about, size) : size;
  if (stored > maxBytes) {
    const most = formatSize((endToEnd.checked ? ENVELOPE_SHARE : 1) * maxBytes);
    return problem(
      isFile.checked ? file : secret,
      `${formatSize(size)} is too much: the limit is about ${most}.`,
    );
  }
  if (!chosen || !isFile.checked) return { about, bytes: new TextEncoder().encode(secret.value) };
  const bytes = await chosen.arrayBuffer().catch(() => null);
  return bytes
    ? { about, bytes: new Uint8Array(bytes) }
    : problem(file, 'This file cannot be read. Choose it again.');
}

form.addEventListener('submit', (event) => {
  event.preventDefault();
  void whileBusy(element('submit', HTMLButtonElement), create);
});

async function create() {
  latestRequest += 1;
  for (const control of CONTROLS) showFieldProblem(control, '');
  showProblem('');
  const content = await readForm();
  if ('control' in content) return showFieldProblem(content.control, content.message);
  const sealed = endToEnd.checked ? await seal(content, passphrase.value) : null;
  const lock = sealed ? sealed.proof : passphrase.value || undefined;
  /** @type {Result<{ id: string, secret: string, expires_at: string, receipt: string }>} */
  const created = await callApi('/api/store/encrypt', {
    ...(tokenPart.hidden ? {} : { token: token.value }),
    body: {
      password: sealed?.envelope ?? secret.value,
      expires_in: Number(expiry.value),
      max_reads: Number(reads.value),
      ...(lock === undefined ? {} : { passphrase: lock }),
    },
  });
  if (!created.ok) return showFailure(created);
  const { id, secret: key, expires_at, receipt: receiptKey } = created.data;
  link.value = `${location.origin}/s/${id}#${sealed ? joinKeys(key, sealed.key) : key}`;
  receipt.value = `${location.origin}/r/${id}#${receiptKey}`;
  element('open-receipt', HTMLAnchorElement).href = receipt.value;
  element('until', HTMLElement).textContent = formatTime(expires_at);
  element('how-often', HTMLElement).textContent =
    reads.value === '1' ? 'once' : `${reads.value} times`;
  madePassphrase.value = passphrase.value;
  element('locked', HTMLElement).hidden = passphrase.value === '';
  element('code', HTMLElement).hidden = !drawQr(element('qr', HTMLElement), link.value);
  element('share', HTMLElement).hidden = typeof navigator.share !== 'function';
  secret.value = '';
  passphrase.value = '';
  file.value = '';
  switchSection('make', 'made');
}

/** By the members of the request. */
const BY_PATH = new Map(
  Object.entries({
    '/password': secret,
    '/expires_in': expiry,
    '/max_reads': reads,
    '/passphrase': passphrase,
  }),
);

/**
 * Shows each message next to the control that it concerns, and keeps what was typed.
 * @param {Failure} failure @param {boolean} takesFocus as of `showFieldProblem`
 */
function showFailure({ code, message, fields }, takesFocus = true) {
  if (code === 'unauthorized' && !tokenPart.hidden) {
    const advice =
      token.value === ''
        ? 'Enter your access token.'
        : 'This access token is not valid. Check it, or ask for a valid one.';
    return showFieldProblem(token, advice, takesFocus);
  }
  const [first] = fields;
  const control = first && BY_PATH.get(first.path);
  if (first && control) return showFieldProblem(control, `This ${first.message}.`);
  showProblem(
    code === 'body_too_large' ? 'This is too much for the service. Share less text.' : message,
  );
}

element('again', HTMLButtonElement).addEventListener('click', () => {
  link.value = '';
  receipt.value = '';
  madePassphrase.value = '';
  element('open-receipt', HTMLAnchorElement).removeAttribute('href');
  drawQr(element('qr', HTMLElement), null);
  switchSection('made', 'make');
});

copyOnClick(element('copy', HTMLButtonElement), link, () => link.value);
copyOnClick(
  element('copy-passphrase', HTMLButtonElement),
  madePassphrase,
  () => madePassphrase.value,
);
copyOnClick(element('copy-receipt', HTMLButtonElement), receipt, () => receipt.value);
// Closing the share sheet without sending is not an error.
element('share', HTMLButtonElement).addEventListener('click', () => {
  void navigator.share({ url: link.value }).catch(() => {});
});
