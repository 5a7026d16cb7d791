import {
  clearProblems,
  credentials,
  showFailure,
  tokenProblem,
  watchAccess,
} from '/pages/access.js';
import { isSupported } from '/pages/envelope.js';
import { brokenCharacter, drawQr } from '/pages/form.js';
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
import { createRequest, linksOf } from '/pages/request-keys.js';

/** @import { Result } from '/pages/page.js' */

const form = element('ask', HTMLFormElement);
const submit = element('submit', HTMLButtonElement);
const title = element('title', HTMLInputElement);
const isFile = element('kind-file', HTMLInputElement);
const expiry = element('expires-in', HTMLSelectElement);
const link = element('link', HTMLTextAreaElement);
const keep = element('keep', HTMLTextAreaElement);
const open = element('open-keep', HTMLAnchorElement);
const CONTROLS = [title, expiry];
const BY_PATH = new Map(Object.entries({ '/title': title, '/expires_in': expiry }));

watchAccess(() => {});
if (!isSupported()) {
  element('insecure', HTMLElement).hidden = false;
  submit.disabled = true;
}

form.addEventListener('submit', (event) => {
  event.preventDefault();
  void whileBusy(submit, create);
});

async function create() {
  clearProblems(CONTROLS);
  const missing = {
    control: title,
    message: 'Enter what you need, such as "Password of the shop".',
  };
  const broken = { control: title, message: brokenCharacter(title.value) };
  const titleProblem = title.value.trim() === '' ? missing : broken;
  const mistake = tokenProblem() ?? (titleProblem.message === '' ? null : titleProblem);
  if (mistake) return showFieldProblem(mistake.control, mistake.message);
  const { key, request } = await createRequest(
    isFile.checked ? 'file' : 'text',
    title.value.trim(),
  );
  /** @type {Result<{ id: string, expires_at: string, receipt: string }>} */
  const made = await callApi('/api/store/request', {
    ...credentials(),
    body: { ...request, expires_in: Number(expiry.value) },
  });
  if (!made.ok) return showFailure(made, BY_PATH);
  const links = linksOf(location.origin, made.data, request.digest, key);
  if (!links) return showProblem(UNEXPECTED);
  link.value = links.send;
  keep.value = links.keep;
  open.href = links.keep;
  element('until', HTMLElement).textContent = formatTime(made.data.expires_at);
  element('code', HTMLElement).hidden = !drawQr(element('qr', HTMLElement), link.value);
  element('share', HTMLElement).hidden = typeof navigator.share !== 'function';
  title.value = '';
  switchSection('ask', 'made');
}

element('again', HTMLButtonElement).addEventListener('click', () => {
  link.value = '';
  keep.value = '';
  open.removeAttribute('href');
  drawQr(element('qr', HTMLElement), null);
  switchSection('made', 'ask');
});

copyOnClick(element('copy', HTMLButtonElement), link, () => link.value);
copyOnClick(element('copy-keep', HTMLButtonElement), keep, () => keep.value);
// Closing the share sheet without sending is not an error.
element('share', HTMLButtonElement).addEventListener('click', () => {
  void navigator.share({ url: link.value }).catch(() => {});
});
