import { ask, complain, copies, element, turnTo } from '/pages/page.js';

/** @import { Answer } from '/pages/page.js' */

const button = element('submit', HTMLButtonElement);
const passphrase = element('passphrase', HTMLInputElement);
const text = element('text', HTMLTextAreaElement);
let secret = '';
/** While the service is asked. Not `disabled`, which would take the focus away. */
let isAsking = false;

/** Behind the `#`, which no browser sends to any server. */
const keyOf = () => location.hash.slice(1);

function checkLink() {
  const isWhole = /^\/s\/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\/?$/i.test(location.pathname) && /^[A-Za-z0-9_-]{43}$/.test(keyOf());
  button.disabled = !isWhole;
  if (history.state?.isRevealed && keyOf() === '') return complain('You have revealed this secret in this window. If it may be read more than once, open the link again as it was sent.');
  complain(isWhole ? '' : 'This link is not whole: something is missing or was changed. Open it again exactly as it was sent, or ask for a new one.');
}
checkLink();
addEventListener('hashchange', checkLink);

element('reveal', HTMLFormElement).addEventListener('submit', async (event) => {
  event.preventDefault();
  if (isAsking) return;
  isAsking = true;
  /** @type {Answer<{ password: string }>} */
  const opened = await ask(location.pathname, { body: { secret: keyOf(), ...(passphrase.value === '' ? {} : { passphrase: passphrase.value }) } });
  isAsking = false;
  if (!opened.ok) return refuse(opened);
  text.value = secret = opened.data.password;
  text.rows = Math.min(20, text.value.split('\n').reduce((rows, line) => rows + Math.ceil((line.length + 1) / 30), 1));
  passphrase.value = '';
  // Out of the address bar and the way back. The browser's own history keeps the address as it was opened.
  history.replaceState({ isRevealed: true }, '', location.pathname);
  turnTo('reveal', 'revealed');
});

/** @param {{ code: string, words: string }} failure */
function refuse({ code, words }) {
  if (code === 'passphrase_needed' || code === 'wrong_passphrase') element('lock', HTMLElement).hidden = false;
  if (code === 'passphrase_needed') complain('The sender has locked this secret with a passphrase. Enter it and press the button again.');
  else if (code === 'wrong_passphrase') complain('This passphrase is wrong. Nothing was used up: check it and try again.');
  else if (code === 'not_found') complain('This link opens nothing any more: the secret has been read, has expired or was deleted, or the link was changed on its way. If you have not read it, tell the sender, and ask for a new one.');
  else if (code === 'no_answer') complain(`${words} If the secret could be read only once, this may have been that time.`);
  else complain(words);
  if (!element('lock', HTMLElement).hidden) passphrase.focus();
}

copies(element('copy', HTMLButtonElement), text, () => secret);
