/** Shows a secret after a click, and before it how often that can be done. */
import { deriveKeys, isSupported, open } from '/pages/envelope.js';
import { formatSize, showOnly } from '/pages/form.js';
import {
  callApi,
  copyOnClick,
  element,
  formatTime,
  showAtButton,
  showFieldProblem,
  showProblem,
  switchSection,
  whileBusy,
} from '/pages/page.js';

/** @import { Content } from '/pages/envelope.js' */
/** @import { Failure, Result } from '/pages/page.js' */
/** @typedef {{ path: string, serviceKey: string, key: string | null }} SecretLink */
/**
 * @typedef {{
 *   status: 'stored' | 'read' | 'expired' | 'deleted',
 *   passphrase: boolean,
 *   reads: number,
 *   max_reads: number | null,
 *   expires_at: string | null,
 *   ended_at: string | null,
 * }} Link
 * @typedef {{
 *   password: string,
 *   reads_left: number | null,
 *   expires_at: string | null,
 *   delete_key: string | null,
 * }} Revealed
 */

const submit = element('submit', HTMLButtonElement);
const passphrase = element('passphrase', HTMLInputElement);
const lock = element('lock', HTMLElement);
const text = element('text', HTMLTextAreaElement);
const about = element('about', HTMLElement);
let secret = '';
/** @type {Content | null} */
let content = null;

const ASK = 'Ask the sender for a new link.';
const WRONG = [
  'This link is incomplete or wrong',
  `Open it again from where you received it: the address bar does not keep the part after the #. Otherwise the link was cut, or ended long ago. ${ASK}`,
];
const REVEALED = [
  'You have viewed this secret',
  'It was shown in this tab. Open the original link again if it has more views.',
];
const INSECURE = [
  'This link needs HTTPS',
  'Its content was encrypted in a browser. Open the link over HTTPS.',
];

/**
 * Shows a state in which nothing can be done, so nothing is offered.
 * @param {readonly string[]} words
 */
function showEnd([heading = '', words = '']) {
  element('ended-heading', HTMLElement).textContent = heading;
  element('ended-text', HTMLElement).textContent = words;
  showOnly('ended');
}

/** @param {Link} link @returns {readonly string[]} */
function endOf({ status, ended_at, max_reads }) {
  const when = ended_at === null ? '' : ` on ${formatTime(ended_at)}`;
  const often =
    max_reads === 1 ? 'It could be opened once, and was opened' : 'It was opened for the last time';
  if (status === 'expired')
    return ['This link has expired', `It could be opened until ${formatTime(ended_at)}. ${ASK}`];
  const who = 'The sender or someone who opened the link deleted it';
  if (status === 'deleted') return ['This secret was deleted', `${who}${when}. ${ASK}`];
  const warning = 'If that was not you, tell the sender at once: someone else has viewed it.';
  return ['This secret was already viewed', `${often}${when}. ${warning} ${ASK}`];
}

/** @type {() => SecretLink | null} */
let readLink = () => null;
let showWrong = () => showEnd(WRONG);

/**
 * @param {() => SecretLink | null} read
 * @param {() => void} show for keys that no secret belongs to
 */
export function offerSecret(read, show = showWrong) {
  readLink = read;
  showWrong = show;
  return check();
}

/** @param {number | null} times null for no limit @param {string} once @param {string} several */
function shownTimes(times, once, several) {
  if (times === null) return 'any number of times';
  return times === 1 ? once : `${times} ${several}`;
}

/** Asks how often the link can be opened. This does not count as a view. */
async function check() {
  content = null;
  element('ended', HTMLElement).hidden = true;
  element('revealed', HTMLElement).hidden = true;
  element('reveal', HTMLElement).hidden = false;
  submit.hidden = true;
  showProblem('');
  const link = readLink();
  if (history.state?.isRevealed) return showEnd(REVEALED);
  if (!link) return showEnd(WRONG);
  if (link.key !== null && !isSupported()) return showEnd(INSECURE);
  const isWhole = link.key === null || (await deriveKeys(link.key, '')) !== null;
  // Revealed meanwhile: it may be shown only once.
  if (content) return;
  if (!isWhole) return showEnd(WRONG);
  /** @type {Result<Link>} */
  const state = await callApi(`${link.path}/status`, { body: { secret: link.serviceKey } });
  if (content) return;
  if (!state.ok && state.code === 'not_found') return showWrong();
  submit.hidden = false;
  if (!state.ok) {
    about.textContent = 'You might be able to open it only once, so be ready to save it.';
    return showFailure(state);
  }
  if (state.data.status !== 'stored') return showEnd(endOf(state.data));
  const { max_reads, reads, expires_at, passphrase: isLocked } = state.data;
  const times = max_reads === null ? null : max_reads - reads;
  const left = shownTimes(times, 'once', 'times');
  const until = expires_at === null ? '' : `, until ${formatTime(expires_at)}`;
  about.textContent = `It can be opened ${left}${until}. Be ready to save it.`;
  lock.hidden = !isLocked;
}
element('reveal', HTMLFormElement).addEventListener('submit', (event) => {
  event.preventDefault();
  void whileBusy(submit, reveal);
});

async function reveal() {
  const link = readLink();
  if (!link) return showEnd(WRONG);
  showProblem('');
  showFieldProblem(passphrase, '');
  if (!lock.hidden && passphrase.value === '')
    return showFieldProblem(passphrase, 'Enter the passphrase.');
  const keys = link.key === null ? null : await deriveKeys(link.key, passphrase.value);
  const sent = keys ? keys.proof : passphrase.value || undefined;
  /** @type {Result<Revealed>} */
  const opened = await callApi(link.path, {
    body: { secret: link.serviceKey, ...(sent === undefined ? {} : { passphrase: sent }) },
  });
  if (!opened.ok) return opened.code === 'not_found' ? check() : showFailure(opened);
  const { password, ...left } = opened.data;
  content = keys
    ? await open(password, keys.content)
    : { about: { kind: 'text' }, bytes: new TextEncoder().encode(password) };
  // The tab forgets the keys. The browser's history keeps the original address.
  history.replaceState({ isRevealed: true }, '');
  passphrase.value = '';
  if (!content) return showEnd(['This secret is damaged', `It could not be decrypted. ${ASK}`]);
  showContent(content);
  showLeft(link.path, left);
  switchSection('reveal', 'revealed');
}

/** A file is never shown, only saved: it could be a page with a script. @param {Content} opened */
function showContent({ about: { kind, ...file }, bytes }) {
  const isFile = 'name' in file;
  element('text-part', HTMLElement).hidden = isFile;
  element('file-part', HTMLElement).hidden = !isFile;
  element('copy', HTMLElement).hidden = isFile;
  element('save', HTMLElement).classList.toggle('primary', isFile);
  if (isFile) {
    element('revealed-heading', HTMLElement).textContent = 'The file';
    element('file-name', HTMLElement).textContent = file.name;
    element('file-type', HTMLElement).textContent = file.type;
    element('file-size', HTMLElement).textContent = formatSize(bytes.length);
    element('save', HTMLElement).textContent = 'Save file';
    return;
  }
  secret = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
  text.value = secret;
  const rows = text.value
    .split('\n')
    .reduce((sum, line) => sum + Math.ceil((line.length + 1) / 30), 1);
  text.rows = Math.min(20, rows);
}

/** @param {string} path @param {Omit<Revealed, 'password'>} left */
function showLeft(path, { reads_left: reads, expires_at, delete_key: key }) {
  const note = element('left', HTMLElement);
  const button = element('delete', HTMLButtonElement);
  const until = expires_at === null ? '' : ` until ${formatTime(expires_at)}`;
  const more = shownTimes(reads, 'once more', 'more times');
  note.textContent =
    reads === 0
      ? 'This was the last view. The service has deleted the secret, so save it before you close this page.'
      : `The link can be opened ${more}${until}.`;
  button.hidden = key === null;
  button.onclick = () => {
    void whileBusy(button, async () => {
      const deleted = await callApi(`${path}/delete`, { body: { key } });
      if (!deleted.ok && deleted.code !== 'not_found')
        return showAtButton(button, deleted.message, false);
      button.hidden = true;
      note.textContent =
        'Deleted. The link no longer works, so save the secret before you close this page.';
      note.classList.add('good');
      element('status', HTMLElement).textContent = 'Deleted.';
    });
  };
}

/** @param {Failure} failure */
function showFailure({ code, message }) {
  if (code === 'passphrase_needed' || code === 'wrong_passphrase') {
    lock.hidden = false;
    const wrong = 'This passphrase is wrong. No view was used.';
    return showFieldProblem(
      passphrase,
      code === 'wrong_passphrase' ? wrong : 'Enter the passphrase.',
    );
  }
  showProblem(
    code === 'no_answer'
      ? `${message} If a view was under way, it may have been used up.`
      : message,
  );
}

copyOnClick(element('copy', HTMLButtonElement), text, () => secret);

element('save', HTMLButtonElement).addEventListener('click', () => {
  if (!content) return;
  const file = 'name' in content.about ? content.about.name : 'secret.txt';
  const address = URL.createObjectURL(
    new Blob([content.bytes], { type: 'application/octet-stream' }),
  );
  Object.assign(document.createElement('a'), { href: address, download: file }).click();
  // The browser has begun to save it by then.
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
});
