import { takeLink } from '/pages/address.js';
import { acceptFile, missingContent, readContent, showFileLimit } from '/pages/content.js';
import { isSupported } from '/pages/envelope.js';
import { createPassword, showOnly } from '/pages/form.js';
import {
  callApi,
  element,
  formatTime,
  showFieldProblem,
  showProblem,
  whileBusy,
} from '/pages/page.js';
import { checkRequest, digestIn, sealAnswer } from '/pages/request-keys.js';

/** @import { Result } from '/pages/page.js' */
/** @import { Described } from '/pages/request-keys.js' */

const submit = element('submit', HTMLButtonElement);
const form = element('answer', HTMLFormElement);
const secret = element('secret', HTMLTextAreaElement);
const file = element('file', HTMLInputElement);
const isFile = element('kind-file', HTMLInputElement);
const link = takeLink('answer');
const id = link?.id ?? '';
const digest = digestIn(link?.keys ?? '');
/** @type {Described | null} */
let request = null;

/** Asks what is wanted. The request can still be answered afterwards. */
async function load() {
  if (digest === null) return showOnly('wrong');
  if (!isSupported()) return showOnly('insecure');
  /** @type {Result<Described>} */
  const found = await callApi(`/request/${id}`, { body: { key: digest } });
  if (!found.ok && found.code === 'not_found') return showOnly('wrong');
  if (!found.ok) return showProblem(found.message);
  const { status, kind, title, asker, max_bytes, expires_at } = found.data;
  // Nothing of the request is shown before the link has confirmed it.
  if (!(await checkRequest(id, digest, found.data))) return showOnly('altered');
  if (status !== 'open') return showOnly(status);
  request = found.data;
  isFile.checked = kind === 'file';
  isFile.disabled = kind !== 'file';
  element('title', HTMLElement).textContent = title;
  element('asker', HTMLElement).textContent = asker;
  element('asker', HTMLElement).hidden = asker === null;
  element('asker-term', HTMLElement).hidden = asker === null;
  element('until', HTMLElement).textContent = formatTime(expires_at);
  element('about', HTMLElement).textContent =
    'What you enter is encrypted for the person who sent you this link. It can be answered once.';
  showFileLimit(max_bytes);
  element('text-part', HTMLElement).hidden = isFile.checked;
  element('file-part', HTMLElement).hidden = !isFile.checked;
  element('content', HTMLElement).hidden = false;
  submit.hidden = false;
}
void load();
addEventListener('popstate', () => location.reload());
acceptFile(form, file, isFile, () => request?.max_bytes ?? 0);

form.addEventListener('submit', (event) => {
  event.preventDefault();
  void whileBusy(submit, send);
});

async function send() {
  if (!request || digest === null) return;
  showProblem('');
  for (const control of [secret, file]) showFieldProblem(control, '');
  const content =
    missingContent(secret, file, isFile.checked) ??
    (await readContent(secret, file, isFile.checked, request.max_bytes, true));
  if ('control' in content) return showFieldProblem(content.control, content.message);
  // A new key pair for each try.
  const keys = await checkRequest(id, digest, request);
  if (!keys) return showOnly('altered');
  const sent = await callApi(`/answer/${id}`, {
    body: await sealAnswer(content, keys),
    linkKey: digest,
  });
  // It has been answered or withdrawn, or has expired: the state says which.
  if (!sent.ok && (sent.code === 'conflict' || sent.code === 'not_found')) return load();
  const lost = 'The answer might have arrived all the same: send it again to find out.';
  if (!sent.ok)
    return showProblem(sent.code === 'no_answer' ? `${sent.message} ${lost}` : sent.message);
  secret.value = '';
  file.value = '';
  showOnly('sent');
}

element('generate', HTMLButtonElement).addEventListener('click', () => {
  secret.value = createPassword();
  secret.focus();
});
