import { askBefore } from '/pages/confirm.js';
import { isSupported, parseKey, splitKeys } from '/pages/envelope.js';
import { showOnly } from '/pages/form.js';
import { offerSecret } from '/pages/opening.js';
import {
  callApi,
  copyOnClick,
  element,
  formatTime,
  repeatWhileShown,
  showProblem,
} from '/pages/page.js';
import { digestOf, linksOf, openAnswerKeys } from '/pages/request-keys.js';

/** @import { Result } from '/pages/page.js' */
/** @import { Described } from '/pages/request-keys.js' */

const REFRESH_MS = 3_000;
const PATH = /^\/request\/([0-9a-f-]{36})\/?$/i;
const id = PATH.exec(location.pathname)?.[1]?.toLowerCase() ?? '';
const keys = splitKeys(location.hash.slice(1));
const body = { key: keys?.serviceKey };
const receipt = `/r/${id}#${keys?.serviceKey}`;
const waiting = element('waiting', HTMLElement);
/** As the service said last. */
let isOpen = false;
/** From then on the page is left as it is: the answer may have been revealed. */
let isOffered = false;
const link = element('link', HTMLTextAreaElement);

/** @param {string} state @returns that it cannot change any more */
function end(state) {
  showOnly(state);
  return false;
}

/** @returns {Promise<boolean>} whether the state can still change */
async function load() {
  if (isOffered) return false;
  // After reading, the address has no keys any more.
  if (location.hash === '' && history.state?.isRevealed) {
    await offerSecret(() => null);
    return false;
  }
  if (!isSupported()) return end('insecure');
  const key = keys?.key ?? '';
  const isWhole = id !== '' && (await parseKey(key)) !== null;
  if (isOffered) return false;
  if (!isWhole) return end('wrong');
  /** @type {Result<Described>} */
  const found = await callApi(`/request/${id}`, { body });
  if (isOffered) return false;
  isOpen = found.ok && found.data.status === 'open';
  if (!found.ok && found.code === 'not_found') return end('wrong');
  showProblem(found.ok ? '' : found.message);
  if (!found.ok) return true;
  if (found.data.status === 'answered') return showAnswer(found.data, key);
  if (found.data.status !== 'open') return end(found.data.status);
  await showWaiting(found.data, key);
  return true;
}

/** @param {Described} request @param {string} key */
async function showWaiting(request, key) {
  element('title', HTMLElement).textContent = request.title;
  element('until', HTMLElement).textContent = formatTime(request.expires_at);
  const digest = await digestOf(request);
  if (isOffered) return;
  link.value = linksOf(location.origin, id, digest, '', key).send;
  waiting.hidden = false;
}

/** @param {Described} request @param {string} key @returns {Promise<boolean>} as of `load` */
async function showAnswer(request, key) {
  /** @type {Result<{ status: string }>} */
  const state = await callApi(`/r/${id}`, { body });
  if (isOffered) return false;
  if (state.ok && state.data.status !== 'stored') {
    location.replace(receipt);
    return false;
  }
  const answer = await openAnswerKeys(id, request, key);
  if (isOffered) return false;
  if (!answer) return end('damaged');
  isOffered = true;
  waiting.hidden = true;
  document.title = 'The answer has come';
  element('receipt', HTMLAnchorElement).href = receipt;
  const secret = { path: `/s/${id}`, ...answer };
  await offerSecret(
    () => secret,
    () => showOnly('damaged'),
  );
  return false;
}

void repeatWhileShown(load, REFRESH_MS);
addEventListener('hashchange', () => location.reload());
copyOnClick(element('copy-link', HTMLButtonElement), link, () => link.value);

askBefore(element('withdraw', HTMLButtonElement), async () => {
  // An answer that has come is shown, and not deleted.
  await load();
  if (!isOpen || isOffered) return;
  const withdrawn = await callApi(`/s/${id}/delete`, { body });
  if (!withdrawn.ok) return showProblem(withdrawn.message);
  await load();
});
