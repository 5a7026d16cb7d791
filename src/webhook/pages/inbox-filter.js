/** The filter of the list, in its fields and in the address. */
import { element } from '/pages/page.js';
import { choice, STATUSES } from '/pages/inbox-state.js';

const AGES = new Map([
  ['15m', 900],
  ['1h', 3_600],
  ['24h', 86_400],
  ['7d', 604_800],
]);

/** The fields of the filter, by their names in the address. */
export const FIELDS = {
  text: element('by-text', HTMLInputElement),
  event: element('by-event', HTMLInputElement),
  delivery_id: element('by-delivery', HTMLInputElement),
  source: element('by-source', HTMLSelectElement),
  age: element('by-age', HTMLSelectElement),
};

/** What the address holds of the filter. */
export function filterQuery() {
  const query = new URLSearchParams();
  if (choice.status !== '') query.set('status', choice.status);
  for (const [name, { value }] of Object.entries(FIELDS))
    if (value.trim() !== '') query.set(name, value.trim());
  return query;
}

/** @param {URLSearchParams} query of the address */
export function readFilter(query) {
  choice.status = STATUSES.find((one) => one === query.get('status')) ?? '';
  for (const [name, field] of Object.entries(FIELDS)) field.value = query.get(name) ?? '';
  // What selects the events is never hidden.
  const isFiltered = Object.values(FIELDS).some(({ value }) => value !== '');
  if (isFiltered) element('overview', HTMLDetailsElement).open = true;
}

/** The filter as the API takes it. The time is counted from now on. */
export function apiFilter() {
  const { age, ...filter } = Object.fromEntries(filterQuery());
  const seconds = AGES.get(age ?? '');
  const since =
    seconds === undefined ? {} : { since: new Date(Date.now() - seconds * 1_000).toISOString() };
  return { ...filter, ...since };
}

/**
 * The address of an event, which keeps the filter.
 * @param {string} id the empty string for the list
 */
export function addressOf(id) {
  const query = filterQuery();
  if (id !== '') query.set('id', id);
  return `/inbox${query.size > 0 ? `?${query}` : ''}`;
}

export function focusSearch() {
  element('overview', HTMLDetailsElement).open = true;
  FIELDS.text.focus();
}
