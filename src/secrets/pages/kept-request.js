import { takeLink } from '/pages/address.js';
import { askBefore } from '/pages/confirm.js';
import { isSupported } from '/pages/envelope.js';
import { showOnly } from '/pages/form.js';
import { offerSecret } from '/pages/opening.js';
import {
  callApi,
  copyOnClick,
  element,
  formatTime,
  repeatWhileShown,
  showProblem,
  showTitle,
} from '/pages/page.js';
import { checkKept, keptIn, openAnswerKeys, sendLink } from '/pages/request-keys.js';

/** @import { Result } from '/pages/page.js' */
/** @import { Described, Kept } from '/pages/request-keys.js' */

const REFRESH_MS = 3_000;
const taken = takeLink('request');
const id = taken?.id ?? '';
const waiting = element('waiting', HTMLElement);
/** As the service said last. */
let isOpen = false;
/** From then on the page is left as it is: the answer may have been revealed. */
let isOffered = false;
const link = element('link', HTMLTextAreaElement);
const own = element('own', HTMLTextAreaElement);
const keysOf = () => keptIn(taken?.keys ?? '');

/** @param {string} state @returns that it cannot change any more */
function end(state) {
  showOnly(state);
  return false;
}

/** @returns {Promise<boolean>} whether the state can still change */
async function load() {
  if (isOffered) return false;
  // After reading, the tab has no keys any more.
  if (history.state?.isRevealed) {
    await offerSecret(() => null);
    return false;
  }
  if (!isSupported()) return end('insecure');
  const kept = await keysOf();
  if (isOffered) return false;
  if (!kept) return end('wrong');
  /** @type {Result<Described>} */
  const found = await callApi(`/request/${id}`, { body: { key: kept.receipt } });
  if (isOffered) return false;
  isOpen = found.ok && found.data.status === 'open';
  if (!found.ok && found.code === 'not_found') return end('wrong');
  showProblem(found.ok ? '' : found.message);
  return found.ok ? show(found.data, kept) : true;
}

/**
 * Nothing of the request is shown before the link has confirmed it.
 * @param {Described} request @param {Kept} kept @returns {Promise<boolean>} as of `load`
 */
async function show(request, kept) {
  const privateKey = await checkKept(kept, request);
  if (isOffered) return false;
  if (!privateKey) return end('altered');
  if (request.status === 'answered') return showAnswer(request, kept, privateKey);
  if (request.status !== 'open') return end(request.status === 'expired' ? 'expired' : 'withdrawn');
  element('title', HTMLElement).textContent = request.title;
  element('until', HTMLElement).textContent = formatTime(request.expires_at);
  link.value = sendLink(location.origin, id, kept.digest);
  own.value = `${location.origin}/request/${id}#${taken?.keys}`;
  waiting.hidden = false;
  return true;
}

/**
 * @param {Described} request @param {Kept} kept @param {CryptoKey} privateKey
 * @returns {Promise<boolean>} as of `load`
 */
async function showAnswer(request, kept, privateKey) {
  const receipt = `/r/${id}#${kept.receipt}`;
  /** @type {Result<{ status: string }>} */
  const state = await callApi(`/r/${id}`, { body: { key: kept.receipt } });
  if (isOffered) return false;
  if (state.ok && state.data.status !== 'stored') {
    location.replace(receipt);
    return false;
  }
  const answer = await openAnswerKeys(id, privateKey, request);
  if (isOffered) return false;
  if (!answer) return end('damaged');
  isOffered = true;
  waiting.hidden = true;
  showTitle('The answer has come');
  element('receipt', HTMLAnchorElement).href = receipt;
  const secret = { path: `/s/${id}`, ...answer };
  await offerSecret(
    () => secret,
    () => showOnly('damaged'),
  );
  return false;
}

void repeatWhileShown(load, REFRESH_MS);
addEventListener('popstate', () => location.reload());
copyOnClick(element('copy-link', HTMLButtonElement), link, () => link.value);
copyOnClick(element('copy-own', HTMLButtonElement), own, () => own.value);

askBefore(element('withdraw', HTMLButtonElement), async () => {
  // An answer that has come is shown, and not deleted.
  await load();
  if (!isOpen || isOffered) return;
  const key = (await keysOf())?.receipt;
  const withdrawn = await callApi(`/s/${id}/delete`, { body: { key } });
  if (!withdrawn.ok) return showProblem(withdrawn.message);
  await load();
});
