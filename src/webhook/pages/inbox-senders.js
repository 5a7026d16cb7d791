/** The senders: their list, and the form for a new one. */
import { element, whileBusy } from '/pages/page.js';
import { call, showProblemAt, showProblems } from '/pages/inbox-api.js';
import { create, createBadge, createTime } from '/pages/inbox-format.js';
import { showMade } from '/pages/inbox-sender.js';

/** @import { Sender } from '/pages/inbox-sender.js' */

const section = element('senders', HTMLElement);
const form = element('create-form', HTMLFormElement);
const opener = element('create-open', HTMLButtonElement);
const field = {
  name: element('create-name', HTMLInputElement),
  source: element('create-source', HTMLSelectElement),
  secret: element('create-secret', HTMLInputElement),
};
const FIELDS = { name: field.name, source: field.source, signing_secret: field.secret };
const LABELS = ['Name', 'Source', 'Target', 'Last request', 'Last check', 'Refused in 24 h'];

/** @param {string | null} time @param {string | null} text @returns {Array<string | Node>} */
const timed = (time, text) =>
  time === null ? ['never'] : [createTime(time), create('span', 'later', text ?? '')];

/** @param {Sender} sender */
function rowOf(sender) {
  const link = create('a', '', sender.name || sender.id);
  link.href = `/inbox?sender=${sender.id}`;
  const target = [sender.url ?? sender.target ?? 'that of the service'];
  const refused = [
    String(sender.refused),
    create('span', 'later', sender.last_refusal_detail ?? ''),
  ];
  const contents = [
    [link, ...(sender.pending ? [' ', createBadge('secret waits')] : [])],
    [sender.source],
    sender.next_probe_at === null ? target : [...target, ' ', createBadge('failed')],
    timed(sender.last_used_at, null),
    timed(sender.last_handshake_at, sender.last_handshake),
    refused,
  ];
  const cells = contents.map((content, at) => {
    const cell = create('td', '', ...content);
    cell.dataset.label = LABELS[at] ?? '';
    return cell;
  });
  return create('tr', '', ...cells);
}

/** Reads and shows the senders. */
export async function showSenders() {
  /** @type {Awaited<ReturnType<typeof call<Sender[]>>>} */
  const result = await call('/tokens');
  showProblemAt('senders-problem', result.ok ? '' : result.message);
  if (!result.ok || section.hidden) return;
  element('sender-rows', HTMLElement).replaceChildren(...result.data.map(rowOf));
  element('sender-table', HTMLTableElement).hidden = result.data.length === 0;
  element('no-senders', HTMLElement).hidden = result.data.length > 0;
}

/** @param {boolean} isOpen */
function openForm(isOpen) {
  form.hidden = !isOpen;
  opener.ariaExpanded = String(isOpen);
  (isOpen ? field.name : opener).focus();
}

function showSource() {
  const { value, selectedOptions } = field.source;
  const isCustom = value === 'custom';
  element('create-custom', HTMLElement).hidden = !isCustom;
  element('create', HTMLButtonElement).hidden = isCustom;
  element('create-signed', HTMLElement).hidden = selectedOptions[0]?.dataset.secret !== 'needed';
}

/** @param {(address: string) => void} open */
export function startSenders(open) {
  element('create-address', HTMLElement).textContent = `${location.origin}/webhook`;
  showSource();
  field.source.addEventListener('change', showSource);
  opener.addEventListener('click', () => openForm(form.hidden !== false));
  element('create-close', HTMLButtonElement).addEventListener('click', () => {
    form.reset();
    showSource();
    openForm(false);
  });
  form.addEventListener('submit', (submit) => {
    submit.preventDefault();
    const isSigned = !element('create-signed', HTMLElement).hidden;
    const secret =
      isSigned && field.secret.value !== '' ? { signing_secret: field.secret.value } : {};
    const body = { name: field.name.value.trim(), source: field.source.value, ...secret };
    void whileBusy(element('create', HTMLButtonElement), async () => {
      /** @type {Awaited<ReturnType<typeof call<{ id: string, token: string }>>>} */
      const result = await call('/tokens', { body });
      showProblems(result, FIELDS, 'create-problem');
      if (!result.ok) return;
      form.reset();
      showSource();
      openForm(false);
      open(`/inbox?sender=${result.data.id}`);
      showMade(result.data.token);
    });
  });
}
