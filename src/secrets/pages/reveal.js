import { callApi, copyOnClick, element, showProblem, switchSection } from '/pages/page.js';

/** @import { Result } from '/pages/page.js' */

const button = element('submit', HTMLButtonElement);
const passphrase = element('passphrase', HTMLInputElement);
const text = element('text', HTMLTextAreaElement);
let secret = '';
/** True during a request. The button is not disabled, because a disabled button loses the keyboard focus. */
let isPending = false;

const ID_PATH = /^\/s\/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\/?$/i;
const KEY = /^[A-Za-z0-9_-]{43}$/;

const MESSAGES = {
  revealed: 'You already revealed this secret in this tab. If it allows more reads, open the original link again.',
  incomplete:
    'This link is incomplete or was changed. Open it exactly as you received it, or ask the sender for a new one.',
  passphrase: 'This secret is protected by a passphrase. Enter it, then press the button again.',
  gone: 'This link no longer works. The secret was already read, has expired or was deleted, or the link was changed. '
    + 'If you have not read the secret, tell the sender and ask for a new link.',
  maybeRead: 'If the secret allowed only one read, that read may have been used.',
};

/** The key is behind the `#`. Browsers do not send that part to a server. */
const keyOf = () => location.hash.slice(1);

function checkLink() {
  const isComplete = ID_PATH.test(location.pathname) && KEY.test(keyOf());
  button.disabled = !isComplete;
  if (history.state?.isRevealed && keyOf() === '') return showProblem(MESSAGES.revealed);
  showProblem(isComplete ? '' : MESSAGES.incomplete);
}
checkLink();
addEventListener('hashchange', checkLink);

element('reveal', HTMLFormElement).addEventListener('submit', async (event) => {
  event.preventDefault();
  if (isPending) return;
  isPending = true;
  /** @type {Result<{ password: string }>} */
  const opened = await callApi(location.pathname, {
    body: { secret: keyOf(), ...(passphrase.value === '' ? {} : { passphrase: passphrase.value }) },
  });
  isPending = false;
  if (!opened.ok) return showFailure(opened);
  text.value = secret = opened.data.password;
  const rows = text.value.split('\n').reduce((sum, line) => sum + Math.ceil((line.length + 1) / 30), 1);
  text.rows = Math.min(20, rows);
  passphrase.value = '';
  // Removes the key from the address bar and from the Back button. The browser's history keeps the original address.
  history.replaceState({ isRevealed: true }, '', location.pathname);
  switchSection('reveal', 'revealed');
});

/** @param {{ code: string, message: string }} failure */
function showFailure({ code, message }) {
  const lock = element('lock', HTMLElement);
  if (code === 'passphrase_needed' || code === 'wrong_passphrase') lock.hidden = false;
  if (code === 'passphrase_needed') showProblem(MESSAGES.passphrase);
  else if (code === 'not_found') showProblem(MESSAGES.gone);
  else if (code === 'no_answer') showProblem(`${message} ${MESSAGES.maybeRead}`);
  else showProblem(message);
  if (!lock.hidden) passphrase.focus();
}

copyOnClick(element('copy', HTMLButtonElement), text, () => secret);
