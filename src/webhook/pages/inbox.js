import { ask, complain, copies, element, turnTo } from '/pages/page.js';

/** @import { Answer } from '/pages/page.js' */
/**
 * @typedef {{ id: string, event: string, source: string, delivery_id: string | null, received_at: string, status: string, attempts: number, last_error: string | null }} Line
 * @typedef {{ event: Line, ip: string | null, headers: Record<string, string>, body: string, failures: Array<{ attempt: number, failed_at: string, error: string }> }} Details
 */

const PAGE = 20;
/** @param {{ code: string, words: string }} answer in words for whoever sits at the page */
const wordsOf = ({ code, words }) => (code === 'unauthorized' ? 'This is not the token of an operator. Check it and try again.' : words);
/** Held by this field alone. */
const token = element('token', HTMLInputElement);
const events = element('events', HTMLUListElement);
const more = element('more', HTMLButtonElement);
const live = element('live', HTMLInputElement);
const body = element('body', HTMLTextAreaElement);
const status = element('status', HTMLElement);
/** The last one that is listed, and the one that is shown. */
let last = '';
let shown = '';
/** All that are listed, so that what is listed and comes live as well is one line. */
const listed = new Set();
/** What the list was asked for; what comes live is held against it. */
let wanted = { status: '', event: '' };

const when = (/** @type {string} */ time) => new Date(time).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

/** @param {Line} line whether it is among those that the list was asked for and does not show yet */
function isNew({ id, event, status }) {
  const form = wanted.event.split('*').map((part) => part.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')).join('.*');
  return !listed.has(id) && (wanted.status === '' || status === wanted.status) && (wanted.event === '' || new RegExp(`^${form}$`, 's').test(event));
}

/** @param {Line} line */
function item(line) {
  listed.add(line.id);
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'line';
  button.textContent = `${when(line.received_at)} – ${line.event} (${line.source}): ${line.status}${line.last_error === null ? '' : `, ${line.last_error}`}`;
  button.addEventListener('click', () => show(line.id));
  const made = document.createElement('li');
  made.append(button);
  return made;
}

/** @param {string} after the empty text for the newest */
async function list(after) {
  if (after === '') wanted = { status: element('of-status', HTMLSelectElement).value, event: element('of-event', HTMLInputElement).value.trim() };
  const query = new URLSearchParams({ limit: String(PAGE) });
  for (const [name, value] of Object.entries({ ...wanted, after })) if (value) query.set(name, value);
  /** @type {Answer<Line[]>} */
  const answer = await ask(`/events?${query}`, { token: token.value });
  if (!answer.ok) return complain(wordsOf(answer));
  complain('');
  if (after === '') {
    events.replaceChildren();
    listed.clear();
  }
  events.append(...answer.data.filter(({ id }) => !listed.has(id)).map(item));
  last = answer.data.at(-1)?.id ?? last;
  more.hidden = answer.data.length < PAGE;
  status.textContent = events.children.length === 0 ? 'There are no such events.' : `${events.children.length} event${events.children.length === 1 ? ' is' : 's are'} listed.`;
}

/** @param {string} id */
async function show(id) {
  /** @type {Answer<Details>} */
  const answer = await ask(`/events/${id}`, { token: token.value });
  if (!answer.ok) return complain(wordsOf(answer));
  const { event, ip, headers, failures } = answer.data;
  const attempts = failures.map(({ attempt, failed_at, error }) => [`Attempt ${attempt}`, `${when(failed_at)}: ${error}`]);
  const facts = [['Event', event.event], ['Status', event.status], ['Received', when(event.received_at)], ['Source', event.source], ['Id', event.id], ['Delivery id', event.delivery_id ?? '–'], ['From', ip ?? '–'], ['Attempts', String(event.attempts)], ...attempts, ...Object.entries(headers)];
  element('facts', HTMLElement).replaceChildren(
    ...facts.flatMap(([name = '', value = '']) => {
      const [term, description] = [document.createElement('dt'), document.createElement('dd')];
      term.textContent = name;
      description.textContent = value;
      return [term, description];
    }),
  );
  shown = id;
  body.value = answer.data.body;
  if (element('one', HTMLElement).hidden) turnTo('list', 'one');
}

element('list', HTMLFormElement).addEventListener('submit', (event) => {
  event.preventDefault();
  void list('');
});
more.addEventListener('click', () => list(last));
element('back', HTMLButtonElement).addEventListener('click', () => {
  turnTo('one', 'list');
  void list('');
});
element('again', HTMLButtonElement).addEventListener('click', async () => {
  const answer = await ask(`/events/${shown}/redeliver`, { token: token.value, method: 'POST' });
  if (!answer.ok) return complain(wordsOf(answer));
  await show(shown);
  status.textContent = 'It will be delivered again.';
});
copies(element('copy', HTMLButtonElement), body, () => body.value);

/** Server-sent events by hand: the browser's own reader of them can send no token. */
let following = new AbortController();
live.addEventListener('change', async () => {
  following.abort();
  if (!live.checked) return;
  following = new AbortController();
  const { signal } = following;
  try {
    const response = await fetch('/events/stream', { headers: { Authorization: `Bearer ${token.value}` }, signal, cache: 'no-store' });
    if (!response.ok || !response.body) throw new Error('refused');
    status.textContent = 'New events are shown as they come.';
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = '', part = await reader.read(); !part.done; part = await reader.read()) {
      const records = (text + part.value).split('\n\n');
      text = records.pop() ?? '';
      // Only LF ends a line here; to a pattern, U+2028 does so, too.
      for (const data of records.flatMap((record) => record.split('\n').filter((line) => line.startsWith('data: ')))) {
        /** @type {Line} */
        const line = JSON.parse(data.slice('data: '.length));
        if (isNew(line)) events.prepend(item(line));
      }
    }
    throw new Error('ended');
  } catch {
    if (signal.aborted) return;
    live.checked = false;
    complain('New events are no longer shown: the service refused or has ended. Check the token and try again.');
  }
});
