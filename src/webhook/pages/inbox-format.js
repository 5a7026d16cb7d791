/**
 * How values are shown: times, durations, statuses, JSON. Everything is put into the page as text.
 */

/**
 * @typedef {{
 *   id: string,
 *   event: string,
 *   source: string,
 *   delivery_id: string | null,
 *   token: string | null,
 *   received_at: string,
 *   status: string,
 *   attempts: number,
 *   total_attempts: number,
 *   last_error: string | null,
 *   next_attempt_at: string | null,
 * }} EventSummary
 */

/** @param {string} time */
export const formatTime = (time) =>
  new Date(time).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

const relative = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto', style: 'short' });
/** @type {ReadonlyArray<readonly [Intl.RelativeTimeFormatUnit, number]>} */
const UNITS = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1],
];

/** @param {string} time */
export function formatAge(time) {
  const seconds = Math.round((Date.parse(time) - Date.now()) / 1000);
  const [unit, length] = UNITS.find(([, one]) => Math.abs(seconds) >= one) ?? ['second', 1];
  return relative.format(Math.trunc(seconds / length), unit);
}

/** @param {number | null} ms */
export function formatDuration(ms) {
  if (ms === null) return '';
  return ms < 1_000 ? `${ms} ms` : `${(ms / 1_000).toFixed(1)} s`;
}

/** @param {number} count @param {string} noun */
export const counted = (count, noun) =>
  `${count.toLocaleString()} ${noun}${count === 1 ? '' : 's'}`;

/**
 * An element with a class and a text, or children.
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {string} [className]
 * @param {...(string | Node)} content
 * @returns {HTMLElementTagNameMap[Name]}
 */
export function create(name, className = '', ...content) {
  const made = document.createElement(name);
  if (className !== '') made.className = className;
  made.append(...content);
  return made;
}

/** The tones of the badges. @type {Readonly<Record<string, string>>} */
const TONES = {
  waiting: 'warn',
  done: 'good',
  dead: 'bad',
  stored: 'info',
  failed: 'bad',
  delivered: 'good',
  'secret waits': 'warn',
};

/** @param {string} status */
export const createBadge = (status) =>
  create('span', `badge ${TONES[status] ?? ''}`.trim(), status);

/** @param {string} time */
export function createTime(time) {
  const made = create('time', '', formatTime(time));
  made.dateTime = time;
  made.title = `${time.slice(0, 19).replace('T', ' ')} UTC`;
  return made;
}

/** A number as the sender wrote it: JavaScript would round a long one. */
class NumberText {
  /** @param {string} source */
  constructor(source) {
    this.source = source;
  }
}

/** What a person can still look through. A longer body is shown as it is. */
const MAX_FORMATTED = 1_000_000;

/**
 * @param {string} text
 * @returns {unknown} the value, or undefined if the text is not JSON or too long
 */
export function parseJson(text) {
  if (text.length > MAX_FORMATTED) return undefined;
  /** @type {(key: string, value: unknown, context?: { source?: string }) => unknown} */
  const keepNumbers = (_key, value, context) =>
    typeof value === 'number' ? new NumberText(context?.source ?? String(value)) : value;
  try {
    return JSON.parse(text, keepNumbers);
  } catch {
    return undefined;
  }
}

/** Levels that are open at first. */
const OPEN_DEPTH = 2;

/**
 * @param {unknown} value
 * @param {number} depth
 * @returns {Node} a foldable view; deeper levels are made when opened
 */
export function createJson(value, depth = 0) {
  if (value instanceof NumberText) return create('span', 'number', value.source);
  if (typeof value === 'string') return create('span', 'string', JSON.stringify(value));
  if (typeof value !== 'object' || value === null) return create('span', 'literal', String(value));
  const [start, end] = Array.isArray(value) ? ['[', ']'] : ['{', '}'];
  const entries = Object.entries(value);
  if (entries.length === 0) return create('span', '', start + end);
  const noun = Array.isArray(value) ? 'item' : 'member';
  const folder = create(
    'details',
    '',
    create('summary', '', `${start} ${counted(entries.length, noun)} ${end}`),
  );
  const fill = () => {
    folder.removeEventListener('toggle', fill);
    folder.append(
      ...entries.map(([name, member]) => {
        const key = Array.isArray(value)
          ? create('span', 'quiet', name)
          : create('span', 'key', JSON.stringify(name));
        return create('div', '', key, ': ', createJson(member, depth + 1));
      }),
    );
  };
  folder.addEventListener('toggle', fill);
  if (depth < OPEN_DEPTH) folder.open = true;
  return folder;
}

/** @param {string} text @returns {string} one word of a POSIX shell */
const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/**
 * A command that sends an event to a program under development, whose address is set in URL. None
 * of the kept headers is a credential.
 * @param {Record<string, string>} headers
 * @param {string} body
 */
export function curlOf(headers, body) {
  const options = Object.entries(headers).map(
    ([name, value]) => `-H ${quote(`${name}: ${value}`)}`,
  );
  return ['curl "${URL:-localhost:3000}"', ...options, `--data-raw ${quote(body)}`].join(' \\\n  ');
}
