/** What is shown above the list: the state of delivery, counts by status, the chart. */
import { element, showPerson } from '/pages/page.js';
import { call, showProblemAt } from '/pages/inbox-api.js';
import { drawChart } from '/pages/inbox-chart.js';
import { counted, create, formatAge, formatTime } from '/pages/inbox-format.js';

/** @import { Bar } from '/pages/inbox-chart.js' */
/**
 * @typedef {{
 *   target: string | null,
 *   own_targets: number,
 *   schedule: string[],
 *   paused_at: string | null,
 *   paused_by: string | null,
 *   failures: number,
 *   failing_since: string | null,
 *   next_probe_at: string | null,
 *   user: string | null,
 * }} Delivery
 * @typedef {{ counts: Record<string, number>, minutes: Bar[], hours: Bar[] }} Counts
 */

const COUNTS_MS = 4_000;
export const STATUSES = ['waiting', 'dead', 'done', 'skipped', 'stored'];
/** The server counts up to this number. */
const MAX_COUNT = 10_000;

const pauseButton = element('pause', HTMLButtonElement);
/** @type {Counts | null} */
let counts = null;
let countedAt = -Infinity;
/** @type {Delivery | null} */
export let delivery = null;
/** The status that the list is filtered by, and what a click on another one does. */
export const choice = { status: '', choose: (/** @type {string} */ _status) => {} };

/** @param {string} id @param {string} text */
export function showText(id, text) {
  const at = element(id, HTMLElement);
  if (at.textContent !== text) at.textContent = text;
}

/** Reads and shows the state of delivery. */
export async function loadDelivery() {
  /** @type {Awaited<ReturnType<typeof call<Delivery>>>} */
  const result = await call('/events/delivery');
  if (result.ok) showDelivery(result.data);
  return result;
}

/** @param {string} by the id of an operator token that has no name, otherwise a name */
function whoPaused(by) {
  if (by === 'command') return 'on the command line';
  if (/^[0-9a-f-]{36}$/.test(by)) return 'by an operator token without a name';
  return `by ${by.replace(/^user:/, '') || 'an operator'}`;
}

/** @param {Delivery} state */
function showDelivery(state) {
  delivery = state;
  const { target, schedule, paused_at, paused_by, failing_since, failures, next_probe_at } = state;
  showPerson(state.user);
  pauseButton.textContent = paused_at === null ? 'Pause delivery' : 'Resume delivery';
  pauseButton.classList.toggle('primary', paused_at !== null);
  const held = [];
  if (paused_at !== null) {
    const since = `since ${formatTime(paused_at)} ${whoPaused(paused_by ?? '')}`;
    held.push(`Delivery has been paused ${since}. Events are stored and wait.`);
  }
  if (next_probe_at !== null && failing_since !== null) {
    const since = `The target has failed since ${formatTime(failing_since)}, ${counted(failures, 'time')} in a row.`;
    held.push(`${since} The next probe is ${formatAge(next_probe_at)}; the other events wait.`);
  }
  showText('held', held.join(' '));
  element('held', HTMLElement).hidden = held.length === 0;
  showText(
    'target',
    target === null
      ? 'No default target: events are stored unless their sender has its own target. To set a default, use WEBHOOK_FORWARD_URL.'
      : `Delivered to: ${target}.`,
  );
  const isDelivering = target !== null || state.own_targets > 0;
  const retries = schedule.length === 0 ? 'not repeated' : `repeated after ${schedule.join(', ')}`;
  const attempts = `At most ${counted(schedule.length + 1, 'attempt')}. Failed attempts are ${retries}.`;
  showText('schedule', isDelivering ? attempts : '');
  for (const id of ['again', 'again-all', 'again-selected', 'pause']) {
    element(id, HTMLButtonElement).disabled = !isDelivering;
  }
}

/** After a change, the next refresh counts again. */
export function forgetCounts() {
  countedAt = -Infinity;
}

/** Reads and shows counts and delivery, at most every few seconds. */
export async function loadCounts() {
  if (performance.now() - countedAt < COUNTS_MS) return;
  countedAt = performance.now();
  /** @type {[Awaited<ReturnType<typeof call<Counts>>>, unknown, unknown]} */
  const [result] = await Promise.all([call('/events/counts'), loadDelivery(), loadRefused()]);
  if (result.ok) counts = result.data;
  showCounts();
}

/**
 * @typedef {{ token_id: string | null, name: string | null, reason: string, count: number,
 *   last_at: string, detail: string, address: string }} Refused
 */
/** What senders were refused: a wrong signature is seen nowhere else. */
async function loadRefused() {
  /** @type {Awaited<ReturnType<typeof call<Refused[]>>>} */
  const result = await call('/events/refused');
  if (!result.ok) return;
  const total = result.data.reduce((sum, { count }) => sum + count, 0);
  element('refused', HTMLElement).hidden = total === 0;
  showText('refused-text', `${counted(total, 'request')} refused in the last 24 hours`);
  const items = result.data.map(({ token_id, name, reason, count, last_at, detail, address }) => {
    const token = token_id === null ? 'an unknown token' : `token ${name || token_id}`;
    const text = `${token}: ${reason.replaceAll('_', ' ')}, ${counted(count, 'time')}, `;
    const last = `the last ${formatAge(last_at)} from ${address}. ${detail}`;
    return create('li', '', text, last);
  });
  element('refused-list', HTMLElement).replaceChildren(...items);
}

export function showCounts() {
  const chips = ['', ...STATUSES].map((name) => {
    const number = counts?.counts[name] ?? 0;
    const text = number > MAX_COUNT ? `${MAX_COUNT.toLocaleString()}+` : number.toLocaleString();
    const shown = counts ? text : '…';
    return [name, name === '' ? '' : shown];
  });
  const group = element('statuses', HTMLElement);
  if (group.children.length === 0) {
    group.append(
      ...chips.map(([name = '']) => {
        const chip = create('button', 'chip', name || 'all', ' ', create('span', 'count'));
        chip.type = 'button';
        chip.id = `status-${name || 'all'}`;
        chip.addEventListener('click', () => choice.choose(name));
        return chip;
      }),
    );
  }
  for (const [at, [name = '', text = '']] of chips.entries()) {
    const chip = group.children[at];
    chip?.setAttribute('aria-pressed', String(name === choice.status));
    const count = chip?.querySelector('.count');
    if (count && count.textContent !== text) count.textContent = text;
  }
  const isDay = element('span-day', HTMLInputElement).checked;
  const bars = counts?.[isDay ? 'hours' : 'minutes'] ?? [];
  const chart = document.querySelector('#chart');
  if (chart)
    drawChart(chart, element('chart-text', HTMLElement), bars, isDay ? 'last day' : 'last hour');
}

for (const id of ['span-hour', 'span-day'])
  element(id, HTMLInputElement).addEventListener('change', showCounts);
pauseButton.addEventListener('click', async () => {
  pauseButton.disabled = true;
  /** @type {Awaited<ReturnType<typeof call<Delivery>>>} */
  const result = await call(`/events/${delivery?.paused_at ? 'resume' : 'pause'}`, {
    method: 'POST',
  });
  pauseButton.disabled = false;
  showProblemAt('pause-problem', result.ok ? '' : result.message);
  if (result.ok) showDelivery(result.data);
});
