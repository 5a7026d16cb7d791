import { takeLink } from '/pages/address.js';
import { askBefore } from '/pages/confirm.js';
import {
  callApi,
  copyOnClick,
  element,
  formatTime,
  repeatWhileShown,
  showProblem,
  showTitle,
} from '/pages/page.js';
import { stateOf } from '/pages/states.js';

/** @import { Result } from '/pages/page.js' */
/** @import { Receipt } from '/pages/states.js' */

const REFRESH_MS = 15_000;
const link = takeLink('r');
const about = element('about', HTMLElement);
const address = element('address', HTMLTextAreaElement);

/** @returns {Promise<boolean>} whether the state can still change */
async function load() {
  /** @type {Result<Receipt> | null} */
  const receipt = link && (await callApi(`/r/${link.id}`, { body: { key: link.keys } }));
  if (!receipt || (!receipt.ok && receipt.code === 'not_found')) {
    showTitle('No such receipt');
    element('receipt-heading', HTMLElement).textContent = 'No such receipt';
    about.textContent =
      'This address is incomplete or wrong, or the receipt is no longer kept. The address bar does not keep the part after the #: open the link that you kept.';
    for (const part of ['facts', 'own', 'burn']) element(part, HTMLElement).hidden = true;
    return false;
  }
  showProblem(receipt.ok ? '' : receipt.message);
  if (!receipt.ok) return true;
  show(receipt.data);
  return ['stored', 'requested'].includes(receipt.data.status);
}

/** @param {Receipt} receipt */
function show({ status, created_at, expires_at, reads, max_reads, last_read_at, failed_reads }) {
  const [name = '', tone = '', words = ''] = stateOf({ status, reads });
  const state = element('state', HTMLElement);
  state.className = `badge ${tone}`;
  showTitle(name);
  state.textContent = name;
  about.textContent = words;
  const facts = {
    created: formatTime(created_at),
    views: max_reads === null ? String(reads) : `${reads} of ${max_reads}`,
    opened: last_read_at === null ? 'never' : formatTime(last_read_at),
    expires: expires_at === null ? 'never' : formatTime(expires_at),
    failed:
      failed_reads === 0 ? 'none' : `${failed_reads}: a wrong key or passphrase, or after the end`,
  };
  for (const [field, value] of Object.entries(facts))
    element(field, HTMLElement).textContent = value;
  for (const part of ['facts', 'own']) element(part, HTMLElement).hidden = false;
  element('burn', HTMLElement).hidden = status !== 'stored';
}

if (link) address.value = `${location.origin}/r/${link.id}#${link.keys}`;
void repeatWhileShown(load, REFRESH_MS);
addEventListener('popstate', () => location.reload());
copyOnClick(element('copy', HTMLButtonElement), address, () => address.value);

const ask = askBefore(element('delete', HTMLButtonElement), async () => {
  if (!link) return;
  const deleted = await callApi(`/s/${link.id}/delete`, { body: { key: link.keys } });
  // It may have been opened or have expired just now: the receipt shows it.
  if (!deleted.ok && deleted.code !== 'not_found') return showProblem(deleted.message);
  ask(false);
  await load();
  element('receipt-heading', HTMLElement).focus();
});
