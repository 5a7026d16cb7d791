/** One event: its body, headers and attempts, and what can be done with it. */
import { element } from '/pages/page.js';
import { call, confirmAt, poll, showProblemAt } from '/pages/inbox-api.js';
import {
  create,
  createBadge,
  createJson,
  createTime,
  curlOf,
  formatAge,
  formatDuration,
  formatTime,
  parseJson,
} from '/pages/inbox-format.js';
import { delivery, loadDelivery } from '/pages/inbox-state.js';

/** @import { EventSummary } from '/pages/inbox-format.js' */
/**
 * @typedef {{
 *   run: number,
 *   attempt: number,
 *   ended_at: string,
 *   duration_ms: number | null,
 *   error: string | null,
 *   answer_status: number | null,
 *   answer: string | null,
 *   target: string | null,
 * }} Attempt
 * @typedef {{
 *   event: EventSummary,
 *   token_id: string,
 *   ip: string | null,
 *   headers: Record<string, string>,
 *   body: string,
 *   attempts: Attempt[],
 * }} EventDetails
 */

const section = element('one', HTMLElement);
const again = element('again', HTMLButtonElement);
/** With the name of the site. */
export const TITLE = document.title;
/** @type {EventDetails | null} */
let details = null;
let shownId = '';
/** What is shown: the page changes only if this does. */
let shownState = '';

/** @param {string} id @param {ReadonlyArray<readonly [string, string | Node]>} entries */
function showEntries(id, entries) {
  const cells = entries.flatMap(([name, value]) => [
    create('dt', '', name),
    create('dd', '', value),
  ]);
  element(id, HTMLElement).replaceChildren(...cells);
}

/** @param {EventSummary} event */
function describe({ status, attempts, next_attempt_at }) {
  const most = (delivery?.schedule.length ?? 0) + 1;
  const which = `attempt ${Math.min(attempts + 1, most)} of ${most}`;
  if (status !== 'waiting') return '';
  if (delivery?.paused_at) return 'Waiting: delivery is paused.';
  if (next_attempt_at === null) return `Attempt ${attempts} of ${most} is under way.`;
  if (Date.parse(next_attempt_at) <= Date.now()) return `Due now: ${which}.`;
  return `Next: ${which} ${formatAge(next_attempt_at)}, on ${formatTime(next_attempt_at)}.`;
}

/** @param {EventDetails} found */
function showBody({ body, headers }) {
  const value = parseJson(body);
  element('json', HTMLElement).replaceChildren(...(value === undefined ? [] : [createJson(value)]));
  element('raw', HTMLElement).textContent = body;
  const isFormatted = value !== undefined;
  element('form-json', HTMLInputElement).disabled = !isFormatted;
  element(isFormatted ? 'form-json' : 'form-raw', HTMLInputElement).checked = true;
  const note = element('body-note', HTMLElement);
  note.hidden = isFormatted;
  note.textContent = 'The body is too long to be formatted, or is not JSON.';
  showForm();
  const entries = Object.entries(headers);
  showEntries('headers', entries.length > 0 ? entries : [['–', 'none was kept']]);
}

function showForm() {
  const isRaw = element('form-raw', HTMLInputElement).checked;
  element('raw', HTMLElement).hidden = !isRaw;
  element('json', HTMLElement).hidden = isRaw;
}

/** @param {Attempt} attempt */
function createAttempt({ attempt, ended_at, duration_ms, error, answer_status, answer, target }) {
  const startedAt = new Date(Date.parse(ended_at) - (duration_ms ?? 0)).toISOString();
  const outcome = create('td', '', createBadge(error === null ? 'delivered' : 'failed'));
  if (error !== null) outcome.append(create('span', 'later', error));
  const answered = create('td', '', answer_status === null ? '' : `status ${answer_status}`);
  if (answer) {
    const text = create('pre', 'answer', answer);
    text.tabIndex = 0;
    answered.append(create('details', '', create('summary', '', 'Answer'), text));
  }
  return create(
    'tr',
    '',
    create('td', '', `Attempt ${attempt}`),
    create('td', '', createTime(startedAt)),
    create('td', '', formatDuration(duration_ms)),
    outcome,
    answered,
    create('td', '', target ?? ''),
  );
}

/** Each redelivery has a table of its own, the latest first. @param {Attempt[]} attempts */
function showAttempts(attempts) {
  const runs = [...new Set(attempts.map(({ run }) => run))].sort((a, b) => b - a);
  const parts = runs.flatMap((run) => {
    const title = run === 1 ? 'First delivery' : `Redelivery ${run - 1}`;
    const heads = ['Attempt', 'Began', 'Took', 'Outcome', 'Answer', 'Target'].map((name) => {
      const head = create('th', '', name);
      head.scope = 'col';
      return head;
    });
    const body = create(
      'tbody',
      '',
      ...attempts.filter((one) => one.run === run).map(createAttempt),
    );
    const table = create(
      'table',
      'dense stack',
      create('thead', '', create('tr', '', ...heads)),
      body,
    );
    table.setAttribute('aria-label', title);
    return [create('h3', '', title), table];
  });
  const none = create('p', 'quiet', 'No attempt has ended yet.');
  element('attempts', HTMLElement).replaceChildren(...(parts.length > 0 ? parts : [none]));
}

/** @param {EventDetails} found */
function show(found) {
  const { event, token_id, ip, attempts } = found;
  const isNew = details === null;
  details = found;
  element('found', HTMLElement).hidden = false;
  const state = describe(event);
  if (element('one-state', HTMLElement).textContent !== state)
    element('one-state', HTMLElement).textContent = state;
  if (isNew) showBody(found);
  const next = JSON.stringify([event, attempts]);
  if (next === shownState) return;
  shownState = next;
  element('one-heading', HTMLElement).textContent = event.event;
  document.title = `${event.event} – ${TITLE}`;
  element('one-badge', HTMLElement).replaceChildren(createBadge(event.status));
  const sender = create('a', '', event.token || token_id);
  sender.href = `/inbox?sender=${token_id}`;
  showEntries('facts', [
    ['Received', createTime(event.received_at)],
    ['Source', event.source],
    ['Sender', sender],
    ['Delivery ID', event.delivery_id ?? '–'],
    ['Event ID', event.id],
    ['IP address', ip ?? '–'],
    // Including those before a redelivery.
    ['Attempts', String(attempts.length)],
  ]);
  showAttempts(attempts);
}

async function refresh() {
  if (section.hidden || shownId === '') return;
  const id = shownId;
  /** @type {[Awaited<ReturnType<typeof call<EventDetails>>>, unknown]} */
  const [result] = await Promise.all([call(`/events/${id}`), loadDelivery()]);
  if (id !== shownId) return;
  if (result.ok) {
    showProblemAt('one-problem', '');
    show(result.data);
    return;
  }
  const wrong =
    'The address of this event is incomplete or wrong. Open it exactly as you received it.';
  showProblemAt('one-problem', result.code === 'invalid_path' ? wrong : result.message);
}
const refreshNow = poll(refresh);

/** Shows an event, and follows its state. @param {string} id the empty string to stop */
export async function showEvent(id) {
  shownId = id;
  shownState = '';
  details = null;
  element('by-hand', HTMLElement).hidden = true;
  element('found', HTMLElement).hidden = true;
  for (const problem of ['one-problem', 'action-problem']) showProblemAt(problem, '');
  if (id === '') return;
  element('one-heading', HTMLElement).textContent = 'Event';
  element('one-state', HTMLElement).textContent = '';
  element('one-badge', HTMLElement).replaceChildren();
  await refreshNow();
}

again.addEventListener('click', async () => {
  again.disabled = true;
  const result = await call(`/events/${shownId}/redeliver`, { method: 'POST' });
  again.disabled = false;
  showProblemAt('action-problem', result.ok ? '' : result.message);
  if (result.ok) confirmAt(again, 'Will be delivered again');
  await refreshNow();
});

/** @param {HTMLButtonElement} button @param {string} text */
async function copy(button, text) {
  const byHand = element('by-hand', HTMLElement);
  try {
    await navigator.clipboard.writeText(text);
    byHand.hidden = true;
    confirmAt(button, 'Copied');
  } catch {
    // Without HTTPS, or if the browser forbids it.
    byHand.hidden = false;
    const field = element('by-hand-text', HTMLTextAreaElement);
    field.value = text;
    field.focus();
    field.select();
  }
}

/** @param {string} id @param {(found: EventDetails, button: HTMLButtonElement) => void} action */
function onClick(id, action) {
  const button = element(id, HTMLButtonElement);
  button.addEventListener('click', () => details && action(details, button));
}
onClick('copy-link', ({ event }, button) =>
  copy(button, `${location.origin}/inbox?id=${event.id}`),
);
onClick('copy-curl', ({ headers, body }, button) => copy(button, curlOf(headers, body)));
onClick('copy-body', ({ body }, button) => copy(button, body));
onClick('download', ({ event, body }) => {
  const link = create('a');
  // Never as JSON or HTML: a browser must not open it as a page of this site.
  link.href = URL.createObjectURL(new Blob([body], { type: 'application/octet-stream' }));
  link.download = `${event.id}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
});
for (const id of ['form-json', 'form-raw'])
  element(id, HTMLInputElement).addEventListener('change', showForm);
