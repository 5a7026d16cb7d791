/** The list of events: live rows, and what changes with the filter. */
import { element } from '/pages/page.js';
import { call, poll, showProblemAt } from '/pages/inbox-api.js';
import {
  counted,
  create,
  createBadge,
  createTime,
  formatAge,
  formatTime,
} from '/pages/inbox-format.js';
import { addressOf, apiFilter, FIELDS, filterQuery, readFilter } from '/pages/inbox-filter.js';
import { choice, loadCounts, showCounts, showText } from '/pages/inbox-state.js';

/** @import { EventSummary } from '/pages/inbox-format.js' */
const PAGE = 50;
const MAX_ROWS = 500;
const MAX_LIMIT = 100;
/**
 * One refresh lists all events since the last one, up to so many: each is seen, and the page does
 * not grow.
 */
const MAX_LIVE = 400;
/** How many parts of the history one refresh searches, at most. */
const MAX_REQUESTS = 5;
const section = element('list', HTMLElement);
const rows = element('rows', HTMLTableSectionElement);
const more = element('more', HTMLButtonElement);
const newer = element('newer', HTMLButtonElement);

let wanted = PAGE;
let depth = MAX_REQUESTS;
/** Raised by each change of the filter: a reply to an earlier one is dropped. */
let generation = 0;
/** The generation that the rows show. */
let shownGeneration = 0;
/** @type {Map<string, { row: HTMLTableRowElement, state: string, event: EventSummary }>} */
let shown = new Map();
/** The ids of the selected events. @type {Set<string>} */
export const selected = new Set();

/** @param {EventSummary} summary */
function createRow(summary) {
  const {
    id,
    event,
    source,
    delivery_id,
    token,
    received_at,
    status,
    total_attempts,
    last_error,
    next_attempt_at,
  } = summary;
  const box = create('input');
  box.type = 'checkbox';
  box.checked = selected.has(id);
  box.setAttribute('aria-label', `Select ${event}`);
  box.addEventListener('change', () => {
    if (box.checked) selected.add(id);
    else selected.delete(id);
    showSelection();
  });
  const link = create('a', '', event);
  link.href = addressOf(id);
  const age = create('span', 'later', formatAge(received_at));
  age.dataset.since = received_at;
  const badge = create('td', '', createBadge(status));
  if (last_error !== null) badge.append(create('span', 'later', last_error));
  const tries = create('td', '', counted(total_attempts, 'attempt'));
  if (next_attempt_at !== null) {
    const isDue = Date.parse(next_attempt_at) <= Date.now();
    const next = create('span', 'later', isDue ? 'due now' : `next ${formatAge(next_attempt_at)}`);
    next.title = formatTime(next_attempt_at);
    tries.append(next);
  }
  if (status === 'dead') tries.append(createRedeliver(summary));
  const cells = [
    create('td', '', create('label', 'pick', box)),
    create('td', '', createTime(received_at), age),
    create('td', '', link),
    badge,
    tries,
    create('td', '', source),
    create('td', 'mono', delivery_id ?? ''),
    create('td', '', token ?? ''),
  ];
  const row = create('tr', '', ...cells);
  row.dataset.id = id;
  return row;
}

/** A button of a failed event, and what went wrong with it. @param {EventSummary} summary */
function createRedeliver({ id, event }) {
  const button = create('button', 'small', 'Redeliver');
  button.type = 'button';
  button.setAttribute('aria-label', `Redeliver ${event}`);
  const problem = create('span', 'error');
  problem.setAttribute('role', 'alert');
  button.addEventListener('click', async () => {
    button.disabled = true;
    const result = await call(`/events/${id}/redeliver`, { method: 'POST' });
    button.disabled = false;
    problem.textContent = result.ok ? '' : result.message;
    if (result.ok) await refreshNow();
  });
  return create('span', 'later', button, problem);
}

/**
 * Changes rows in place, so that the focus and the selection stay.
 * @param {EventSummary[]} events newest first
 */
function showRows(events) {
  const next = new Map();
  /** @type {Element | null} */
  let place = rows.firstElementChild;
  for (const event of events) {
    const state = JSON.stringify([
      event,
      event.next_attempt_at && formatAge(event.next_attempt_at),
    ]);
    const old = shown.get(event.id);
    const row = old?.state === state ? old.row : createRow(event);
    if (old && old.row !== row) {
      const isFocused = old.row.contains(document.activeElement);
      if (place === old.row) place = row;
      old.row.replaceWith(row);
      if (isFocused) row.querySelector('a')?.focus();
    }
    if (row === place) place = row.nextElementSibling;
    else rows.insertBefore(row, place);
    next.set(event.id, { row, state, event });
  }
  for (const [id, { row }] of shown) if (!next.has(id)) row.remove();
  shown = next;
  for (const age of rows.querySelectorAll('[data-since]')) {
    if (age instanceof HTMLElement) age.textContent = formatAge(age.dataset.since ?? '');
  }
}

/** Whether the reader looks at rows further down: new ones would move them. */
const isScrolled = () => shown.size > 0 && rows.getBoundingClientRect().top < -200;

async function loadRows() {
  const mine = generation;
  const filter = new URLSearchParams(apiFilter());
  const top = shownGeneration === mine ? shown.values().next().value?.event : undefined;
  const isHeld = top !== undefined && isScrolled();
  // The address has milliseconds, the database microseconds.
  if (isHeld) filter.set('until', new Date(Date.parse(top.received_at) + 1).toISOString());
  /** @type {EventSummary[]} */
  const events = [];
  let next = '';
  const isBehind = () =>
    top !== undefined && events.length < MAX_LIVE && !events.some(({ id }) => id === top.id);
  for (
    let requests = 0;
    requests < depth && (events.length < wanted || isBehind());
    requests += 1
  ) {
    const query = new URLSearchParams(filter);
    query.set(
      'limit',
      String(events.length < wanted ? Math.min(MAX_LIMIT, wanted - events.length) : MAX_LIMIT),
    );
    if (next !== '') query.set('after', next);
    /** @type {Awaited<ReturnType<typeof call<EventSummary[]>>>} */
    const result = await call(`/events?${query}`);
    if (mine !== generation) return;
    if (!result.ok) {
      const hint = filter.has('text')
        ? ' If the search takes too long, choose a shorter time.'
        : '';
      return showProblemAt(
        'list-problem',
        result.message + (result.code === 'unavailable' ? hint : ''),
      );
    }
    events.push(...result.data);
    next =
      new URLSearchParams(/\?([^>]*)>/.exec(result.headers.get('Link') ?? '')?.[1]).get('after') ??
      '';
    if (next === '') break;
  }
  showProblemAt('list-problem', '');
  showRows(events);
  shownGeneration = mine;
  if (!isHeld) newer.hidden = true;
  const isFull = events.length >= wanted;
  more.hidden = next === '' || (isFull && wanted >= MAX_ROWS);
  more.textContent = isFull ? 'Load older events' : 'Search older events';
  const text = `${counted(events.length, 'event')} listed${next === '' ? '' : '; there may be older ones'}.`;
  showText('status', text);
  element('again-all', HTMLButtonElement).hidden = events.length === 0 && next === '';
  const empty = element('empty', HTMLElement);
  empty.hidden = events.length > 0;
  element('events', HTMLTableElement).hidden = !empty.hidden;
  if (!empty.hidden) empty.replaceChildren(...emptyText(next !== ''));
  if (isHeld) await lookForNewer(top.id, mine);
}

/** @param {boolean} hasMore */
function emptyText(hasMore) {
  const advice = "Send one to /webhook with a sender's token. It appears here as it arrives.";
  if (filterQuery().size === 0) return [create('strong', '', 'No events yet'), advice];
  const where = hasMore
    ? 'No match among the newest events so far.'
    : 'Change or clear the filters.';
  return [create('strong', '', 'No events match'), where];
}

/** @param {string} topId @param {number} mine */
async function lookForNewer(topId, mine) {
  const query = new URLSearchParams({ ...apiFilter(), limit: '1' });
  /** @type {Awaited<ReturnType<typeof call<EventSummary[]>>>} */
  const result = await call(`/events?${query}`);
  if (mine === generation && result.ok) newer.hidden = (result.data[0]?.id ?? topId) === topId;
}

async function refresh() {
  if (section.hidden) return;
  await Promise.all([loadRows(), loadCounts()]);
}
export const refreshNow = poll(refresh);

/** Called when the filter has changed. */
export const onChange = { handle: () => {} };

/** The filter has changed: the address, the chips and the rows follow. */
function changed() {
  generation += 1;
  wanted = PAGE;
  depth = MAX_REQUESTS;
  unselect();
  onChange.handle();
  history.replaceState(null, '', addressOf(''));
  element('clear', HTMLButtonElement).hidden = filterQuery().size === 0;
  showCounts();
  void refreshNow();
}

/** How long a person pauses between two letters. */
const TYPING_MS = 250;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let typing;
choice.choose = (status) => {
  choice.status = status;
  changed();
};
for (const field of Object.values(FIELDS)) {
  field.addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(changed, field instanceof HTMLSelectElement ? 0 : TYPING_MS);
  });
}
element('clear', HTMLButtonElement).addEventListener('click', () => {
  readFilter(new URLSearchParams());
  changed();
  FIELDS.text.focus();
});
more.addEventListener('click', () => {
  if (shown.size >= wanted) wanted = Math.min(MAX_ROWS, wanted + PAGE);
  depth += MAX_REQUESTS;
  void refreshNow();
});
newer.addEventListener('click', () => {
  section.scrollIntoView();
  shown = new Map();
  rows.replaceChildren();
  void refreshNow();
});
export function unselect() {
  selected.clear();
  for (const box of rows.querySelectorAll('input')) box.checked = false;
  showSelection();
}

function showSelection() {
  const button = element('again-selected', HTMLButtonElement);
  button.hidden = selected.size === 0;
  button.textContent = `Redeliver ${selected.size} selected`;
}

/** Shows the list. */
export async function startList() {
  element('clear', HTMLButtonElement).hidden = filterQuery().size === 0;
  showCounts();
  generation += 1;
  await refreshNow();
}
