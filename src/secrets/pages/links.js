/** What the signed-in user shared and asked for, and how to end it. */
import { callApi, element, formatTime, showPerson, showProblem, whileBusy } from '/pages/page.js';
import { stateOf } from '/pages/states.js';

/** @import { Result } from '/pages/page.js' */
/** @import { Receipt } from '/pages/states.js' */
/** @typedef {Receipt & { id: string, title: string | null }} OwnLink */

const rows = element('rows', HTMLTableSectionElement);

async function load() {
  /** @type {Result<OwnLink[]>} */
  const links = await callApi('/api/store/links', {});
  element('about', HTMLElement).hidden = !links.ok;
  const isSignedOut = !links.ok && links.code === 'unauthorized';
  element('signed-out', HTMLElement).hidden = !isSignedOut;
  showProblem(links.ok || isSignedOut ? '' : links.message);
  if (!links.ok) return;
  element('list', HTMLElement).hidden = links.data.length === 0;
  element('empty', HTMLElement).hidden = links.data.length > 0;
  rows.replaceChildren(...links.data.map(rowOf));
}

/** @param {OwnLink} link */
function rowOf(link) {
  const row = document.createElement('tr');
  const { title, created_at, expires_at, last_read_at, reads, max_reads } = link;
  const [name = '', tone = ''] = stateOf(link);
  const isAnswered = title !== null && link.status === 'stored' && reads === 0;
  const badge = document.createElement('span');
  badge.className = `badge ${isAnswered ? 'good' : tone}`;
  badge.textContent = isAnswered ? 'Answered' : name;
  const views = max_reads === null ? String(reads) : `${reads} of ${max_reads}`;
  const opened = last_read_at === null ? '' : `${formatTime(last_read_at)} (${views})`;
  addCell(row, '', title === null ? 'Secret' : `Request: ${title}`);
  row.cells[0]?.classList.add('long');
  addCell(row, '', badge);
  addCell(row, 'Created', formatTime(created_at));
  addCell(row, 'Last opened', opened);
  addCell(row, 'Expires', expires_at === null ? 'never' : formatTime(expires_at));
  const isOpen = link.status === 'stored' || link.status === 'requested';
  addCell(row, '', isOpen ? endControl(link) : '');
  return row;
}

/** @param {HTMLTableRowElement} row @param {string} label @param {string | Node} content */
function addCell(row, label, content) {
  const cell = row.insertCell();
  if (label !== '' && content !== '') cell.dataset.label = label;
  cell.append(content);
}

/** Asks first. @param {OwnLink} link */
function endControl({ id, title }) {
  const copy = document.importNode(element('end', HTMLTemplateElement).content, true);
  const button = copy.querySelector('button');
  button?.addEventListener('click', () => {
    void whileBusy(button, async () => {
      const ended = await callApi(`/api/store/${id}`, { method: 'DELETE' });
      // It may have ended just now: the list shows how.
      if (!ended.ok && ended.code !== 'not_found') return showProblem(ended.message);
      await load();
      const what = title === null ? 'The link' : `The request "${title}"`;
      element('status', HTMLElement).textContent = `${what} has ended.`;
      element('heading', HTMLElement).focus();
    });
  });
  return copy;
}

/** @type {Result<{ caller: { user: string | null } }>} */
const options = await callApi('/api/store/options', {});
if (options.ok) showPerson(options.data.caller.user);
await load();
