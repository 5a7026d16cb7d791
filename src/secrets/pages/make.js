import {
  clearProblems,
  credentials,
  problem,
  showFailure,
  tokenProblem,
  watchAccess,
} from '/pages/access.js';
import { acceptFile, missingContent, readContent, showFileLimit } from '/pages/content.js';
import { fitLink, isSupported, joinKeys, seal } from '/pages/envelope.js';
import { brokenCharacter, createPassphrase, createPassword, drawQr } from '/pages/form.js';
import {
  callApi,
  copyOnClick,
  element,
  formatTime,
  showFieldProblem,
  showProblem,
  switchSection,
  UNEXPECTED,
  whileBusy,
} from '/pages/page.js';

/** @import { Control } from '/pages/access.js' */
/** @import { Content } from '/pages/envelope.js' */
/** @import { Result } from '/pages/page.js' */

const form = element('make', HTMLFormElement);
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
const CONTROLS = [secret, file, expiry, reads, passphrase];

let maxBytes = 64_512;
let minPassphrase = 4;
watchAccess(({ max_reads, password, passphrase: limits }) => {
  maxBytes = password.max_bytes;
  minPassphrase = limits.min_length;
  reads.max = String(max_reads.max);
  showFileLimit(maxBytes);
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
    element('always', HTMLElement).hidden = !isFile.checked;
  });
}

acceptFile(form, file, isFile, () => maxBytes);

element('generate', HTMLButtonElement).addEventListener('click', () => {
  secret.value = createPassword();
  secret.focus();
});
element('suggest', HTMLButtonElement).addEventListener('click', () => {
  passphrase.value = createPassphrase();
  passphrase.focus();
});

/**
 * What the form holds, or the first mistake in it.
 * @returns {Promise<Content | { control: Control, message: string }>}
 */
async function readForm() {
  const mistake = tokenProblem() ?? missingContent(secret, file, isFile.checked);
  if (mistake) return mistake;
  const count = Number(reads.value);
  const max = Number(reads.max);
  if (!Number.isInteger(count) || count < 1 || count > max)
    return problem(reads, `Enter a number from 1 to ${max}.`);
  if (passphrase.value !== '' && passphrase.value.length < minPassphrase) {
    return problem(passphrase, `Enter at least ${minPassphrase} characters, or none.`);
  }
  const broken = brokenCharacter(passphrase.value);
  if (broken !== '') return problem(passphrase, broken);
  return readContent(secret, file, isFile.checked, maxBytes, endToEnd.checked);
}

form.addEventListener('submit', (event) => {
  event.preventDefault();
  void whileBusy(element('submit', HTMLButtonElement), create);
});

async function create() {
  clearProblems(CONTROLS);
  // The fields can be changed while the service is asked.
  const text = secret.value;
  const phrase = passphrase.value;
  const expires_in = Number(expiry.value);
  const max_reads = Number(reads.value);
  const isEndToEnd = endToEnd.checked;
  const content = await readForm();
  if ('control' in content) return showFieldProblem(content.control, content.message);
  const sealed = isEndToEnd ? await seal(content, phrase) : null;
  const lock = sealed ? sealed.proof : phrase || undefined;
  /** @type {Result<{ id: string, secret: string, expires_at: string, receipt: string }>} */
  const created = await callApi('/api/store/encrypt', {
    ...credentials(),
    body: {
      password: sealed?.envelope ?? text,
      expires_in,
      max_reads,
      ...(lock === undefined ? {} : { passphrase: lock }),
    },
  });
  if (!created.ok) return showFailure(created, BY_PATH);
  const { id, secret: key, expires_at, receipt: receiptKey } = created.data;
  if (!fitLink(id, key, receiptKey)) return showProblem(UNEXPECTED);
  link.value = `${location.origin}/s/${id}#${sealed ? joinKeys(key, sealed.key) : key}`;
  receipt.value = `${location.origin}/r/${id}#${receiptKey}`;
  element('open-receipt', HTMLAnchorElement).href = receipt.value;
  element('until', HTMLElement).textContent = formatTime(expires_at);
  element('how-often', HTMLElement).textContent = max_reads === 1 ? 'once' : `${max_reads} times`;
  madePassphrase.value = phrase;
  element('locked', HTMLElement).hidden = phrase === '';
  element('code', HTMLElement).hidden = !drawQr(element('qr', HTMLElement), link.value);
  element('share', HTMLElement).hidden = typeof navigator.share !== 'function';
  secret.value = '';
  passphrase.value = '';
  file.value = '';
  file.dispatchEvent(new Event('change'));
  switchSection('make', 'made');
}

/** @type {ReadonlyMap<string, Control>} */
const BY_PATH = new Map(
  Object.entries({
    '/password': secret,
    '/expires_in': expiry,
    '/max_reads': reads,
    '/passphrase': passphrase,
  }),
);

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
