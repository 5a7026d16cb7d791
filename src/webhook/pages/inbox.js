/** The inbox page: sign-in, which view is shown, its address, and the keyboard. */
import { callApi, element, offerSignIn, showPerson } from '/pages/page.js';
import { showProblemAt, signedOut } from '/pages/inbox-api.js';
import { showEvent, TITLE } from '/pages/inbox-event.js';
import { closeBulk } from '/pages/inbox-bulk.js';
import { addressOf, focusSearch, readFilter } from '/pages/inbox-filter.js';
import { onChange, startList } from '/pages/inbox-list.js';
import { loadDelivery } from '/pages/inbox-state.js';
import { showSender, startSender } from '/pages/inbox-sender.js';
import { showSenders, startSenders } from '/pages/inbox-senders.js';

/** @import { Result } from '/pages/page.js' */

const token = element('token', HTMLInputElement);
const VIEWS = ['signin', 'list', 'one', 'senders', 'sender'];
let isSignedIn = false;

/** @param {string} view */
function showView(view) {
  for (const id of VIEWS) element(id, HTMLElement).hidden = id !== view;
  if (view !== 'one') document.title = TITLE;
  for (const id of ['to-list', 'to-senders'])
    element(id, HTMLAnchorElement).hidden = view === 'signin';
  const isEvents = view === 'list' || view === 'one';
  element('to-list', HTMLAnchorElement).ariaCurrent = isEvents ? 'page' : null;
  element('to-senders', HTMLAnchorElement).ariaCurrent = isEvents ? null : 'page';
}

/** @param {URLSearchParams} query */
function viewOf(query) {
  if (query.has('id')) return 'one';
  if (query.has('sender')) return 'sender';
  return query.get('view') === 'senders' ? 'senders' : 'list';
}

/** Shows what the address says. @param {boolean} movesFocus false if the page was just opened */
async function showAddress(movesFocus) {
  const query = new URLSearchParams(location.search);
  const view = viewOf(query);
  if (view === 'list' || view === 'one') readFilter(query);
  for (const id of ['back', 'to-list']) element(id, HTMLAnchorElement).href = addressOf('');
  showView(view);
  if (movesFocus) element(`${view}-heading`, HTMLElement).focus();
  await Promise.all([
    showEvent(query.get('id') ?? ''),
    showSender(view === 'sender' ? (query.get('sender') ?? '') : ''),
    view === 'senders' && showSenders(),
    view === 'list' && startList(),
  ]);
}

/** @param {string} address of the inbox */
function open(address) {
  history.pushState(null, '', address);
  void showAddress(true);
}

startSender(open);
startSenders(open);
onChange.handle = closeBulk;
signedOut.handle = (message) => {
  isSignedIn = false;
  void showEvent('');
  void showSender('');
  showView('signin');
  showProblemAt('token-error', message);
  token.setAttribute('aria-invalid', 'true');
  token.focus();
};

element('signin', HTMLFormElement).addEventListener('submit', async (submit) => {
  submit.preventDefault();
  const button = element('open', HTMLButtonElement);
  button.disabled = true;
  const result = await loadDelivery();
  button.disabled = false;
  // What went wrong with the token is shown already.
  if (!result.ok && result.code === 'unauthorized') return;
  showProblemAt('token-error', result.ok ? '' : result.message);
  if (!result.ok) return;
  token.removeAttribute('aria-invalid');
  isSignedIn = true;
  await showAddress(true);
});
// Links within the inbox do not load the page again: the token would have to be entered again.
document.addEventListener('click', (click) => {
  const link = click.target instanceof Element ? click.target.closest('a') : null;
  const isWithin = link?.origin === location.origin && link.pathname === '/inbox';
  if (!isWithin || !isSignedIn || click.ctrlKey || click.metaKey || click.shiftKey) return;
  click.preventDefault();
  open(link.pathname + link.search);
});
addEventListener('popstate', () => {
  if (isSignedIn) void showAddress(true);
});

/** Opens the inbox without a token for a user who is signed in, or says why not. */
async function openForUser() {
  /** @type {Result<{ user: string | null, problem: string | null, sign_in: string | null }>} */
  const result = await callApi('/inbox/user', {});
  if (!result.ok || isSignedIn || token.value !== '') return;
  const { user, problem, sign_in } = result.data;
  showPerson(user);
  showProblemAt('visitor', problem ?? '');
  offerSignIn(sign_in);
  // One of the two buttons stands out.
  element('open', HTMLButtonElement).classList.toggle('primary', sign_in === null);
  if (user === null || problem !== null || !(await loadDelivery()).ok) return;
  isSignedIn = true;
  await showAddress(true);
}
void openForUser();

/** Keys that work outside of fields. */
addEventListener('keydown', (press) => {
  const { key, target } = press;
  if (!isSignedIn || press.ctrlKey || press.metaKey || press.altKey) return;
  const fields = 'input:not([type="checkbox"], [type="radio"]), textarea, select';
  const isField = target instanceof Element && target.matches(fields);
  if (key === 'Escape' && !element('one', HTMLElement).hidden) return open(addressOf(''));
  if (isField || element('list', HTMLElement).hidden) return;
  if (key === 'j') moveFocus(1);
  else if (key === 'k') moveFocus(-1);
  else if (key === '/') {
    press.preventDefault();
    focusSearch();
  }
});

/** Moves to the next or previous row. @param {1 | -1} step */
function moveFocus(step) {
  const links = [...element('rows', HTMLElement).querySelectorAll('a')];
  const at = links.findIndex((link) => link.closest('tr')?.contains(document.activeElement));
  links[at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + step))]?.focus();
}
