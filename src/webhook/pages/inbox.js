/** The inbox page: sign-in, which view is shown, its address, and the keyboard. */
import { element } from '/pages/page.js';
import { showProblemAt, signedOut } from '/pages/inbox-api.js';
import { showEvent } from '/pages/inbox-event.js';
import { closeBulk } from '/pages/inbox-bulk.js';
import { addressOf, focusSearch, readFilter } from '/pages/inbox-filter.js';
import { onChange, startList } from '/pages/inbox-list.js';
import { loadDelivery } from '/pages/inbox-state.js';
import { startTargets } from '/pages/inbox-targets.js';

const token = element('token', HTMLInputElement);
const VIEWS = ['signin', 'list', 'one'];
let isSignedIn = false;

/** @param {'signin' | 'list' | 'one'} view */
function showView(view) {
  for (const id of VIEWS) element(id, HTMLElement).hidden = id !== view;
  if (view !== 'one') document.title = 'Webhook inbox';
}

/** Shows what the address says. @param {boolean} movesFocus false if the page was just opened */
async function showAddress(movesFocus) {
  const query = new URLSearchParams(location.search);
  const id = query.get('id') ?? '';
  readFilter(query);
  element('back', HTMLAnchorElement).href = addressOf('');
  showView(id === '' ? 'list' : 'one');
  if (movesFocus) element(id === '' ? 'list-heading' : 'one-heading', HTMLElement).focus();
  await showEvent(id);
  if (id === '') await startList(openEvent);
}

/** @param {string} id the empty string for the list */
function openEvent(id) {
  history.pushState(null, '', addressOf(id));
  void showAddress(true);
}

startTargets();
onChange.handle = closeBulk;
signedOut.handle = () => {
  const message = isSignedIn
    ? 'This operator token is no longer valid. Enter another one.'
    : 'This operator token is not valid. Check it and try again.';
  isSignedIn = false;
  void showEvent('');
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
element('back', HTMLAnchorElement).addEventListener('click', (click) => {
  click.preventDefault();
  openEvent('');
});
addEventListener('popstate', () => {
  if (isSignedIn) void showAddress(true);
});

/** Opens the inbox without a token for a user whom a proxy names. */
async function openForUser() {
  const result = await loadDelivery();
  if (!result.ok || isSignedIn || token.value !== '') return;
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
  if (key === 'Escape' && !element('one', HTMLElement).hidden) return openEvent('');
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
