import { callApi, copyOnClick, element, showProblem, switchSection } from '/pages/page.js';
import { matchesPattern } from '/pages/pattern.js';

/** @import { Result } from '/pages/page.js' */
/**
 * @typedef {{
 *   id: string, event: string, source: string, delivery_id: string | null, received_at: string, status: string,
 *   attempts: number, last_error: string | null,
 * }} EventSummary
 * @typedef {{
 *   event: EventSummary, ip: string | null, headers: Record<string, string>, body: string,
 *   attempts: Array<{ attempt: number, ended_at: string, error: string | null }>,
 * }} EventDetails
 */

const PAGE_SIZE = 20;
/** The token is kept only in this field. */
const token = element('token', HTMLInputElement);
const events = element('events', HTMLUListElement);
const more = element('more', HTMLButtonElement);
const live = element('live', HTMLInputElement);
const body = element('body', HTMLTextAreaElement);
const status = element('status', HTMLElement);
/** The id of the oldest listed event. */
let oldestId = '';
/** The id of the event in the detail view. */
let shownId = '';
/** The ids of all listed events: an event that is both listed and streamed appears once. */
const listedIds = new Set();
/** The filter of the list. It also applies to the live view. */
let filter = { status: '', event: '' };

/** @param {string} time */
const formatTime = (time) => new Date(time).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

/** @param {{ code: string, message: string }} failure */
const messageFor = ({ code, message }) =>
  code === 'unauthorized' ? 'This operator token is not valid. Check it and try again.' : message;

/** @param {EventSummary} event */
function matchesFilter({ event, status }) {
  const isNameMatching = filter.event === '' || matchesPattern(filter.event, event);
  return isNameMatching && (filter.status === '' || filter.status === status);
}

/** @param {EventSummary} summary */
function createItem({ id, event, source, received_at, status, last_error }) {
  listedIds.add(id);
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'event';
  const error = last_error === null ? '' : `, ${last_error}`;
  button.textContent = `${formatTime(received_at)} – ${event} (${source}): ${status}${error}`;
  button.addEventListener('click', () => showEvent(id));
  const item = document.createElement('li');
  item.append(button);
  return item;
}

/** @param {string} after the id of the oldest listed event, or the empty string for the newest events */
async function loadEvents(after) {
  if (after === '') {
    filter = {
      status: element('of-status', HTMLSelectElement).value,
      event: element('of-event', HTMLInputElement).value.trim(),
    };
  }
  const query = new URLSearchParams({ limit: String(PAGE_SIZE) });
  for (const [name, value] of Object.entries({ ...filter, after })) if (value) query.set(name, value);
  /** @type {Result<EventSummary[]>} */
  const result = await callApi(`/events?${query}`, { token: token.value });
  if (!result.ok) return showProblem(messageFor(result));
  showProblem('');
  if (after === '') {
    events.replaceChildren();
    listedIds.clear();
  }
  events.append(...result.data.filter(({ id }) => !listedIds.has(id)).map(createItem));
  oldestId = result.data.at(-1)?.id ?? oldestId;
  more.hidden = result.data.length < PAGE_SIZE;
  const count = events.children.length;
  status.textContent = count === 0 ? 'No events match.' : `${count} event${count === 1 ? '' : 's'} listed.`;
}

/** @param {string} id */
async function showEvent(id) {
  /** @type {Result<EventDetails>} */
  const result = await callApi(`/events/${id}`, { token: token.value });
  if (!result.ok) return showProblem(messageFor(result));
  const { event, ip, headers, attempts } = result.data;
  const facts = [
    ['Event', event.event],
    ['Status', event.status],
    ['Received', formatTime(event.received_at)],
    ['Source', event.source],
    ['ID', event.id],
    ['Delivery ID', event.delivery_id ?? '–'],
    ['IP address', ip ?? '–'],
    ['Attempts', String(event.attempts)],
    ...attempts.map(({ attempt, ended_at, error }) =>
      [`Attempt ${attempt}`, `${formatTime(ended_at)}: ${error ?? 'delivered'}`]),
    ...Object.entries(headers),
  ];
  element('facts', HTMLElement).replaceChildren(
    ...facts.flatMap(([name = '', value = '']) => {
      const [term, description] = [document.createElement('dt'), document.createElement('dd')];
      term.textContent = name;
      description.textContent = value;
      return [term, description];
    }),
  );
  shownId = id;
  body.value = result.data.body;
  if (element('one', HTMLElement).hidden) switchSection('list', 'one');
}

element('list', HTMLFormElement).addEventListener('submit', (event) => {
  event.preventDefault();
  void loadEvents('');
});
more.addEventListener('click', () => loadEvents(oldestId));
element('back', HTMLButtonElement).addEventListener('click', () => {
  switchSection('one', 'list');
  void loadEvents('');
});
element('again', HTMLButtonElement).addEventListener('click', async () => {
  const result = await callApi(`/events/${shownId}/redeliver`, { token: token.value, method: 'POST' });
  if (!result.ok) return showProblem(messageFor(result));
  await showEvent(shownId);
  status.textContent = 'The event will be delivered again.';
});
copyOnClick(element('copy', HTMLButtonElement), body, () => body.value);

/** Ends the live view. Its stream is read with `fetch`: the browser's own event stream client cannot send a token. */
let liveView = new AbortController();
live.addEventListener('change', async () => {
  liveView.abort();
  if (!live.checked) return;
  liveView = new AbortController();
  const { signal } = liveView;
  try {
    const headers = { Authorization: `Bearer ${token.value}` };
    const response = await fetch('/events/stream', { headers, signal, cache: 'no-store' });
    if (!response.ok || !response.body) throw new Error('rejected');
    status.textContent = 'New events appear here as they arrive.';
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = '', part = await reader.read(); !part.done; part = await reader.read()) {
      const messages = (text + part.value).split('\n\n');
      text = messages.pop() ?? '';
      // Split at LF only. In a regular expression, U+2028 would also end a line.
      for (const line of messages.flatMap((message) => message.split('\n'))) {
        if (!line.startsWith('data: ')) continue;
        /** @type {EventSummary} */
        const event = JSON.parse(line.slice('data: '.length));
        if (!listedIds.has(event.id) && matchesFilter(event)) events.prepend(createItem(event));
      }
    }
    throw new Error('ended');
  } catch {
    if (signal.aborted) return;
    live.checked = false;
    showProblem('Live updates stopped: the service rejected or closed the connection. Check the token and try again.');
  }
});
